"""Least recently used: for comparison."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

from dask.typing import Key

from cachingclient.policy.interface import Policy


class LRUPolicy(Policy):
    """Lets the key go first that was not needed for the longest time.

    Examples
    --------
    >>> policy = LRUPolicy()
    >>> for key in "ab":
    ...     policy.put(key, key, paid=1.0, nbytes=100)
    >>> policy.touch("a")
    >>> list(policy.least_valuable())
    ['b', 'a']
    """

    def __init__(self) -> None:
        #: {key: (name of its layer, when it was needed)}, the longest unneeded first
        self._used: OrderedDict[Key, tuple[str, int]] = OrderedDict()
        self._clock = 0

    def __len__(self) -> int:
        return len(self._used)

    def put(self, key: Key, name: str, paid: float, nbytes: int) -> None:
        self._clock += 1
        self._used[key] = name, self._clock
        self._used.move_to_end(key)

    def touch(self, key: Key, request: int | None = None) -> None:
        if key in self._used:
            self.put(key, self._used[key][0], 0, 0)

    def forget(self, key: Key) -> None:
        self._used.pop(key, None)

    def inherit(self, other: Policy) -> bool:
        if not isinstance(other, LRUPolicy):
            return False
        self._used, self._clock = other._used.copy(), other._clock
        return True

    def estimate(self, name: str, paid: float, nbytes: int) -> float:
        return self._clock + 1

    def score(self, key: Key) -> float:
        return self._used[key][1]

    def least_valuable(self, spare: Collection[str] = ()) -> Iterator[Key]:
        return (key for key, (name, _) in self._used.items() if name not in spare)

    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        return sorted(keys, key=self.score)
