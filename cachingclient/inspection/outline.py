"""What a code object uses: names, attributes and calls, read from its bytecode.

The instructions are followed in the order of the code with a stack of what they are known to push.
Unknown ones count with their stack effect and push what nobody knows: that is enough to tell what a
call calls and with which constants, in every version of Python, and an error costs a detail only.
Nested functions are a part of the function that makes them.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any, NamedTuple

from cachingclient.inspection.bytecode import Instruction, instructions
from cachingclient.inspection.tables import is_verb


class Name(NamedTuple):
    """A name, and where it is looked up: global, cell (of an outer function), import, self."""

    where: str
    name: str


class Argument(NamedTuple):
    """What a function is given under a name; of the first of its arguments, `Name` tells."""

    name: str


class Attribute(NamedTuple):
    """An attribute of something; its base is None where nobody knows."""

    base: Any
    name: str


class Constant(NamedTuple):
    """A constant."""

    value: Any


class Call(NamedTuple):
    """A call, with as much of its arguments as is known."""

    function: Any
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    #: whether arguments came as * or **, so that nobody knows them
    starred: bool


class Outline(NamedTuple):
    """What a function and those nested in it use."""

    #: `Name`, `Attribute` and `Call` nodes, bases before what is built on them
    uses: tuple[Any, ...]
    #: names of globals, and of variables of an outer function, that are assigned
    assigned: tuple[str, ...]
    #: nodes of what the function itself returns
    returns: tuple[Any, ...]
    #: attributes of `self` that it sets, and nodes of their values
    attributes: tuple[tuple[str, Any], ...]


#: Beside a callable on the stack, where there is no `self` (Python's NULL)
_NO_SELF = Constant("no self")
#: Instructions that leave what is below what they take as it is
_POPS = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if name.partition("_")[0] in "POP STORE DELETE RETURN RAISE JUMP LIST SET MAP DICT".split()
)
#: Instructions that do nothing to the stack
_QUIET = frozenset(
    "NOP RESUME PRECALL CACHE EXTENDED_ARG MAKE_CELL COPY_FREE_VARS GEN_START NOT_TAKEN"
    " SETUP_ANNOTATIONS".split()
)
#: {instruction: its arguments that stand for "/" and "/="}, which joins paths
_DIVIDES = {
    "BINARY_OP": (11, 24),
    **dict.fromkeys(("BINARY_TRUE_DIVIDE", "INPLACE_TRUE_DIVIDE"), (None, 0)),
}
_BINARY = [
    name for name in dis.opmap if name.startswith(("BINARY_OP", "INPLACE_")) or name in _DIVIDES
]
_ENDS = frozenset(
    "RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_ABSOLUTE JUMP_BACKWARD"
    " JUMP_BACKWARD_NO_INTERRUPT".split()
)


def outline(code: CodeType) -> Outline:
    """What a function with this code uses.

    Examples
    --------
    >>> def pick(frame):
    ...     import random
    ...     return frame[random.random()]
    >>> [use.name for use in outline(pick.__code__).uses if isinstance(use, (Name, Attribute))]
    ['random', 'random']
    """
    found = _Found([], [], [], [], frozenset(code.co_freevars))
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments: dict[str, Any] = {name: Argument(name) for name in names}
    if code.co_argcount:
        arguments[names[0]] = Name("self", names[0])
    _Scanner(code, found, {}, arguments).run()
    return Outline(*map(tuple, found[:4]))


class _Found(NamedTuple):
    uses: list[Any]
    assigned: list[str]
    returns: list[Any]
    attributes: list[tuple[str, Any]]
    #: variables of an outer function, which outlive a call
    free: frozenset[str]


def _effect(instruction: Instruction) -> int:
    """By how much an instruction lets the stack grow."""
    return dis.stack_effect(instruction.opcode, instruction.arg, jump=False)


def _is_in_place(instruction: Instruction) -> bool:
    """Whether this is ``+=`` or the like."""
    # Python 3.14 looks up items by the number that follows
    return instruction.opname.startswith("INPLACE_") or 12 < (instruction.arg or 0) < 26


def _is_telling(node: Any) -> bool:
    """Whether there is something to find out: attributes of what nobody knows tell nothing."""
    if type(node) is Call:
        if type(node.function) is Attribute and is_verb(node.function.name):
            return True
        if any(map(_is_handed, (*node.args, *node.keywords.values()))):
            return True
    while type(node) in (Attribute, Call):
        node = node[0]
    return type(node) is Name


def _is_handed(node: Any) -> bool:
    """Whether this may be a function that somebody else calls."""
    return type(node) in (Name, Attribute) and _is_telling(node)


class _Scanner:
    """Follows the instructions of one code object."""

    #: what names of functions around this one stand for
    cells: Mapping[str, Any]
    #: what its own variables stand for, at the instruction at hand
    variables: dict[str, Any]
    #: names of the keywords of the next call (Python 3.11 and 3.12)
    keywords: tuple[str, ...] = ()

    def __init__(
        self,
        code: CodeType,
        found: _Found,
        cells: Mapping[str, Any],
        variables: dict[str, Any],
    ):
        self.code = code
        self.found = found
        self.cells = cells
        self.variables = variables
        self.stack: list[Any] = []
        #: {offset: stack that a jump comes with}
        self.arriving: dict[int, list[Any]] = {}

    def run(self) -> None:
        ended = False
        for instruction in instructions(self.code):
            if ended:
                self.stack = self.arriving.get(instruction.offset, [])
            ended = instruction.opname in _ENDS
            if instruction.target is not None:
                self.jump(instruction)
            if handler := _HANDLERS.get(instruction.opname):
                handler(self, instruction)
            elif instruction.opname not in _QUIET:
                self.other(instruction)
        around = {**self.cells, **self.variables}
        inner = self.found._replace(returns=[], attributes=[])
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                _Scanner(constant, inner, around, {}).run()

    def jump(self, instruction: Instruction) -> None:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=True)
        stack = self.stack[:effect] if effect < 0 else self.stack + effect * [None]
        self.arriving.setdefault(instruction.target or 0, stack)

    def other(self, instruction: Instruction) -> None:
        effect = _effect(instruction)
        if effect > 0:
            self.stack.extend(effect * [None])
            return
        self.pop(-effect)
        if self.stack and instruction.opcode not in _POPS:
            self.stack[-1] = None

    def pop(self, n: int = 1) -> list[Any]:
        """The `n` topmost values, lowest first; unknown ones where the stack is shorter."""
        if not n:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return [None] * (n - len(values)) + values

    def use(self, node: Any, bound: bool = False) -> None:
        """Push what is used; `bound` if the instruction makes room for a `self`."""
        if _is_telling(node):
            self.found.uses.append(node)
        if bound:
            # below it, wherever Python has it: an attribute of the node may be next
            self.stack.append(_NO_SELF)
        self.stack.append(node)

    # Instructions

    def load_const(self, instruction: Instruction) -> None:
        self.stack.append(Constant(instruction.value))

    def load_fast(self, instruction: Instruction) -> None:
        names = instruction.value
        for name in names if isinstance(names, tuple) else (names,):
            self.stack.append(self.variables.get(name))

    def load_name(self, instruction: Instruction) -> None:
        if instruction.value in self.variables:
            self.load_fast(instruction)
        else:
            self.use(Name("global", instruction.value), _effect(instruction) > 1)

    def load_from_dict(self, instruction: Instruction) -> None:
        self.pop()
        self.load_cell(instruction)

    def load_cell(self, instruction: Instruction) -> None:
        name = instruction.value
        if name in self.variables or name in self.cells:
            self.stack.append(self.variables.get(name, self.cells.get(name)))
        elif name in self.found.free:
            self.use(Name("cell", name))
        else:
            self.stack.append(None)

    def load_attr(self, instruction: Instruction) -> None:
        self.use(Attribute(self.pop()[0], instruction.value), _effect(instruction) > 0)

    def load_super_attr(self, instruction: Instruction) -> None:
        function, cls, _ = self.pop(3)
        base = Call(function, (cls,), {}, False)
        self.use(Attribute(base, instruction.value), _effect(instruction) > -2)

    def return_value(self, instruction: Instruction) -> None:
        self.found.returns.extend(self.pop(1))

    def import_name(self, instruction: Instruction) -> None:
        level, names = self.pop(2)
        whole = isinstance(names, Constant) and names.value
        # "import a.b" binds a; with "as" or "from" the rest follows as attributes
        name = instruction.value if whole else instruction.value.partition(".")[0]
        dots = level.value if isinstance(level, Constant) else 0
        self.use(Name("import", "." * dots + name))

    def import_from(self, instruction: Instruction) -> None:
        self.use(Attribute(self.stack[-1] if self.stack else None, instruction.value))

    def store(self, instruction: Instruction) -> None:
        names = instruction.value
        for name in names if isinstance(names, tuple) else (names,):
            self.variables[name] = self.pop()[0]

    def store_load(self, instruction: Instruction) -> None:
        stored, loaded = instruction.value
        self.variables[stored] = self.pop()[0]
        self.stack.append(self.variables.get(loaded))

    def store_cell(self, instruction: Instruction) -> None:
        name = instruction.value
        if name in self.code.co_cellvars:
            self.store(instruction)
            return
        self.pop()
        if name in self.found.free and name not in self.cells:
            self.found.assigned.append(name)

    def store_global(self, instruction: Instruction) -> None:
        self.pop(-_effect(instruction))
        self.found.assigned.append(instruction.value)

    def store_item(self, instruction: Instruction) -> None:
        # Python 3.12 and 3.13 have both ends of a slice
        value, base, key = self.pop(-_effect(instruction))[:3]
        method = Attribute(base, "__setitem__")
        if _is_telling(method):
            self.found.uses.extend((method, Call(method, (key, value), {}, False)))

    def build(self, instruction: Instruction) -> None:
        values = self.pop(instruction.arg or 0)
        known = bool(values) and all(type(value) is Constant for value in values)
        self.stack.append(Constant(tuple(value.value for value in values)) if known else None)

    def extend(self, instruction: Instruction) -> None:
        value = self.pop()[0]
        # a list of constants is a tuple of them that a new list is extended by
        if self.stack and isinstance(value, Constant):
            self.stack[-1] = value

    def binary(self, instruction: Instruction) -> None:
        left, right = self.pop(2)
        method = ""
        if instruction.arg in _DIVIDES.get(instruction.opname, ()):
            method = "__truediv__"
        elif type(left) is Attribute and _is_in_place(instruction):
            method = "__iadd__"
        node = Call(Attribute(left, method), (right,), {}, False)
        self.stack.append(node if method and left is not None else None)

    def store_attr(self, instruction: Instruction) -> None:
        value, base = self.pop(2)
        if type(base) is not Name:
            return
        if base.where == "self":
            self.found.attributes.append((instruction.value, value))
            return
        changed = Attribute(Attribute(base, instruction.value), "__iadd__")
        # of all that ends up in an attribute, only what += makes of it
        if type(value) is Call and value.function == changed:
            self.found.uses.append(value)

    def enter(self, instruction: Instruction) -> None:
        # files, buffers and the like are what their __enter__ returns
        self.stack += [None, *self.pop()]
        self.stack += (_effect(instruction) - 1) * [None]

    def copy(self, instruction: Instruction) -> None:
        depth = instruction.arg or 1
        self.stack.append(self.stack[-depth] if depth <= len(self.stack) else None)

    def swap(self, instruction: Instruction) -> None:
        values = self.pop(instruction.arg or 2)
        values[0], values[-1] = values[-1], values[0]
        self.stack += values

    def rotate(self, instruction: Instruction) -> None:
        depth = {"ROT_TWO": 2, "ROT_THREE": 3, "ROT_FOUR": 4}.get(instruction.opname)
        values = self.pop(depth or instruction.arg or 2)
        self.stack += [values[-1], *values[:-1]]

    def push_null(self, instruction: Instruction) -> None:
        self.stack.append(_NO_SELF)

    def kw_names(self, instruction: Instruction) -> None:
        self.keywords = self.code.co_consts[instruction.arg or 0]

    def call(self, instruction: Instruction) -> None:
        names, self.keywords = self.keywords, ()
        if instruction.opname in ("CALL_KW", "CALL_FUNCTION_KW"):
            constant = self.pop()[0]
            names = constant.value if isinstance(constant, Constant) else ()
        args = self.pop(instruction.arg or 0)
        if instruction.opname in ("CALL_FUNCTION", "CALL_FUNCTION_KW"):
            function = self.pop()[0]
        else:
            function, args = self.called(args)
        n = len(args) - len(names)
        self.use(Call(function, tuple(args[:n]), dict(zip(names, args[n:])), False))

    def called(self, args: list[Any]) -> tuple[Any, list[Any]]:
        """What is called, of the two places for a function and its `self`."""
        first, second = self.pop(2)
        if first is _NO_SELF:
            return second, args
        return first, args if second is _NO_SELF else [second, *args]

    def call_ex(self, instruction: Instruction) -> None:
        slots = self.pop(1 - _effect(instruction))
        function = slots[1] if slots[0] is _NO_SELF else slots[0]
        self.use(Call(function, (), {}, True))


_HANDLERS: dict[str, Any] = {
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), _Scanner.load_const),
    **dict.fromkeys(
        "LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW"
        " LOAD_FAST_BORROW_LOAD_FAST_BORROW".split(),
        _Scanner.load_fast,
    ),
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), _Scanner.load_name),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF"), _Scanner.load_cell),
    "LOAD_FROM_DICT_OR_DEREF": _Scanner.load_from_dict,
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _Scanner.load_attr),
    "LOAD_SUPER_ATTR": _Scanner.load_super_attr,
    "STORE_ATTR": _Scanner.store_attr,
    "RETURN_VALUE": _Scanner.return_value,
    "IMPORT_NAME": _Scanner.import_name,
    "IMPORT_FROM": _Scanner.import_from,
    **dict.fromkeys(("STORE_FAST", "STORE_NAME", "STORE_FAST_STORE_FAST"), _Scanner.store),
    "STORE_FAST_LOAD_FAST": _Scanner.store_load,
    "STORE_DEREF": _Scanner.store_cell,
    **dict.fromkeys(("STORE_GLOBAL", "DELETE_GLOBAL"), _Scanner.store_global),
    **dict.fromkeys(("BEFORE_WITH", "BEFORE_ASYNC_WITH", "SETUP_WITH"), _Scanner.enter),
    **dict.fromkeys(("COPY", "DUP_TOP"), _Scanner.copy),
    "SWAP": _Scanner.swap,
    **dict.fromkeys(("ROT_TWO", "ROT_THREE", "ROT_FOUR", "ROT_N"), _Scanner.rotate),
    **dict.fromkeys(("STORE_SUBSCR", "STORE_SLICE"), _Scanner.store_item),
    **dict.fromkeys(("BUILD_LIST", "BUILD_TUPLE"), _Scanner.build),
    "LIST_EXTEND": _Scanner.extend,
    **dict.fromkeys(_BINARY, _Scanner.binary),
    "PUSH_NULL": _Scanner.push_null,
    "KW_NAMES": _Scanner.kw_names,
    **dict.fromkeys(
        "CALL CALL_KW CALL_METHOD CALL_FUNCTION CALL_FUNCTION_KW".split(), _Scanner.call
    ),
    "CALL_FUNCTION_EX": _Scanner.call_ex,
}
