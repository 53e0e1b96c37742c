"""Answers clients: who asked for caching, what is kept, what should go."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from socket import gethostname
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes

from cachingclient.graph.choosing import Candidates, choose
from cachingclient.news import CLEAR
from cachingclient.scheduler import overview
from cachingclient.scheduler.experience import Learnt
from cachingclient.scheduler.holding import PSEUDO_CLIENT
from cachingclient.scheduler.permits import Permits
from cachingclient.scheduler.recorder import Recorder
from cachingclient.version import VERSION

if TYPE_CHECKING:
    from dask.typing import Key

    from cachingclient.scheduler.plugin import CachePlugin

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Name of the handler for questions, of the plugin, and of the pseudo-client.
NAME = PSEUDO_CLIENT


class Desk:
    """Handlers of one scheduler.

    Parameters
    ----------
    plugin : CachePlugin
    """

    def __init__(self, plugin: CachePlugin) -> None:
        self.plugin = plugin
        #: ids of the clients that asked for caching
        self.clients: set[str] = set()
        # Who brought the plugin wants nothing left behind, and has gone before others.
        self._temporary = False
        self._expiry: asyncio.TimerHandle | None = None
        self._recorder: Recorder | None = None
        # Bound once: a method is another object each time that it is looked up.
        self._answer = self.answer
        plugin.scheduler.handlers[NAME] = self._answer
        self.permits = Permits(plugin.scheduler, plugin.permit)

    async def answer(self, method: str, **kwargs: Any) -> Any:
        """Answer a question of a client."""
        self.plugin.keeper.settle()
        answer = _METHODS[method](self, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def hello(self, client: str, limit: float | None = None) -> dict[str, Any]:
        """A client asks for caching."""
        plugin = self.plugin
        # One that has gone meanwhile would stay on the list for ever.
        if client in plugin.scheduler.clients and not plugin.off:
            self.clients.add(client)
            self.permits.add(client)
            self._stop_expiry()
        await plugin.guards.settled()
        return {
            "scheduler": plugin.scheduler.id,
            "plugin": plugin.id,
            "limit": plugin.limit,
            "off": plugin.off,
            "version": VERSION,
            "remark": plugin.remark,
            "host": gethostname(),
        }

    async def goodbye(self, client: str, take_down: bool = False) -> None:
        """A client wants no more caching; what it brought goes with the last that uses it."""
        await self.permits.last_word(client)
        self._temporary |= take_down
        self.client_gone(client)

    def client_gone(self, client: str) -> None:
        """What is kept outlives its client, for a restarted one to find, but not for ever."""
        self.permits.discard(client)
        if self._recorder is not None and self._recorder.client == client:
            self._stop_recording()
        if client in self.clients:
            self.clients.discard(client)
            if not self.clients:
                self._nobody()

    def _nobody(self) -> None:
        if self._temporary:
            self.plugin.leave()
        else:
            self._stop_expiry()
            self._expiry = asyncio.get_running_loop().call_later(
                self.plugin.settings["idle_time"], self.plugin.expire
            )

    def succeed(self, old: Desk) -> None:
        """Serve the clients of a desk that is closed."""
        self._temporary = old._temporary
        self.clients |= old.clients
        if not self.clients:
            self._nobody()

    def send_away(self) -> None:
        """Tell the clients that there is no cache any more."""
        for client in self.clients:
            self.plugin.scheduler.client_send(client, {"op": "cachingclient-left"})
        self.clients = set()

    def plain_clients(self) -> bool:
        """Whether clients are connected that never asked for caching."""
        return any(c not in self.clients for c in self.plugin.scheduler.client_comms)

    def info(self) -> dict[str, Any]:
        """Counters, by the names of CacheInfo."""
        ledger = self.plugin.ledger
        return {
            "hits": ledger.hits,
            "misses": ledger.misses,
            "maxsize": ledger.limit,
            "currsize": ledger.currsize,
            "keys": len(ledger.kept),
            "skipped": ledger.skipped,
            "saved": ledger.saved,
            "recomputed": ledger.recomputed,
            "evictions": ledger.evictions,
            "audits": self.plugin.audits.done,
            "differing": self.plugin.audits.differing,
        }

    def entries(self, prefix: str | None = None, most: int | None = None) -> list[dict[str, Any]]:
        """What is kept, a layer each, most valuable first."""
        return overview.entries(self.plugin, prefix, most)

    def explain(
        self, names: Iterable[str], reads: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """What is kept of layers, and why the rest is not."""
        return overview.explain(self.plugin, names, reads)

    def kept_of(self, keys: Iterable[Key]) -> list[Key]:
        """Which of some keys are kept."""
        return [k for k in keys if k in self.plugin.ledger]

    def overview(self) -> dict[str, Any] | None:
        """What the cache is doing; None where it is switched off."""
        return None if self.plugin.off else overview.overview(self.plugin)

    def choose(
        self,
        candidates: dict[str, Any],
        dependents: Mapping[str, Iterable[str]],
        sizes: dict[str, int],
        denied: list[str],
    ) -> list[str]:
        """Layers of a graph that would get a barrier."""
        found = Candidates(**candidates)
        return list(choose(found, dependents, sizes.__getitem__, denied, Learnt(self.plugin)))

    def clear(self, prefix: str | None = None, names: Iterable[Any] | None = None) -> int:
        """Let go of everything, of a key prefix, or of some layers and what they made possible.

        Returns how many keys have gone.
        """
        plugin, before = self.plugin, dict(self.plugin.ledger.kept)
        if names is None:
            plugin.release.now(plugin.ledger.matching(prefix))
            if prefix is None:
                plugin.forget_frames()
        else:
            plugin.release_all_of(set(names))
        for key, kept in before.items():
            if key not in plugin.ledger:
                plugin.ledger.news.note(CLEAR, kept.name, kept.nbytes)
        number = len(before) - len(plugin.ledger.kept)
        logger.info("%s keys were cleared", f"{number:,}")
        return number

    def pin(self, names: Iterable[Any], nbytes: int) -> dict[str, Any]:
        """Keep names when they are computed next, and don't evict them; if they can fit."""
        limit = self.plugin.ledger.limit
        if nbytes <= limit:
            self.plugin.books.pinned.update(names)
            self._note_pinned()
        return {"fits": nbytes <= limit, "limit": limit}

    def unpin(self, names: Iterable[Any]) -> bool:
        """Let names be evicted again."""
        plugin = self.plugin
        plugin.books.pinned.difference_update(names)
        self._note_pinned()
        # They may be more than the limit by now.
        plugin.release.soon(plugin.ledger.over_limit())
        return True

    def _note_pinned(self) -> None:
        if self.plugin.ledger.journal is not None:
            self.plugin.ledger.journal("pin", self.plugin.books.pinned)

    def record(self, client: str) -> dict[str, Any] | None:
        """Begin to record; None if somebody records already."""
        if self._recorder is not None:
            return None
        self._recorder = Recorder(self.plugin, client)
        return self._recorder.header()

    def recorded(self, client: str, stop: bool = False) -> dict[str, Any]:
        """What was recorded since this was asked last; `overrun`: not everything."""
        recorder = self._recorder
        if recorder is None or recorder.client != client:
            return {"events": [], "overrun": True}
        answer = {"events": recorder.take(), "overrun": recorder.overrun}
        if stop or recorder.overrun:
            self._stop_recording()
        return answer

    def _stop_recording(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def resize(self, limit: float) -> int:
        """Change the limit; returns it in bytes."""
        self.plugin.resize(limit)
        logger.info("The cache keeps up to %s now", format_bytes(self.plugin.ledger.limit))
        return self.plugin.ledger.limit

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def close(self) -> None:
        """Take the handlers away."""
        self._stop_expiry()
        self._stop_recording()
        self.permits.close()
        handlers: dict[str, Any] = self.plugin.scheduler.handlers
        if handlers.get(NAME) is self._answer:
            del handlers[NAME]


_METHODS: dict[str, Callable[..., Any]] = {
    "hello": Desk.hello,
    "goodbye": Desk.goodbye,
    "info": Desk.info,
    "entries": Desk.entries,
    "explain": Desk.explain,
    "kept_of": Desk.kept_of,
    "overview": Desk.overview,
    "choose": Desk.choose,
    "clear": Desk.clear,
    "resize": Desk.resize,
    "pin": Desk.pin,
    "unpin": Desk.unpin,
    "record": Desk.record,
    "recorded": Desk.recorded,
}
