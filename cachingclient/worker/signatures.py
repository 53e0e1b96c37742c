"""Where in a call an argument stands that has a function write into what it is given.

``np.median(x, None, None, True)`` sorts ``x`` in place, since the fourth argument of
`numpy.median` is ``overwrite_input``. The signature of a function tells so, where it has one.
"""

from __future__ import annotations

import inspect
import operator
import sys
from types import ModuleType
from typing import Any, NamedTuple

from cachingclient.worker import names

#: More than any call has.
ANY = sys.maxsize
#: Functions that are remembered.
MANY = 10_000

#: What dask calls so in its own functions is no array of a user's.
_OWN = frozenset(("cytoolz", "dask", "distributed", "tlz", "toolz"))


class Reach(NamedTuple):
    """At which positions a call says that something is to be changed."""

    #: arguments that a call of a user's may have and say no such thing
    written: int = ANY
    #: positions that say it in tasks, where ``copy`` means no harm
    places: tuple[int, ...] = ()

    @property
    def asked(self) -> int:
        """Arguments that a task may hand over and say no such thing."""
        return self.places[0] if self.places else ANY


#: Of what has no such argument.
FREE = Reach()

_remembered: dict[Any, Reach] = {}


def reach(function: Any) -> Reach:
    """At which positions a call of a function says that something is to be changed.

    Parameters
    ----------
    function
        One that is known by its name; the code of others tells more.

    Examples
    --------
    >>> import numpy as np
    >>> reach(np.add).places, reach(np.median).places, reach(np.maximum.reduce).places
    ((2,), (2, 3), (3,))
    >>> reach(np.sort) == FREE
    True
    """
    try:
        found = _remembered.get(function)
    except TypeError:  # not hashable
        return _find(function)
    if found is None:
        found = _find(function)
        if _is_public(function):  # others may hold data
            if len(_remembered) >= MANY:
                _remembered.clear()
            _remembered[function] = found
    return found


def _find(function: Any) -> Reach:
    nin = getattr(function, "nin", None)
    if isinstance(nin, int):  # a ufunc
        return Reach(nin, tuple(range(nin, nin + getattr(function, "nout", 1))))
    home = names.home_of(function)
    if isinstance(function, type) or not names.is_trusted(home) or _is_own(home):
        return FREE
    if (unbound := _unbound(function)) is not None:
        written, places = reach(unbound)
        return Reach(written - (written < ANY), tuple(i - 1 for i in places))
    return _by_signature(function)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN


def _unbound(method: Any) -> Any:
    """The function behind a method of an object, which is another one each time."""
    owner = getattr(method, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        return None
    return getattr(type(owner), getattr(method, "__name__", ""), None)


def _is_public(function: Any) -> bool:
    """Whether a function lives as long as a module that is known."""
    home = getattr(getattr(function, "__objclass__", function), "__module__", None)
    name: Any = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str) or not names.is_trusted(home or "builtins"):
        return False
    try:
        return operator.attrgetter(name)(sys.modules[home or "builtins"]) is function
    except (AttributeError, KeyError):
        return False


def _by_signature(function: Any) -> Reach:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except Exception:  # compiled, or somebody's object that says something else
        return _by_name(function)
    called = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    written = _places(called, names.KEYWORDS)
    return Reach(written[0] if written else ANY, _places(called, names.TASK_KEYWORDS))


def _places(parameters: list[str], keywords: frozenset[str]) -> tuple[int, ...]:
    return tuple(i for i, n in enumerate(parameters) if names.asks_for_it((n,), keywords))


def _by_name(function: Any) -> Reach:
    """What the tables know of a function that has no signature."""
    name = getattr(function, "__name__", None)
    if name not in names.OUT_AT:
        return FREE
    most = names.OUT_AT[name] + 1  # the array, or the object itself, is the first
    return Reach(most, (most,))
