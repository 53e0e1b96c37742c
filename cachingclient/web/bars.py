"""Where kept bytes are, and why others had to go: bars."""

from __future__ import annotations

from heapq import nlargest
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import HoverTool
from dask.utils import format_bytes
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from cachingclient.ledger import CAUSES
from cachingclient.scheduler.overview import current, workers
from cachingclient.web.plot import BAD, BOUND, GOOD, Plot, in_bytes

#: Workers that get a bar each.
MANY_WORKERS = 40


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
