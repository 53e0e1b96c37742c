"""The default policy: one record per task group. Formula and units: `cachingclient.policy`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

from dask.typing import Key

from cachingclient.policy.interface import KEY_OVERHEAD, Policy

#: Seconds after which a request counts 1 / e: where clients tell what is alive, and where not.
TAU, TAU_BLIND = 300.0, 150.0
#: What nothing alive needs is worth this much less; it may still be asked for.
DEAD = 0.01
#: The same for what is worth something only whole, and has lost a part.
BROKEN = 0.01
#: The same for keys that were needed again and again, and then not for much longer than usual.
PAST = 0.1
#: How much longer that is, in requests for the group.
LONGER = 1
#: How fast what is usual follows what happens.
LEARNING = 0.1
#: What somebody holds and has asked for once is asked for again: so many requests its first one is.
FIRST = 2.0
#: What comes back after it was evicted has to be worth so much more than what it pushes out: of
#: layers that are needed in turn none was needed longer ago than the others, in the long run.
MARGIN = 1.1
#: Groups of which nothing is kept that are remembered.
REMEMBERED = 10_000
#: Decays after which all scores are scaled down: long before exp() overflows.
LARGEST_DECAY = 200.0


class _Shelf:
    """Kept keys of a task group that are worth the same."""

    __slots__ = ("group", "factor", "keys", "held", "score", "version")

    def __init__(self, group: _Group, factor: float) -> None:
        self.group = group
        self.factor = factor
        #: {key: (its bytes, the group's clock when it was needed)}, the longest unneeded first
        self.keys: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        #: sum of bytes
        self.held = 0
        self.score, self.version = 0.0, 0

    def add(self, key: Key, nbytes: int, when: int) -> None:
        self.keys[key] = nbytes, when
        self.held += nbytes

    def when(self, key: Key) -> int:
        """The group's clock when a key was needed."""
        return self.keys[key][1]

    def remove(self, key: Key) -> tuple[int, int]:
        found = self.keys.pop(key)
        self.held -= found[0]
        return found


