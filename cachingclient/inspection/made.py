"""What is asked of, or done to, what a function makes or holds: rows of a database, a counter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from cachingclient.inspection import tables
from cachingclient.inspection.objects import MISSING, Absent, Instance, is_a, static
from cachingclient.inspection.outline import Attribute, Call, Constant, Name
from cachingclient.inspection.scope import Scope


def asked(scope: Scope, node: Any) -> tuple[str, str] | None:
    """What an attribute tells of the call that made what it belongs to."""
    if type(node) is not Attribute:
        return None
    if tables.LOOKS.fullmatch(node.name) and is_path(scope, node.base):
        return tables.LISTING, f"Path.{node.name}"
    if node.name in tables.GROWING and _is_read(scope, node):
        return tables.LEFT, node.base.name
    if type(node.base) is not Call:
        return None
    made = scope.names(node.base.function)
    for reason, maker, attribute in tables.MADE if made else ():
        if attribute.fullmatch(node.name) and any(map(maker.fullmatch, made)):
            if reason == tables.FILES and _is_protected(scope, node.base):
                return None
            what = "[...] = ..." if node.name == "__setitem__" else f".{node.name}"
            return reason, f"{made[0].lstrip('_')}(...){what}"
    return None


def _is_read(scope: Scope, method: Attribute) -> bool:
    """Whether a list that a function adds to, and that outlives it, is more than a log to it."""
    if type(scope.resolve(method.base)) is not list or type(method.base) is not Name:
        return False
    uses = scope.outline.uses
    filled = sum(type(use) is Attribute and use.base == method.base for use in uses)
    return method.name == "pop" or uses.count(method.base) > filled


def _is_counter(scope: Scope, call: Call) -> bool:
    """Whether ``+=`` changes an attribute of what outlives the function, which reads it too."""
    counted = call.function.base
    return scope.resolve(counted.base) is not MISSING and scope.outline.uses.count(counted) > 1


def made_by(scope: Scope, node: Any, pattern: Any) -> bool:
    """Whether something is the result of calling what the pattern names."""
    names = scope.names(node.function) if type(node) is Call else ()
    return any(pattern.fullmatch(name) for name in names)


def is_path(scope: Scope, node: Any) -> bool:
    """Whether something is a path of pathlib, or made of one."""
    while type(node) is Attribute or type(node) is Call:
        found = scope.resolve(node)
        if type(found) is Instance:
            return issubclass(found.cls, PurePath)
        if type(node) is Attribute and node.name not in tables.STEPS:
            return False
        node = node[0]
    return is_a(scope.resolve(node), PurePath)


def _is_protected(scope: Scope, call: Call) -> bool:
    """Whether what a call opens cannot be changed, or is in memory only."""
    if any(made_by(scope, argument, tables.BUFFERS) for argument in _arguments(call)):
        return True
    return any(type(value) is str and value in tables.KEEPING for value in constants(call))


def _arguments(call: Call) -> tuple[Any, ...]:
    return (*call.args, *call.keywords.values())


def constants(call: Call) -> Iterator[Any]:
    """Constants among the arguments of a call, and those in lists."""
    for argument in _arguments(call):
        if type(argument) is Constant:
            yield from argument.value if type(argument.value) is tuple else (argument.value,)


def told(scope: Scope, names: tuple[str, ...], call: Call) -> tuple[str, str] | None:
    """What the arguments of a call tell: that it reads no file, or changes a database."""
    method = call.function.name if type(call.function) is Attribute else ""
    if method == "__iadd__" and _is_counter(scope, call):
        return tables.LEFT, f"{call.function.base.base.name}.{call.function.base.name}"
    if "builtins.next" in names and _is_iterator(scope, call):
        return tables.LEFT, f"next({call.args[0].name})"
    if method in tables.LISTERS:
        return tables.LISTING, f".{method}"
    if method in tables.DATABASES and not _is_in_memory(call.function):
        if method != "execute" or any(map(_changes, constants(call))):
            return tables.DATABASE, f".{method}"
    for name in names:
        if tables.READERS.fullmatch(name) and (path := _pseudo(scope, call)):
            return tables.ENVIRONMENT, path
        if tables.STORES.fullmatch(name) and _makes_store(scope, name.rpartition(".")[2], call):
            return tables.FILES, tables.short(names[0], "")
    return None


def _is_iterator(scope: Scope, call: Call) -> bool:
    held = scope.resolve(call.args[0]) if call.args and type(call.args[0]) in _HELD else MISSING
    return type(held) not in (Absent, Instance) and static(type(held), "__next__") is not MISSING


_HELD = (Name, Attribute)


def _changes(statement: Any) -> bool:
    return type(statement) is str and tables.STATEMENTS.match(statement) is not None


def _is_in_memory(node: Any) -> bool:
    """Whether something comes from a database that is gone with the call."""
    if type(node) is Attribute:
        return _is_in_memory(node.base)
    if type(node) is not Call:
        return False
    # DuckDB's needs no name
    nameless = getattr(node.function, "name", "") == "connect" and not _arguments(node)
    if nameless or ":memory:" in constants(node):
        return True
    return any(map(_is_in_memory, (node.function, *node.args)))


_PATHS = (str, type(Path()))


def _pseudo(scope: Scope, call: Call) -> str | None:
    for argument in call.args[:1]:
        path = argument.value if type(argument) is Constant else scope.resolve(argument)
        if type(path) in _PATHS and (text := str(path)).startswith(tables.PSEUDO):
            return text
    return None


def _makes_store(scope: Scope, verb: str, call: Call) -> bool:
    if any(made_by(scope, argument, tables.BUFFERS) for argument in _arguments(call)):
        return False
    if verb.startswith("open"):
        return not {"shape", "data"}.isdisjoint(call.keywords)
    placed = bool(call.args) and verb in ("create_array", "create_group", "group")
    return placed or "store" in call.keywords or verb.startswith("copy")
