"""A dict, and a set, that forget what was noted least recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any


class Bounded(OrderedDict[Any, Any]):
    """An ordered dict of limited size.

    Parameters
    ----------
    maxsize : int

    Examples
    --------
    >>> names = Bounded(2)
    >>> names.note_all(["a", "b"])
    >>> names.note("a", 1)
    >>> names.note("c")
    >>> dict(names)
    {'a': 1, 'c': None}
    """

    def __init__(self, maxsize: int) -> None:
        super().__init__()
        self.maxsize = maxsize

    def note(self, key: Any, value: Any = None) -> None:
        """Set an item, as the most recent one."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self.maxsize:
            self.popitem(last=False)

    def note_all(self, keys: Iterable[Any]) -> None:
        """Note keys without values."""
        for key in keys:
            self.note(key)


class Lately:
    """Things that were met lately, by their hashes: an item takes some fifty bytes, whatever it is.

    Parameters
    ----------
    many : int
        So many are remembered, and up to as many more. With 2**64 hashes the chance that any two
        of a hundred thousand are equal is one in four billion.

    Examples
    --------
    >>> lately = Lately(2)
    >>> [lately.meet(x) for x in ("a", "b", "a", "c", "d", "e", "a", "e")]
    [False, False, True, False, False, False, False, True]
    """

    def __init__(self, many: int) -> None:
        self._many = many
        self._now: set[int] = set()
        self._before: set[int] = set()

    def meet(self, thing: Hashable) -> bool:
        """Note a thing; returns whether it was met before."""
        item = hash(thing)
        if item in self._now:
            return True
        known = item in self._before
        self._now.add(item)
        if len(self._now) >= self._many:
            self._before, self._now = self._now, set()
        return known
