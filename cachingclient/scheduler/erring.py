"""Errors that nobody holds any more: what is kept must not keep them.

The scheduler forgets a task that has failed when the last future of it goes, and runs it
when it is asked for again. A kept result that is made of it too would keep it from being
forgotten, and the error would be the answer for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask.typing import Key

from cachingclient.scheduler.holding import stimulus

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

#: A client lets go of futures.
OPERATION = "client-releases-keys"


class Erred:
    """Tasks that have failed.

    Parameters
    ----------
    scheduler : Scheduler
    failed : callable
        Told of an exception in deferred work.
    """

    def __init__(self, scheduler: Scheduler, failed: Callable[[Exception], Any]) -> None:
        self.scheduler = scheduler
        self._failed = failed
        self._keys: set[Key] = set()
        self._handle: asyncio.Handle | None = None
        self._handlers: dict[str, Any] = scheduler.stream_handlers
        self._inner = self._handlers[OPERATION]
        # Bound once: a method is another object each time that it is looked up.
        self._ours = self._released
        self._handlers[OPERATION] = self._ours

    def _released(self, **kwargs: Any) -> None:
        # Where something is made of what failed no transition tells.
        self._inner(**kwargs)
        if self._keys:
            self._work()

    def transition(self, key: Key, start: str, finish: str) -> None:
        """Notice what fails, and what is forgotten of it."""
        if finish == "erred":
            self._keys.add(key)
        elif start == "erred":
            self._keys.discard(key)
            if finish == "forgotten" and self._keys and self._handle is None:
                self._handle = asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._handle = None
        try:
            self.let_go()
        except Exception as e:
            self._failed(e)

    def let_go(self) -> None:
        """Make what failed as if it had never run, where nobody holds the error: now."""
        while self._keys:
            tasks = self.scheduler.tasks
            left = [tasks[k] for k in self._keys if k in tasks and _nobody_holds(tasks[k])]
            if not left:
                return
            for ts in left:
                ts.suspicious = 0
            recommendations: dict[Key, Any] = {
                ts.key: "released" if ts.dependents else "forgotten" for ts in left
            }
            self.scheduler.transitions(recommendations, stimulus())
            self._keys.difference_update(recommendations)

    def close(self) -> None:
        """Do nothing more, and put the scheduler's own handler back."""
        if self._handlers.get(OPERATION) is self._ours:
            self._handlers[OPERATION] = self._inner
        self._keys.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _nobody_holds(ts: TaskState) -> bool:
    """Whether neither a client wants a failed task, nor another failed because of it."""
    return (
        ts.state == "erred"
        and not ts.who_wants
        and not any(dependent.state == "erred" for dependent in ts.dependents)
    )
