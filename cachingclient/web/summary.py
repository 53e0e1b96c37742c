"""What the page on the cache says in words."""

from __future__ import annotations

from html import escape
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.models.widgets import Div
from dask.utils import format_bytes, format_time
from distributed.utils import log_errors

from cachingclient.scheduler.overview import current, hint
from cachingclient.web.plot import GOOD, Plot

NO_CACHE = "The scheduler keeps no cache."


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


def _time(seconds: float) -> str:
    return format_time(seconds) if seconds else "nothing"
