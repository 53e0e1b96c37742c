"""How the cache came to be what it is: lines over time."""

from __future__ import annotations

import time
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models import DatetimeTickFormatter, NumeralTickFormatter
from distributed.dashboard.utils import update
from distributed.utils import log_errors

from cachingclient.history import Reading
from cachingclient.scheduler.overview import current
from cachingclient.web.plot import BAD, BOUND, GOOD, PLAIN, Plot, in_bytes

#: Seconds after which a line is drawn on although nothing happens.
DRAWN_ON = 10


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
