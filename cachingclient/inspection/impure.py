"""Why the result of a function may differ from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from cachingclient.inspection import tables
from cachingclient.inspection.calls import Inside, Part, parts, visits
from cachingclient.inspection.given import NOTHING, Given
from cachingclient.inspection.holders import contents, shape, shape_of_holder
from cachingclient.inspection.made import asked, constants, is_path, made_by, told
from cachingclient.inspection.objects import (
    MISSING,
    Absent,
    Instance,
    Super,
    full_name,
    generator_kind,
    is_a,
    is_own,
)
from cachingclient.inspection.outline import Attribute, Call, Constant
from cachingclient.inspection.scope import Scope
from cachingclient.inspection.values import Look
from cachingclient.inspection.walk import defaults, units
from cachingclient.inspection.watch import Memory


def impurity(function: Any, given: Given = NOTHING) -> str | None:
    """Why a function's result may differ from call to call although its arguments are equal.

    Parameters
    ----------
    function : callable
        Anything that can be called; anything else is None.
    given : Given, optional
        What it is called with: a seed, where it would go without one.

    Returns
    -------
    str or None
        A sentence, or None if the code shows nothing. Code of installed packages and of the
        standard library is not looked into: its names are judged.

    Examples
    --------
    >>> def stamp(x):
    ...     from datetime import datetime
    ...     return x, datetime.now()
    >>> impurity(stamp)
    'stamp reads the clock (datetime.now)'
    >>> impurity(lambda x: x + 1)
    """
    try:
        if given is NOTHING and (entry := _impurity.recall(function)):
            return entry.answer
        for part in parts(function, given=given):
            found = _of_part(part) if is_own(part.function) else _by_name(part.function)
            if found:
                return found
        return _by_name(function) if is_a(function, type) and not is_own(function) else None
    except Exception:
        # Somebody else's objects: whatever they do, it must not fail a computation.
        return None


def _by_name(function: Any) -> str | None:
    name = full_name(function) or ""
    verb = name.rpartition(".")[2]
    reason = tables.reason_of(name) or (tables.FILES if tables.writes(verb) else None)
    return reason and _sentence((verb,), reason, tables.short(name, reason))


def _sentence(names: tuple[str, ...], reason: str, detail: str) -> str:
    return f"{', which calls '.join(names).replace(', which calls', ' calls', 1)}" + (
        f", which {reason} ({detail})" if len(names) > 1 else f" {reason} ({detail})"
    )


def _of_part(part: Part) -> str | None:
    function, owner, given = part
    if owner is None or is_a(owner, type):
        return _impurity(function, owner, None if given == NOTHING else given, owner, given)
    # what objects of one shape do is looked at once
    return _impurity(function, type(owner), (shape(owner), given), owner, given)


def _find(
    function: FunctionType, cls: type | None, owner: Any = None, given: Given = NOTHING
) -> tuple[str | None, list[Scope]]:
    scopes = []
    for visit in visits(Part(function, cls if owner is None else owner, given)):
        scopes.append(visit.scope)
        for found in _judged(function, visit.scope):
            return _sentence(visit.names, *found), scopes
    return None, scopes


def _look(value: Any) -> Look | None:
    found = shape_of_holder(value)
    return None if found is None else Look(found)


_impurity = Memory(_find, _look)


def _judged(function: FunctionType, scope: Inside) -> list[tuple[str, str]]:
    """What is found in one of the functions that a function comes to; logs don't count."""
    found = list(_in_scope(scope))
    if _is_log(function, scope, found):
        return [(reason, detail) for reason, detail in found if reason != tables.FILES]
    return found


def _is_log(function: FunctionType, scope: Inside, found: list[tuple[str, str]]) -> bool:
    """Whether a helper of another module does no more to files than to add to one."""
    details = [detail for reason, detail in found if reason == tables.FILES]
    return (
        scope.function.__module__ != function.__module__
        and any(detail.endswith(_APPENDING) for detail in details)
        and all(detail.endswith(_APPENDING) or detail in _ADDING for detail in details)
    )


_APPENDING = ("'a')", "'at')", "'ab')", "FileHandler")
_ADDING = (".write", ".writelines")


def logs(function: Any) -> bool:
    """Whether a function calls a helper of another module that adds to a file.

    That file is its log, and no source of what it returns.

    Examples
    --------
    >>> logs(lambda x: x + 1)
    False
    """
    try:
        return any(_logs(*unit) for unit in units(function) if is_own(unit.function))
    except Exception:
        # As above.
        return False


def _find_logs(function: FunctionType, cls: type | None) -> tuple[bool, list[Scope]]:
    scopes = [visit.scope for visit in visits(Part(function, cls, NOTHING))]
    return any(_is_log(function, s, list(_in_scope(s))) for s in scopes), scopes


_logs = Memory(_find_logs, _look)


