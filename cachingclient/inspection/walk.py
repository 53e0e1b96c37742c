"""The user's functions that a callable comes to, found without calling any."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from cachingclient.inspection.holders import PARTS
from cachingclient.inspection.objects import (
    MISSING,
    Instance,
    Super,
    held,
    is_a,
    is_holder,
    is_own,
    static,
)
from cachingclient.inspection.outline import Attribute, Call
from cachingclient.inspection.scope import Scope

#: Calls of calls of calls ... are followed so far, and so many functions at the most
DEPTH = 50
FUNCTIONS = 200
#: Methods that run when a class is called
MAKERS = ("__new__", "__init__", "__post_init__")


class Unit(NamedTuple):
    """A part of a callable that is looked at as a whole."""

    #: a function of the user, or something else that is judged by its name
    function: Any
    #: class of its first argument, if it is a method
    cls: type | None


class Visit(NamedTuple):
    """One of the user's functions on the way."""

    #: names of the functions that led to it, the first one first, and its own
    names: tuple[str, ...]
    #: what its names stand for: a `Scope`
    scope: Any


def units(thing: Any, cls: type | None = None, depth: int = 5) -> Iterator[Unit]:
    """What a callable is made of: the function of a partial, the ``__call__`` of an object...

    Examples
    --------
    >>> from functools import partial
    >>> [unit.function.__name__ for unit in units(partial(partial(sorted, key=abs)))]
    ['sorted', 'abs']
    """
    if is_leaf(thing):
        yield Unit(thing, cls)
        for inner in wrapped(thing) if depth else ():
            yield from units(inner, cls, depth - 1)
    elif depth:
        for part, owner in _parts(thing):
            yield from units(part, owner, depth - 1)


def is_leaf(thing: Any) -> bool:
    """Whether this is a function, or a method of something that is not the user's."""
    if type(thing) is MethodType:
        return is_leaf(thing.__func__) and not is_own(thing.__func__)
    return type(thing) in (FunctionType, BuiltinFunctionType) or (
        type(thing).__name__ == "cython_function_or_method"
    )


def wrapped(thing: Any) -> Iterator[FunctionType]:
    """Functions of the user that a wrapper calls whose own code is installed.

    `numpy.errstate`, `contextlib.contextmanager` and the like, and all that was registered with
    `functools.singledispatch`.
    """
    if type(thing) is FunctionType and not is_own(thing):
        inner, registry = (thing.__dict__.get(name) for name in ("__wrapped__", "registry"))
        registered = registry.values() if type(registry) is MappingProxyType else ()
        for function in (inner, *islice(registered, PARTS)):
            if is_own(function):
                yield function


def _parts(thing: Any) -> Iterator[tuple[Any, Any]]:
    """What runs when something other than a plain function is called."""
    if is_a(thing, partial):
        yield partial.func.__get__(thing), None
        keywords = partial.keywords.__get__(thing)
        arguments = partial.args.__get__(thing)
        for part in (*arguments[:PARTS], *list(keywords.values())[:PARTS]):
            yield part, None
    elif type(thing) is MethodType:
        owner = thing.__self__
        yield thing.__func__, owner if is_a(owner, type) else type(owner)
    elif is_a(thing, type):
        for name in MAKERS if is_own(thing) else ():
            yield static(thing, name), thing
    elif callable(thing):
        call = static(type(thing), "__call__")
        yield call if type(call) is FunctionType else None, type(thing)
        for part in held_functions(thing, slots=type(call) is FunctionType):
            yield part, None


def held_functions(thing: Any, slots: bool) -> Iterator[Any]:
    """Functions in the attributes of an object: what wrappers wrap."""
    for value in islice(held(thing, slots), PARTS):
        for part in value[:PARTS] if type(value) in (tuple, list) else (value,):
            if is_leaf(part) or type(part) is MethodType or is_a(part, partial):
                yield part
            elif is_holder(part) and callable(part) and not is_holder(thing):
                yield part


def walk(
    function: FunctionType,
    cls: type | None = None,
    more: Callable[[Scope], Iterable[Unit]] = lambda scope: (),
) -> Iterator[Visit]:
    """A function of the user, and those that it calls, nearest first.

    Parameters
    ----------
    function : function
    cls : type, optional
        Class of its first argument.
    more : callable, optional
        Others that a function comes to, which are looked at last.
    """
    return follow(Unit(function, cls), lambda unit: tuple(map(id, unit)), Scope, _called, more)


def follow(
    first: Any,
    key_of: Callable[[Any], Any],
    scope_of: Callable[..., Any],
    called: Callable[[Any], Iterator[Any]],
    more: Callable[[Any], Iterable[Any]] = lambda scope: (),
) -> Iterator[Visit]:
    """The same, whatever is known of a call beside its function and what that belongs to.

    Parameters
    ----------
    first : tuple
        A function, what it belongs to, and more.
    key_of : callable
        What tells such tuples from others.
    scope_of : callable
        Makes the scope of such a tuple.
    called : callable
        Tuples of the functions that are called from a scope.
    more : callable, optional
        Tuples of others, which are looked at last.
    """
    work: deque[Any] = deque([(first, ())])
    later: deque[Any] = deque()
    seen: set[Any] = set()
    while (work or later) and len(seen) < FUNCTIONS:
        unit, names = (work or later).popleft()
        if (key := key_of(unit)) in seen:
            continue
        seen.add(key)
        visit = Visit((*names, name_of(unit[0])), scope_of(*unit))
        yield visit
        if len(names) < DEPTH:
            work.extend((found, visit.names) for found in called(visit.scope))
            later.extend((found, visit.names) for found in more(visit.scope))


def name_of(function: Any) -> str:
    """Name of a function in a sentence."""
    name = function.__name__
    return "a lambda" if name == "<lambda>" else str(name)


def _called(scope: Scope) -> Iterator[Unit]:
    """Functions of the user that a function of the user calls or mentions."""
    function = scope.function
    for node in scope.outline.uses:
        if type(node) is Call:
            made = scope.resolve(node.function)
            if type(made) is Instance:
                yield from _own(static(made.cls, "__call__"), made.cls)
            continue
        found = scope.resolve(node)
        if found is not MISSING and type(found) is not ModuleType:
            yield from _own(found, _receiver(scope, node))
    yield from _own(function.__dict__.get("__wrapped__"))
    for default in defaults(function):
        yield from _own(default)


def defaults(function: FunctionType) -> tuple[Any, ...]:
    """Values that arguments of a function have if they are not given."""
    values = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return values[:PARTS]


def _own(thing: Any, cls: type | None = None) -> Iterator[Unit]:
    return (unit for unit in units(thing, cls) if is_own(unit.function))


def _receiver(scope: Scope, node: Any) -> type | None:
    """Class of what a method is looked up on."""
    base = scope.resolve(node.base) if type(node) is Attribute else None
    if base is None or is_a(base, ModuleType):
        return None
    if type(base) in (Instance, Super):
        return base.cls
    return base if is_a(base, type) else type(base)
