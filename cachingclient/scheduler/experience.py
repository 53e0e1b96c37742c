"""What the scheduler has learnt of layers, for who decides which of them get a barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachingclient.graph.choosing import Estimate
    from cachingclient.scheduler.plugin import CachePlugin


class Learnt:
    """Answers from the plugin's parts; other threads may ask.

    Parameters
    ----------
    plugin : CachePlugin
    """

    def __init__(self, plugin: CachePlugin) -> None:
        self.plugin = plugin
        #: seconds that one more task costs
        self.task_overhead = plugin.overhead.seconds

    def was_seen(self, name: str) -> bool:
        """Whether an earlier computation had a layer too."""
        return name in self.plugin.books.seen

    def is_pinned(self, name: str) -> bool:
        """Whether the user pinned a layer."""
        return name in self.plugin.books.pinned

    def estimate(self, name: str) -> Estimate | None:
        """What a key of a layer costs, or of others of the same function."""
        return self.plugin.durations.estimate(name)

    def share(self, name: str, nkeys: int) -> float:
        """Part of a layer that fits the limit."""
        nbytes = (self.plugin.durations.nbytes(name) or 0) * nkeys
        return min(1.0, self.plugin.ledger.limit / nbytes) if nbytes else 1.0
