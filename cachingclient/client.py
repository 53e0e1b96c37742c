"""`CachingClient`: distributed's client with a cache."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import distributed

from cachingclient.cache import Cache
from cachingclient.config import parse_limit, read_settings
from cachingclient.panel import with_panel
from cachingclient.session import Session


class CachingClient(distributed.Client):
    """A `distributed.Client` that keeps results for the next question.

    Parameters
    ----------
    *args, **kwargs
        As for `distributed.Client`.
    cache_limit : int, float or str, optional
        How much the workers may keep: a share of the cluster's memory (0 < share <= 1),
        bytes, or a text such as ``"2 GiB"``; 0 switches the cache off. By default
        ``cachingclient.cache-limit`` of the configuration.

    Raises
    ------
    TypeError, ValueError
        If `cache_limit` or a setting makes no sense; nothing is connected to then.

    Examples
    --------
    >>> from cachingclient import Client
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
    >>> client.submit(sum, [1, 2], pure=True).result()
    3
    >>> client.close()
    """

    def __init__(self, *args: Any, cache_limit: Any = None, **kwargs: Any) -> None:
        settings = read_settings(cache_limit)
        limit = None if cache_limit is None else parse_limit(cache_limit)
        self._session = Session(self, settings, limit)
        super().__init__(*args, **kwargs)

    @property
    def cache(self) -> Cache:
        """The cache, to look at and to steer; shows itself in a notebook."""
        return Cache(self._session)

    def _repr_html_(self) -> str:
        return with_panel(super()._repr_html_(), self._session)

    async def _ensure_connected(self, *args: Any, **kwargs: Any) -> None:
        self._session.disconnected()
        await super()._ensure_connected(*args, **kwargs)
        await self._session.connect()

    def _graph_to_futures(self, *args: Any, **kwargs: Any) -> Any:
        plain = super()._graph_to_futures
        if self._session.lacking:
            return plain(*args, **kwargs)
        return self._session.send_graph(plain, *args, **kwargs)

    async def _cancel(self, *args: Any, **kwargs: Any) -> Any:
        plain = super()._cancel
        if self._session.lacking:
            return await plain(*args, **kwargs)
        return await self._session.cancel(plain, *args, **kwargs)

    @wraps(distributed.Client.submit)
    def submit(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        with self._session.purity(kwargs):
            return super().submit(*args, **kwargs)

    @wraps(distributed.Client.map)
    def map(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        with self._session.purity(kwargs, many=True):
            return super().map(*args, **kwargs)

    @wraps(distributed.Client.scatter)
    def scatter(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._session.scatter(super().scatter, *args, **kwargs)


def _signature() -> inspect.Signature:
    parent = inspect.signature(distributed.Client.__init__)
    parameters = list(parent.parameters.values())
    own = inspect.Parameter("cache_limit", inspect.Parameter.KEYWORD_ONLY, default=None)
    # before **kwargs
    return parent.replace(parameters=[*parameters[:-1], own, parameters[-1]])


# Editors and help() show the parent's parameters, which *args and **kwargs would hide.
setattr(CachingClient.__init__, "__signature__", _signature())  # noqa: B010

Client = CachingClient
