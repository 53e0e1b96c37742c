"""A static look at functions: may they change what they are given?

Functions of dask, numpy, pandas and the like are known by their names. Of others the byte
code is read, once per code object: what only reads, and calls only what is known or reads
itself, is cleared. Everything else counts as changing its inputs, also where it does not:
a store into an object of its own, say. That costs a copy; the other way round it would
cost a right answer.

The look assumes that methods with names like those of arrays, frames and builtins do what
these do, that operators and properties change nothing, and that functions in a task are
found where `tasks.task_functions` looks for them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from cachingclient.admission import effect_of
from cachingclient.internals import Alias, Task, TaskList
from cachingclient.tasks import (
    MACHINERY,
    MANY_PARTS,
    function_name,
    holds_nothing,
    is_cheap,
    task_functions,
    unwrap,
)
from cachingclient.worker import names
from cachingclient.worker.bytecode import BENEATH, CHANGES, CLEAR, Use, code_facts
from cachingclient.worker.signatures import ANY, reach

#: Functions that call functions are followed so far.
DEPTH = 6
#: Of what cannot be looked into.
UNKNOWN = CHANGES | BENEATH
#: Parts of a task that are looked at without a closer look.
MANY_INSIDE = 10_000
#: Functions of modules whose verdict is remembered.
MANY = 10_000


def task_verdict(task: Any) -> int:
    """Whether a task may change its inputs.

    Parameters
    ----------
    task : Task
        As workers run them.

    Returns
    -------
    int
        `CLEAR`, `CHANGES` or `CHANGES | BENEATH`.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> task_verdict(Task("y", sum, TaskRef("x")))
    0
    >>> task_verdict(Task("y", list.append, TaskRef("x"), 1))
    1
    """
    if _is_plain(task) or _hands_out_what_closes(task):
        return CLEAR
    if any(map(_is_told_to, _calls(task))):
        return CHANGES
    verdict = CLEAR
    for function in task_functions(task):
        verdict |= _named_verdict(function)
    return verdict if verdict & CHANGES else CLEAR


def _hands_out_what_closes(task: Any) -> bool:
    """Whether a task reads what closes the file of an object of xarray.

    `xarray.open_mfdataset` has such tasks with ``parallel=True``. A copy has nothing that closes.
    """
    return getattr(task, "func", None) is getattr and task.args[1:] == ("_close",)


def _calls(task: Any) -> Iterator[Any]:
    """Tasks that call something: those of which a task consists, and those inside of them."""
    todo = [task]
    left = MANY_INSIDE
    while todo and left:
        part = todo.pop()
        left -= 1
        kind = type(part)
        if kind is list or kind is tuple:
            todo += part[:MANY_PARTS]
        elif kind is dict:  # of tasks that were fused
            todo += part.values()
        elif isinstance(part, Task):
            yield part
            todo += part.args
            if part.kwargs:
                todo += part.kwargs.values()


def _is_told_to(task: Any) -> bool:
    """Whether the arguments of a task say what is to be changed."""
    kwargs = task.kwargs
    if kwargs and names.asks_for_it(kwargs, names.TASK_KEYWORDS):
        return True
    if _gets_more(task.func, task.args):
        return True
    # dask.dataframe has functions called by others, with the same arguments
    handed = kwargs.get("_func") if kwargs else None
    return handed is not None and _gets_more(handed, task.args)


def _gets_more(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether one of a function's arguments is what it is to write into."""
    while type(function) is partial:
        function, args = function.func, (*function.args, *args)
    name = getattr(function, "method", None)  # dask.utils.methodcaller
    if isinstance(name, str):
        return len(args) > names.OUT_AT.get(name, ANY) + 1
    given = (args[i] for i in reach(function).places if i < len(args))
    return any(value is not None and value is not False for value in given)


#: {function: verdict}, of those that live as long as their modules
_lasting: dict[Any, int] = {}
#: {function that is cleared: arguments with which it is}
_cleared: dict[Any, int] = {}


def _is_plain(task: Any) -> bool:
    """Whether a task consists of functions that were cleared before, and of data.

    Most of dask's own tasks do. They are told in a fifth of the time that a look takes.
    """
    todo = [task]
    left = MANY_INSIDE
    while todo:
        part = todo.pop()
        left -= 1
        if left < 0:  # or it contains itself
            return False
        kind: Any = type(part)
        if holds_nothing(kind) or kind is Alias or part is list or part is tuple:
            continue
        if kind is Task:
            if part.kwargs:
                if names.asks_for_it(part.kwargs):
                    return False
                todo += part.kwargs.values()
            inner: Any = part.args
            if not _is_cleared(part.func, len(inner)):
                return False
        elif kind is TaskList:
            inner = part.args
        elif kind is tuple or kind is list:
            inner = part
        elif kind is dict:  # of tasks that were fused
            inner = part.values()
        else:
            return False
        if len(inner) > MANY_PARTS:
            return False
        todo += inner
    return True


def _is_cleared(function: Any, nargs: int) -> bool:
    kind = type(function)
    if kind is partial:
        keywords = function.keywords
        if function.args or names.asks_for_it(keywords):
            return False
        for value in keywords.values():
            if not (_is_data(value) or _is_flat(value)):
                return False
        return _is_cleared(function.func, nargs)
    if kind.__name__ == "Compose" and isinstance(getattr(function, "funcs", None), tuple):
        return all(_is_cleared(inner, nargs) for inner in (function.first, *function.funcs))
    if getattr(function, "__module__", "") == MACHINERY:
        return True
    try:
        return nargs <= _cleared.get(function, -1)
    except TypeError:  # not hashable
        return False


