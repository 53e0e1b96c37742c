"""Once a second: the cache's readings, its events, and what its users should hear."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from cachingclient.history import Reading
from cachingclient.scheduler.holding import PSEUDO_CLIENT
from cachingclient.scheduler.overview import hint

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

#: Topic of the events on the scheduler.
TOPIC = PSEUDO_CLIENT
#: Seconds between two batches.
INTERVAL = 1.0


class Reporter:
    """Says what has happened since the last time; nothing is said while nothing happens.

    Parameters
    ----------
    plugin : CachePlugin
    """

    def __init__(self, plugin: CachePlugin) -> None:
        self.plugin = plugin
        #: ids of clients that have had their hint
        self._hinted: set[str] = set()
        self._wait()

    def _wait(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(INTERVAL, self._tick)

    def _tick(self) -> None:
        self._wait()
        if not self.plugin.off:
            try:
                self.report()
            except Exception as e:
                self.plugin.switch_off(e)

    def report(self) -> None:
        """Take a reading, publish the events, and give hints."""
        self.read()
        for event in self.plugin.ledger.news.take():
            self.plugin.scheduler.log_event(TOPIC, event)
        if text := hint(self.plugin):
            self._hinted &= self.plugin.desk.clients
            for client in self.plugin.desk.clients - self._hinted:
                self._hinted.add(client)
                self.plugin.hint(client, text)

    def read(self) -> None:
        """Take a reading of the counters."""
        ledger = self.plugin.ledger
        self.plugin.history.note(
            Reading(
                time.time(),
                ledger.currsize,
                ledger.limit,
                ledger.hits,
                ledger.misses,
                ledger.saved,
                ledger.recomputed,
                ledger.evictions,
            )
        )

    def stop(self) -> None:
        """Say nothing more."""
        self._handle.cancel()
