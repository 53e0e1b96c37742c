"""Which futures were the answers to computations: plain dask keeps computations apart.

The final keys of equal computations are equal here, so that one cancelled by its future must
not take the others with it; but a handle on that future (from a Variable, a Queue, or made of
its key) is the same computation, in plain dask as well.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable

from dask.typing import Key
from distributed import Future

from cachingclient import internals

#: Keys that are remembered without a look
MANY = 1_000


class Answers:
    """Futures that computations were answered with, while they live."""

    def __init__(self) -> None:
        self._futures: dict[Key, weakref.WeakSet[Future]] = {}
        #: keys after which those are dropped that nobody waits for
        self._next = MANY
        # Threads add to it while another one looks through it.
        self._lock = threading.Lock()

    def add(self, futures: Iterable[Future]) -> None:
        """Note the answers to one computation, each of another key."""
        with self._lock:
            if len(self._futures) > self._next:
                self._futures = {k: alive for k, alive in self._futures.items() if alive}
                self._next = 2 * len(self._futures) + MANY
            for future in futures:
                self._futures.setdefault(future.key, weakref.WeakSet()).add(future)

    def is_shared(self, key: Key, mine: Collection[int]) -> bool:
        """Whether another computation waits for a key.

        Parameters
        ----------
        key : Key
        mine : collection of int
            Ids of the futures that are given up; handles belong to the only computation there is.
        """
        with self._lock:
            alive = [f for f in self._futures.get(key, ()) if not internals.is_released(f)]
        given_up = sum(id(f) in mine for f in alive)
        return len(alive) > max(given_up, 1)
