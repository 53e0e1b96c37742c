"""The cache as a notebook shows it: a panel under the client, and for ``client.cache``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dask.widgets import get_template

from cachingclient import tables  # noqa: F401 - knows where the templates are
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.overview import overview

if TYPE_CHECKING:
    from cachingclient.session import Session

#: Seconds that a panel waits for the scheduler: a repr must come back.
PATIENCE = 3
#: Workers that get a bar each.
MANY_WORKERS = 10


def panel(session: Session) -> str:
    """HTML that shows the cache of a client; says so where there is none.

    Parameters
    ----------
    session : Session
    """
    absent = session.absent()
    found, why = (None, absent) if absent else _ask(session)
    hint = found.pop("hint", None) if found else None
    if hint:
        session.hinted = True  # what the panel shows needs no warning any more
    return get_template("cachingclient-panel.html.j2").render(
        found=found,
        why=why,
        hint=hint if session.settings.hints else None,
        link=_link(session) if found and found["page"] else None,
        workers=found["workers"][:MANY_WORKERS] if found else [],
    )


def _ask(session: Session) -> tuple[dict[str, Any] | None, str]:
    client = session.client
    plugin = PLUGINS.get(session.scheduler_id or "")
    if client.asynchronous:
        # There is no waiting here: what is in this process can be looked at all the same.
        if plugin is not None and not plugin.off:
            return overview(plugin), ""
        return None, "Ask with: await client.cache.info()"
    found = client.sync(session.call, "overview", callback_timeout=PATIENCE)
    return (found, "") if found else (None, "The scheduler keeps no cache.")


def _link(session: Session) -> str | None:
    link = session.client.dashboard_link
    if not link or not link.endswith("status"):
        return None
    return link[: -len("status")] + "cache"


def with_panel(html: str, session: Session) -> str:
    """The panel under another representation; that alone where anything fails.

    Parameters
    ----------
    html : str
    session : Session
    """
    if session.client.status == "running":
        with suppress(Exception):
            # In one element: a client's own is one, and well formed
            return f"<div>{html}{panel(session)}</div>"
    return html