class _Group:
    """What is known of a task group."""

    __slots__ = (
        "name",
        "requests",
        "before",
        "here",
        "most",
        "last",
        "clock",
        "usual",
        "paid",
        "ran",
        "nbytes",
        "measured",
        "dead",
        "parts",
        "broken",
        "recent",
        "past",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        #: requests that needed it, as of the policy's beginning
        self.requests = 0.0
        #: the same without the last one; keys that this one needed, and the most that any did
        self.before, self.here, self.most = 0.0, 0, 1
        #: number of the last one that was counted
        self.last = -math.inf
        #: counts them
        self.clock = 0
        #: requests after which a key is needed again; 0 as long as none was
        self.usual = 0.0
        #: seconds that keys had cost, and how many, in the last request that computed some
        self.paid, self.ran = 0.0, 0
        #: bytes of all keys that were computed, and how many
        self.nbytes, self.measured = 0.0, 0
        self.dead = False
        #: number of keys that are worth something only together, and whether some are missing
        self.parts, self.broken = 0, False
        #: kept keys: those that may be needed again, and those that are past their time
        self.recent, self.past = _Shelf(self, 1.0), _Shelf(self, PAST)

    def number(self) -> int:
        """How many keys are kept."""
        return len(self.recent.keys) + len(self.past.keys)


class GroupPolicy(Policy):
    """Scores task groups by the work that they save, for their bytes.

    Parameters
    ----------
    tau : float, optional
        Seconds after which a request counts 1 / e. By default 150, and 300 as soon as somebody
        tells what is alive.

    Examples
    --------
    >>> policy = GroupPolicy()
    >>> for name, paid in {"cheap-1": 0.1, "dear-1": 9.0}.items():
    ...     policy.computed(name, paid, nbytes=100)
    ...     policy.put((name, 0), name, paid, nbytes=100)
    >>> next(policy.least_valuable())
    ('cheap-1', 0)
    """

    def __init__(self, tau: float | None = None) -> None:
        self._fixed = tau is not None
        self._tau = TAU_BLIND if tau is None else tau
        #: whether somebody tells what is alive
        self._told = False
        self._groups: dict[str, _Group] = {}
        #: {kept key: where it is}
        self._where: dict[Key, _Shelf] = {}
        #: groups of which something is kept
        self._holding = 0
        self._heap: list[tuple[float, int, _Shelf]] = []
        self._version = 0
        #: what was found not to be free: (version, score, bytes)
        self._refused = -1, 0.0, 0.0
        self._now = self._began = 0.0
        #: what a request counts now
        self._weight = 1.0

    def __len__(self) -> int:
        return len(self._where)

    # -- what it is told -------------------------------------------------------

    def request(self, now: float) -> None:
        # A clock that is set back ages nothing.
        self._now = max(self._now, now)
        if not self._groups:
            self._began = self._now
        decay = (self._now - self._began) / self._tau
        if decay > LARGEST_DECAY:
            self._begin_anew()
            decay = 0.0
        self._weight = math.exp(decay)

    def _begin_anew(self) -> None:
        """Count from now on: long before exp() overflows, or when `tau` changes."""
        factor = math.exp(max(-700.0, (self._began - self._now) / self._tau))
        for group in self._groups.values():
            group.requests *= factor
            group.before *= factor
            group.recent.score *= factor
            group.past.score *= factor
        self._began, self._weight = self._now, 1.0
        self._rebuild()

    def computed(
        self,
        name: str,
        paid: float,
        nbytes: int,
        request: int | None = None,
        alive: bool | None = None,
        parts: int = 0,
    ) -> None:
        group = self._groups.get(name) or self._new(name)
        group.nbytes += max(nbytes, 0) + KEY_OVERHEAD
        group.measured += 1
        if alive is not None:
            self._hear_of_life()
        counted = self._count(group, request)
        self._add(group)
        if counted:
            group.paid, group.ran, group.parts, group.broken = paid, 1, parts, False
            group.dead = alive is False
            self._rescore(group)
            return
        if group.ran == 0:
            group.parts = parts
        group.paid += paid
        group.ran += 1
        if not group.ran & (group.ran - 1):
            # The first keys may say little of the others.
            self._rescore(group)

    def _count(self, group: _Group, request: int | None) -> bool:
        """Count a request, if it was not; returns whether."""
        if request is not None:
            if request <= group.last:
                return False
            group.last = request
        group.before, group.here = group.requests, 0
        group.clock += 1
        if group.usual:
            self._let_pass(group)
        return True

    def _add(self, group: _Group) -> bool:
        """Count a key that a request needs; returns whether that may change its place."""
        group.here += 1
        group.most = max(group.most, group.here)
        weight = self._weight
        if self._told:
            # What needs a part of a group says as much less of the others.
            weight *= group.here / group.most
            if group.clock == 1:
                weight *= FIRST
        group.requests = group.before + weight
        return not group.here & (group.here - 1) or group.here == group.most

    def _let_pass(self, group: _Group) -> None:
        """Set the keys apart that are past their time."""
        oldest = group.clock - 1 - LONGER * group.usual
        keys = group.recent.keys
        while keys:
            key, (_, when) = next(iter(keys.items()))
            if when >= oldest:
                break
            group.past.add(key, *group.recent.remove(key))
            self._where[key] = group.past

    def living(self, name: str, alive: bool | None) -> None:
        if alive is not None:
            self._hear_of_life()
        group = self._groups.get(name)
        if group is not None and group.dead != (alive is False):
            group.dead = alive is False
            self._rescore(group)

    def _hear_of_life(self) -> None:
        self._told = True
        if not self._fixed and self._tau != TAU:
            self._begin_anew()
            self._tau = TAU

    def put(self, key: Key, name: str, paid: float, nbytes: int) -> None:
        self._remove(key)
        group = self._groups.get(name)
        if group is None:
            self.computed(name, paid, nbytes)
            group = self._groups[name]
        self._holding += not group.number()
        group.recent.add(key, max(nbytes, 0) + KEY_OVERHEAD, group.clock)
        self._where[key] = group.recent
        if group.broken and group.number() >= group.parts:
            group.broken = False
            self._rescore(group)
        elif len(group.recent.keys) == 1:
            self._push(group.recent)
        self._refused = -1, 0.0, 0.0

    def touch(self, key: Key, request: int | None = None) -> None:
        shelf = self._where.get(key)
        if shelf is None:
            return
        group = shelf.group
        self._count(group, request)
        changed = self._add(group)
        shelf = self._where[key]
        nbytes, when = shelf.remove(key)
        age = group.clock - when
        group.usual += (age - group.usual) * LEARNING if group.usual else age
        group.recent.add(key, nbytes, group.clock)
        self._where[key] = group.recent
        if changed:
            self._rescore(group)
        elif shelf is group.past and len(group.recent.keys) == 1:
            self._push(group.recent)

    def forget(self, key: Key) -> None:
        group = self._remove(key)
        if group is not None:
            self._lost(group)

    def _remove(self, key: Key) -> _Group | None:
        shelf = self._where.pop(key, None)
        if shelf is None:
            return None
        shelf.remove(key)
        self._holding -= not shelf.group.number()
        return shelf.group

    def lacks(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None:
            self._lost(group)

    def _lost(self, group: _Group) -> None:
        if group.parts and not group.broken:
            group.broken = True
            self._rescore(group)

    def inherit(self, other: Policy) -> bool:
        if not isinstance(other, GroupPolicy):
            return False
        vars(self).update(vars(other))
        return True

    # -- what it is asked ------------------------------------------------------

    def estimate(self, name: str, paid: float, nbytes: int) -> float:
        group = self._groups.get(name)
        if group is None:
            return paid / (max(nbytes, 0) + KEY_OVERHEAD)
        score = group.recent.score / self._weight
        return score / MARGIN if group.clock > 1 else score

    def score(self, key: Key) -> float:
        return self._where[key].score / self._weight

    def least_valuable(self, spare: Collection[str] = ()) -> Iterator[Key]:
        for shelf in self._in_order():
            if shelf.group.name not in spare:
                yield from shelf.keys

    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        wanted: dict[_Shelf, set[Key]] = {}
        for key in keys:
            wanted.setdefault(self._where[key], set()).add(key)
        found: list[Key] = []
        for shelf in sorted(wanted, key=lambda s: (s.score, s.version)):
            some = wanted[shelf]
            # Of few of many it takes less to sort them.
            if len(some) * 16 > len(shelf.keys):
                found.extend(k for k in shelf.keys if k in some)
            else:
                found.extend(sorted(some, key=shelf.when))
        return found

    def frees(self, nbytes: float, worth: float, spare: Collection[str] = ()) -> bool:
        version, least, most = self._refused
        if self._heap:
            score, number, shelf = self._heap[0]
            if shelf.version == number and score < worth * self._weight:
                if shelf.held >= nbytes and shelf.group.name not in spare:
                    return True
        if version == self._version and worth <= least and nbytes >= most:
            return False
        missing = nbytes
        for shelf in self._in_order():
            if missing <= 0 or shelf.score / self._weight >= worth:
                break
            if shelf.group.name not in spare:
                missing -= shelf.held
        if missing > 0:
            self._refused = self._version, worth, nbytes
        return missing <= 0

    # -- groups ----------------------------------------------------------------

    def _new(self, name: str) -> _Group:
        if len(self._groups) - self._holding > REMEMBERED:
            self._prune()
        group = self._groups[name] = _Group(name)
        return group

    def _prune(self) -> None:
        """Forget half of what is only remembered."""
        ghosts = [g for g in self._groups.values() if not g.number()]
        ghosts.sort(key=lambda g: g.requests)
        for group in ghosts[: (len(ghosts) + 1) // 2]:
            del self._groups[group.name]
        self._rebuild()

    def _rescore(self, group: _Group) -> None:
        paid = group.paid / group.ran if group.ran else 0.0
        score = group.requests * paid / (group.nbytes / group.measured)
        if group.dead:
            score *= DEAD
        if group.broken:
            score *= BROKEN
        for shelf in (group.recent, group.past):
            shelf.score = score * shelf.factor
            self._push(shelf)

    def _push(self, shelf: _Shelf) -> None:
        self._version += 1
        shelf.version = self._version
        if shelf.keys:
            heappush(self._heap, (shelf.score, shelf.version, shelf))
            if len(self._heap) > 64 + 8 * self._holding:
                self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [
            (shelf.score, shelf.version, shelf)
            for group in self._groups.values()
            for shelf in (group.recent, group.past)
            if shelf.keys
        ]
        heapify(self._heap)

    def _in_order(self) -> Iterator[_Shelf]:
        """Where kept keys are, the least valuable first."""
        heap, popped = self._heap, []
        try:
            while heap:
                item = heap[0]
                shelf = item[2]
                if shelf.version != item[1] or not shelf.keys:
                    heappop(heap)
                    continue
                # The first is mostly enough: it need not be taken down.
                yield shelf
                popped.append(heappop(heap))
        finally:
            # It may have been built anew meanwhile.
            for item in popped if self._heap is heap else ():
                heappush(heap, item)
