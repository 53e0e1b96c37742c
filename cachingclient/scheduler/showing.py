"""Connects what a person sees of the cache on the scheduler; none of it may fail the cache."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from cachingclient.scheduler.leaving import Undo

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Modules with a function ``connect(plugin)`` that returns how to take its part away.
PARTS = (
    "cachingclient.web.routes",
    "cachingclient.web.dashboard",
    "cachingclient.web.metrics",
    "cachingclient.web.report",
)


class Showing:
    """Pages, metrics and routes of one plugin, as far as the scheduler has what they need.

    Parameters
    ----------
    plugin : CachePlugin
    """

    def __init__(self, plugin: CachePlugin) -> None:
        self._undo = Undo()
        for part in PARTS:
            try:
                self._undo.add(import_module(part).connect(plugin))
            except Exception:
                logger.warning("The cache works, but without %s", part, exc_info=True)

    def remove(self) -> None:
        """Take it all away."""
        self._undo.run()
