"""What byte code tells: stores, calls that are not known to be harmless, and what it uses.

Instructions are read in their order, with the height of the stack, which tells what a call
calls. Where that cannot be told, as behind a jump or in a Python that does it in another
way, the call counts as changing its arguments.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from cachingclient.worker import names
from cachingclient.worker.signatures import ANY, reach

#: Changes nothing.
CLEAR = 0
#: May change its inputs.
CHANGES = 1
#: Reaches beneath the copy-on-write of pandas; matters only together with the other.
BENEATH = 2

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


_facts: dict[CodeType, Facts] = {}


def code_facts(code: CodeType) -> Facts:
    """What a code object tells, those inside of it included."""
    found = _facts.get(code)
    if found is None:
        if len(_facts) >= MANY_CODES:
            _facts.clear()
        found = _facts[code] = _find_safely(code)
    return found


def _find_safely(code: CodeType) -> Facts:
    try:
        return _find(code)
    except Exception:  # a Python that is not known yet
        return Facts(CHANGES)


def _find(code: CodeType) -> Facts:
    verdict = CLEAR
    uses: list[Use] = []
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
        self.makes_generator = not names.GENERATORS.isdisjoint(code.co_names)
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
            self.verdict |= CLEAR if names.is_trusted(instruction.argval) else CHANGES
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
        known = name in names.harmless_methods() or self._draws_own(j, nargs)
        return known and nargs <= self._out_at(name)

    def _draws_own(self, j: int, nargs: int) -> bool:
        """Whether the generator that draws was made right here, or is the one of `numpy.random`."""
        name = self.instructions[j].argval
        if name not in names.DRAWS:
            return False
        is_own = self.makes_generator or self.instructions[j - 1].argval == "random"
        return is_own or nargs < names.DRAWS[name]

    def _out_at(self, name: str) -> int:
        # It may be numpy that was imported inside of the function.
        function = getattr(sys.modules.get("numpy"), name, None)
        return min(names.OUT_AT.get(name, ANY), reach(function).written if function else ANY)

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
