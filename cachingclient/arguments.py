"""What tasks give to the functions that they call: whether a seed is among it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from cachingclient.inspection import Given
from cachingclient.inspection.calls import said
from cachingclient.inspection.given import ANYTHING
from cachingclient.internals import Task, TaskRef
from cachingclient.tasks import DEEP, MANY_PARTS, fused_into, wrapped_in

_Words = frozenset[tuple[str, bool]]
#: In place of an id, what is given to functions of which a task does not tell how it calls them
OTHERS = 0


def givens(
    task: Any, args: tuple[Any, ...] | None = None, functions: Iterable[Any] = ()
) -> dict[int, Given]:
    """What is given to the functions that a task calls or hands on, by their ids.

    How dask and others hand arguments on is theirs to change. So a keyword counts wherever in the
    task it is said: a function must not look unseeded that is given a seed.

    Parameters
    ----------
    task : GraphNode
        Or a container of such.
    args : tuple, optional
        Its arguments, where the task itself only says that they will come.
    functions : iterable of callable
        Functions whose code may call others, of objects that they are given.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> task = Task("y", map, abs, TaskRef("x"), seed=3)
    >>> givens(task)[id(abs)]
    Given(positional=(True,), keywords=frozenset({('seed', True)}), rest=False)
    """
    words = frozenset(_words((task, *(args or ())), DEEP))
    spoken = (said(function.__code__) for function in functions if hasattr(function, "__code__"))
    found = {OTHERS: Given((), words.union(*spoken))}
    if args is not None:
        _note_call(task.func, args, task.kwargs or {}, words, found)
    _note(task, words, found, DEEP)
    return found


def given_inside(fused: Mapping[Any, Any]) -> Iterator[Any]:
    """What tasks are given that were fused into one, and consist of others themselves."""
    for task in fused.values():
        if (inner := fused_into(task)) is not None:
            yield from (*task.args[1:], *task.kwargs.values())
            yield from given_inside(inner)


def calls(task: Any, depth: int = DEEP) -> Iterator[tuple[Any, Task]]:
    """Keys and tasks of those that were fused into one and are given something from outside.

    Examples
    --------
    >>> from dask._task_spec import TaskRef
    >>> fused = Task.fuse(Task("y", abs, TaskRef("x")), Task("z", divmod, TaskRef("y"), 2))
    >>> [call for _, call in calls(fused)]
    [<Task None abs(...)>]
    """
    fused = fused_into(task) or {}
    keys, values = (task.args[2], task.args[3:]) if len(task.args) > 2 else ((), ())
    outside = dict(zip(keys, values))
    for key, inner in fused.items():
        refs = outside.keys() & getattr(inner, "dependencies", ())
        if type(inner) is not Task:
            continue
        if refs:
            args = (
                outside[a.key] if type(a) is TaskRef and a.key in refs else a for a in inner.args
            )
            inner = Task(None, inner.func, *args, **inner.kwargs)
        if depth and fused_into(inner) is not None:
            yield from calls(inner, depth - 1)
        elif refs:
            yield key, inner


def _words(parts: Iterable[Any], depth: int) -> Iterator[tuple[str, bool]]:
    """Names of all keywords, and keys of dicts, that are anywhere in these."""
    for part in map(_value, parts):
        items = _items(part)
        yield from ((name, _is_given(value)) for name, value in items if type(name) is str)
        inner = (value for _, value in items)
        yield from _words((*inner, *_inner(part)) if depth else (), depth - 1)


def _items(part: Any) -> list[tuple[Any, Any]]:
    """Names and values that a part of a task says."""
    if type(part) is partial:
        part = part.keywords
    elif hasattr(part, "dependencies") and hasattr(part, "func"):
        if _name(part) == "to_container" and len(part.args) % 2 == 0:
            # dicts of tasks have their keys among their arguments
            return list(islice(zip(part.args[::2], part.args[1::2]), MANY_PARTS))
        part = part.kwargs
    return list(islice(part.items(), MANY_PARTS)) if type(part) is dict else []


def _inner(part: Any) -> Iterable[Any]:
    if hasattr(part, "dependencies"):
        return (getattr(part, "func", None), *islice(getattr(part, "args", None) or (), MANY_PARTS))
    if type(part) in (tuple, list):
        return islice(part, MANY_PARTS)
    return wrapped_in(part) if callable(part) else ()


def _name(task: Any) -> Any:
    return getattr(getattr(task, "func", None), "__name__", None)


def _note(task: Any, words: _Words, found: dict[int, Given], depth: int) -> None:
    function, args, kwargs = _call(task)
    _note_call(function, args, kwargs, words, found)
    for part in (*args, *kwargs.values()) if depth else ():
        if hasattr(part, "dependencies") or type(part) in (tuple, list, dict):
            _note(part, words, found, depth - 1)


def _note_call(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    words: _Words,
    found: dict[int, Given],
) -> None:
    for thing, positional in _candidates(function, args, kwargs):
        if callable(thing):
            given = Given(tuple(map(_is_given, positional)), words)
            if isinstance(thing, type) and thing is not function:
                # a class that is handed on need not be called
                given = ANYTHING
            _give(thing, given, found)


def _call(task: Any) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Function and arguments of a task; parts of anything else."""
    if type(task) is tuple and task and callable(task[0]):
        return task[0], task[1:MANY_PARTS], {}
    if type(task) in (list, tuple, set):
        return None, tuple(islice(task, MANY_PARTS)), {}
    if isinstance(task, Mapping):
        return None, tuple(islice(task.values(), MANY_PARTS)), {}
    args = islice(getattr(task, "args", None) or (), MANY_PARTS)
    return getattr(task, "func", None), tuple(args), getattr(task, "kwargs", None) or {}


def _candidates(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, Iterable[Any]]]:
    """Callables of a task, and their positional arguments as far as they can be told."""
    named = _named(kwargs)
    yield function, args
    for i, thing in enumerate(map(_value, args)):
        if callable(thing):
            # apply(f, [x, 3]), but f(x, 3)
            yield thing, named or _listed(args[i + 1 : i + 2]) or args[i + 1 :]
    for thing in kwargs.values():
        yield _value(thing), named or args


def _named(kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments as in ``frame.apply(f, args=(3,))``, which hands a row over before them."""
    for name, value in kwargs.items():
        if name.endswith("args") and (listed := _listed((value,))) is not None:
            return (True, *listed)
    return ()


def _listed(following: tuple[Any, ...]) -> tuple[Any, ...] | None:
    for thing in map(_value, following):
        if type(thing) is list or type(thing) is tuple and not (thing and callable(thing[0])):
            return tuple(thing)
        if _name(thing) in _CONTAINERS:
            return tuple(thing.args)
    return None


#: Functions by which dask makes containers of what tasks return
_CONTAINERS = ("_identity_cast", "to_container")


def _value(thing: Any) -> Any:
    """What a literal in a task stands for."""
    return thing.value if hasattr(thing, "dependencies") and hasattr(thing, "value") else thing


def _is_given(thing: Any) -> bool:
    return _value(thing) is not None


def _give(function: Any, given: Given, found: dict[int, Given]) -> None:
    inner = given
    if type(function) is partial:
        inner = given.before(tuple(map(_is_given, function.args)), frozenset())
    else:
        found.setdefault(id(function), given)
    for thing in wrapped_in(function):
        if callable(thing):
            is_called = type(function) is not partial or thing is function.func
            _give(thing, inner if is_called else given, found)
