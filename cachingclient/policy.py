"""What a result is worth: cachey's score, made sound.

Formula
-------
``score = paid / nbytes * sum over requests r of base ** number(r)``

paid
    Seconds of task time that computing the key had cost in the request that
    computed it: its own, and its share of what its dependencies had cost.
nbytes
    Bytes of the value, plus what a key costs the scheduler (`KEY_OVERHEAD`).
base
    ``1 + log(2) / halflife``, so that a request counts half after ``halflife``
    further requests: frequency and recency in one number, which never has to
    be touched to age.

References
----------
cachey (https://github.com/dask/cachey), ``cachey.Scorer``, does the arithmetic.
Where it is not sound it is corrected here:

- its base grows with every touch and overflows after a million: here it grows
  once a request (so that a large graph does not make everything else look old)
  and all scores are scaled down long before they overflow;
- its entries are never dropped: here `forget` drops them;
- its cost divides by zero bytes: here a key weighs at least `KEY_OVERHEAD`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import cachey
from dask.typing import Key

#: What one kept key costs the scheduler, in bytes; also keeps tiny results comparable.
KEY_OVERHEAD = 1000
#: Scores are scaled down when a request counts this much.
LARGEST_BASE = 1e100


class CacheyPolicy:
    """Scores of kept keys.

    Parameters
    ----------
    halflife : int
        Requests after which a request counts half.

    Examples
    --------
    >>> policy = CacheyPolicy(halflife=100)
    >>> policy.put("cheap", paid=0.1, nbytes=100)
    >>> policy.put("dear", paid=9.0, nbytes=100)
    >>> next(policy.least_valuable())
    'cheap'
    """

    def __init__(self, halflife: int) -> None:
        self._halflife = halflife
        self._scorer = cachey.Scorer(halflife)
        # The base must grow per request, not per touch: touches leave it as it is.
        self._growth = self._scorer._base_multiplier
        self._scorer._base_multiplier = 1
        self._scores: dict[Key, float] = {}
        self._order: dict[Key, int] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def request(self) -> None:
        """Note that a graph was submitted: what is touched from now on is more recent."""
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

    def estimate(self, paid: float, nbytes: int) -> float:
        """Score that a new key would have.

        Parameters
        ----------
        paid : float
            Seconds.
        nbytes : int
            Bytes.
        """
        return self._cost(paid, nbytes) * self._scorer._base

    def _cost(self, paid: float, nbytes: int) -> float:
        return paid / (max(nbytes, 0) + KEY_OVERHEAD)

    def put(self, key: Key, paid: float, nbytes: int) -> None:
        """Score a key that is kept from now on."""
        self.forget(key)
        self._set(key, self._scorer.touch(key, self._cost(paid, nbytes)))

    def touch(self, key: Key) -> None:
        """Note that a kept key was asked for."""
        if key in self._scores:
            self._set(key, self._scorer.touch(key))

    def score(self, key: Key) -> float:
        """Score of a kept key; reading it changes nothing."""
        return self._scores[key]

    def forget(self, key: Key) -> None:
        """Drop all that is known of a key."""
        if self._scores.pop(key, None) is not None:
            del self._order[key]
            self._scorer.cost.pop(key, None)
            self._scorer.time.pop(key, None)

    def least_valuable(self) -> Iterator[Key]:
        """Kept keys in the order in which they may go; the caller stops when it has enough."""
        popped = []
        try:
            while self._heap:
                item = heappop(self._heap)
                score, order, key = item
                if self._order.get(key) == order:
                    popped.append(item)
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
