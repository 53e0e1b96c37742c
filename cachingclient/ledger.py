"""What is kept, how much of it, and under which limit.

Takes observations and *returns* what to keep and what to let go; doing it is
the plugin's part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dask.typing import Key

from cachingclient.bounded import Lately
from cachingclient.hints import Regrets
from cachingclient.news import EVICT, HIT, KEEP, News
from cachingclient.places import Places
from cachingclient.policy import Policy

#: Keys whose computation is remembered, to tell what was computed again.
REMEMBERED = 20_000

#: Hits of a key that count when its books are taken over.
MANY_HITS = 100

#: Why keys had to go: others needed their room, or running work the memory of their workers.
LIMIT, PRESSURE, SCHEDULER = CAUSES = "limit", "pressure", "scheduler memory"


@dataclass
class Kept:
    """One kept key."""

    __slots__ = ("name", "nbytes", "paid", "hits", "tasks")

    #: name of its layer
    name: str
    #: bytes of its value
    nbytes: int
    #: seconds of task time that it had cost
    paid: float
    #: how often it was used in place of computing it
    hits: int
    #: tasks of the graph whose result it is, 0 if it is an intermediate
    tasks: int


@dataclass
class Need:
    """Bytes that have to be let go."""

    nbytes: float
    #: keys that count: None is all
    among: Collection[Key] | None = None

    def counts(self, key: Key) -> bool:
        """Whether letting a key go helps."""
        return self.among is None or key in self.among


class Ledger:
    """What is kept.

    Parameters
    ----------
    policy : Policy
        Says what a key is worth.
    limit : int
        Bytes that may be kept.

    Examples
    --------
    >>> from cachingclient.policy import make_policy
    >>> ledger = Ledger(make_policy("group"), limit=1000)
    >>> ledger.offer("a", "a", paid=1.0, nbytes=800)
    (True, [])
    >>> ledger.offer("b", "b", paid=9.0, nbytes=800)
    (True, ['a'])
    >>> ledger.offer("c", "c", paid=0.1, nbytes=800)
    (False, [])
    """

    #: {key: what is known of it}
    kept: dict[Key, Kept]
    #: {name of a layer: its kept keys}
    names: defaultdict[str, set[Key]]
    #: where they are
    places: Places
    #: names that the user pinned: they go last, and only where running work needs the memory
    pinned: Collection[str]
    #: {cause: keys that had to go}
    evicted: Counter[str]
    #: {cause: their bytes}
    evicted_bytes: Counter[str]
    #: what happened to keys since somebody looked
    news: News
    #: what was computed again for lack of room
    regrets: Regrets
    #: told of all that happens, while somebody records it
    journal: Callable[..., None] | None

    def __init__(self, policy: Policy, limit: int) -> None:
        self.policy = policy
        self.limit = limit
        self.kept = {}
        self.names = defaultdict(set)
        self.places = Places()
        self.shares: Mapping[str, int] = {}
        self.pinned = ()
        self.journal = None
        self.evicted, self.evicted_bytes = Counter(), Counter()
        self.news, self.regrets = News(), Regrets()
        self.currsize = 0
        self.hits = self.misses = self.skipped = 0
        self.saved = self.recomputed = 0.0
        self._computed = Lately(REMEMBERED)
        self._requests = 0

    def __contains__(self, key: Key) -> bool:
        return key in self.kept

    @property
    def evictions(self) -> int:
        """Keys that had to go, whatever for."""
        return sum(self.evicted.values())

    def number(self, name: str) -> int:
        """How many keys of a layer are kept."""
        keys = self.names.get(name)
        return len(keys) if keys else 0

    def paid(self, name: str) -> float:
        """Seconds of task time that the kept keys of a layer had cost."""
        # Other threads ask: they see the keys as they were at one moment.
        kept = (self.kept.get(k) for k in tuple(self.names.get(name) or ()))
        return sum(k.paid for k in kept if k is not None)

    def ran(self, key: Key, seconds: float) -> None:
        """Count a key that ran and was allowed to be kept."""
        self.misses += 1
        if self._computed.meet(key):
            self.recomputed += seconds
            self.regrets.ran(key, seconds, self.limit)

    def offer(
        self,
        key: Key,
        name: str,
        paid: float,
        nbytes: int,
        tasks: int = 0,
        may_evict: bool = True,
        alive: bool | None = None,
        where: Collection[str] = (),
        request: int | None = None,
        parts: int = 0,
    ) -> tuple[bool, list[Key]]:
        """Offer a key that was just computed.

        Parameters
        ----------
        key : Key
        name : str
            Name of its layer.
        paid : float
            Seconds of task time that it had cost.
        nbytes : int
            Bytes of its value.
        tasks : int
            Tasks of the graph whose result it is, if it is one.
        may_evict : bool
            False while others may not be let go.
        alive : bool, optional
            Whether a living collection needs its layer; None if nobody told.
        where : collection of str
            Addresses of the workers that have it.
        request : int, optional
            Number of the submission that it was computed for.
        parts : int
            Number of keys of its layer, where these are worth something only together.

        Returns
        -------
        (bool, list)
            Whether to keep it, and what to let go for it.
        """
        decision = self._decide(
            key, name, paid, nbytes, tasks, may_evict, alive, where, request, parts
        )
        if self.journal is not None:
            terms = paid, nbytes, tasks, may_evict, alive, where, request, parts
            self.journal("offer", key, name, *terms, *decision)
        return decision

    def _decide(
        self,
        key: Key,
        name: str,
        paid: float,
        nbytes: int,
        tasks: int,
        may_evict: bool,
        alive: bool | None,
        where: Collection[str],
        request: int | None,
        parts: int,
    ) -> tuple[bool, list[Key]]:
        if key in self.kept:
            self._drop(key)
        policy = self.policy
        policy.computed(name, paid, nbytes, request, alive, parts)
        needs = self._needs(nbytes, where)
        victims: list[Key] | None = []
        if not self._fits(nbytes, where) or (needs and not may_evict):
            victims = None
        elif needs:
            pinned = name in self.pinned
            worth = math.inf if pinned else policy.estimate(name, paid, nbytes)
            victims = self._victims(worth, needs)
        if victims is None:
            policy.lacks(name)
            return False, []
        self._evict(victims, LIMIT)
        self.kept[key] = Kept(name, nbytes, paid, 0, tasks)
        self.names[name].add(key)
        self.currsize += nbytes
        self.places.add(key, nbytes, where)
        policy.put(key, name, paid, nbytes)
        self.news.note(KEEP, name, nbytes)
        return True, victims

    def _fits(self, nbytes: int, where: Collection[str]) -> bool:
        if nbytes > self.limit:
            return False
        for worker in where:
            if not self.places.fits(worker, nbytes):
                return False
        return True

    def _needs(self, nbytes: int, where: Collection[str]) -> list[Need]:
        """What has to go before so many bytes have room."""
        places, needs = self.places, []
        for worker in where:
            if (over := places.over(worker, nbytes)) > 0:
                needs.append(Need(over, places.at(worker)))
        if (over := self.currsize + nbytes - self.limit) > 0:
            needs.append(Need(over))
        return needs

    def _victims(self, worth: float, needs: list[Need]) -> list[Key] | None:
        """Keys worth less than a newcomer that make room for it; None if it is not worth it."""
        # The last need is the largest part of what is kept, or the only one.
        if not self.policy.frees(needs[-1].nbytes, worth, self.pinned):
            return None
        return self._collect(needs, lambda key: self.policy.score(key) < worth)

    def _collect(self, needs: list[Need], may_go: Callable[[Key], bool]) -> list[Key] | None:
        """The least valuable keys that meet all needs; the narrow ones come first."""
        victims: dict[Key, None] = {}
        for need in needs:
            for key in self._candidates(need):
                if need.nbytes <= 0:
                    break
                if not may_go(key):
                    break
                if key not in victims and need.counts(key):
                    victims[key] = None
                    nbytes = self.kept[key].nbytes
                    for other in needs:
                        if other.counts(key):
                            other.nbytes -= nbytes
            if need.nbytes > 0:
                return None
        return list(victims)

    def _candidates(self, need: Need) -> Iterator[Key]:
        """Kept keys that could help, and perhaps others, the least valuable first."""
        if need.nbytes <= 0:
            return
        passed = 0
        for key in self.policy.least_valuable(self.pinned):
            yield key
            if need.among is not None and key not in need.among:
                passed += 1
                if passed > len(need.among):
                    # It is rare among the least valuable: sorting what is there takes less.
                    yield from (k for k in self.policy.ranked(need.among) if not self.is_pinned(k))
                    return

    def count_evicted(self, keys: Iterable[Key], cause: str) -> None:
        """Count kept keys that have to go."""
        for key in keys:
            kept = self.kept[key]
            self.evicted[cause] += 1
            self.evicted_bytes[cause] += kept.nbytes
            self.news.note(EVICT, kept.name, kept.nbytes, cause)
            if cause == LIMIT:
                self.regrets.no_room(key, kept.name, kept.nbytes)

    def _evict(self, keys: list[Key], cause: str) -> None:
        self.count_evicted(keys, cause)
        for key in keys:
            self._drop(key)

    def hit(self, keys: Collection[Key], request: int | None = None) -> None:
        """Count kept keys that a submission uses in place of computing them.

        Parameters
        ----------
        keys : collection of Key
        request : int, optional
            Number of the submission; by default it is the one after the last.
        """
        self._requests = self._requests + 1 if request is None else max(request, self._requests)
        request = self._requests
        if self.journal is not None:
            self.journal("hit", keys, request)
        for key in keys:
            kept = self.kept[key]
            kept.hits += 1
            self.saved += kept.paid
            self.news.note(HIT, kept.name, kept.nbytes)
            self.policy.touch(key, request)
        self.hits += len(keys)

    def forget(self, key: Key) -> None:
        """Take a key off the books, whatever became of it."""
        if self.journal is not None and key in self.kept:
            self.journal("forget", [key])
        self._drop(key)

    def _drop(self, key: Key) -> None:
        kept = self.kept.pop(key, None)
        if kept is None:
            return
        self.currsize -= kept.nbytes
        self.places.forget(key)
        self.policy.forget(key)
        keys = self.names[kept.name]
        keys.discard(key)
        if not keys:
            del self.names[kept.name]

    def succeed(self, other: Ledger) -> None:
        """Take over the books of another ledger; what there is no room for is over the limit.

        Examples
        --------
        >>> from cachingclient.policy import make_policy
        >>> old, new = (Ledger(make_policy("group"), limit) for limit in (1000, 500))
        >>> old.offer("a", "a", paid=1.0, nbytes=300), old.offer("b", "b", paid=9.0, nbytes=300)
        ((True, []), (True, []))
        >>> new.succeed(old)
        >>> new.over_limit(), list(new.kept)
        (['a'], ['b'])
        """
        self.hits, self.misses, self.skipped = other.hits, other.misses, other.skipped
        self.evicted, self.evicted_bytes = other.evicted, other.evicted_bytes
        self.saved, self.places = other.saved, other.places
        self.news, self.regrets = other.news, other.regrets
        self.recomputed, self._computed = other.recomputed, other._computed
        self.journal, self.shares = other.journal, other.shares
        inherited = self.policy.inherit(other.policy)
        for key, kept in other.kept.items():
            self.kept[key] = kept
            self.names[kept.name].add(key)
            self.currsize += kept.nbytes
            if not inherited:
                self._tell_again(key, kept)

    def _tell_again(self, key: Key, kept: Kept) -> None:
        # Submissions before the first one of all.
        hits = min(kept.hits, MANY_HITS)
        self.policy.computed(kept.name, kept.paid, kept.nbytes, request=-MANY_HITS - 1)
        self.policy.put(key, kept.name, kept.paid, kept.nbytes)
        for i in range(hits):
            self.policy.touch(key, request=i - MANY_HITS)

    def over_limit(self) -> list[Key]:
        """Let the least valuable keys go until all limits are kept; returns them."""
        victims = self._settle()
        if self.journal is not None and victims:
            self.journal("settle", victims)
        return victims

    def _settle(self) -> list[Key]:
        needs = [Need(self.places.over(w), self.places.at(w)) for w in self.places.crowded()]
        needs.append(Need(self.currsize - self.limit))
        victims = self._collect(needs, lambda key: True)
        if not self.limit:  # switched off: nothing stays, pinned or not
            victims = list(self.kept)
        elif victims is None:  # what is pinned is more than the limit by now
            victims = [k for k in self.ranked(self.kept) if not self.is_pinned(k)]
        self._evict(victims, LIMIT)
        return victims

    def is_pinned(self, key: Key) -> bool:
        """Whether a kept key is of a layer that the user pinned."""
        return self.kept[key].name in self.pinned

    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        """Kept keys, the least valuable first, and what is pinned last."""
        return sorted(self.policy.ranked(keys), key=self.is_pinned)

    def relieve(self, among: Collection[Key], nbytes: float) -> list[Key]:
        """Let the least valuable of some keys go for running work; returns them.

        Parameters
        ----------
        among : collection of Key
        nbytes : float
            Bytes that are needed.
        """
        victims = []
        for key in self.ranked(among):
            if nbytes <= 0:
                break
            victims.append(key)
            nbytes -= self.kept[key].nbytes
        self._evict(victims, PRESSURE)
        if self.journal is not None and victims:
            self.journal("relieve", victims)
        return victims

    def resize(self, limit: int, shares: Mapping[str, int] = {}) -> list[Key]:
        """Change the limit, and what each worker may hold of it; returns what has to go."""
        self.limit = limit
        self.shares = shares
        self.places.share(shares)
        victims = self._settle()
        if self.journal is not None:
            self.journal("resize", limit, shares, victims)
        return victims

    def came(self, key: Key, address: str) -> None:
        """A worker has a replica of a kept key."""
        self.places.came(key, address)
        if self.journal is not None:
            self.journal("came", address, [key])

    def moved(self, address: str, keys: Collection[Key]) -> None:
        """These are the kept keys that a worker has."""
        self.places.moved(address, keys)
        if self.journal is not None:
            self.journal("moved", address, keys)

    def matching(self, prefix: str | None = None) -> list[Key]:
        """Kept keys of layers whose name starts with a prefix."""
        if prefix is None:
            return list(self.kept)
        return [k for n, keys in self.names.items() if n.startswith(prefix) for k in keys]

    def of_names(self, names: Iterable[str]) -> list[Key]:
        """Kept keys of these layers."""
        return [k for n in names if n in self.names for k in self.names[n]]
