"""What the pages on the cache are made of: each looks at the scheduler when it is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import nlargest
from html import escape
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    DatetimeTickFormatter,
    HoverTool,
    NumeralTickFormatter,
)
from bokeh.models.widgets import DataTable, Div, NumberFormatter, StringFormatter, TableColumn
from bokeh.plotting import figure
from dask.utils import format_bytes, format_time
from distributed.dashboard.components import DashboardComponent
from distributed.dashboard.components.scheduler import TICKS_1024
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from cachingclient.history import Reading
from cachingclient.info import Entry
from cachingclient.ledger import CAUSES
from cachingclient.scheduler.overview import (
    MANY_LAYERS,
    current,
    entries,
    hint,
    seconds,
    workers,
)
from cachingclient.tables import short_name

#: Colours of what is good, of what is as it was, of what is lost, and of limits.
GOOD, PLAIN, BAD, BOUND = "#ECB172", "#7A9CC6", "#D1495B", "#555555"
#: Workers that get a bar each.
MANY_WORKERS = 40
#: Seconds after which a line is drawn on although nothing happens.
DRAWN_ON = 10
#: Part of the event loop's time that one page may take for its table.
SHARE = 0.02

NO_CACHE = "The scheduler keeps no cache."


class Plot(DashboardComponent):
    """A part of a page, with what all of them do."""

    root: Any
    source: ColumnDataSource

    def __init__(self, scheduler: Any, columns: tuple[str, ...]) -> None:
        self.scheduler = scheduler
        self.source = ColumnDataSource({name: [] for name in columns})

    def figure(self, title: str, **kwargs: Any) -> Any:
        """A figure without tools, as dask's own."""
        plot: Any = figure(title=title, tools="", toolbar_location=None, min_width=200, **kwargs)
        plot.title.text_font_size = "13px"
        plot.grid.grid_line_alpha = 0.5
        return plot


class Summary(Plot):
    """A line of text, and the hint."""

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, ())
        self.root = Div(text="", name="cache_summary", **kwargs)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Say it as it is now."""
        text = self._text()
        if self.root.text != text:
            self.root.text = text

    def _text(self) -> str:
        plugin = current(self.scheduler)
        if plugin is None:
            return f"<p style='margin: 4px 8px'>{NO_CACHE}</p>"
        ledger = plugin.ledger
        asked = ledger.hits + ledger.misses
        parts = [
            f"<b>{format_bytes(ledger.currsize)}</b> of {format_bytes(ledger.limit)} kept",
            f"<b>{len(ledger.kept):,}</b> keys of {len(ledger.names):,} layers",
            f"<b>{ledger.hits:,}</b> hits ({ledger.hits / asked:.0%})" if asked else "no hits yet",
            f"<b>{_time(ledger.saved)}</b> saved",
            f"<b>{_time(ledger.recomputed)}</b> spent again",
        ]
        if plugin.audits.done:
            parts.append(f"{plugin.audits.done:,} audits, {plugin.audits.differing:,} differing")
        text = f"<p style='margin: 4px 8px; font-size: 14px'>{' &nbsp;·&nbsp; '.join(parts)}</p>"
        if said := hint(plugin):
            text += (
                f"<p style='margin: 4px 8px; padding-left: 6px; border-left: 3px solid {GOOD}'>"
                f"{escape(said)}</p>"
            )
        return text


class OverTime(Plot):
    """Lines of the cache's readings, from its beginning until now."""

    #: (field of a reading, its name, its colour, how its line is dashed)
    lines: tuple[tuple[str, str, str, str], ...]
    title: str
    #: where the lines leave room
    legend = "top_left"

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        fields = tuple(line[0] for line in self.lines)
        super().__init__(scheduler, ("time", *fields))
        self.root = self.figure(self.title, x_axis_type="datetime", **kwargs)
        for field, name, color, dash in self.lines:
            self.root.step(
                x="time",
                y=field,
                source=self.source,
                mode="after",
                color=color,
                line_dash=dash,
                line_width=2,
                legend_label=name,
            )
        self.root.legend.location = self.legend
        self.root.legend.background_fill_alpha = 0.6
        self.root.legend.border_line_alpha = 0
        self.root.legend.padding = self.root.legend.spacing = 2
        self.root.legend.label_text_font_size = "11px"
        self.root.y_range.start = 0
        self.root.xaxis.formatter = DatetimeTickFormatter(
            seconds="%H:%M:%S", minsec="%H:%M:%S", minutes="%H:%M", hourmin="%H:%M"
        )
        self.root.xaxis.ticker.desired_num_ticks = 4
        self._drawn: tuple[int, Reading] | None = None
        self._drawn_at = 0.0

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Draw on."""
        plugin = current(self.scheduler)
        if plugin is None:
            update(self.source, {name: [] for name in self.source.data})
            return
        readings = plugin.history.readings
        if not readings:
            return
        state = len(readings), readings[-1]
        now = time.time()
        if state == self._drawn and now < self._drawn_at + DRAWN_ON:
            return
        self._drawn, self._drawn_at = state, now
        shown = [*readings, readings[-1]._replace(time=max(now, readings[-1].time))]
        data: dict[str, Any] = {"time": [r.time * 1000 for r in shown]}
        for field, *_ in self.lines:
            data[field] = [getattr(r, field) for r in shown]
        self.source.data = data


class KeptOverTime(OverTime):
    """Bytes kept against the limit."""

    title = "Bytes kept"
    legend = "bottom_right"
    lines = (("nbytes", "kept", GOOD, "solid"), ("limit", "limit", BOUND, "dashed"))

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, **kwargs)
        in_bytes(self.root.yaxis)


class Use(OverTime):
    """Hits and misses."""

    title = "Hits and misses"
    lines = (("hits", "hits", GOOD, "solid"), ("misses", "misses", PLAIN, "solid"))

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, **kwargs)
        self.root.yaxis.formatter = NumeralTickFormatter(format="0,0")


class TimeSaved(OverTime):
    """Task time that hits saved, and that was spent again."""

    title = "Task time in seconds"
    lines = (("saved", "saved", GOOD, "solid"), ("recomputed", "spent again", BAD, "solid"))


class KeptByWorker(Plot):
    """Bytes kept on each worker, against its share of the limit."""

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, ("worker", "address", "nbytes", "limit", "text"))
        self.root = self.figure("Bytes kept by worker", y_range=[], **kwargs)
        bars = self.root.hbar(
            y="worker", right="nbytes", height=0.7, source=self.source, color=GOOD
        )
        self.root.scatter(
            marker="dash",
            x="limit",
            y="worker",
            angle=1.5708,
            size=18,
            line_width=2,
            source=self.source,
            color=BOUND,
        )
        self.root.add_tools(HoverTool(tooltips="@address: @text", renderers=[bars]))
        self.root.x_range.start = 0
        self.root.ygrid.visible = False
        in_bytes(self.root.xaxis)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Look at the workers; where they are too many, at those with most."""
        plugin = current(self.scheduler)
        found = workers(plugin) if plugin is not None else []
        places = {w["address"]: n for n, w in enumerate(found)}
        most = nlargest(MANY_WORKERS, found, key=lambda w: w["nbytes"])
        most.sort(key=lambda w: places[w["address"]])  # bars that change places are hard to read
        names = [w["name"] for w in most]
        self.root.y_range.factors = names[::-1]
        some = f", {len(most)} of {len(found)}" if len(found) > len(most) else ""
        self.root.title.text = f"Bytes kept by worker, and what it may keep{some}"
        update(
            self.source,
            {
                "worker": names,
                "address": [w["address"] for w in most],
                "nbytes": [w["nbytes"] for w in most],
                "limit": [w["limit"] if w["limit"] is not None else w["nbytes"] for w in most],
                "text": [
                    format_bytes(w["nbytes"])
                    + (f" of {format_bytes(w['limit'])}" if w["limit"] is not None else "")
                    for w in most
                ],
            },
        )


