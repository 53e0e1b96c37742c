"""Types of values that change when they are only read.

The look at a task takes reading for harmless: ``len(x)``, ``x[0]``, ``x.get(k)`` and properties.
Classes of the user may store into the object meanwhile, and iterators go on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dis import Instruction
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from cachingclient.inspection.objects import is_own
from cachingclient.worker import names
from cachingclient.worker.bytecode import Reader

#: Methods that call each other are followed so far.
DEPTH = 4
#: Modules of iterators that can be copied.
_ITERATORS = frozenset(("builtins", "itertools"))
#: Iterators that cannot.
_LEFT = frozenset(("async_generator", "coroutine", "generator"))
#: Methods without which a value is read, or that keep only what saves time.
_NOT_READ = names.METHODS | frozenset(
    "__class_getitem__ __copy__ __dask_tokenize__ __deepcopy__ __del__ __delete__ __getstate__"
    " __hash__ __init__ __init_subclass__ __new__ __post_init__ __reduce__ __reduce_ex__ __repr__"
    " __set__ __set_name__ __setstate__ __sizeof__ __str__".split()
)
#: {instruction: how far down the stack that lies which is stored into}
_STORES = {
    "STORE_ATTR": 0,
    "DELETE_ATTR": 0,
    "STORE_SUBSCR": 1,
    "DELETE_SUBSCR": 1,
    "STORE_SLICE": 2,
}
_STORE_AND_LOAD = "STORE_FAST_LOAD_FAST"
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", _STORE_AND_LOAD)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_TURNS = ("SWAP", "ROT_")
_TESTS = ("IS_OP", "CONTAINS_OP")


@lru_cache(1_000)
def changes_when_read(kind: type) -> bool:
    """Whether values of a type change when they are read, and can be copied before.

    Examples
    --------
    >>> class Lazy:
    ...     __module__ = "mine"
    ...     def __len__(self):
    ...         self.asked = True
    ...         return 0
    >>> changes_when_read(Lazy), changes_when_read(type(iter([]))), changes_when_read(list)
    (True, True, False)
    """
    try:
        if not is_own(kind):
            return _is_iterator(kind)
        return hasattr(kind, "__next__") or any(_stores(code, kind) for code in _reading(kind))
    except Exception:  # a class that does not let us look
        return False


def _is_iterator(kind: type) -> bool:
    if kind.__module__ not in _ITERATORS or kind.__name__ in _LEFT:
        return False
    return hasattr(kind, "__next__")


def _reading(kind: type) -> Iterator[CodeType]:
    """Code that runs when a value is read by what counts as harmless."""
    harmless = names.harmless_methods()
    for owner in filter(is_own, kind.__mro__):
        for name, member in vars(owner).items():
            is_read = name in harmless or name.startswith("__") and name not in _NOT_READ
            if isinstance(member, property):
                function: Any = member.fget
            elif isinstance(member, functools.cached_property):
                function = member.func
            else:
                function = member if is_read else None
            if isinstance(function, FunctionType):
                yield function.__code__


def _stores(code: CodeType, kind: type, depth: int = DEPTH) -> bool:
    """Whether a method stores into its object, by itself or by other methods of it."""
    if not depth or not code.co_argcount:
        return False
    look = _Method(code, code.co_varnames[0])
    if look.stores:
        return True
    methods = (getattr(kind, name, None) for name in look.called)
    codes = [m.__code__ for m in methods if isinstance(m, FunctionType)]
    return any(_stores(inner, kind, depth - 1) for inner in codes)


class _Method:
    """A look at the code of one method, and at the code inside of it."""

    #: whether it changes its object, or what that holds
    changes: bool = False
    #: whether it sets something there
    sets: bool = False
    #: whether it looks if something is there: what it sets then saves time, and changes nothing
    asks: bool = False
    #: names of methods of the object
    called: set[str]

    def __init__(self, code: CodeType, me: str) -> None:
        self.called, self.mine = set(), {me}
        self.asks = code.co_name == "__getattr__" or "hasattr" in code.co_names
        self._read(code)

    @property
    def stores(self) -> bool:
        """Whether its object is another one afterwards."""
        return self.changes or (self.sets and not self.asks)

    def _read(self, code: CodeType) -> None:
        reader = Reader(code)
        self.instructions, self.heights = reader.instructions, reader.heights
        for i, instruction in enumerate(self.instructions):
            self._step(i, instruction)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._read(constant)

    def _step(self, i: int, instruction: Instruction) -> None:
        name = instruction.opname
        if name.startswith("STORE_FAST") and self._is_part(i - 1):
            self.mine.add(_first(instruction.argval))
        elif name in _STORES:
            # an assignment like ``+=`` has turned what lies there
            turned = self.instructions[i - 1].opname.startswith(_TURNS)
            if self._is_mine(i, _STORES[name] + turned):
                self.changes |= turned
                self.sets = True
        elif name in _TESTS or name.startswith("POP_JUMP_") and name.endswith("NONE"):
            self.asks = True
        elif name in _ATTRIBUTES and instruction.argval in names.METHODS:
            self.changes |= self._is_mine(i, 0)
        elif name in _ATTRIBUTES and self._loaded(i - 1) in self.mine:
            self.called.add(instruction.argval)

    def _is_part(self, j: int) -> bool:
        """Whether what was loaded is the object or an attribute of it."""
        while j >= 0 and self.instructions[j].opname in _ATTRIBUTES:
            j -= 1
        return self._loaded(j) in self.mine

    def _is_mine(self, i: int, below: int) -> bool:
        """Whether what lies so far down the stack was reached from the object, or may have been."""
        height = self.heights[i - 1] - below
        j = i - 1
        while j > 0 and not self._puts(j, height):
            j -= 1
        loaded = self._loaded(j, self.heights[j] - height)
        return loaded is None or loaded in self.mine

    def _puts(self, j: int, height: int) -> bool:
        """Whether an instruction puts what lies there onto the stack."""
        before, after = self.heights[j - 1], self.heights[j]
        # One that takes something off first leaves the height as it was.
        before -= self.instructions[j].opname == _STORE_AND_LOAD
        return before < height <= after

    def _loaded(self, j: int, below: int = 0) -> Any:
        """Name of the variable that an instruction loads, or of one of several."""
        instruction = self.instructions[j]
        if j < 0 or not instruction.opname.startswith(_LOADS):
            return None
        name = instruction.argval
        return name[-1 - below] if isinstance(name, tuple) else name


def _first(name: Any) -> Any:
    return name[0] if isinstance(name, tuple) else name
