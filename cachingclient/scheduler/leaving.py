"""Leaving: nothing of a cache stays behind, whoever takes it down and whatever fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Seconds after which it is noticed that somebody else has taken the plugin away.
VIGIL = 1.0


class Undo:
    """What has to be undone, the last first.

    Examples
    --------
    >>> undo = Undo()
    >>> undo.add(lambda: print("handlers go"))
    >>> undo.add(lambda: print("dashboard goes"))
    >>> undo.run()
    dashboard goes
    handlers go
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], Any]] = []

    def add(self, step: Callable[[], Any]) -> None:
        """Note how to undo what has just been done."""
        self._steps.append(step)

    def run(self) -> None:
        """Undo everything, once; a step that fails does not keep the others from being done."""
        steps, self._steps = self._steps, []
        for step in reversed(steps):
            try:
                step()
            except Exception:
                logger.exception("A part of the cache could not be taken down")


class Vigil:
    """Looks from time to time whether the scheduler still has the plugin: no hook tells.

    Changes nothing on the scheduler while it looks, so that an idle one stays idle.

    Parameters
    ----------
    is_there : callable
    gone : callable
        Called once, when it is there no more.
    interval : float
        Seconds.
    """

    def __init__(
        self,
        is_there: Callable[[], bool],
        gone: Callable[[], Any],
        interval: float = VIGIL,
    ) -> None:
        self._is_there = is_there
        self._gone = gone
        self._interval = interval
        self._wait()

    def _wait(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _look(self) -> None:
        if self._is_there():
            self._wait()
        else:
            self._gone()

    def stop(self) -> None:
        """Look no more."""
        self._handle.cancel()
