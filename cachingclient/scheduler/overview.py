"""What the cache of a scheduler is doing: for the pages, the metrics and the command line.

Reading any of it changes nothing: no score, no place in line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from cachingclient.admission import key_name
from cachingclient.frames.covering import Source, cover
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.limits import cluster_memory

if TYPE_CHECKING:
    from distributed import Scheduler

    from cachingclient.scheduler.plugin import CachePlugin

#: The page in the dashboard.
PAGE = "/cache"
#: Layers that are looked at in detail where nobody asks for all of them.
MANY_LAYERS = 100


def current(scheduler: Scheduler) -> CachePlugin | None:
    """The plugin of a scheduler that keeps results; None where there is none, or it is off."""
    plugin: CachePlugin | None = PLUGINS.get(scheduler.id)
    if plugin is None or plugin.off or not plugin.is_registered():
        return None
    plugin.keeper.settle()
    return plugin


def overview(plugin: CachePlugin) -> dict[str, Any]:
    """The counters of CacheInfo, and where and for whom what is kept is kept."""
    ledger = plugin.ledger
    return {
        **plugin.desk.info(),
        "layers": len(ledger.names),
        "pinned": len(plugin.books.pinned),
        "clients": len(plugin.desk.clients),
        "evicted": {
            cause: {"keys": n, "nbytes": ledger.evicted_bytes[cause]}
            for cause, n in ledger.evicted.items()
        },
        "workers": workers(plugin),
        "page": has_page(plugin.scheduler),
        "hint": hint(plugin),
    }


def has_page(scheduler: Scheduler) -> bool:
    """Whether the page on the cache is served: a scheduler without a dashboard serves HTTP too."""
    served = scheduler.http_application.applications
    return any(PAGE in getattr(application, "app_paths", ()) for application in served)


def hint(plugin: CachePlugin) -> str | None:
    """What would have saved a lot of work; None while there is nothing to say."""
    return plugin.ledger.regrets.hint(plugin.ledger.limit, lambda: cluster_memory(plugin.scheduler))


def workers(plugin: CachePlugin) -> list[dict[str, Any]]:
    """Bytes kept by each worker, and how many it may keep."""
    places = plugin.ledger.places
    return [
        {
            "address": address,
            "name": str(ws.name),
            "nbytes": places.held(address),
            "limit": places.limit(address),
        }
        for address, ws in plugin.scheduler.workers.items()
    ]


def entries(
    plugin: CachePlugin,
    prefix: str | None = None,
    most: int | None = None,
    rank: Callable[[CachePlugin, str], float] | None = None,
) -> list[dict[str, Any]]:
    """What is kept, a layer each, most valuable first.

    Parameters
    ----------
    plugin : CachePlugin
    prefix : str, optional
        Only layers whose name starts with it.
    most : int, optional
        So many layers at most.
    rank : callable, optional
        Puts the layers in order, in place of their mean score.
    """
    names = [n for n in plugin.ledger.names if prefix is None or n.startswith(prefix)]
    rank = rank or score
    ranks = {n: rank(plugin, n) for n in names}
    first = nlargest(len(names) if most is None else most, names, key=ranks.__getitem__)
    return [_entry(plugin, name) for name in first]


def score(plugin: CachePlugin, name: str) -> float:
    """Mean score of the kept keys of a layer."""
    keys = plugin.ledger.names[name]
    return sum(map(plugin.ledger.policy.score, keys)) / len(keys)


def seconds(plugin: CachePlugin, name: str) -> float:
    """What the kept keys of a layer have cost, and saved."""
    kept = plugin.ledger.kept
    return sum(kept[k].paid * (1 + kept[k].hits) for k in plugin.ledger.names[name])


def _entry(plugin: CachePlugin, name: str) -> dict[str, Any]:
    ledger, tasks = plugin.ledger, plugin.scheduler.tasks
    keys = ledger.names[name]
    where = {ws for k in keys if k in tasks for ws in tasks[k].who_has or ()}
    return {
        "name": name,
        "keys": len(keys),
        "total": max(len(keys), plugin.books.sizes.get(name, 0)),
        "nbytes": sum(ledger.kept[k].nbytes for k in keys),
        "seconds": sum(ledger.kept[k].paid for k in keys),
        "hits": sum(ledger.kept[k].hits for k in keys),
        "score": score(plugin, name),
        "alive": plugin.books.alive.get(name),
        "workers": sorted(ws.address for ws in where),
        "saved": sum(ledger.kept[k].hits * ledger.kept[k].paid for k in keys),
        "pinned": name in plugin.books.pinned,
    }


def explain(
    plugin: CachePlugin,
    names: Iterable[str],
    reads: Mapping[str, tuple[str, str, Iterable[Any]]] | None = None,
) -> dict[str, dict[str, Any]]:
    """What is kept of layers, and why the rest is not.

    Parameters
    ----------
    plugin : CachePlugin
    names : iterable of str
    reads : mapping, optional
        {name of a node that reads: (its family, kind, columns)}; answered with the frames that
        columns would be taken from, and the columns that none of them has.
    """
    found = {
        name: {**_kept(plugin, name), "why": plugin.books.refused.get(name, "")} for name in names
    }
    for name, (family, kind, columns) in (reads or {}).items():
        sources = [
            Source((frame.name, 0), frame.columns, frame.series)
            for frame in plugin.frames.frames_of(family)
            if frame.name != name and plugin.ledger.number(frame.name)
        ]
        taken, lacks = cover(tuple(columns), sources, kind)
        if taken and name in found:
            found[name] |= {"taken": [key_name(s.key) for s in taken], "lacks": list(lacks)}
    return found


def _kept(plugin: CachePlugin, name: str) -> dict[str, Any]:
    ledger = plugin.ledger
    kept = [ledger.kept[k] for k in ledger.names.get(name) or ()]
    return {
        "kept": len(kept),
        "nbytes": sum(k.nbytes for k in kept),
        "hits": sum(k.hits for k in kept),
        "saved": sum(k.hits * k.paid for k in kept),
    }
