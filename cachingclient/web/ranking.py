"""The layers that have cost and saved most: a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models.widgets import DataTable, NumberFormatter, StringFormatter, TableColumn
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from cachingclient.info import Entry
from cachingclient.scheduler.overview import MANY_LAYERS, current, entries, seconds
from cachingclient.tables import short_name
from cachingclient.web.plot import Plot

#: Part of the event loop's time that one page may take for its table.
SHARE = 0.02


def number(format: str) -> NumberFormatter:
    """Numbers that stand to the right."""
    return NumberFormatter(format=format, text_align="right")


class MostValuable(Plot):
    """A table of the layers that have cost and saved most."""

    columns: tuple[tuple[str, str, int, Callable[[Entry], Any], Any], ...] = (
        ("name", "layer", 300, lambda e: short_name(e.name), StringFormatter()),
        (
            "kept",
            "kept",
            80,
            lambda e: f"{e.keys:,} of {e.total:,}",
            StringFormatter(text_align="right"),
        ),
        ("nbytes", "bytes", 70, lambda e: e.nbytes, number("0.0 b")),
        ("seconds", "cost [s]", 60, lambda e: e.seconds, number("0,0.00")),
        ("saved", "saved [s]", 60, lambda e: e.saved, number("0,0.00")),
        ("hits", "hits", 50, lambda e: e.hits, number("0,0")),
        ("workers", "workers", 50, lambda e: len(e.workers), number("0")),
        ("why", "why", 130, lambda e: e.why, StringFormatter()),
    )

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, tuple(name for name, *_ in self.columns))
        self.root = DataTable(
            source=self.source,
            columns=[
                TableColumn(field=name, title=title, width=width, formatter=formatter.clone())
                for name, title, width, _, formatter in self.columns
            ],
            index_position=None,
            reorderable=True,
            sortable=True,
            name="cache_entries",
            **kwargs,
        )
        self._due = 0.0

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Rank the layers; the more keys are kept, the longer until the next time."""
        start = time.monotonic()
        if start < self._due:
            return
        plugin = current(self.scheduler)
        found = entries(plugin, most=MANY_LAYERS, rank=seconds) if plugin is not None else []
        rows = [Entry(**e) for e in found]
        update(self.source, {name: [value(e) for e in rows] for name, *_, value, _ in self.columns})
        now = time.monotonic()
        self._due = now + (now - start) / SHARE