class Evictions(Plot):
    """Bytes that had to go, by cause."""

    def __init__(self, scheduler: Any, **kwargs: Any) -> None:
        super().__init__(scheduler, ("cause", "nbytes", "text"))
        self.root = self.figure("Evictions by cause", y_range=list(CAUSES)[::-1], **kwargs)
        self.root.hbar(
            y="cause", right="nbytes", height=0.6, source=self.source, color=BAD, alpha=0.6
        )
        self.root.text(
            x=0,
            y="cause",
            text="text",
            source=self.source,
            x_offset=6,
            text_baseline="middle",
            text_font_size="12px",
        )
        self.root.x_range.start = 0
        self.root.ygrid.visible = False
        in_bytes(self.root.xaxis)

    @without_property_validation
    @log_errors
    def update(self) -> None:
        """Look at the counters."""
        plugin = current(self.scheduler)
        causes = CAUSES if plugin is not None else ()
        nbytes = [plugin.ledger.evicted_bytes[c] for c in causes] if plugin else []
        keys = [plugin.ledger.evicted[c] for c in causes] if plugin else []
        self.root.x_range.end = max(nbytes, default=0) * 1.1 or 2**20
        update(
            self.source,
            {
                "cause": list(causes),
                "nbytes": nbytes,
                "text": [
                    f"{n:,} {'key' if n == 1 else 'keys'}, {format_bytes(size)}" if n else "none"
                    for n, size in zip(keys, nbytes)
                ],
            },
        )


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


def in_bytes(axis: Any) -> None:
    """Have an axis count in bytes."""
    axis.formatter = NumeralTickFormatter(format="0.0 b")
    ticks: dict[str, Any] = {**TICKS_1024, "desired_num_ticks": 4}
    axis.ticker = AdaptiveTicker(**ticks)


def _time(seconds: float) -> str:
    return format_time(seconds) if seconds else "nothing"
