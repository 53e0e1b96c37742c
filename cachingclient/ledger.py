"""What is kept, how much of it, and under which limit.

Takes observations and *returns* what to keep and what to let go; doing it is
the plugin's part.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dask.typing import Key

from cachingclient.policy import CacheyPolicy

#: Keys whose computation is remembered, to tell what was computed again.
REMEMBERED = 100_000

#: Hits of a key that count when its books are taken over.
MANY_HITS = 100

#: What is not needed by anything alive is worth this much less; it may still be asked for.
NOT_NEEDED = 0.01


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


class Ledger:
    """What is kept.

    Parameters
    ----------
    policy : CacheyPolicy
        Says what a key is worth.
    limit : int
        Bytes that may be kept.

    Examples
    --------
    >>> ledger = Ledger(CacheyPolicy(100), limit=1000)
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

    def __init__(self, policy: CacheyPolicy, limit: int) -> None:
        self.policy = policy
        self.limit = limit
        self.kept = {}
        self.names = defaultdict(set)
        self.currsize = 0
        self.hits = self.misses = self.skipped = self.evictions = 0
        self.saved = self.recomputed = 0.0
        self._computed: OrderedDict[Key, None] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self.kept

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
        if key in self._computed:
            self.recomputed += seconds
            self._computed.move_to_end(key)
            return
        self._computed[key] = None
        if len(self._computed) > REMEMBERED:
            self._computed.popitem(last=False)

    def offer(
        self,
        key: Key,
        name: str,
        paid: float,
        nbytes: int,
        tasks: int = 0,
        may_evict: bool = True,
        needed: bool = True,
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
        needed : bool
            False where it is known that no living collection needs it.

        Returns
        -------
        (bool, list)
            Whether to keep it, and what to let go for it.
        """
        self.forget(key)
        worth = paid if needed else paid * NOT_NEEDED
        victims = self._victims(worth, nbytes) if may_evict else []
        if victims is None or self.currsize + nbytes - self._size(victims) > self.limit:
            return False, []
        for victim in victims:
            self.forget(victim)
        self.evictions += len(victims)
        self.kept[key] = Kept(name, nbytes, paid, 0, tasks)
        self.names[name].add(key)
        self.currsize += nbytes
        self.policy.put(key, worth, nbytes)
        return True, victims

    def _size(self, keys: Iterable[Key]) -> int:
        return sum(self.kept[k].nbytes for k in keys)

    def _victims(self, paid: float, nbytes: int) -> list[Key] | None:
        """Keys worth less than a newcomer that make room for it; None if it is not worth it."""
        need = self.currsize + nbytes - self.limit
        if need <= 0:
            return []
        if nbytes > self.limit:
            return None
        worth = self.policy.estimate(paid, nbytes)
        return self._collect(need, lambda key: self.policy.score(key) < worth)

    def _collect(self, need: float, may_go: Callable[[Key], bool]) -> list[Key] | None:
        victims = []
        for key in self.policy.least_valuable():
            if need <= 0 or not may_go(key):
                break
            victims.append(key)
            need -= self.kept[key].nbytes
        return victims if need <= 0 else None

    def hit(self, keys: Collection[Key]) -> None:
        """Count kept keys that a submission uses in place of computing them."""
        for key in keys:
            kept = self.kept[key]
            kept.hits += 1
            self.saved += kept.paid
            self.policy.touch(key)
        self.hits += len(keys)

    def forget(self, key: Key) -> None:
        """Take a key off the books, whatever became of it."""
        kept = self.kept.pop(key, None)
        if kept is None:
            return
        self.currsize -= kept.nbytes
        self.policy.forget(key)
        keys = self.names[kept.name]
        keys.discard(key)
        if not keys:
            del self.names[kept.name]

    def succeed(self, other: Ledger) -> None:
        """Take over the books of another ledger; what there is no room for is over the limit.

        Examples
        --------
        >>> old, new = (Ledger(CacheyPolicy(100), limit) for limit in (1000, 500))
        >>> old.offer("a", "a", paid=1.0, nbytes=300), old.offer("b", "b", paid=9.0, nbytes=300)
        ((True, []), (True, []))
        >>> new.succeed(old)
        >>> new.over_limit(), list(new.kept)
        (['a'], ['b'])
        """
        self.hits, self.misses, self.skipped = other.hits, other.misses, other.skipped
        self.evictions, self.saved = other.evictions, other.saved
        self.recomputed, self._computed = other.recomputed, other._computed
        for key, kept in other.kept.items():
            self.kept[key] = kept
            self.names[kept.name].add(key)
            self.currsize += kept.nbytes
            self.policy.put(key, kept.paid, kept.nbytes)
            for _ in range(min(kept.hits, MANY_HITS)):
                self.policy.touch(key)

    def over_limit(self) -> list[Key]:
        """Let the least valuable keys go until the limit is kept; returns them."""
        victims = self._collect(self.currsize - self.limit, lambda key: True) or []
        for key in victims:
            self.forget(key)
        self.evictions += len(victims)
        return victims

    def resize(self, limit: int) -> list[Key]:
        """Change the limit; returns what has to go."""
        self.limit = limit
        return self.over_limit()

    def matching(self, prefix: str | None = None) -> list[Key]:
        """Kept keys of layers whose name starts with a prefix."""
        if prefix is None:
            return list(self.kept)
        return [k for n, keys in self.names.items() if n.startswith(prefix) for k in keys]

    def of_names(self, names: Iterable[str]) -> list[Key]:
        """Kept keys of these layers."""
        return [k for n in names if n in self.names for k in self.names[n]]
