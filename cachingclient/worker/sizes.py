"""Sizes of values of which `dask.sizeof` sees the outermost object only."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from dask.sizeof import sizeof

from cachingclient.worker.reading import changes_when_read

#: Objects of one value that are looked at, at most, and how deep.
MANY = 1000
DEEP = 20
#: Items of a long container that are looked at.
SAMPLE = 20


class Size(NamedTuple):
    """What was found of a value."""

    nbytes: int
    #: whether all of it could be looked into
    whole: bool
    #: whether it, or something in it, changes when it is read
    delicate: bool = False


def measure(value: Any) -> Size | None:
    """Size of a value; None if dask's own word on it is as good.

    Examples
    --------
    >>> class Model: pass
    >>> model = Model()
    >>> model.weights = bytes(1_000_000)
    >>> measure(model).nbytes > 1_000_000
    True
    >>> measure(b"text") is None
    True
    """
    kind: Any = type(value)
    if _is_plain(kind) and (not _is_array(kind) or value.dtype.kind != "O"):
        return None
    look = _Look()
    nbytes = look.size(value, DEEP)
    return Size(int(nbytes), look.whole, look.delicate)


@lru_cache(1_000)
def _seen_by_dask(kind: type) -> bool:
    """Whether dask, or the class itself, knows more of it than its outermost object."""
    if kind.__sizeof__ is not object.__sizeof__ and kind.__module__ != "builtins":
        return True
    return sizeof.dispatch(kind) is not sizeof.dispatch(object) or _is_atom(kind)


def _is_atom(kind: type) -> bool:
    return kind.__module__ == "builtins" and not issubclass(kind, _CONTAINERS)


_CONTAINERS = (list, tuple, set, frozenset, dict, deque)


@lru_cache(1_000)
def _is_plain(kind: type) -> bool:
    """Whether dask knows all that matters of it, if it is no array of objects."""
    is_seen = _seen_by_dask(kind) and not issubclass(kind, _CONTAINERS)
    return is_seen and not changes_when_read(kind)


@lru_cache(1_000)
def _is_array(kind: type) -> bool:
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def _is_object_array(value: Any) -> bool:
    kind: Any = type(value)
    return _is_array(kind) and value.dtype.kind == "O"


class _Look:
    """One look, with an end."""

    def __init__(self) -> None:
        self.whole = True
        self.delicate = False
        self._left = MANY
        self._met: set[int] = set()

    def size(self, value: Any, depth: int) -> float:
        if id(value) in self._met:
            return 0
        self._met.add(id(value))
        self._left -= 1
        if self._left < 0 or not depth:
            return 0
        kind: Any = type(value)
        if changes_when_read(kind):
            self.delicate = True
        if isinstance(value, dict):
            inside = self._sample(value.keys(), len(value), depth)
            return sys.getsizeof(value) + inside + self._sample(value.values(), len(value), depth)
        if isinstance(value, _CONTAINERS):
            return sys.getsizeof(value) + self._sample(value, len(value), depth)
        if _is_object_array(value):
            step = max(1, value.size // SAMPLE)
            return value.nbytes + self._sample(value.flat[::step], value.size, depth)
        if _seen_by_dask(kind):
            return sizeof(value)
        return sys.getsizeof(value) + self._attributes(value, kind, depth)

    def _sample(self, items: Iterable[Any], many: int, depth: int) -> float:
        sample = list(islice(items, SAMPLE))
        if not sample:
            return 0
        return sum(self.size(item, depth - 1) for item in sample) * many / len(sample)

    def _attributes(self, value: Any, kind: type, depth: int) -> float:
        names = [n for c in kind.__mro__ for n in _slots(c)]
        found = [getattr(value, name, None) for name in names]
        found += list(getattr(value, "__dict__", {}).values())
        if not names and not hasattr(value, "__dict__"):
            self.whole = False
        return sum(self.size(item, depth - 1) for item in found)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
