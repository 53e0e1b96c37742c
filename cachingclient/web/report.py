"""A section on the cache in ``performance_report``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from html import escape
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from cachingclient.history import Reading
from cachingclient.scheduler.overview import current, entries
from cachingclient.tables import short_name

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

HANDLER = "performance_report"
#: Layers that are named.
MANY = 10


def connect(plugin: CachePlugin) -> Callable[[], None]:
    """Add the section to the reports of a scheduler; returns how to take it away."""
    scheduler = plugin.scheduler
    handlers: dict[str, Any] = scheduler.handlers
    plain = handlers[HANDLER]

    @wraps(plain)
    async def report(*args: Any, code: str = "", **kwargs: Any) -> Any:
        found = current(scheduler)
        if found is not None:
            # The report has no place for more sections; the code is its last one.
            code = f"{code}</pre>{section(found, kwargs.get('start', 0.0))}<pre>"
        return await plain(*args, code=code, **kwargs)

    handlers[HANDLER] = report

    def remove() -> None:
        if handlers.get(HANDLER) is report:
            handlers[HANDLER] = plain

    return remove


def section(plugin: CachePlugin, start: float) -> str:
    """HTML of the section.

    Parameters
    ----------
    plugin : CachePlugin
    start : float
        When the report began, in seconds since the epoch.
    """
    plugin.reporter.read()
    before = plugin.history.at(start) or Reading(0)
    now = plugin.history.readings[-1]
    ledger = plugin.ledger
    lines = [
        f"Hits: {now.hits - before.hits:,}, misses: {now.misses - before.misses:,}, "
        f"evictions: {now.evictions - before.evictions:,}",
        f"Task time saved: {format_time(now.saved - before.saved)}",
        f"Task time spent again: {format_time(now.recomputed - before.recomputed)}",
        f"Kept at the end: {format_bytes(ledger.currsize)} of {format_bytes(ledger.limit)}, "
        f"in {len(ledger.kept):,} keys of {len(ledger.names):,} layers",
    ]
    most = [
        f"{short_name(e['name'])}: {format_bytes(e['nbytes'])}, {e['hits']:,} hits, "
        f"{format_time(e['saved'])} saved"
        for e in entries(plugin, most=MANY)
    ]
    if most:
        lines.append("Most valuable:")
    return f"<h2> Cache </h2>{_list(lines)}{_list(most)}"


def _list(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li> {escape(line)} </li>' for line in lines)}</ul>" if lines else ""
