"""How much memory a worker has left for what is kept; pure decisions.

A worker begins to spill when what its tasks returned exceeds its *target*, or when its process
exceeds its *spill* threshold; and what it spills first is what was not used for the longest
time: what is kept. So kept results go before, by a margin below both.

What a worker will need is

- what its tasks have returned, as far as the scheduler knows: that is always up to date;
- what its process uses beside that, as of the last reading (objects whose size nobody knows,
  memory that was freed and not given back, the interpreter), and, fading, at its highest of
  the last half minute: tasks that need memory while they run come in rows;
- what the tasks will return that were sent to it, as far as they can run soon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dask.typing import Key

#: Shares of a worker's memory that are left free below its target, and below its spill threshold.
TARGET_MARGIN = 0.05
SPILL_MARGIN = 0.1
#: Seconds in which the memory of the past counts half.
FADING = 10.0
#: Tasks a thread that may run before what is let go now is gone.
AHEAD = 2


@dataclass(frozen=True)
class Thresholds:
    """Bytes above which a worker does something about its memory.

    Examples
    --------
    >>> Thresholds.of(1000, target=0.6, spill=False, pause=0.8)
    Thresholds(managed=550, process=700)
    >>> Thresholds.of(None, target=0.6, spill=0.7, pause=0.8)
    Thresholds(managed=inf, process=inf)
    """

    #: of what its tasks have returned
    managed: float = math.inf
    #: of its process
    process: float = math.inf

    @classmethod
    def of(cls, limit: int | None, target: Any, spill: Any, pause: Any) -> Thresholds:
        """As a worker is configured, less the margins.

        Parameters
        ----------
        limit : int, optional
            Bytes; without, nothing is done.
        target, spill, pause : float or False
            Shares of it.
        """
        if not limit:
            return cls()
        first = min((float(share) for share in (spill, pause) if share), default=math.inf)
        return cls(
            round(limit * (target - TARGET_MARGIN)) if target else math.inf,
            round(limit * (first - SPILL_MARGIN)) if first < math.inf else math.inf,
        )


class Load:
    """Memory of one worker.

    Parameters
    ----------
    thresholds : Thresholds
    nthreads : int

    Examples
    --------
    >>> load = Load(Thresholds.of(1000, target=0.6, spill=0.7, pause=0.8), nthreads=1)
    >>> load.read(process=400, managed=200, spilled=0, now=0.0)
    >>> load.excess(nbytes=200, now=0.0), load.excess(nbytes=500, now=0.0)
    (0, 100.0)
    >>> load.expect("x", 50)
    >>> load.excess(nbytes=500, now=0.0)
    150.0
    """

    #: bytes of the process beside what tasks returned
    unmanaged: float
    #: bytes on disk, by their size in memory
    spilled: int
    #: whether its process is its own: others say nothing of it
    alone: bool

    def __init__(self, thresholds: Thresholds, nthreads: int) -> None:
        self.thresholds = thresholds
        self.nthreads = nthreads
        self.unmanaged = 0.0
        self.spilled = 0
        self.alone = True
        self._peak = 0.0
        self._peaked = 0.0
        self._expected: dict[Key, int] = {}
        self._sum = 0

    def read(self, process: int, managed: int, spilled: int, now: float) -> None:
        """Take in a reading of one moment.

        Parameters
        ----------
        process : int
            Bytes of the process.
        managed : int
            Bytes of what its tasks have returned, on disk too.
        spilled : int
            Bytes on disk.
        now : float
            Seconds of any clock.
        """
        self.spilled = spilled
        if not self.alone:
            self.unmanaged = self._peak = 0.0
            return
        self.unmanaged = max(0.0, process - (managed - spilled))
        if self.unmanaged >= self.remembered(now):
            self._peak, self._peaked = self.unmanaged, now

    def remembered(self, now: float) -> float:
        """Bytes of the process beside what tasks returned, at the highest, fading."""
        fading = 0.5 ** ((now - self._peaked) / FADING)
        return self.unmanaged + max(0.0, self._peak - self.unmanaged) * fading

    def gave(self, hidden: int) -> None:
        """Bytes are given that nobody but readings sees, and the last one saw."""
        self.unmanaged = max(0.0, self.unmanaged - hidden)
        self._peak -= hidden

    def expect(self, key: Key, nbytes: int) -> None:
        """A task was sent to it."""
        self.arrived(key)
        self._expected[key] = nbytes
        self._sum += nbytes

    def arrived(self, key: Key) -> None:
        """A task is not on it any more."""
        self._sum -= self._expected.pop(key, 0)

    @property
    def coming(self) -> float:
        """Bytes that will be there before what is let go now is gone."""
        many = len(self._expected)
        soon = AHEAD * self.nthreads
        return self._sum if many <= soon else self._sum * soon / many

    def excess(self, nbytes: int, now: float, tolerance: float = 0) -> float:
        """Bytes that it will need, and would not have if all that is kept stayed.

        Parameters
        ----------
        nbytes : int
            Bytes of what its tasks have returned, on disk too.
        now : float
            Seconds, as in `read`.
        tolerance : float
            Bytes that do not matter.
        """
        expected = nbytes - self.spilled + self.coming
        over = expected - self.thresholds.managed
        if self.alone:
            over = max(over, expected + self.remembered(now) - self.thresholds.process)
        return over if over > tolerance else 0


class Sizes:
    """What tasks return, by their functions.

    Examples
    --------
    >>> sizes = Sizes()
    >>> sizes.ran("slow", 100)
    >>> sizes.ran("slow", 300)
    >>> sizes.expected("slow", 7), sizes.expected("other", 7)
    (200, 7)
    """

    #: Functions that are remembered.
    REMEMBERED = 10_000

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def ran(self, prefix: str, nbytes: int) -> None:
        """A task has returned so many bytes; what others of its kind did counts less and less."""
        before = self._known.get(prefix)
        if before is None and len(self._known) >= self.REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[prefix] = nbytes if before is None else (before + nbytes) // 2

    def expected(self, prefix: str, otherwise: int) -> int:
        """Bytes that a task will return."""
        return self._known.get(prefix, otherwise)


def thresholds_of(reading: Mapping[str, Any], limit: int | None) -> Thresholds:
    """Thresholds of a worker, as it tells them."""
    return _thresholds(limit, *(reading.get(k, False) for k in ("target", "spill", "pause")))


@lru_cache(100)
def _thresholds(limit: int | None, *shares: Any) -> Thresholds:
    return Thresholds.of(limit, *shares)
