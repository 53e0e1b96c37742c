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

import dis
import operator
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from cachingclient.admission import effect_of
from cachingclient.tasks import function_name, task_functions, unwrap
from cachingclient.worker import names

#: Changes nothing.
CLEAR = 0
#: May change its inputs.
CHANGES = 1
#: Reaches beneath the copy-on-write of pandas; matters only together with the other.
BENEATH = 2

#: Functions that call functions are followed so far.
DEPTH = 6
#: Code objects that are remembered.
MANY_CODES = 10_000

_STORES = (
    "STORE_SUBSCR",
    "STORE_SLICE",
    "STORE_ATTR",
    "STORE_GLOBAL",
    "DELETE_SUBSCR",
    "DELETE_ATTR",
    "INPLACE_",
    "IMPORT_STAR",
)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF")


class Use(NamedTuple):
    """Something from outside that a code object uses."""

    #: its name, and attributes of it
    path: tuple[str, ...]
    #: whether it is a variable of an enclosing function
    cell: bool
    #: number of arguments it is called with; None where it is not called
    nargs: int | None


class Facts(NamedTuple):
    """What a code object tells alone."""

    verdict: int
    uses: tuple[Use, ...] = ()


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
    kwargs = getattr(task, "kwargs", None)
    if kwargs and names.asks_for_it(kwargs, names.TASK_KEYWORDS):
        return CHANGES
    nin = getattr(getattr(task, "func", None), "nin", None)
    if isinstance(nin, int) and len(task.args) > nin:  # a ufunc that gets its output
        return CHANGES
    verdict = CLEAR
    for function in task_functions(task):
        verdict |= function_verdict(function)
        effect = effect_of(function_name(function))
        if effect is not None and effect.mutates:
            verdict |= CHANGES
    return verdict if verdict & CHANGES else CLEAR


def function_verdict(function: Any, depth: int = DEPTH) -> int:
    """The same for one function; `BENEATH` may come alone."""
    if not depth:
        return CHANGES
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType):
        # not __module__, which decorators copy from what they wrap
        if _trusted(function.__globals__.get("__name__")):
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
        return CLEAR if _trusted(function.__module__) else CHANGES
    return _other(function, depth)


