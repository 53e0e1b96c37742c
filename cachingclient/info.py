"""What a person is told of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cachingclient.tables import (
    Column,
    as_html,
    as_text,
    bytes_text,
    number_text,
    seconds_text,
    short_name,
)


class CacheInfo(NamedTuple):
    """Counters of a cache since it was made; ``after - before`` works field by field.

    The first four fields are those of :func:`functools.lru_cache`.

    Examples
    --------
    >>> after = CacheInfo(hits=5, misses=8, maxsize=1000, currsize=300)
    >>> before = CacheInfo(hits=3, misses=8, maxsize=1000, currsize=100)
    >>> (after - before).hits
    2
    """

    #: kept keys that a submission used in place of computing them
    hits: int = 0
    #: keys that ran and were allowed to be kept
    misses: int = 0
    #: bytes that may be kept
    maxsize: int = 0
    #: bytes kept now
    currsize: int = 0
    #: keys kept now
    keys: int = 0
    #: tasks of submitted graphs that did not run
    skipped: int = 0
    #: seconds of task time that hits avoided
    saved: float = 0.0
    #: seconds of task time spent on keys that had been computed before
    recomputed: float = 0.0
    #: kept keys that had to make room for others
    evictions: int = 0
    #: kept keys that were computed again to be compared
    audits: int = 0
    #: those of them whose value was another one
    differing: int = 0

    def __sub__(self, other: CacheInfo) -> CacheInfo:
        if not isinstance(other, CacheInfo):
            return NotImplemented
        return CacheInfo._make(a - b for a, b in zip(self, other))

    def _repr_html_(self) -> str:
        return as_html(_COUNTERS, list(self._asdict().items()), "")


#: How the counters are shown that are no plain numbers.
_UNITS = {
    "maxsize": bytes_text,
    "currsize": bytes_text,
    "saved": seconds_text,
    "recomputed": seconds_text,
}
_COUNTERS = [
    Column("", lambda row: row[0], right=False),
    Column("", lambda row: _UNITS.get(row[0], number_text)(row[1]) or "0"),
]


class Entry(NamedTuple):
    """What is kept of one layer.

    Examples
    --------
    >>> Entry("slow-0123", keys=2, total=4, nbytes=10, seconds=1.5, hits=3).keys
    2
    """

    #: name of the layer
    name: str
    #: keys kept now
    keys: int = 0
    #: keys that the layer has, as far as the scheduler has seen them
    total: int = 0
    #: bytes kept now
    nbytes: int = 0
    #: seconds of task time that the kept keys had cost
    seconds: float = 0.0
    #: how often a kept key was used in place of computing it
    hits: int = 0
    #: mean score of the kept keys; the lowest is evicted first
    score: float = 0.0
    #: whether a collection that needs it was alive at its last submission; None if unknown
    alive: bool | None = None
    #: addresses of the workers that keep something of it
    workers: tuple[str, ...] = ()
    #: seconds of task time that its hits avoided
    saved: float = 0.0
    #: whether the user pinned it
    pinned: bool = False

    @property
    def why(self) -> str:
        """What is known of whether it will be asked for again."""
        if self.pinned:
            return "pinned"
        if self.alive is None:
            return ""
        return "in use" if self.alive else "nothing alive needs it"


class Entries(list[Entry]):
    """Entries, one a layer; shown as a table.

    Examples
    --------
    >>> Entries([Entry("slow-0123", keys=2, total=4, nbytes=2048, seconds=1.5, hits=3, saved=4.5)])
    layer        kept     bytes    cost   saved  hits  workers  why
    slow-0123  2 of 4  2.00 kiB  1.50 s  4.50 s     3        0
    """

    def __repr__(self) -> str:
        return as_text(_ENTRY, self, NOTHING)

    def _repr_html_(self) -> str:
        return as_html(_ENTRY, self, NOTHING)


#: What is said of a cache that keeps nothing.
NOTHING = "nothing is kept"

_ENTRY: Sequence[Column] = [
    Column("layer", lambda e: short_name(e.name), right=False, full=lambda e: e.name),
    Column("kept", lambda e: f"{e.keys:,} of {e.total:,}"),
    Column("bytes", lambda e: bytes_text(e.nbytes)),
    Column("cost", lambda e: seconds_text(e.seconds)),
    Column("saved", lambda e: seconds_text(e.saved)),
    Column("hits", lambda e: number_text(e.hits)),
    Column("workers", lambda e: str(len(e.workers))),
    Column("why", lambda e: e.why, right=False),
]


def from_message(message: dict[str, Any]) -> CacheInfo:
    """Make a CacheInfo of what the scheduler sent."""
    return CacheInfo(**message)


def entries_from_message(message: list[dict[str, Any]]) -> Entries:
    """Make entries of what the scheduler sent."""
    return Entries(Entry(**{**m, "workers": tuple(m["workers"])}) for m in message)
