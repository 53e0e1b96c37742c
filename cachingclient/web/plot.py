"""A part of a page: looks at the scheduler when the page is looked at, and no sooner."""

from __future__ import annotations

from typing import Any

from bokeh.models import AdaptiveTicker, ColumnDataSource, NumeralTickFormatter
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent
from distributed.dashboard.components.scheduler import TICKS_1024

#: Colours of what is good, of what is as it was, of what is lost, and of limits.
GOOD, PLAIN, BAD, BOUND = "#ECB172", "#7A9CC6", "#D1495B", "#555555"


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


def in_bytes(axis: Any) -> None:
    """Have an axis count in bytes."""
    axis.formatter = NumeralTickFormatter(format="0.0 b")
    ticks: dict[str, Any] = {**TICKS_1024, "desired_num_ticks": 4}
    axis.ticker = AdaptiveTicker(**ticks)