def _trusted(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in names.TRUSTED


def _known(function: Any) -> int:
    return CHANGES if function_name(function) in names.FUNCTIONS else CLEAR


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
    module = getattr(function, "__module__", None)
    if isinstance(function, operator.methodcaller):
        return CHANGES if function.__reduce__()[1][0] in names.METHODS else CLEAR
    if not _trusted(module if isinstance(module, str) else type(function).__module__):
        return CHANGES
    verdict = _known(function)
    if isinstance(getattr(function, "method", None), str) or _is_method(function):
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
        if verdict & CHANGES:
            break
        verdict |= _use_verdict(use, function, depth)
    return verdict


def _use_verdict(use: Use, function: FunctionType, depth: int) -> int:
    try:
        found = _resolve(use, function)
    except (AttributeError, KeyError, ValueError):
        return CLEAR if use.nargs is None else CHANGES
    if use.nargs is None:
        # Only what can be called can do anything where it is handed to.
        return function_verdict(found, depth - 1) if _is_function(found) else CLEAR
    if _positional_out(found, use.path[-1], use.nargs):
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


def _positional_out(found: Any, name: str, nargs: int) -> bool:
    nin = getattr(found, "nin", None)
    if isinstance(nin, int):
        return nargs > nin
    return name in names.OUT_AT and nargs > names.OUT_AT[name] + 1


_facts: dict[CodeType, Facts] = {}


def code_facts(code: CodeType) -> Facts:
    """What a code object tells, those inside of it included."""
    found = _facts.get(code)
    if found is None:
        if len(_facts) >= MANY_CODES:
            _facts.clear()
        found = _facts[code] = _find(code)
    return found


def _find(code: CodeType) -> Facts:
    verdict, uses = CLEAR, []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = code_facts(constant)
            verdict |= inner.verdict
            uses += inner.uses
        elif type(constant) is tuple and names.asks_for_it(constant):  # names of arguments
            verdict |= CHANGES
    reader = Reader(code)
    return Facts(verdict | reader.verdict, tuple(dict.fromkeys([*uses, *reader.uses])))


class Reader:
    """Reads the instructions of one code object."""

    #: what they tell alone
    verdict: int
    #: what they use from outside
    uses: list[Use]

    def __init__(self, code: CodeType) -> None:
        self.instructions = list(dis.get_instructions(code))
        self.verdict, self.uses = CLEAR, []
        self.called: set[int] = set()
        #: height of the stack after each instruction, as if there were no jumps
        self.heights: list[int] = []
        height = 0
        for i, instruction in enumerate(self.instructions):
            self._step(i, instruction, height)
            height += dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
            self.heights.append(height)
        for i, instruction in enumerate(self.instructions):
            self._load(i, instruction)

    def _step(self, i: int, instruction: dis.Instruction, height: int) -> None:
        name = instruction.opname
        if name.startswith(_STORES):
            self.verdict |= CHANGES
        elif name == "BINARY_OP":
            self.verdict |= CHANGES if instruction.argrepr.endswith("=") else CLEAR
        elif name == "IMPORT_NAME":
            self.verdict |= CLEAR if _trusted(instruction.argval) else CHANGES
        elif name.startswith("CALL_INTRINSIC") or name == "CALL_FUNCTION_EX":
            self.verdict |= CHANGES if name == "CALL_FUNCTION_EX" else CLEAR
        elif name == "PRECALL" or name.startswith("CALL") and not self._after_precall(i):
            # names of keyword arguments lie on the stack where the call says so
            height -= name.endswith("_KW")
            self._call(height - (instruction.arg or 0), instruction.arg or 0)

    def _after_precall(self, i: int) -> bool:
        return i > 0 and self.instructions[i - 1].opname == "PRECALL"

    def _call(self, height: int, nargs: int) -> None:
        """The function was loaded last when the stack was as high as without arguments."""
        j = len(self.heights) - 1
        while j >= 0 and self.heights[j] != height:
            j -= 1
        if j > 0 and self.instructions[j].opname == "PUSH_NULL":
            j -= 1
        name = self.instructions[j].opname if j >= 0 else ""
        if name in ("GET_ITER", "GET_AITER", "MAKE_FUNCTION"):
            return  # a comprehension: its code is among the constants
        first, path = self._path(j)
        if path is not None:
            self.called.update(range(first, j + 1))
            cell = self.instructions[first].opname in _CELLS
            self.uses.append(Use(path, cell, nargs))
        elif name in _ATTRIBUTES and self._harmless(j, nargs):
            self.called.add(j)
        else:
            self.verdict |= CHANGES

    def _path(self, j: int) -> tuple[int, tuple[str, ...] | None]:
        """Where a chain of attributes that ends at an instruction starts from a global."""
        path: list[str] = []
        while j >= 0 and self.instructions[j].opname in _ATTRIBUTES:
            path.insert(0, self.instructions[j].argval)
            j -= 1
        if j >= 0 and self.instructions[j].opname in _GLOBALS + _CELLS:
            return j, (self.instructions[j].argval, *path)
        return j, None

    def _harmless(self, j: int, nargs: int) -> bool:
        """A method of a value that nothing is known of but the name of the method."""
        name = self.instructions[j].argval
        if j and self.instructions[j - 1].argval in ("self", "cls"):
            return False
        return name in names.harmless_methods() and nargs <= self._out_at(name)

    def _out_at(self, name: str) -> int:
        # It may be numpy that was imported inside of the function.
        nin = getattr(getattr(names.sys.modules.get("numpy"), name, None), "nin", None)
        return min(names.OUT_AT.get(name, 99), nin if isinstance(nin, int) else 99)

    def _load(self, i: int, instruction: dis.Instruction) -> None:
        """What is loaded for anything but a call right there."""
        name = instruction.opname
        if name in _ATTRIBUTES and instruction.argval in names.BENEATH:
            self.verdict |= BENEATH
        if i in self.called:
            return
        if name in _ATTRIBUTES and instruction.argval in names.METHODS:
            self.verdict |= CHANGES
        elif name in _GLOBALS + _CELLS:
            path = (instruction.argval, *self._attributes(i + 1))
            self.uses.append(Use(path, name in _CELLS, None))

    def _attributes(self, i: int) -> Iterator[str]:
        while self.instructions[i].opname in _ATTRIBUTES and i not in self.called:
            self.called.add(i)  # it is judged by what it is, not by its name
            yield self.instructions[i].argval
            i += 1
