"""What the parameters of a function are known to be: given with a call, or None.

Only that matters here: a generator that starts from None starts anew each time.
"""

from __future__ import annotations

import dis
import inspect
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from cachingclient.inspection.tables import SEEDS


class Given(NamedTuple):
    """What a call gives to a function; False stands for None, True for anything else.

    Examples
    --------
    >>> def noise(block, seed=None):
    ...     pass
    >>> [sorted(unset(noise, None, given)) for given in (NOTHING, Given((True, True)))]
    [['seed'], []]
    """

    positional: tuple[bool, ...] = ()
    keywords: frozenset[tuple[str, bool]] = frozenset()
    #: whether nobody knows what else it gives
    rest: bool = False

    def before(self, positional: tuple[bool, ...], keywords: frozenset[tuple[str, bool]]) -> Given:
        """With what a partial gives; keywords of the call itself come first."""
        said = {name for name, _ in self.keywords}
        more = frozenset(item for item in keywords if item[0] not in said)
        return Given((*positional, *self.positional), self.keywords | more, self.rest)


NOTHING = Given()
ANYTHING = Given(rest=True)
#: First parameters that a call of a method does not give
_OWNERS = ("self", "cls", "mcs")
#: Parameters that dask gives to functions that have them
_FILLED_IN = frozenset(("block_id", "block_info", "partition_info"))


def passes_on(function: FunctionType) -> bool:
    """Whether a function takes whatever it is given, to hand it on as wrappers do."""
    flags = function.__code__.co_flags
    return flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) != 0


def may_decide(function: Any) -> bool:
    """Whether anything may depend on what is given to a function.

    Examples
    --------
    >>> may_decide(lambda x: x), may_decide(lambda x, seed=None: x)
    (False, True)
    """
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is not FunctionType or passes_on(function):
        return True
    return bool(_optional(function))


def relevant(function: Any, owner: Any, given: Given) -> Given:
    """As much of it as may decide something in this function: calls that differ in no more are one.

    Parameters
    ----------
    function : callable
    owner
        What it is a method of, or None.
    given : Given
    """
    if given is NOTHING or type(function) is not FunctionType or passes_on(function):
        return given
    optional = _optional(function)
    bound = _bound(function, owner, given).items()
    keywords = frozenset(item for item in bound if not item[1] or item[0] in optional)
    return Given((), keywords, given.rest and bool(optional))


def unset(function: FunctionType, owner: Any, given: Given) -> frozenset[str]:
    """Parameters that are None in a call."""
    bound, optional = _bound(function, owner, given), _optional(function)
    missing = () if given.rest else (name for name in optional if name not in bound)
    none = frozenset((*missing, *(name for name, value in bound.items() if not value)))
    chosen, replaced = _choices(function.__code__)
    if chosen and any(bound.get(name) for name in optional & SEEDS):
        return frozenset()  # it takes another one that is given
    return none - replaced


@lru_cache(10_000)
def _choices(code: CodeType) -> tuple[bool, frozenset[str]]:
    """Whether a function asks if something is None, and which parameters it sets anew."""
    parameters = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    instructions = list(dis.get_instructions(code))
    chosen = any(i.opname in _ASKS or i.opname.endswith("NONE") for i in instructions)
    stored: set[str] = set()
    # "if seed is not None: seed = int(seed)" leaves None as it is
    if any(
        i.opname.endswith("NOT_NONE") or (i.opname == "IS_OP" and not i.arg) for i in instructions
    ):
        for i in instructions:
            if i.opname.startswith("STORE_FAST"):
                stored.update(i.argval if isinstance(i.argval, tuple) else (i.argval,))
    return chosen, parameters & stored


#: ``x or y`` asks as well
_ASKS = frozenset(
    "IS_OP JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP POP_JUMP_FORWARD_IF_TRUE"
    " POP_JUMP_IF_TRUE".split()
)


def _optional(function: FunctionType) -> set[str]:
    """Parameters that are None if they are not given."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    pairs = (*zip(names, values), *(function.__kwdefaults__ or {}).items())
    return {name for name, value in pairs if value is None and name not in _FILLED_IN}


def _bound(function: FunctionType, owner: Any, given: Given) -> dict[str, bool]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if owner is not None and names[:1] and names[0] in _OWNERS:
        names = names[1:]
    return {**dict(zip(names, given.positional)), **dict(given.keywords)}
