"""cachey's score, with its bookkeeping made sound. Formula and units: `cachingclient.policy`.

``cachey.Scorer`` (https://github.com/dask/cachey) does the arithmetic: its base, ``1 + log(2) /
halflife``, makes a request count half after ``halflife`` further ones, so that nothing has to be
touched to age. Where it is not sound it is corrected here:

- its base grows with every touch and overflows after a million: here it grows once a request
  (so that a large graph does not make everything else look old), and all scores are scaled down
  long before they overflow;
- its entries are never dropped: here `CacheyPolicy.forget` drops them;
- its cost divides by zero bytes: here a key weighs at least `KEY_OVERHEAD`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

from dask.typing import Key

from cachingclient.policy.interface import KEY_OVERHEAD, Policy

#: Scores are scaled down when a request counts this much.
LARGEST_BASE = 1e100


class CacheyPolicy(Policy):
    """Scores keys one by one, by seconds per byte and requests that fade with requests.

    Parameters
    ----------
    halflife : int
        Requests after which a request counts half.

    Examples
    --------
    >>> policy = CacheyPolicy(halflife=100)
    >>> policy.put("cheap", "cheap", paid=0.1, nbytes=100)
    >>> policy.put("dear", "dear", paid=9.0, nbytes=100)
    >>> next(policy.least_valuable())
    'cheap'
    """

    def __init__(self, halflife: int) -> None:
        # Not above: schedulers that this package is carried to need not have it.
        import cachey

        self._halflife = halflife
        self._scorer = cachey.Scorer(halflife)
        # The base must grow per request, not per touch: touches leave it as it is.
        self._growth = self._scorer._base_multiplier
        self._scorer._base_multiplier = 1
        self._scores: dict[Key, float] = {}
        self._order: dict[Key, int] = {}
        self._names: dict[Key, str] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._scores)

    def request(self, now: float) -> None:
        scorer = self._scorer
        scorer._base *= self._growth
        if scorer._base > LARGEST_BASE:
            self._scale_down()

    def _scale_down(self) -> None:
        scorer = self._scorer
        factor = scorer._base
        scorer._base = 1
        for key in scorer.time:
            scorer.time[key] /= factor
        self._scores = {k: s / factor for k, s in self._scores.items()}
        self._rebuild()

    def estimate(self, name: str, paid: float, nbytes: int) -> float:
        return self._cost(paid, nbytes) * self._scorer._base

    def _cost(self, paid: float, nbytes: int) -> float:
        return paid / (max(nbytes, 0) + KEY_OVERHEAD)

    def put(self, key: Key, name: str, paid: float, nbytes: int) -> None:
        self.forget(key)
        self._names[key] = name
        self._set(key, self._scorer.touch(key, self._cost(paid, nbytes)))

    def touch(self, key: Key, request: int | None = None) -> None:
        if key in self._scores:
            self._set(key, self._scorer.touch(key))

    def score(self, key: Key) -> float:
        return self._scores[key]

    def forget(self, key: Key) -> None:
        if self._scores.pop(key, None) is not None:
            del self._order[key], self._names[key]
            self._scorer.cost.pop(key, None)
            self._scorer.time.pop(key, None)

    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        return sorted(keys, key=lambda key: (self._scores[key], self._order[key]))

    def least_valuable(self, spare: Collection[str] = ()) -> Iterator[Key]:
        popped = []
        try:
            while self._heap:
                item = heappop(self._heap)
                score, order, key = item
                if self._order.get(key) == order:
                    popped.append(item)
                    if self._names[key] not in spare:
                        yield key
        finally:
            for item in popped:
                heappush(self._heap, item)

    def _set(self, key: Key, score: float) -> None:
        self._pushed += 1
        self._scores[key] = score
        self._order[key] = self._pushed
        heappush(self._heap, (score, self._pushed, key))
        if len(self._heap) > 64 + 4 * len(self._scores):
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(s, self._order[k], k) for k, s in self._scores.items()]
        heapify(self._heap)
