"""Digests of functions, which change when their code is edited."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cachingclient.inspection.objects import MISSING, Absent, Instance, full_name, is_a, is_own
from cachingclient.inspection.outline import Call, Name
from cachingclient.inspection.scope import Scope
from cachingclient.inspection.walk import units, walk
from cachingclient.inspection.watch import Memory

#: Larger containers in globals are data, not settings, and looked at each time if they can change
MANY_ITEMS = 50
_SIMPLE = (int, float, complex, bool, str, bytes, type(None), type(...), range)


def fingerprint(function: Any) -> str:
    """Digest of a function's code, constants, and the simple globals and functions it uses.

    Parameters
    ----------
    function : callable

    Returns
    -------
    str
        Changes when the function, a function that it calls, or a number, string or small container
        of such in its globals changes. Where its lines are does not count. '' for functions of
        installed packages, of the standard library, or written in C.

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
        own = [unit for unit in units(function) if is_own(unit.function)]
        digests = [_fingerprint(*unit) for unit in own]
    except Exception:
        # Somebody else's objects: whatever they do, it must not fail a computation.
        return ""
    return digests[0] if len(digests) == 1 else _digest(digests) if digests else ""


def _digest(texts: list[str]) -> str:
    return hashlib.blake2b("\n".join(texts).encode("utf8", "replace"), digest_size=16).hexdigest()


def text_of(value: Any, depth: int = 3) -> str | None:
    """Text of a number, string or small container of such; None for other values.

    Examples
    --------
    >>> text_of({"b": (1, 2.0), "a": None}), text_of(object())
    ("{'b': (1, 2.0), 'a': None}", None)
    """
    kind = type(value)
    if kind in _SIMPLE:
        return repr(value)
    if kind not in (tuple, list, dict, set, frozenset) or len(value) > MANY_ITEMS or not depth:
        return None
    items = (*value, *value.values()) if kind is dict else tuple(value)
    if any(text_of(item, depth - 1) is None for item in items):
        return None
    return f"{kind.__name__}{sorted(map(repr, value))}" if kind in _UNORDERED else repr(value)


_UNORDERED = (set, frozenset)


def _find(function: FunctionType, cls: type | None) -> tuple[str, list[Scope]]:
    scopes = [visit.scope for visit in walk(function, cls)]
    return _digest([text for scope in scopes for text in _texts(scope)]), scopes


_fingerprint = Memory(_find, text_of)


def _texts(scope: Scope) -> Iterator[str]:
    function = scope.function
    yield from _code(function.__code__)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()):
        yield text_of(default) or type(default).__name__
    for node in scope.outline.uses:
        if type(node) is Name and scope.is_state(node.name, scope.resolve(node)):
            yield f"{node.name} is filled"
        elif type(node) is not Call:
            yield f"{node.name}={_meaning(scope.resolve(node))}"


def _meaning(thing: Any) -> str | None:
    """What tells a global from another one."""
    if thing is MISSING or type(thing) is Instance or is_own(thing):
        return None
    if type(thing) is Absent or is_a(thing, (ModuleType, type)):
        return full_name(thing)
    return text_of(thing) or full_name(thing) or type(thing).__name__


def _code(code: CodeType) -> Iterator[str]:
    """Texts of what a code does, without where it is."""
    yield repr((code.co_code, code.co_flags, code.co_names, code.co_varnames))
    yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield text_of(constant) or _large(constant)


def _large(constant: Any) -> str:
    return f"{sorted(map(repr, constant))}" if type(constant) is frozenset else repr(constant)