def _in_scope(scope: Inside) -> Iterator[tuple[str, str]]:
    for node in scope.outline.uses:
        found = _call(scope, node) if type(node) is Call else _mention(scope, node)
        if found:
            yield found
    for default in defaults(scope.function):
        yield from _named((default, *contents(default)))
    if scope.outline.assigned:
        yield tables.GLOBAL, scope.outline.assigned[0]


def _named(things: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for thing in things:
        if reason := tables.reason_of(name := full_name(thing) or ""):
            yield reason, tables.short(name, reason)


def _mention(scope: Inside, node: Any) -> tuple[str, str] | None:
    if found := asked(scope, node):
        return found
    for name in scope.names(node):
        if reason := tables.reason_of(name):
            return reason, tables.short(name, reason)
    found = scope.resolve(node)
    if found is MISSING or type(found) in _UNKNOWN or is_a(found, (type, ModuleType)):
        return None
    if held := next(_named(contents(found)), None):
        return held
    if generator_kind(found):
        return tables.STATE, node.name
    kind = full_name(type(found)) or ""
    reason = tables.reason_of(kind)
    return (reason, node.name) if reason in (tables.NETWORK, tables.CLUSTER) else None


def _call(scope: Inside, call: Call) -> tuple[str, str] | None:
    if call.function is None or is_own(scope.resolve(call.function)):
        return None
    names = scope.names(call.function)
    found = _clock(names, call) or _draw(scope, names, call) or _write(scope, names, call)
    return found or told(scope, names, call)


def _clock(names: tuple[str, ...], call: Call) -> tuple[str, str] | None:
    now = [value for value in constants(call) if value in ("now", "today")]
    for name in names:
        if len(call.args) <= tables.IDLE_CLOCKS.get(name, -1) and not call.starred:
            return tables.CLOCK, name
        if now and tables.DATES.fullmatch(name):
            return tables.CLOCK, f"{name.rpartition('.')[2]}({now[0]!r})"
    return None


_UNKNOWN = (Absent, Instance, Super)


def _given(call: Call) -> dict[str, Any]:
    """Keywords that are not None."""
    return {k: v for k, v in call.keywords.items() if type(v) is not Constant or v[0] is not None}


def _draw(scope: Inside, names: tuple[str, ...], call: Call) -> tuple[str, str] | None:
    if call.starred:
        return None
    given = {name for name, node in call.keywords.items() if not scope.is_none(node)}
    seeded = given or not all(map(scope.is_none, call.args))
    for name in names:
        if not seeded and tables.SEEDED.fullmatch(name):
            return tables.RANDOM, f"{name} without a seed"
    method = call.function.name if type(call.function) is Attribute else None
    if method == "rvs" and not tables.SEEDS & given:
        return tables.RANDOM, ".rvs without random_state"
    if method == "sample" and tables.draws_rows(len(call.args), frozenset(given)):
        if not made_by(scope, call.function.base, tables.SEEDED):
            return tables.RANDOM, ".sample without random_state"
    return None


def _write(scope: Inside, names: tuple[str, ...], call: Call) -> tuple[str, str] | None:
    function = call.function
    method = type(function) is Attribute and not _is_module(scope, function.base)
    verb = function.name if type(function) is Attribute else (names or ("",))[0].rpartition(".")[2]
    mode = _mode(call, method) if verb in tables.OPENERS else None
    if not (mode or _writes(scope, verb, call, method)) or _in_memory(scope, call, method):
        return None
    if mode:
        return tables.FILES, f"{verb}(..., {mode!r})"
    return tables.FILES, f".{verb}" if method or not names else tables.short(names[0], "")


def _is_module(scope: Inside, node: Any) -> bool:
    found = scope.resolve(node)
    return type(found) is Absent or is_a(found, ModuleType)


def _mode(call: Call, method: bool) -> str | None:
    """The mode that a file is opened in, if it is one for writing."""
    # Path("x").open("w"), but fs.open("x", "w")
    # np.memmap has a type before it
    modes = (*call.args[0 if method else 1 : 3], call.keywords.get("mode"))
    found = (m.value for m in modes if type(m) is Constant and tables.for_writing(m.value))
    return next(found, None)


def _writes(scope: Inside, verb: str, call: Call, method: bool) -> bool:
    if verb in tables.RENAMES and method:
        return is_path(scope, call.function.base)
    if not tables.writes(verb):
        return False
    target = call.starred or tables.TARGETS & _given(call).keys()
    if verb in tables.TEXTS and method:
        return bool(target or call.args)
    # yaml.dump(x) and the like return a text
    return verb != "dump" or method or bool(target) or len(call.args) > 1


def _in_memory(scope: Inside, call: Call, method: bool) -> bool:
    base = [call.function.base] if method else []
    if any(tables.SCREEN.fullmatch(name) for node in base for name in scope.names(node)):
        return True
    files = (*base, *call.args, *call.keywords.values())
    return any(made_by(scope, node, tables.BUFFERS) for node in files)
