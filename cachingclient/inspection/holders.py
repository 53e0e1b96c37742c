"""What objects and containers hold: functions, and objects of the user's classes.

An answer that depends on what something holds is good for all that has the same shape.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

from cachingclient.inspection.objects import (
    attributes,
    dunders,
    is_a,
    is_holder,
    static,
    value_in,
)

#: Items of a container, and parts of all that is looked through for one answer
PARTS = 100
#: Containers in containers, and objects in objects, are followed so far
DEPTH = 4
#: Items of containers in containers
ITEMS = 1_000
#: Objects of one class whose methods are looked at
ALIKE = 10
_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None), slice, range))
_SEQUENCES = (list, tuple, set, frozenset)


def _items(container: Any) -> list[Any]:
    return list(islice(container.values() if type(container) is dict else container, PARTS))


def is_container(thing: Any) -> bool:
    """Whether this is one of Python's own containers, whose items can be looked at."""
    return type(thing) is dict or type(thing) in _SEQUENCES


def contents(thing: Any) -> Iterator[Any]:
    """Callables and objects of the user's in a container, and in those in it.

    Examples
    --------
    >>> list(contents({"a": [abs, 3], "b": "text"})) == [abs]
    True
    """
    work = deque([(thing, DEPTH)])
    left = ITEMS
    while work and left > 0:
        container, depth = work.popleft()
        for item in _items(container) if depth and is_container(container) else ():
            left -= 1
            if is_container(item):
                work.append((item, depth - 1))
            elif type(item) not in _ATOMS and (callable(item) or is_holder(item)):
                yield item


def reached(
    things: Iterable[Any], words: frozenset[str], operators: bool = True
) -> Iterator[tuple[Any, Any]]:
    """What code that has these words may call of objects: functions and what they belong to.

    Methods and attributes that it names, and those that are called without their names.

    Parameters
    ----------
    things : iterable
        Objects for which `objects.is_holder` holds.
    words : frozenset of str
    operators : bool, optional
        Whether anything is done with them but calling their methods.
    """
    # Objects know each other: each is met once, and few of a kind tell of all.
    work = deque((thing, DEPTH) for thing in islice(things, PARTS))
    seen: set[int] = set()
    kinds: Counter[type] = Counter()
    while work and len(seen) < PARTS:
        thing, depth = work.popleft()
        cls = type(thing)
        if id(thing) in seen or kinds[cls] >= ALIKE:
            continue
        seen.add(id(thing))
        kinds[cls] += 1
        for name in (*words, *dunders(cls)) if operators else words:
            method = static(cls, name)
            if callable(method):
                yield method, thing
        for name in words if depth else ():
            value = value_in(thing, name)
            for part in (value, *contents(value)):
                if is_holder(part):
                    work.append((part, depth - 1))
                elif callable(part):
                    yield part, None


def shape(thing: Any) -> Any:
    """What tells objects that hold other functions, or None where others have a value.

    Examples
    --------
    >>> from types import SimpleNamespace as Step
    >>> shape(Step(f=abs)) == shape(Step(f=abs)) != shape(Step(f=None))
    True
    """
    return _shape(thing, DEPTH, [PARTS])


def shape_of_holder(thing: Any) -> Any:
    """The same for what has anything to hold; None for other things."""
    return shape(thing) if is_container(thing) or is_holder(thing) else None


def _shape(thing: Any, depth: int, left: list[int]) -> Any:
    kind = type(thing)
    left[0] -= 1
    if thing is None:
        return "None"
    if kind in _ATOMS:
        return None
    if kind is FunctionType:
        return id(thing), hash(thing.__code__)
    if is_a(thing, type):
        return id(thing)
    if not depth or left[0] < 0:
        return id(kind)
    parts = _parts(thing)
    found = ((name, _shape(part, depth - 1, left)) for name, part in islice(parts, max(left[0], 0)))
    return id(kind), tuple(item for item in found if item[1] is not None)


def _parts(thing: Any) -> list[tuple[Any, Any]]:
    if type(thing) is MethodType:
        return [("function", thing.__func__), ("self", thing.__self__)]
    if is_a(thing, partial):
        names = ("func", "args", "keywords")
        return [(name, vars(partial)[name].__get__(thing)) for name in names]
    if type(thing) is dict:
        items = islice(thing.items(), PARTS)
        return [(key if type(key) is str else "", value) for key, value in list(items)]
    if is_container(thing):
        return [("", item) for item in _items(thing)]
    return list(attributes(thing).items()) if is_holder(thing) else []
