"""The client's part of the cache, for one client, whoever made it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from socket import gethostname
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed import Future
from distributed.client import futures_of
from distributed.comm import get_address_host
from distributed.protocol.pickle import dumps
from distributed.utils import get_ip

from cachingclient import internals
from cachingclient.answers import Answers
from cachingclient.bounded import Bounded
from cachingclient.carrying import carried, lacks_package
from cachingclient.config import Settings
from cachingclient.explaining import Explanation, explain
from cachingclient.frames.leaves import columns_read
from cachingclient.graph.departed import Departed
from cachingclient.graph.envelope import Everything
from cachingclient.graph.plan import make_plan
from cachingclient.local_cache import local_cache_is_active
from cachingclient.pending import PendingJobs
from cachingclient.recent import RecentKeys
from cachingclient.scattering import scatter
from cachingclient.scheduler.desk import NAME
from cachingclient.scheduler.plugin import CachePlugin
from cachingclient.sending import Sending, Wish, said_of
from cachingclient.telling import tell, unused
from cachingclient.version import VERSION
from cachingclient.voice import Voice
from cachingclient.watching import Watch

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger("distributed.client.cachingclient")

#: Names that a client remembers as pure, and results that it remembers as shared.
REMEMBERED = 100_000

#: What was said of the purity of what is submitted now: None where nothing needs to be said.
_said_pure: ContextVar[bool | None] = ContextVar("cachingclient-said-pure", default=None)
#: Sessions that are switched off in this context.
_disabled: ContextVar[frozenset[int]] = ContextVar("cachingclient-disabled", default=frozenset())

#: How often a session asks for a cache that leaves while it is asked for.
ATTEMPTS = 3
#: Seconds after which what was said of a key counts, although there was no word of its job.
LATE = 1

#: Messages of the scheduler that a session listens to beside the client.
_WATCHED = ("key-in-memory", "task-erred", "cancelled-keys", "restart")


class Session:
    """Caching for one client.

    Parameters
    ----------
    client : distributed.Client
    settings : Settings
    limit : float, optional
        The limit, if it was given explicitly.
    """

    #: names whose futures may be depended on, the least recent first
    trusted: Bounded
    #: final keys that plain dask would have given a name of their own each time
    finals: Bounded

    def __init__(self, client: Client, settings: Settings, limit: float | None = None) -> None:
        self.client = client
        self.settings = settings
        self.limit = limit
        self.recent = RecentKeys(settings.recent_keys)
        self.pending = PendingJobs()
        self.trusted = Bounded(REMEMBERED)
        self.finals = Bounded(REMEMBERED)
        self.answers = Answers()
        self.watch = Watch(settings.checksums)
        self.departed = Departed()
        #: id of the scheduler, while it keeps results for this client
        self.scheduler_id: str | None = None
        #: whether this session brought the plugin
        self.installed = False
        #: final keys that were cancelled: who asks again gets another one, which no late answer
        #: of the scheduler can hit
        self.cancelled = Bounded(REMEMBERED)
        #: tokens of data that the scheduler was sent with expressions
        self.sent_data = Bounded(REMEMBERED)
        self.voice = Voice(client)
        #: whether the user has seen a hint, and that nothing is kept
        self.hinted = self.said_absent = False
        self._comm: Any = None
        self._warned: set[str] = set()
        self._handlers: dict[str, Callable[..., Any]] = {}
        #: what dask lacks, so that the cache is left out; empty where it has everything
        self.lacking = internals.lacking() if settings.cache_limit else ""
        if self.lacking:
            # Not when it connects: that may be what is not noticed any more.
            self.said_absent = True
            self._warn(
                f"Nothing is kept: {self.lacking}. Use a newer cachingclient, or an older dask. "
                "Until then this client works as distributed.Client does."
            )

    # -- connecting ------------------------------------------------------------

    async def connect(self) -> None:
        """Ask the scheduler for caching, after each connect and reconnect."""
        comm = self.client.scheduler_comm
        if comm is None or comm is self._comm:
            return
        self._comm = comm
        self.forget()
        self.scheduler_id = None
        self.voice.stop()
        if not self.settings.cache_limit or self.lacking:
            return
        try:
            self._listen()
            answer = await self._join()
        except Exception as e:
            self._no_cache(str(e).strip() or type(e).__name__)
            return
        if not answer or answer["off"]:
            self._no_cache("its cache is switched off")
            return
        self.voice.start()
        self.scheduler_id = answer["scheduler"]
        self.said_absent = False
        if answer["remark"]:
            self._warn(answer["remark"])
        # A tunnel or a gateway may have an address of this machine.
        same = answer.get("host") == gethostname()
        self.watch.elsewhere = not (same and is_here(self.client.scheduler.address))
        if self.limit is not None and answer["limit"] != self.limit:
            self._warn(
                f"cache_limit={self.limit} has no effect: the scheduler keeps results for "
                f"several clients, with a limit of {answer['limit']}. "
                "Use client.cache.resize(...) to change it."
            )

    def disconnected(self) -> None:
        """There is no scheduler that could be counted on."""
        comm = self.client.scheduler_comm
        if comm is None or comm.closed():
            self.scheduler_id = None
            self.voice.stop()

    async def _join(self) -> dict[str, Any] | None:
        plugin = CachePlugin(self.settings)
        answer: Any = None
        for _ in range(ATTEMPTS):
            refusal = await self._register(plugin)
            answer = await self.call("hello", client=self.client.id)
            if answer:  # else it has left with somebody else in between
                break
            if refusal is not None:  # and it was not preloaded either
                raise refusal
        self.installed = bool(answer) and answer["plugin"] == plugin.id
        if answer and answer["version"] != VERSION:
            await self.call("goodbye", client=self.client.id, take_down=self.installed)
            raise RuntimeError(f"it has version {answer['version']} of it, and this is {VERSION}")
        return answer

    async def _register(self, plugin: CachePlugin) -> Exception | None:
        """Send the plugin, with the package where that is needed; returns why it is refused."""

        async def register(pickled: bytes) -> None:
            await self.client.scheduler.register_scheduler_plugin(
                plugin=pickled, name=NAME, idempotent=True
            )

        try:
            try:
                await register(dumps(plugin))
            except Exception as e:
                if not lacks_package(e):
                    raise
                await register(carried(plugin))
        except Exception as e:
            return e
        return None

    def _no_cache(self, why: str) -> None:
        with contextlib.suppress(AttributeError):  # what dask lacks may be the reason
            self.stop_listening()
        self.said_absent = True
        self._warn(
            f"Nothing is kept: the scheduler cannot take the cache in ({why}). {_advice(why)} "
            "Until then this client works as distributed.Client does."
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            tell(text)

    def _listen(self) -> None:
        handlers = internals.stream_handlers(self.client)
        handlers["cachingclient-kept"] = self.recent.kept
        handlers["cachingclient-dropped"] = self.recent.dropped
        handlers["cachingclient-arrived"] = self.pending.arrived
        handlers["cachingclient-warning"] = self._warn
        handlers["cachingclient-hint"] = self._hint
        handlers["cachingclient-left"] = self._left
        if not self._handlers:
            self._handlers = {op: handlers[op] for op in _WATCHED}
        handlers["key-in-memory"] = self._key_in_memory
        handlers["task-erred"] = self._task_erred
        handlers["cancelled-keys"] = self._cancelled_keys
        handlers["restart"] = self._restarted

    def stop_listening(self) -> None:
        """Give the client its own handlers back."""
        handlers = internals.stream_handlers(self.client)
        for op in [op for op in handlers if op.startswith("cachingclient-")]:
            del handlers[op]
        handlers.update(self._handlers)
        self._handlers = {}

    async def leave(self) -> None:
        """Stop caching; a plugin that this session brought goes, unless others use it."""
        joined, self.scheduler_id = self.scheduler_id, None
        if joined is not None and self.client.status == "running":
            self.voice.last_word()
            # A scheduler that closes meanwhile takes its cache along.
            with contextlib.suppress(OSError):
                await self.call("goodbye", client=self.client.id, take_down=self.installed)
        self.stop_listening()
        self.forget()

    def forget(self) -> None:
        """Forget all that was true of a scheduler that is gone, or was restarted."""
        self.recent.clear()
        self.pending.clear()
        self.trusted.clear()
        self.finals.clear()
        self.cancelled.clear()
        self.departed.clear()
        self.sent_data.clear()

    async def call(self, method: str, **kwargs: Any) -> Any:
        """Ask the scheduler's part of the cache."""
        return await getattr(self.client.scheduler, NAME)(method=method, **kwargs)

    def _left(self) -> None:
        """Somebody took the cache away: go on as a plain client does."""
        self.scheduler_id = None
        self.voice.last_word()
        self.recent.clear()

    def absent(self) -> str:
        """Why nothing is kept for this client; empty if something is."""
        if self.scheduler_id is not None:
            return ""
        if not self.settings.cache_limit:
            return "Nothing is kept: cache_limit is 0."
        if self.lacking:
            return f"Nothing is kept: {self.lacking}."
        return "Nothing is kept: the scheduler keeps no cache for this client."

    # -- listening -------------------------------------------------------------

    def _hint(self, text: str) -> None:
        if self.settings.hints and not self.hinted:
            self.hinted = True
            self._warn(text)

    def _key_in_memory(self, key: Any = None, **kwargs: Any) -> None:
        self._told("key-in-memory", key, kwargs)

    def _task_erred(self, key: Any = None, **kwargs: Any) -> None:
        self._told("task-erred", key, kwargs)

    def _told(self, op: str, key: Key, kwargs: dict[str, Any]) -> None:
        """Take in what the scheduler says of a key, if it is not about an earlier job of it."""
        job = self.pending.early(key)
        if job is None:
            self.pending.done(key)
            self._handlers[op](key=key, **kwargs)
            return

        def later() -> None:
            # No word of the job: it went to a scheduler whose cache is off.
            if self.pending.early(key) is job and self._handlers:
                job.arrived = True
                self._told(op, key, kwargs)

        asyncio.get_running_loop().call_later(LATE, later)

    def _cancelled_keys(
        self, keys: Collection[Key], reason: str | None = None, **kwargs: Any
    ) -> Any:
        self.recent.dropped(keys)
        try:
            keys = self.pending.lost(keys, reason, self.client.futures.__contains__)
        except Exception:
            logger.exception("A computation could not be sent again")
        return self._handlers["cancelled-keys"](keys=keys, reason=reason, **kwargs)

    def _restarted(self, **kwargs: Any) -> Any:
        self.forget()
        return self._handlers["restart"](**kwargs)

    # -- sending ---------------------------------------------------------------

    @contextlib.contextmanager
    def disabled(self) -> Iterator[None]:
        """Neither read from nor add to the cache, in this context."""
        token = _disabled.set(_disabled.get() | {id(self)})
        try:
            yield
        finally:
            _disabled.reset(token)

    def is_disabled(self) -> bool:
        """Whether this is inside such a context."""
        return id(self) in _disabled.get()

    @contextlib.contextmanager
    def purity(self, kwargs: dict[str, Any], many: bool = False) -> Iterator[None]:
        """Note whether purity was said, around a submit or map.

        Parameters
        ----------
        kwargs : dict
            What it is called with.
        many : bool
            Whether it is a map, for which a text is only the beginning of its keys.
        """
        # A map in batches calls itself, with the default filled in.
        if _said_pure.get() is not None:
            yield
            return
        key = kwargs.get("key")
        # Such a key may be given to something else next time, whatever it looks like.
        named = key is not None and not (many and isinstance(key, str))
        token = _said_pure.set(kwargs.get("pure") is True and not named)
        try:
            yield
        finally:
            _said_pure.reset(token)

    def send_graph(
        self, plain: Callable[..., Any], expr: Any, keys: Any, *args: Any, **kw: Any
    ) -> Any:
        """Send a graph, as `plain` would: the scheduler learns what may be left out.

        Parameters
        ----------
        plain : callable
            The client's own method.
        expr : Expr
        keys : iterable
        *args, **kw
            For `plain`.
        """
        actors = kw.get("actors")
        # Collections have no truth
        any_actors = actors is not None and actors is not False
        if self.scheduler_id is None or not isinstance(expr, internals.Expr) or any_actors:
            return plain(expr, keys, *args, **kw)
        self._look_out()
        keys = list(keys)
        self.pending.sweep(self.client.futures.__contains__)
        try:
            pure = _said_pure.get()
            if pure is None and internals.is_submitted(kw):
                # A subclass went past the methods that note it.
                pure = False
            wish = Wish.now(pure, self.is_disabled())
            send = Sending(self, plain, keys, args, kw).prepare(expr, wish)
        except Exception as e:
            logger.exception("A computation is sent as a plain client would send it")
            self._warn(unused(e))
            send = None
        return plain(expr, keys, *args, **kw) if send is None else send()

    def _look_out(self) -> None:
        if self.settings.hints and local_cache_is_active():
            self._warn(
                "dask.cache.Cache does nothing for a distributed client: it caches for dask's "
                "own schedulers only. Unregister it; this client keeps results on the workers."
            )

    def scatter(self, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Scatter data, as `plain` would; what names its content may be depended on."""
        # Workers of this process hold the user's own objects, which may change.
        if self.scheduler_id is None or self.client.scheduler.address.startswith("inproc://"):
            return plain(*args, **kwargs)
        return scatter(plain, args, kwargs, self._trust)

    def _trust(self, keys: Iterable[Key]) -> None:
        """What is made of these may be kept: the scheduler hears of it ahead of the graphs."""
        if keys := list(keys):
            self.trusted.note_all(keys)
            self.voice.say(allowed=keys)

    async def explain(self, expr: internals.Expr) -> Explanation:
        """Explain what would become of a computation."""
        wish = Wish.now(None, False)
        seen = self.watch.look(expr)
        said = said_of({}, wish.annotations, seen)
        plan = make_plan(expr, self.settings, self.trusted, said, self.cancelled)
        lifted: Any = Everything() if wish.keep else plan.lifted

        reads = columns_read(expr, seen.readers)

        async def ask(names: list[str]) -> Any:
            if not self.scheduler_id:
                return {}
            return await self.call("explain", names=names, reads=reads)

        async def kept_of(keys: list[Key]) -> Any:
            return await self.call("kept_of", keys=keys)

        async def choose(dependents: Mapping[str, list[str]], sizes: Mapping[str, int]) -> Any:
            if not self.scheduler_id:
                return ()
            return await self.call(
                "choose",
                candidates=vars(plan.candidates),
                dependents=dependents,
                sizes=sizes,
                denied=[str(n) for n in plan.denied],
            )

        rules = self.settings.rules
        return await explain(plan, self.trusted, lifted, rules, seen.remarks, ask, kept_of, choose)

    # -- cancelling ------------------------------------------------------------

    async def cancel(
        self,
        plain: Callable[..., Any],
        futures: Any,
        reason: str | None = None,
        msg: str | None = None,
        force: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Cancel futures, as `plain` would."""
        rest = self.cancel_alone(futures, reason, msg)
        finals = [f for f in rest if f.key in self.finals]
        if not force or not finals:
            return await plain(rest, reason=reason, msg=msg, force=force, **kwargs)
        # Other clients have it for themselves, where equal computations have other keys.
        await plain(finals, reason=reason, msg=msg, force=False, **kwargs)
        others = [f for f in rest if f.key not in self.finals]
        return await plain(others, reason=reason, msg=msg, force=True, **kwargs)

    def cancel_alone(self, futures: Any, reason: str | None, msg: str | None) -> list[Future]:
        """Cancel futures whose key other computations share, which plain dask keeps apart.

        Returns
        -------
        list of Future
            Those that the client has to cancel itself.
        """
        rest, mine = [], {id(f): f for f in futures_of(futures)}
        for future in mine.values():
            if future.key in self.finals and self._is_shared(future.key, mine):
                self._cancel_one(future, reason, msg)
            else:
                rest.append(future)
        self.cancelled.note_all(f.key for f in rest if f.key in self.finals)
        return rest

    def _is_shared(self, key: Key, mine: Collection[int]) -> bool:
        try:
            return self.answers.is_shared(key, mine)
        except Exception as e:
            # Nobody knows: what others may wait for goes on.
            logger.exception("Nobody can tell who shares a future")
            self._warn(unused(e))
            return True

    def _cancel_one(self, future: Future, reason: str | None, msg: str | None) -> None:
        try:
            internals.cancel_one(future, reason, msg)
        except Exception as e:
            # It goes on: the others of its key must not be cancelled with it.
            logger.exception("A future could not be cancelled alone")
            self._warn(unused(e))


def _advice(why: str) -> str:
    """What to change where the scheduler runs, that it takes the cache in."""
    if "disallowed" in why:
        return (
            f"Take register_scheduler_plugin and {NAME} off its setting "
            "distributed.scheduler.blocked-handlers."
        )
    return (
        f"Install {VERSION} of the package cachingclient where the scheduler runs, and let it "
        "accept plugins."
    )


def is_here(address: str) -> bool:
    """Whether an address is one of this machine.

    Examples
    --------
    >>> is_here("inproc://10.0.0.9/1/2"), is_here("tcp://127.0.0.1:8786")
    (True, True)
    >>> is_here("tcp://192.0.2.77:8786")
    False
    """
    if address.startswith("inproc://"):
        return True
    return get_address_host(address) in {"127.0.0.1", "::1", "localhost", get_ip()}
