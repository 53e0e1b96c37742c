"""``client.cache``: what a person can ask of the cache, and tell it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from html import escape
from typing import TYPE_CHECKING, Any

import dask
from dask.core import flatten
from dask.utils import format_bytes

from cachingclient import internals
from cachingclient.admission import key_name
from cachingclient.config import parse_limit
from cachingclient.explaining import DISABLED, Explanation
from cachingclient.info import CacheInfo, Entries, entries_from_message, from_message
from cachingclient.panel import with_panel
from cachingclient.recording import Recording, open_trace
from cachingclient.telling import tell

if TYPE_CHECKING:
    from cachingclient.session import Session


class Cache:
    """The cache of one client; its methods are awaitable on an asynchronous client.

    Parameters
    ----------
    session : Session

    Examples
    --------
    >>> from cachingclient import Client
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
    >>> client.cache.info().keys
    0
    >>> client.close()
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<Cache of {self._session.client!r}>"

    def _repr_html_(self) -> str:
        return with_panel("", self._session) or f"<pre>{escape(repr(self))}</pre>"

    def _ask(
        self,
        method: str,
        default: Any,
        read: Callable[[Any], Any] = lambda answer: answer,
        wish: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Ask the scheduler; where it keeps no cache, say so and return a default.

        Parameters
        ----------
        method : str
        default : object
        read : callable
            Makes something of the answer.
        wish : bool
            Whether something was to be kept, which is not: then it is said each time.
        **kwargs
            For the method.
        """
        session = self._session

        async def ask() -> Any:
            absent = session.absent()
            answer = None if absent else await session.call(method, **kwargs)
            if answer is not None:
                return read(answer)
            if wish or (session.settings.cache_limit and not session.said_absent):
                session.said_absent = True
                text = absent or "The scheduler keeps no cache now."
                tell(f"{text} client.cache.{method}() has no effect.")
            return default

        return self._session.client.sync(ask)

    def info(self) -> CacheInfo:
        """Counters since the cache was made; ``after - before`` works field by field."""
        return self._ask("info", CacheInfo(), from_message)

    def entries(self, prefix: str | None = None) -> Entries:
        """What is kept, one entry a layer, most valuable first: a list that shows as a table.

        Parameters
        ----------
        prefix : str, optional
            Only layers whose name starts with it.
        """
        if prefix is not None and not isinstance(prefix, str):
            raise TypeError(f"prefix must be a text, got {prefix!r}")
        return self._ask("entries", Entries(), entries_from_message, prefix=prefix)

    def explain(self, collection: Any) -> Explanation:
        """Layer by layer: what would be reused or kept if this was computed now, and why not.

        Makes the graph, which takes as long as for computing; nothing runs.

        Parameters
        ----------
        collection : dask collection
        """
        if not dask.is_dask_collection(collection):
            raise TypeError(f"collection must be a dask collection, got {collection!r}")
        session = self._session
        # In this thread: dask may compute statistics of files for it.
        expr = internals.as_computed(collection)
        disabled = DISABLED if session.is_disabled() else ""

        async def explain() -> Explanation:
            found = await session.explain(expr)
            absent = session.absent() or disabled
            return found.without_cache(absent) if absent else found

        return session.client.sync(explain)

    def clear(self, prefix_or_collection: Any = None) -> None:
        """Let go of what is kept.

        Parameters
        ----------
        prefix_or_collection : str or dask collection, optional
            Only layers whose name starts with it, or what belongs to it. Without it, everything.
        """
        what = prefix_or_collection
        self._session.recent.clear()
        if what is None or isinstance(what, str):
            return self._ask("clear", None, _nothing, prefix=what)
        if not dask.is_dask_collection(what):
            raise TypeError(
                f"prefix_or_collection must be a text or a dask collection, got {what!r}"
            )
        return self._ask("clear", None, _nothing, names=list(names_of(what)))

    def pin(self, collection: Any) -> None:
        """Keep a collection when it is computed next, and don't evict it.

        Its chunks or partitions stay visible in each graph, and are kept whatever they cost to
        compute; but not what may not be kept at all (`explain` tells). Running work comes first:
        where a worker runs out of memory pinned keys go too, after all others.

        Parameters
        ----------
        collection : dask collection

        Raises
        ------
        TypeError
            If it is no dask collection.
        ValueError
            If it is known to be larger than the limit. Where that turns out later, a warning
            tells, and as many of its keys as fit stay.
        """
        if not dask.is_dask_collection(collection):
            raise TypeError(f"collection must be a dask collection, got {collection!r}")
        nbytes = _nbytes(collection)

        def read(answer: dict[str, Any]) -> None:
            if not answer["fits"]:
                raise ValueError(
                    f"collection has {format_bytes(nbytes)}, and the limit is "
                    f"{format_bytes(answer['limit'])}: persist it, or resize the cache"
                )

        names = list(outputs_of(collection))
        return self._ask("pin", None, read, wish=True, names=names, nbytes=nbytes)

    def unpin(self, collection: Any) -> None:
        """Let a collection be evicted again.

        Parameters
        ----------
        collection : dask collection

        Raises
        ------
        TypeError
            If it is no dask collection.
        """
        if not dask.is_dask_collection(collection):
            raise TypeError(f"collection must be a dask collection, got {collection!r}")
        names = list(outputs_of(collection))
        return self._ask("unpin", None, _nothing, names=names)

    def resize(self, limit: float | str) -> None:
        """Change how much may be kept, for all clients of the scheduler.

        What is pinned stays where that is less than it has; 0 lets go of everything.

        Parameters
        ----------
        limit : int, float or str
            As `cache_limit`.
        """
        return self._ask("resize", None, _nothing, wish=True, limit=parse_limit(limit, "limit"))

    def record(self, path: Any) -> Recording:
        """Write what happens in the cache to a file, for the simulator of ``benchmarks/policies``.

        Of all clients of the scheduler, until `stop` is called on what is returned, or its
        ``with`` ends: what was asked for, what ran and for how long, its bytes and what it
        needed, what was alive, what was kept and what had to go. No data and no code; names are
        hashed with a salt that is not written.

        Parameters
        ----------
        path : str or path
            On the client's machine; overwritten if it exists.

        Returns
        -------
        Recording
            Has a `stop` method, and is a context manager.

        Raises
        ------
        TypeError, OSError
            If `path` is no path, or cannot be written; nothing is changed then.
        RuntimeError
            If a recording is going on already, or there is no cache.

        Examples
        --------
        >>> import os, tempfile
        >>> from cachingclient import Client
        >>> path = os.path.join(tempfile.mkdtemp(), "session.trace")
        >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
        >>> with client.cache.record(path):
        ...     client.submit(sum, [1, 2], pure=True).result()
        3
        >>> client.close()
        """
        if self._session.scheduler_id is None:
            raise RuntimeError("there is no cache that could be recorded")
        recording = Recording(self._session, open_trace(path))
        return self._session.client.sync(recording.begin)

    def disabled(self) -> AbstractContextManager[None]:
        """Neither read from nor add to the cache, inside ``with``: for this client and context."""
        return self._session.disabled()


def _nothing(answer: Any) -> None:
    """What is made of an answer that only says that it is done."""


def outputs_of(collection: Any) -> set[Any]:
    """Names of the keys that a collection consists of."""
    return {key_name(k) for k in flatten(collection.__dask_keys__())}


def _nbytes(collection: Any) -> int:
    """Bytes of a collection; 0 if they are unknown before it is computed."""
    nbytes: Any = None
    with suppress(Exception):  # dataframes have one that is not implemented
        nbytes = collection.nbytes
    known = isinstance(nbytes, (int, float)) and nbytes == nbytes
    return int(nbytes) if known else 0


def names_of(collection: Any) -> set[Any]:
    """Names of the layers that belong to a collection."""
    graph = collection.__dask_graph__()
    names = set(getattr(graph, "layers", ()))
    return names | {key_name(k) for k in graph} | outputs_of(collection)