def _is_flat(value: Any) -> bool:
    return type(value) in (list, tuple) and all(_is_data(v) for v in value)


def _is_data(value: Any) -> bool:
    kind: Any = type(value)
    return holds_nothing(kind)


def _named_verdict(function: Any) -> int:
    """Verdict of a function by its code and its name."""
    lasting = _lasts(function)
    if lasting and (found := _lasting.get(function)) is not None:
        return found
    verdict = function_verdict(function)
    effect = effect_of(function_name(function))
    if effect is not None and effect.mutates:
        verdict |= CHANGES
    if lasting and len(_lasting) < MANY:
        _lasting[function] = verdict
        if verdict == CLEAR:
            _cleared[function] = reach(function).asked
    return verdict


def _lasts(function: Any) -> bool:
    """Whether a function is of a module that is known, and has nothing that could change."""
    kind = type(function)
    if kind.__name__ == "ufunc":
        return is_cheap(function)
    if kind is FunctionType:
        return function.__closure__ is None and names.is_trusted(
            function.__globals__.get("__name__")
        )
    if kind is BuiltinFunctionType:
        return isinstance(function.__self__, ModuleType)
    if kind.__name__ != "_ArrayFunctionDispatcher":  # numpy's public functions
        return False
    return function is getattr(sys.modules.get(function.__module__), function.__name__, None)


def function_verdict(function: Any, depth: int = DEPTH) -> int:
    """The same for one function; `BENEATH` may come alone."""
    if not depth:
        return UNKNOWN
    if isinstance(function, MethodType):
        function = function.__func__
        if names.draws(function) and names.is_trusted(names.home_of(function)):
            return _known(function)  # it draws from a generator that is no input
    if isinstance(function, FunctionType):
        if names.is_trusted(names.home_of(function)):
            return _known(function) | _handed(function.__closure__, depth)
        return _read(function, depth)
    if isinstance(function, partial):
        if names.asks_for_it(function.keywords):
            return CHANGES
        verdict = CLEAR
        for inner in unwrap(function):
            verdict |= function_verdict(inner, depth - 1)
        return verdict
    if isinstance(function, type):
        return CLEAR if names.is_trusted(function.__module__) else UNKNOWN
    return _other(function, depth)


def _known(function: Any) -> int:
    name = function_name(function)
    if name in names.FUNCTIONS:
        return CHANGES
    # pandas.DataFrame.pop, say
    is_method = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
    return CHANGES if is_method and name in names.METHODS else CLEAR


def _handed(cells: Any, depth: int) -> int:
    """Functions of dask that close over a user's function call it."""
    verdict = CLEAR
    for cell in cells or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not yet set
            continue
        if callable(inner):
            verdict |= function_verdict(inner, depth - 1)
    return verdict


def _other(function: Any, depth: int) -> int:
    """Builtins, and instances that can be called."""
    if isinstance(function, operator.methodcaller):
        return CLEAR if names.is_harmless_call(function.__reduce__()[1][0]) else CHANGES
    if not names.is_trusted(names.home_of(function)):
        return UNKNOWN
    if isinstance(method := getattr(function, "method", None), str):  # dask.utils.methodcaller
        return CLEAR if names.is_harmless_call(method) else CHANGES
    if names.draws(function):
        return CHANGES
    verdict = _known(function)
    if _is_method(function):
        return CHANGES if function_name(function) in names.METHODS else verdict
    for inner in list(getattr(function, "__dict__", {}).values()):
        # np.vectorize and toolz keep a user's function there
        if isinstance(inner, (FunctionType, MethodType, partial)):
            verdict |= function_verdict(inner, depth - 1)
    return verdict


def _is_method(function: Any) -> bool:
    if hasattr(function, "__objclass__"):
        return True
    return not isinstance(getattr(function, "__self__", None), (ModuleType, type(None)))


# -- functions of users ---------------------------------------------------------


def _read(function: FunctionType, depth: int) -> int:
    facts = code_facts(function.__code__)
    verdict = facts.verdict
    for use in facts.uses:
        if verdict == UNKNOWN:
            break
        verdict |= _use_verdict(use, function, depth)
    return verdict


def _use_verdict(use: Use, function: FunctionType, depth: int) -> int:
    try:
        found = _resolve(use, function)
    except (AttributeError, KeyError, ValueError):
        return CLEAR if use.nargs is None else UNKNOWN
    if use.nargs is None:
        # Only what can be called can do anything where it is handed to.
        return function_verdict(found, depth - 1) if _is_function(found) else CLEAR
    if use.nargs > reach(found).written:
        return CHANGES
    return function_verdict(found, depth - 1)


def _is_function(found: Any) -> bool:
    return callable(found) and not isinstance(found, type)


def _resolve(use: Use, function: FunctionType) -> Any:
    name, *attributes = use.path
    if use.cell:
        # ValueError: a variable of a function between; it exists only while that runs
        index = function.__code__.co_freevars.index(name)
        found = (function.__closure__ or ())[index].cell_contents
    elif name in function.__globals__:
        found = function.__globals__[name]
    else:
        found = names.BUILTINS[name]
    for attribute in attributes:
        found = getattr(found, attribute)
    return found
