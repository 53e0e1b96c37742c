"""Digests of functions, which change when their code is edited."""

from __future__ import annotations

import hashlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from cachingclient.inspection.members import accessors, members
from cachingclient.inspection.objects import (
    MISSING,
    Absent,
    Instance,
    cell_contents,
    full_name,
    is_a,
    is_own,
)
from cachingclient.inspection.outline import Call, Name
from cachingclient.inspection.scope import Scope
from cachingclient.inspection.values import look
from cachingclient.inspection.walk import Unit, units, walk
from cachingclient.inspection.watch import Entry, Memory, defaults_of

#: Classes that are looked at for a function, each as a whole
CLASSES = 50


def fingerprint(function: Any) -> str:
    """Digest of a function's code, constants, and the settings, functions and classes it uses.

    Parameters
    ----------
    function : callable

    Returns
    -------
    str
        Changes when the function, a function that it calls, a class that it mentions, or a setting
        in its globals changes: see `values`. Where its lines are does not count. '' for functions
        of installed packages, of the standard library, or written in C.

    Examples
    --------
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1) != fingerprint(lambda x: x + 2)
    True
    >>> fingerprint(len)
    ''
    """
    try:
        if entry := _fingerprint.recall(function):
            return entry.answer
        if is_a(function, type) and is_own(function):
            return _digest([of_class.answer.digest for of_class in _all_classes([function])])
        own = [unit for unit in units(function) if is_own(unit.function)]
        digests = [_fingerprint(*unit) for unit in own]
    except Exception:
        # Somebody else's objects: whatever they do, it must not fail a computation.
        return ""
    return digests[0] if len(digests) == 1 else _digest(digests) if digests else ""


def print_alone(function: Any) -> str:
    """Digest of a function's code and of what it was made with, whatever it uses besides.

    Parameters
    ----------
    function : callable

    Returns
    -------
    str
        '' for what is no function.

    Examples
    --------
    >>> def scale(k):
    ...     return lambda x: x * k
    >>> print_alone(scale(1)) == print_alone(scale(1)) != print_alone(scale(2))
    True
    """
    inner = function.__func__ if type(function) is MethodType else function
    if type(inner) is not FunctionType:
        return ""
    made_with = [_meaning(value) for _, value in defaults_of(inner)]
    for n in range(len(inner.__closure__ or ())):
        made_with.append(_meaning(cell_contents(inner, n)))
    return _digest([*_code(inner.__code__), *map(str, made_with)])


def parts(function: Any) -> tuple[Any, ...]:
    """Functions and classes of the user that a callable object, or a partial, holds.

    Examples
    --------
    >>> from functools import partial
    >>> parts(len), parts(partial(max, key=lambda x: x))  # doctest: +ELLIPSIS
    ((), (<function <lambda> at 0x...>,))
    """
    seen = None if type(function) is FunctionType else look(function)
    return () if seen is None else seen.parts


def _digest(texts: list[str]) -> str:
    return hashlib.blake2b("\n".join(texts).encode("utf8", "replace"), digest_size=16).hexdigest()


def _find(function: FunctionType, cls: type | None) -> tuple[str, list[Any]]:
    behind = _Behind()
    scopes = [visit.scope for visit in walk(function, cls, behind)]
    texts = [text for scope in scopes for text in _texts(scope)]
    entries = _all_classes(behind.classes)
    return _digest(texts + [entry.answer.digest for entry in entries]), [*scopes, *entries]


_fingerprint = Memory(_find, look)


class _Behind:
    """What is behind the names in functions: in containers and objects, and all of classes.

    Where an object comes from is not known (a factory may have made it), so that all that is in a
    class counts where the class is mentioned.
    """

    def __init__(self) -> None:
        #: what is looked at besides, once something was
        self.units: list[Unit] = []
        self.classes: list[type] = []

    def __call__(self, scope: Scope) -> Iterator[Unit]:
        for part in _mentioned(scope):
            self.add(part)
        units, self.units = self.units, []
        yield from units

    def add(self, part: Any) -> None:
        if type(part) is FunctionType:
            self.units.append(Unit(part, None))
        elif is_own(part):
            self.classes.append(part)


