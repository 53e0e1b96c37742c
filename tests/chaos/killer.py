"""Kills at deterministic points: the nth of some events on the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from distributed import SchedulerPlugin


class Killer(SchedulerPlugin):
    """Kills a worker at the nth of some events, and knows which keys had any."""

    name = "killer"

    def __init__(self, kill: Callable[[str], Any]) -> None:
        self.kill = kill
        self.count, self.finish, self.victim = 0, "", ""
        #: keys that were in another state than at first, since they were made
        self.moved: set[Any] = set()

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def arm(self, count: int, finish: str, victim: str) -> None:
        """Kill at the nth task that gets into a state.

        The victim is the worker that it is on, or one that holds what it is computed from.
        """
        self.count, self.finish, self.victim = count, finish, victim

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        (self.moved.discard if finish == "forgotten" else self.moved.add)(key)
        if self.count and finish == self.finish and start != finish:
            self.count -= 1
            if not self.count:
                for address in self._victims(self.scheduler.tasks[key]):
                    self.kill(address)
                    return

    def _victims(self, ts: Any) -> Iterator[str]:
        if self.victim == "source":
            for source in sorted(ts.dependencies, key=lambda d: str(d.key)):
                yield from (ws.address for ws in source.who_has or ())
        yield from (ws.address for ws in ts.who_has or ())
        if ts.processing_on is not None:
            yield ts.processing_on.address
