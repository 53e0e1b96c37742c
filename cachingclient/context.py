"""``with caching(client)``: a cache for a client that somebody else made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distributed

from cachingclient import internals
from cachingclient.cache import Cache
from cachingclient.config import parse_limit, read_settings
from cachingclient.panel import with_panel
from cachingclient.session import Session

#: Attribute of a client by which a second `caching` notices the first.
_MARK = "_cachingclient"


class caching:  # noqa: N801 - used as a function, as contextlib.suppress is
    """Keep results for a client, while inside.

    Parameters
    ----------
    client : distributed.Client
        Any client. One that has a cache already just lends it.
    cache_limit : int, float or str, optional
        As for `CachingClient`.

    Raises
    ------
    TypeError, ValueError
        If `client` is no client or closed, or `cache_limit` or a setting makes no sense;
        nothing is changed then.

    Examples
    --------
    >>> import distributed
    >>> client = distributed.Client(processes=False, n_workers=1, dashboard_address=None)
    >>> with caching(client) as cache:
    ...     cache.info().keys
    0
    >>> client.close()
    """

    def __init__(self, client: distributed.Client, cache_limit: Any = None) -> None:
        if not isinstance(client, distributed.Client):
            raise TypeError(f"client must be a distributed.Client, got {client!r}")
        self._settings = read_settings(cache_limit)
        self._limit = None if cache_limit is None else parse_limit(cache_limit)
        self._client = client
        self._session: Session | None = None
        self._wrapped: list[str] = []

    def __enter__(self) -> Cache:
        if self._client.asynchronous:
            raise TypeError("client is asynchronous: use 'async with caching(client)'")
        return self._client.sync(self._start)

    def __exit__(self, *exception: Any) -> None:
        self._client.sync(self._stop)

    async def __aenter__(self) -> Cache:
        return await self._start()

    async def __aexit__(self, *exception: Any) -> None:
        await self._stop()

    async def _start(self) -> Cache:
        if self._client.status == "closed":
            raise ValueError("client is closed")
        own = getattr(self._client, "cache", None)
        if isinstance(own, Cache):  # of a caching client, or of one that a preload gave it to
            return own
        if _MARK in vars(self._client):
            raise RuntimeError("client is inside 'with caching(client)' already")
        session = self._session = Session(self._client, self._settings, self._limit)
        setattr(self._client, _MARK, session)
        try:
            await session.connect()
            if not session.lacking:
                self._wrap(session)
        except BaseException:
            await self._stop()
            raise
        return Cache(session)

    def _wrap(self, session: Session) -> None:
        def graph(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return session.send_graph(plain, *args, **kwargs)

        async def connect(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            session.disconnected()
            await plain(*args, **kwargs)
            await session.connect()

        async def cancel(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return await session.cancel(plain, *args, **kwargs)

        def submit(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with session.purity(_said(plain, kwargs)):
                return plain(*args, **kwargs)

        def map_(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with session.purity(_said(plain, kwargs), many=True):
                return plain(*args, **kwargs)

        def scatter(plain: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return session.scatter(plain, *args, **kwargs)

        def html(plain: Any, instance: Any, args: Any, kwargs: Any) -> str:
            return with_panel(plain(), session)

        self._replace(internals.GRAPH_METHOD, graph)
        self._replace(internals.CONNECT_METHOD, connect)
        self._replace(internals.CANCEL_METHOD, cancel)
        self._replace("submit", submit)
        self._replace("map", map_)
        self._replace("scatter", scatter)
        self._replace("_repr_html_", html)

    def _replace(self, name: str, wrapper: Callable[..., Any]) -> None:
        # Not above: schedulers that this package is carried to need not have it.
        import wrapt

        setattr(self._client, name, wrapt.FunctionWrapper(getattr(self._client, name), wrapper))
        self._wrapped.append(name)

    async def _stop(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            await session.leave()
        finally:
            for name in self._wrapped:
                delattr(self._client, name)
            self._wrapped.clear()
            delattr(self._client, _MARK)


def _said(plain: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What was said to `submit` or `map`; nothing where a subclass may have changed that."""
    own = (distributed.Client.submit, distributed.Client.map)
    return kwargs if getattr(plain, "__func__", None) in own else {}
