"""Notes what happens to results, without names, data or code, for a simulator to replay."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask.typing import Key

    from cachingclient.scheduler.plugin import CachePlugin

#: Version of what is written.
VERSION = 1
#: Events that wait for whoever records; more than that, and nobody comes for them.
MOST = 500_000


class Recorder:
    """The journal of a ledger.

    Names and keys are hashed with a salt that is made up for each recording and never written:
    equal names have equal hashes within it, and nobody can tell which they were.

    Parameters
    ----------
    plugin : CachePlugin
    client : str
        Id of the client that records.
    """

    def __init__(self, plugin: CachePlugin, client: str) -> None:
        self.client = client
        self._plugin = plugin
        self._salt = os.urandom(16)
        self._events: list[list[Any]] = []
        #: whether events were lost
        self.overrun = False
        plugin.ledger.journal = self._note

    def header(self) -> dict[str, Any]:
        """How things are at the beginning."""
        plugin, ledger = self._plugin, self._plugin.ledger
        return {
            "trace": VERSION,
            "policy": plugin.settings["policy"],
            "halflife": plugin.settings["halflife"],
            "min-cost": plugin.settings["min_cost"],
            "limit": ledger.limit,
            "shares": self._numbers(ledger.shares),
            "pinned": self._hashed(ledger.pinned),
            "kept": [
                [self._hash(k), self._hash(kept.name), kept.nbytes, kept.paid, kept.hits]
                for k, kept in ledger.kept.items()
            ],
        }

    def take(self) -> list[list[Any]]:
        """Events since this was asked last."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Note nothing any more."""
        if self._plugin.ledger.journal == self._note:
            self._plugin.ledger.journal = None

    # -- events ----------------------------------------------------------------

    def _note(self, what: str, *args: Any) -> None:
        if len(self._events) >= MOST:
            self.overrun = True
            self.close()
            return
        self._events.append([what, *_EVENTS[what](self, *args)])

    def _submit(
        self,
        now: float,
        number: int,
        names: Collection[Any],
        outputs: Collection[Key],
        alive: Mapping[Any, bool | None],
    ) -> list[Any]:
        living = {self._hash(name): value for name, value in alive.items()}
        return [now, number, self._hashed(names), self._hashed(outputs), living]

    def _ran(
        self,
        key: Key,
        name: Any,
        seconds: float,
        nbytes: int,
        sharing: Iterable[tuple[Key, int]],
    ) -> list[Any]:
        needs = [[self._hash(k), n] for k, n in sharing]
        return [self._hash(key), self._hash(name), seconds, nbytes, needs]

    def _offer(
        self,
        key: Key,
        name: Any,
        paid: float,
        nbytes: int,
        tasks: int,
        may_evict: bool,
        alive: bool | None,
        where: Collection[str],
        request: int | None,
        parts: int,
        kept: bool,
        victims: list[Key],
    ) -> list[Any]:
        terms = [paid, nbytes, tasks, may_evict, alive, self._hashed(where), request, parts]
        return [self._hash(key), self._hash(name), *terms, kept, self._hashed(victims)]

    def _hit(self, keys: Collection[Key], request: int) -> list[Any]:
        return [self._hashed(keys), request]

    def _keys(self, keys: Collection[Key]) -> list[Any]:
        return [self._hashed(keys)]

    def _resize(self, limit: int, shares: Mapping[str, int], victims: list[Key]) -> list[Any]:
        return [limit, self._numbers(shares), self._hashed(victims)]

    def _moved(self, address: str, keys: Collection[Key]) -> list[Any]:
        return [self._hash(address), self._hashed(keys)]

    # -- names -----------------------------------------------------------------

    def _hash(self, name: Any) -> str:
        return hashlib.blake2b(repr(name).encode(), key=self._salt, digest_size=8).hexdigest()

    def _hashed(self, names: Iterable[Any]) -> list[str]:
        return [self._hash(name) for name in names]

    def _numbers(self, shares: Mapping[str, int]) -> dict[str, int]:
        return {self._hash(address): share for address, share in shares.items()}


_EVENTS: dict[str, Callable[..., list[Any]]] = {
    "submit": Recorder._submit,
    "ran": Recorder._ran,
    "offer": Recorder._offer,
    "hit": Recorder._hit,
    "forget": Recorder._keys,
    "relieve": Recorder._keys,
    "settle": Recorder._keys,
    "pin": Recorder._keys,
    "resize": Recorder._resize,
    "came": Recorder._moved,
    "moved": Recorder._moved,
}
