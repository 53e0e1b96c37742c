"""Answers clients: who asked for caching, what is kept, what should go."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cachingclient.graph.choosing import Candidates, choose
from cachingclient.scheduler.experience import Learnt
from cachingclient.scheduler.holding import PSEUDO_CLIENT
from cachingclient.scheduler.permits import Permits

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

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
        # Bound once: a method is another object each time that it is looked up.
        self._answer = self.answer
        plugin.scheduler.handlers[NAME] = self._answer
        self.permits = Permits(plugin.scheduler, plugin.permit)

    async def answer(self, method: str, **kwargs: Any) -> Any:
        """Answer a question of a client."""
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
        }

    async def goodbye(self, client: str, take_down: bool = False) -> None:
        """A client wants no more caching; what it brought goes with the last that uses it."""
        await self.permits.last_word(client)
        self._temporary |= take_down
        self.client_gone(client)

    def client_gone(self, client: str) -> None:
        """What is kept outlives its client, for a restarted one to find, but not for ever."""
        self.permits.discard(client)
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

    def entries(self, prefix: str | None = None) -> list[dict[str, Any]]:
        """What is kept, a layer each, most valuable first."""
        names = self.plugin.ledger.names
        found = [self._entry(n) for n in names if prefix is None or n.startswith(prefix)]
        return sorted(found, key=lambda entry: entry["score"], reverse=True)

    def _entry(self, name: str) -> dict[str, Any]:
        plugin, ledger = self.plugin, self.plugin.ledger
        keys = ledger.names[name]
        kept = [ledger.kept[k] for k in keys]
        states = [plugin.scheduler.tasks[k] for k in keys if k in plugin.scheduler.tasks]
        total = max((len(ts.group) for ts in states), default=0)
        return {
            "name": name,
            "keys": len(keys),
            "total": max(total, len(keys)),
            "nbytes": sum(k.nbytes for k in kept),
            "seconds": sum(k.paid for k in kept),
            "hits": sum(k.hits for k in kept),
            "score": sum(ledger.policy.score(k) for k in keys) / len(keys),
            "alive": plugin.books.alive.get(name),
            "workers": sorted({ws.address for ts in states for ws in ts.who_has or ()}),
        }

    def explain(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What is kept of layers, and why the rest is not."""
        plugin = self.plugin
        return {
            name: {"kept": plugin.ledger.number(name), "why": plugin.books.refused.get(name, "")}
            for name in names
        }

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

    def clear(self, prefix: str | None = None, names: Iterable[Any] | None = None) -> None:
        """Let go of everything, of a key prefix, or of some layers and what they made possible."""
        if names is None:
            self.plugin.release.now(self.plugin.ledger.matching(prefix))
            if prefix is None:
                self.plugin.forget_frames()
        else:
            names = set(names)
            self.plugin.release.now(self.plugin.detaching.made_of(names))
            self.plugin.release.downstream(names)

    def pin(self, names: Iterable[Any], nbytes: int) -> dict[str, Any]:
        """Keep names when they are computed next, and don't evict them; if they can fit."""
        limit = self.plugin.ledger.limit
        if nbytes <= limit:
            self.plugin.books.pinned.update(names)
        return {"fits": nbytes <= limit, "limit": limit}

    def unpin(self, names: Iterable[Any]) -> None:
        """Let names be evicted again."""
        self.plugin.books.pinned.difference_update(names)

    def resize(self, limit: float) -> int:
        """Change the limit; returns it in bytes."""
        self.plugin.resize(limit)
        return self.plugin.ledger.limit

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def close(self) -> None:
        """Take the handlers away."""
        self._stop_expiry()
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
    "choose": Desk.choose,
    "clear": Desk.clear,
    "resize": Desk.resize,
    "pin": Desk.pin,
    "unpin": Desk.unpin,
}
