"""Policies that are compared with, and not part of the product."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush

from dask.typing import Key

from cachingclient.policy import KEY_OVERHEAD, Policy


class GDSF(Policy):
    """GreedyDual-Size-Frequency: clock + frequency * cost / size, the clock that of evictions."""

    def __init__(self) -> None:
        self._clock = 0.0
        #: {key: (name, frequency, cost per byte, score, order)}
        self._of: dict[Key, tuple[str, int, float, float, int]] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._of)

    def _set(self, key: Key, name: str, frequency: int, cost: float) -> None:
        self._pushed += 1
        score = self._clock + frequency * cost
        self._of[key] = name, frequency, cost, score, self._pushed
        heappush(self._heap, (score, self._pushed, key))

    def put(self, key: Key, name: str, paid: float, nbytes: int) -> None:
        self._set(key, name, 1, paid / (nbytes + KEY_OVERHEAD))

    def touch(self, key: Key, request: int | None = None) -> None:
        if key in self._of:
            name, frequency, cost, _, _ = self._of[key]
            self._set(key, name, frequency + 1, cost)

    def forget(self, key: Key) -> None:
        if key in self._of:
            self._clock = max(self._clock, self._of.pop(key)[3])

    def estimate(self, name: str, paid: float, nbytes: int) -> float:
        return self._clock + paid / (nbytes + KEY_OVERHEAD)

    def score(self, key: Key) -> float:
        return self._of[key][3]

    def least_valuable(self, spare: Collection[str] = ()) -> Iterator[Key]:
        popped = []
        try:
            while self._heap:
                item = heappop(self._heap)
                key = item[2]
                if key in self._of and self._of[key][4] == item[1]:
                    popped.append(item)
                    if self._of[key][0] not in spare:
                        yield key
        finally:
            for item in popped:
                heappush(self._heap, item)

    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        return sorted(keys, key=lambda key: self._of[key][3:])
