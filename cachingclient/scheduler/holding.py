"""Pinning keys for the cache, and letting them go between two stimuli."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dask.typing import Key

from cachingclient import internals

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

#: The client that wants what is kept.
PSEUDO_CLIENT = "cachingclient"


def stimulus() -> str:
    """Id of a change that the cache makes."""
    return f"cachingclient-{time.time()}"


class Holder:
    """Wants keys on behalf of the cache.

    Parameters
    ----------
    scheduler : Scheduler
    failed : callable
        Told of an exception in deferred work.
    """

    def __init__(self, scheduler: Scheduler, failed: Callable[[Exception], None]) -> None:
        self.scheduler = scheduler
        self.client = internals.pseudo_client(scheduler, PSEUDO_CLIENT)
        self._failed = failed
        self._leaving: set[Key] = set()
        self._handle: asyncio.Handle | None = None

    def keep(self, ts: TaskState) -> None:
        """Pin a key that has just come into memory."""
        internals.want(self.client, ts)

    def let_go_silently(self, ts: TaskState) -> None:
        """Unpin a key whose next transition is under way."""
        internals.unwant(self.client, ts)
        self._leaving.discard(ts.key)

    def only_ours(self, ts: TaskState) -> bool:
        """Whether a key is in memory for the cache's sake alone."""
        return ts.state == "memory" and internals.only_wanted_by(self.client, ts)

    def nobody_else_wants(self, ts: TaskState) -> bool:
        """Whether no client holds a key; something may wait for it."""
        return ts.who_wants == {self.client}

    def let_go_soon(self, keys: Iterable[Key]) -> None:
        """Unpin keys as soon as no transition is under way."""
        self._leaving.update(keys)
        if self._leaving and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._stop()
        keys, self._leaving = self._leaving, set()
        try:
            self.let_go(keys)
        except Exception as e:
            self._failed(e)

    def let_go(self, keys: Iterable[Key]) -> None:
        """Unpin keys now: not inside a transition."""
        keys = [k for k in keys if k in self.scheduler.tasks]
        if keys and self.scheduler.clients.get(PSEUDO_CLIENT) is self.client:
            with internals.still_idle(self.scheduler):
                self.scheduler.client_releases_keys(keys, PSEUDO_CLIENT, stimulus_id=stimulus())

    def finish(self) -> None:
        """Unpin now what was to be unpinned soon."""
        if self._leaving:
            self._work()

    def _stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Unpin everything and remove the pseudo-client."""
        self._leaving.clear()
        self._stop()
        self.let_go([ts.key for ts in self.client.wants_what])
        if self.scheduler.clients.get(PSEUDO_CLIENT) is self.client:
            del self.scheduler.clients[PSEUDO_CLIENT]
