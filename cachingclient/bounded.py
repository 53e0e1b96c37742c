"""A dict that forgets what was noted least recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
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
