"""The page ``/cache`` in the scheduler's dashboard, in its menu, and single plots of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tornado.ioloop import IOLoop

from cachingclient.scheduler.leaving import Undo
from cachingclient.scheduler.overview import PAGE

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

#: The page as the menu has it.
ENTRY = PAGE.strip("/")
#: It comes before the last one, which tells of logs.
PLACE = -1

_STOPPING: set[Any] = set()


def connect(plugin: CachePlugin) -> Callable[[], None]:
    """Add the pages to the dashboard, if the scheduler has one; returns how to take them away."""
    # Whoever has a dashboard has imported this; importing it for nobody would cost a second.
    if "distributed.dashboard.scheduler" not in sys.modules:
        return lambda: None
    from bokeh.server.tornado import BokehTornado

    scheduler = plugin.scheduler
    served: list[Any] = scheduler.http_application.applications
    dashboard = next((a for a in served if isinstance(a, BokehTornado)), None)
    if dashboard is None:
        return lambda: None
    undo = Undo()
    try:
        _serve(scheduler, served, dashboard, undo)
    except BaseException:
        undo.run()
        raise
    return undo.run


def _serve(scheduler: Any, served: list[Any], dashboard: Any, undo: Undo) -> None:
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables

    from cachingclient.web.pages import PLOTS, pages

    variables = template_variables(scheduler)  # its lists are those of all pages
    ours = BokehApplication(pages(), scheduler, dashboard.prefix, variables)
    ours.initialize(IOLoop.current())
    ours.start()
    undo.add(lambda: _stop(ours))
    served.append(ours)
    undo.add(lambda: served.remove(ours))
    _list_in(dashboard.applications, ours.app_paths, undo)
    variables["pages"].insert(PLACE, ENTRY)
    undo.add(lambda: variables["pages"].remove(ENTRY))
    plots = [{"url": path.strip("/"), "name": name} for path, name in PLOTS.items()]
    variables["plots"].extend(plots)
    variables["plots"].sort(key=lambda plot: plot["name"])
    undo.add(lambda: [variables["plots"].remove(plot) for plot in plots])


def _stop(application: Any) -> None:
    """Stop it, on the event loop; from bokeh 3.10 on that takes a while."""
    if not hasattr(application, "stop_async"):
        application.stop()
        return
    task = asyncio.ensure_future(application.stop_async())
    _STOPPING.add(task)
    task.add_done_callback(_STOPPING.discard)


def _list_in(applications: Any, paths: set[str], undo: Undo) -> None:
    """Have pages listed where /individual-plots.json looks: it sees one application only."""
    from bokeh.application import Application
    from bokeh.server.contexts import ApplicationContext

    for path in paths:
        # Nobody is served by it: two applications would clean up after the same sessions.
        applications[path] = ApplicationContext(Application(), url=path)
        undo.add(partial(applications.pop, path))
