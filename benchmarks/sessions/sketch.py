"""The sketch of dask/distributed #681, as a scheduler plugin: what took long is kept.

A client that does not exist asks for each result whose task ran longer than a limit; the oldest
go when there are too many bytes. Nobody looks whether a result may be used again, graphs are sent
and optimised as ever, and files that changed are not noticed.
"""

from __future__ import annotations

from typing import Any

from distributed import SchedulerPlugin

CLIENT = "sketch-of-a-cache"


class Sketch(SchedulerPlugin):
    """Keeps what took long."""

    name = "sketch"

    def __init__(self, scheduler: Any, least: float, limit: float) -> None:
        self.scheduler = scheduler
        #: seconds
        self.least = least
        #: bytes
        self.limit = limit
        #: bytes of what is kept, the oldest first
        self.kept: dict[Any, int] = {}
        self.total = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "forgotten" or start == "memory":
            self.total -= self.kept.pop(key, 0)
        if start != "processing" or finish != "memory" or key in self.kept:
            return
        spans = kwargs.get("startstops") or ()
        ran = sum(s["stop"] - s["start"] for s in spans if s["action"] == "compute")
        if ran >= self.least:
            self.kept[key] = nbytes = kwargs.get("nbytes") or 0
            self.total += nbytes
            self.scheduler.client_desires_keys(keys=[key], client=CLIENT)
            if self.total > self.limit:
                # Not within a transition.
                self.scheduler.loop.add_callback(self.clean)

    def clean(self) -> None:
        """Let go of the oldest."""
        late = []
        while self.total > self.limit:
            key = next(iter(self.kept))
            self.total -= self.kept.pop(key)
            late.append(key)
        if late:
            self.scheduler.client_releases_keys(keys=late, client=CLIENT)
