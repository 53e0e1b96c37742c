"""Pages of the dashboard that show the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.layouts import column, row
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env, individual_doc
from distributed.utils import log_errors

from cachingclient.scheduler.overview import PAGE
from cachingclient.web.bars import Evictions, KeptByWorker
from cachingclient.web.lines import KeptOverTime, TimeSaved, Use
from cachingclient.web.ranking import MostValuable
from cachingclient.web.summary import Summary

#: Milliseconds between two looks.
INTERVAL = 1000
#: Height of a row of plots in pixels: all fits on a laptop's screen.
HEIGHT = 205

#: {path of a page with one plot: its name in the menu}
PLOTS = {
    "/individual-cache": "Cache",
    "/individual-cache-entries": "Cache Entries",
    "/individual-cache-evictions": "Cache Evictions",
    "/individual-cache-hits": "Cache Hits",
    "/individual-cache-time-saved": "Cache Time Saved",
    "/individual-cache-workers": "Cache Workers",
}

#: What they show, in the same order.
SINGLE = (KeptOverTime, MostValuable, Evictions, Use, TimeSaved, KeptByWorker)


def pages() -> dict[str, Callable[..., None]]:
    """Functions that fill the documents of the pages."""
    plots = {path: individual_doc(kind, INTERVAL) for path, kind in zip(PLOTS, SINGLE, strict=True)}
    return {PAGE: cache_doc, **plots}


@log_errors
def cache_doc(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """All of it on one page."""
    summary = Summary(scheduler, sizing_mode="stretch_width")
    size = {"sizing_mode": "stretch_width", "height": HEIGHT}
    plots = [kind(scheduler, **size) for kind in (KeptOverTime, Use, TimeSaved)]
    bars = [kind(scheduler, **size) for kind in (KeptByWorker, Evictions)]
    table = MostValuable(scheduler, sizing_mode="stretch_width", height=HEIGHT + 60)
    for component in (summary, *plots, *bars, table):
        component.update()
        add_periodic_callback(doc, component, INTERVAL)
    doc.add_root(
        column(
            summary.root,
            row(*[plot.root for plot in plots], sizing_mode="stretch_width"),
            row(*[plot.root for plot in bars], sizing_mode="stretch_width"),
            table.root,
            sizing_mode="stretch_width",
        )
    )
    doc.title = "Dask: Cache"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME
