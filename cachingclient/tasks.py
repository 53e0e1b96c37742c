"""What a task is made of: its functions, and the tasks that were fused into it."""

from __future__ import annotations

import operator
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

from cachingclient.admission import key_name
from cachingclient.inspection import Given, impurity
from cachingclient.inspection.calls import words as words_of
from cachingclient.inspection.given import NOTHING
from cachingclient.inspection.holders import reached
from cachingclient.inspection.objects import is_own

#: Modules in those that are not.
NOT_CHEAP = ("numpy.linalg", "numpy.random", "numpy.fft")
#: Modules whose functions are cheap: what they do to a block costs less than a task.
CHEAP = frozenset(
    "builtins cmath cytoolz dask functools itertools math numpy operator _operator"
    " tlz toolz".split()
)

#: How deep fused tasks and wrapped functions are looked into.
DEEP = 40
#: Longer lists in tasks are data: only their beginning is searched for functions.
MANY_PARTS = 100
#: Functions by which dask nests tasks do nothing by themselves (one is called `to_container`).
MACHINERY = "dask._task_spec"

#: What fusion of Blockwise layers appends to a name: the block's index.
_INDEX = re.compile(r"(?<=[0-9a-f]{32})_[._0-9a-z]*$|_(?:\.[0-9]+_?)+$")
#: Arguments of a fused task.
_PLACEHOLDER = "__dask_blockwise__"


def function_name(function: Any) -> str:
    """Name by which a function is judged."""
    method = getattr(function, "method", None)  # dask.utils.methodcaller
    if isinstance(method, str):
        return method
    if isinstance(function, operator.methodcaller):
        return repr(function).partition("'")[2].partition("'")[0]
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def unwrap(function: Any, depth: int = DEEP) -> Iterator[Any]:
    """A function and those that it wraps: partials, and functions given as arguments."""
    for inner in wrapped_in(function) if depth else ():
        if callable(inner):
            yield from unwrap(inner, depth - 1)
    if not isinstance(function, partial) and getattr(function, "__module__", "") != MACHINERY:
        yield function


def callables_in(value: Any, depth: int = 3) -> Iterator[Any]:
    """Functions among arguments, and in their lists and dicts: ``converters={"a": float}``.

    Examples
    --------
    >>> list(callables_in([1, abs, {"a": {"b": len}}]))
    [<built-in function abs>, <built-in function len>]
    """
    if callable(value):
        yield value
    elif type(value) in (tuple, list, dict) and depth:
        parts = value.values() if type(value) is dict else value
        for part in islice(parts, MANY_PARTS):
            yield from callables_in(part, depth - 1)


def wrapped_in(function: Any) -> Iterator[Any]:
    """What a function consists of that wraps others, and what it was given."""
    kind = type(function)
    if kind is partial or kind.__name__ == "curry":
        yield function.func
        yield from callables_in((*function.args, *function.keywords.values()))
    elif isinstance(funcs := getattr(function, "funcs", None), tuple):  # toolz: compose, juxt
        yield from (getattr(function, "first", None), *funcs)
    elif kind.__name__ in ("vectorize", "da_frompyfunc"):  # numpy, dask.array
        yield getattr(function, "pyfunc", None) or getattr(function, "_func", None)


def task_functions(task: Any) -> Iterator[Any]:
    """Functions that a task calls or hands on: through fusion, nesting and partials.

    Methods of users' objects that are handed to users' functions are among them, where a
    function has a word for them.
    """
    objects: list[Any] = []
    found: list[Any] = []
    for function in _search(task, objects, DEEP):
        found.append(function)
        yield function
    if objects:
        words = frozenset(word for function in found for word in _words(function))
        if getattr in found:
            words = words.union(_strings(task))
        operators = not all(_is_caller(function) for function in found)
        yield from _methods(objects, words, operators)


def _strings(task: Any) -> Iterator[str]:
    """Texts among the arguments of a task, alone or with objects that it is handed."""
    for part in task if type(task) is list else (task,):
        yield from (a for a in getattr(part, "args", None) or () if type(a) is str)


def _words(function: Any) -> Iterable[str]:
    """Names by which a function may call methods of what it is given."""
    code = getattr(function, "__code__", None)
    return words_of(code) if isinstance(code, CodeType) else (function_name(function),)


def _is_caller(function: Any) -> bool:
    return type(function).__name__ == "methodcaller"


def _methods(things: list[Any], words: frozenset[str], operators: bool) -> Iterator[Any]:
    for function, owner in reached(things, words, operators):
        if owner is None:
            yield from unwrap(function)
        elif type(function) is FunctionType:
            # bound, for what it calls of its own object
            yield MethodType(function, owner)


#: Most of what tasks are given can hold no functions.
_ATOMS = frozenset([int, float, complex, bool, str, bytes, type(None), slice, range])


@lru_cache(1_000)
def _is_users(kind: type) -> bool:
    return kind is SimpleNamespace or is_own(kind)


def _search(task: Any, objects: list[Any], depth: int) -> Iterator[Any]:
    if not depth:
        return
    whole = False
    if type(task) is tuple and task and callable(task[0]):
        parts: Iterable[Any] = task
    elif type(task) in (list, tuple, set):
        parts = task
    elif callable(function := getattr(task, "func", None)) and hasattr(task, "dependencies"):
        parts = (function, *(task.args or ()), *(task.kwargs or {}).values())
    elif hasattr(task, "dependencies") and hasattr(task, "value"):  # a literal in a task
        parts = (task.value,)
    elif isinstance(task, Mapping):
        parts = task.values()
        whole = any(hasattr(part, "dependencies") for part in islice(parts, 1))
    else:
        return
    for part in parts if whole else islice(parts, MANY_PARTS):
        if type(part) in _ATOMS:
            continue
        if hasattr(part, "dependencies") or type(part) in (tuple, list, set, dict):
            yield from _search(part, objects, depth - 1)
        elif callable(part):
            yield from unwrap(part)
        elif _is_users(part.__class__):
            objects.append(part)


def is_cheap(function: Any) -> bool:
    """Whether a function is known to cost less than a task, and to do nothing else.

    Examples
    --------
    >>> import operator
    >>> is_cheap(operator.add), is_cheap(lambda block: block)
    (True, False)
    """
    if isinstance(function, operator.methodcaller):
        return True
    if type(function).__name__ in ("ufunc", "vectorize"):
        # frompyfunc makes ufuncs of users' functions
        name = getattr(function, "__name__", "")  # a vectorized partial has none
        return function is getattr(sys.modules.get("numpy"), name, None)
    # ufuncs and methods of builtin types have no module of their own
    module = getattr(function, "__module__", None) or type(function).__module__
    return module.partition(".")[0] in CHEAP and not module.startswith(NOT_CHEAP)


class Weakly:
    """Functions, as long as somebody else holds them: they may hold data.

    Examples
    --------
    >>> f = lambda x: x
    >>> held = Weakly([f])
    >>> list(held) == [f], len(held)
    (True, 1)
    >>> del f
    >>> list(held)
    []
    """

    __slots__ = ("_references",)

    def __init__(self, functions: Iterable[Any]) -> None:
        self._references = tuple(_reference(f) for f in functions)

    def __iter__(self) -> Iterator[Any]:
        return (f for r in self._references if (f := r()) is not None)

    def __len__(self) -> int:
        return len(self._references)


def _reference(function: Any) -> Callable[[], Any]:
    try:
        if type(function) is MethodType:
            # it is made anew each time that somebody asks for it
            return weakref.WeakMethod(function)
        return weakref.ref(function)
    except TypeError:
        return lambda: function


class Looks:
    """Looks at the code of functions, at each once.

    Examples
    --------
    >>> import time
    >>> Looks().impurity([time.time])
    'time reads the clock (time.time)'
    """

    def __init__(self) -> None:
        #: {(id, given): (function, what its code shows)}: an id is good while the function lives
        self._seen: dict[tuple[int, Given], tuple[Any, str | None]] = {}

    def impurity(
        self,
        functions: Iterable[Any],
        givens: Callable[[], Mapping[int, Given]] = dict,
    ) -> str | None:
        """Why results of functions may differ although their arguments are equal.

        Parameters
        ----------
        functions : iterable of callable
        givens : callable, optional
            Tells what they are called with, as `arguments.givens` does; asked only if a seed may
            be missing.
        """
        for function in functions:
            why = self._look(function, NOTHING)
            if why is not None and (told := givens()):
                why = self._look(function, told.get(id(function)) or told[0])
            if why is not None:
                return why
        return None

    def _look(self, function: Any, given: Given) -> str | None:
        key = id(function), given
        found = self._seen.get(key)
        if found is None:
            why = None if is_cheap(function) else _impurity(function, given)
            found = self._seen[key] = function, why
        return found[1]


#: {module: what is wrong with the names of what its functions compute}
UNRELIABLE = {"xarray.core.parallel": "xarray.map_blocks names results after the function's name"}


def _impurity(function: Any, given: Given) -> str | None:
    if (why := UNRELIABLE.get(getattr(function, "__module__", ""))) is not None:
        return why
    if type(function).__name__ == "ufunc" and _OBJECTS.issuperset(function.types):
        return f"{function.__name__} hides its code (frompyfunc)"
    return impurity(function, given)


#: Types of arguments and results of ufuncs that frompyfunc makes
_OBJECTS = {f"{'O' * i}->{'O' * j}" for i in range(10) for j in range(1, 5)}


def is_barrier(task: Any) -> bool:
    """Whether a task waits for all transfers of a P2P shuffle."""
    return type(task).__name__ == "P2PBarrierTask"


def is_p2p(task: Any) -> bool:
    """Whether a task is internal to a P2P shuffle, whose parts are of no use alone."""
    return is_barrier(task) or any(
        (getattr(f, "__module__", None) or "").startswith("distributed.shuffle")
        for f in _search(task, [], DEEP)
    )


@lru_cache(10_000)
def _without_index(name: str) -> str:
    return _INDEX.sub("", name)


@lru_cache(1_000)
def holds_nothing(kind: type) -> bool:
    """Whether values of a type are neither functions nor what may hold some.

    Examples
    --------
    >>> holds_nothing(int), holds_nothing(list), holds_nothing(type(abs))
    (True, False, False)
    """
    return not (
        any("__call__" in vars(c) for c in kind.__mro__)
        or hasattr(kind, "dependencies")
        or issubclass(kind, (tuple, list, set, Mapping))
        or kind is SimpleNamespace
        or is_own(kind)
    )


def fused_into(task: Any) -> Mapping[Any, Any] | None:
    """Tasks that were fused into one, if it is of these; tasks of a layer may share the object."""
    function = getattr(task, "func", None)
    if type(function) is FunctionType and function.__name__ == "_execute_subgraph":
        fused: Mapping[Any, Any] = task.args[0]
        return fused
    return None


def parts_of(name: Any, task: Any, depth: int = DEEP) -> Iterator[tuple[Any, Any]]:
    """Names and tasks that a task consists of: itself, or those that were fused into it.

    Parameters
    ----------
    name
        Name of its key.
    task : GraphNode
    """
    fused = fused_into(task)
    if fused is None or not depth:
        yield name, task
        return
    for key, inner in fused.items():
        inner_name = key_name(key)
        if isinstance(inner_name, str):
            if inner_name.startswith(_PLACEHOLDER):
                continue
            inner_name = _without_index(inner_name)
        yield from parts_of(inner_name, inner, depth - 1)