class _Class(NamedTuple):
    """What was found in a class, or is said of it."""

    digest: str
    #: classes that are mentioned there
    classes: tuple[Callable[[], Any], ...]


class _Members(NamedTuple):
    """In the place of a scope: what is defined in a class."""

    function: type
    loaded: list[tuple[type, str, Any]]


def _find_class(cls: type, _: Any) -> tuple[_Class, list[Any]]:
    behind = _Behind()
    loaded = list(members(cls))
    texts, start = [], []
    for _, name, thing in loaded:
        found = [unit for part in accessors(thing) for unit in units(part, cls)]
        if own := [unit for unit in found if is_own(unit.function)]:
            start += own
        else:
            texts.append(f"{name}={_meaning(thing)}")
            for part in _parts(thing):
                behind.add(part)
    start += behind.units
    behind.units = start[1:]
    scopes = [visit.scope for visit in walk(*start[0], behind)] if start else []
    texts += [text for scope in scopes for text in _texts(scope)]
    mentioned = {id(part): weakref.ref(part) for part in behind.classes}
    return _Class(_digest(texts), tuple(mentioned.values())), [_Members(cls, loaded), *scopes]


_classes = Memory(_find_class, look)


def _all_classes(first: list[type]) -> list[Entry]:
    """What is remembered of classes, and of those that they mention."""
    entries: dict[int, Entry] = {}
    work = deque(first)
    while work and len(entries) < CLASSES:
        cls = work.popleft()
        if cls is not None and id(cls) not in entries:
            entries[id(cls)] = entry = _classes.entry(cls)
            work.extend(reference() for reference in entry.answer.classes)
    return list(entries.values())


def _mentioned(scope: Scope) -> Iterator[Any]:
    """Functions and classes that the names of a function lead to."""
    yield scope.cls
    for node in scope.outline.uses:
        if type(node) is not Call and not _is_state(scope, node):
            yield from _parts(scope.resolve(node))
    for key, value in defaults_of(scope.function):
        scope.loaded.append((scope.function, key, value))
        yield from _parts(value)


def _is_state(scope: Scope, node: Any) -> bool:
    return type(node) is Name and scope.is_state(node.name, scope.resolve(node))


def _parts(thing: Any) -> tuple[Any, ...]:
    if type(thing) is Instance:
        return (thing.cls,)
    if is_a(thing, type):
        return (thing,)
    seen = look(thing)
    return () if seen is None else seen.parts


def _texts(scope: Scope) -> Iterator[str]:
    function = scope.function
    yield from _code(function.__code__)
    for key, default in defaults_of(function):
        yield f"{key.key}={_meaning(default)}"
    for node in scope.outline.uses:
        if _is_state(scope, node):
            yield f"{node.name} is filled"
        elif type(node) is not Call:
            yield f"{node.name}={_meaning(scope.resolve(node))}"


def _meaning(thing: Any) -> str | None:
    """What tells a global from another one."""
    if thing is MISSING or type(thing) is Instance or is_own(thing):
        return None
    if type(thing) is Absent or is_a(thing, (ModuleType, type)):
        return full_name(thing)
    seen = look(thing)
    return full_name(thing) or type(thing).__name__ if seen is None else seen.text


def _code(code: CodeType) -> Iterator[str]:
    """Texts of what a code does, without where it is."""
    yield repr((code.co_code, code.co_flags, code.co_names, code.co_varnames))
    yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            seen = look(constant)
            yield _large(constant) if seen is None else seen.text


def _large(constant: Any) -> str:
    return f"{sorted(map(repr, constant))}" if type(constant) is frozenset else repr(constant)
