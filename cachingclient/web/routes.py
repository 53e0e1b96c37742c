"""``/json/cache.json``: what the cache is doing, for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from distributed.http.utils import RequestHandler
from tornado import web
from tornado.routing import PathMatches, Rule, RuleRouter

from cachingclient.scheduler.overview import MANY_LAYERS, current, entries, overview

if TYPE_CHECKING:
    from distributed import Scheduler

    from cachingclient.scheduler.plugin import CachePlugin

#: A route of distributed's own, by which its prefix is found.
KNOWN = "json/counts.json"


class CacheJSON(RequestHandler):
    """Counters, workers, evictions by cause, and the most valuable entries."""

    def get(self) -> None:
        plugin = current(self.server)
        if plugin is None:
            self.set_status(404)
            self.write({"error": "the scheduler keeps no cache"})
        else:
            self.write({**overview(plugin), "entries": entries(plugin, most=MANY_LAYERS)})


def connect(plugin: CachePlugin) -> Callable[[], None]:
    """Serve the route; returns how to take it away."""
    scheduler = plugin.scheduler
    path = prefix_of(scheduler) + "json/cache.json"
    application = web.Application([(path, CacheJSON, {"dask_server": scheduler})])
    served: list[Any] = scheduler.http_application.applications
    served.append(application)

    def remove() -> None:
        served.remove(application)

    return remove


def prefix_of(scheduler: Scheduler) -> str:
    """What all paths of a scheduler start with: it does not remember it itself."""
    for pattern in _patterns(scheduler.http_application):
        if pattern.endswith(f"/{KNOWN}"):
            return pattern[: -len(KNOWN)]
    return "/"


def _patterns(application: web.Application) -> Iterator[str]:
    work: list[RuleRouter] = [application.default_router, application.wildcard_router]
    seen = set()
    while work:
        router = work.pop()
        if id(router) in seen:
            continue
        seen.add(id(router))
        rule: Rule
        for rule in router.rules:
            if isinstance(rule.target, RuleRouter):
                work.append(rule.target)
            elif isinstance(rule.matcher, PathMatches):
                yield rule.matcher.regex.pattern.rstrip("$")
