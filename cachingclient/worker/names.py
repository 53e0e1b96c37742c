"""Names that tell whether a call may change what it is given.

Extend by a word: what is missing among the harmless costs a copy of a task's inputs, what
is missing among the others may cost a right answer.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from functools import lru_cache
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

#: Modules whose functions leave their arguments alone, unless told otherwise.
TRUSTED = frozenset(
    "builtins collections copy cytoolz dask datetime decimal distributed fractions functools"
    " itertools json math numpy operator pandas pyarrow re scipy statistics tlz toolz typing"
    " xarray _operator _functools".split()
)

#: Functions of these modules that do not.
FUNCTIONS = frozenset(
    "at copyto delattr delitem eval exec fill_diagonal fix_invalid getattr globals iadd iand"
    " iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor locals"
    " nan_to_num permuted place put put_along_axis putmask setattr setitem shuffle vars".split()
)

#: Methods that change their object, of any type that is guarded.
METHODS = frozenset(
    # containers
    "add append appendleft clear difference_update discard extend extendleft insert"
    " intersection_update move_to_end pop popitem popleft remove reverse rotate setdefault sort"
    " subtract symmetric_difference_update update"
    # arrays
    " byteswap fill harden_mask itemset partition put resize set_fill_value setfield setflags"
    " shrink_mask shuffle soften_mask unshare_mask"
    # frames
    " isetitem"
    # operators
    " __delattr__ __delitem__ __iadd__ __iand__ __iconcat__ __ifloordiv__ __ilshift__ __imatmul__"
    " __imod__ __imul__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ __setattr__"
    " __setitem__".split()
)

#: Arguments that ask for it.
KEYWORDS = frozenset(("copy", "inplace", "out", "output"))
#: Where dask uses one of these names in tasks it means no harm.
TASK_KEYWORDS = KEYWORDS - {"copy"}

#: Methods of arrays and frames that call what they are given.
CALLING = frozenset(
    "agg aggregate apply apply_along_axis applymap eval filter map pipe transform".split()
)
#: Those, and what objects of any type may have: no word for it.
AMBIGUOUS = CALLING | frozenset(
    "close dump load process run save send throw write writelines".split()
)

#: Methods by which random generators change, although numpy and pandas have harmless ones of
#: these names: {name: arguments with which it may be the generator's}. Without `power`: few
#: draw by that, and many square.
DRAWS = {"random": 0, "sample": 2}
#: What makes a generator.
GENERATORS = frozenset(("Generator", "Random", "RandomState", "default_rng"))

#: Ways around the copy-on-write of pandas.
BENEATH = frozenset("array blocks _data _mgr _ndarray _pa_array _values".split())

#: {method that takes `out` by position: arguments before it}; one more for functions. For what
#: has no signature that tells so, and for methods of what nothing is known of.
OUT_AT = {
    **dict.fromkeys("all any argmax argmin choose concatenate dot max min ptp round".split(), 1),
    **dict.fromkeys(("clip", "compress", "cumprod", "cumsum", "take"), 2),
    **dict.fromkeys(("mean", "prod", "std", "sum", "var"), 2),
    "trace": 4,
    # of ufuncs
    **dict.fromkeys(("accumulate", "reduce"), 3),
    "reduceat": 4,
    # of random generators
    **dict.fromkeys(("random", "standard_normal"), 2),
    **dict.fromkeys(("standard_exponential", "standard_gamma"), 3),
}


#: What Python itself calls functions and methods that are compiled.
_BUILTIN = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)


def is_trusted(module: Any) -> bool:
    """Whether functions of a module are known by their names.

    Examples
    --------
    >>> is_trusted("numpy.linalg"), is_trusted("__main__")
    (True, False)
    """
    return isinstance(module, str) and module.partition(".")[0] in TRUSTED


def is_harmless_call(method: str) -> bool:
    """Whether a task that calls a method of its input leaves that alone.

    What it gives the method is looked at for itself.

    Examples
    --------
    >>> is_harmless_call("sum"), is_harmless_call("apply"), is_harmless_call("partial_fit")
    (True, True, False)
    """
    return method in harmless_methods() or method in CALLING


def draws(function: Any) -> bool:
    """Whether a function is a method of random generators, to be called with one.

    Examples
    --------
    >>> import random
    >>> draws(random.Random.random), draws(random.random)
    (True, False)
    """
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    return owner in GENERATORS and getattr(function, "__self__", None) is None


def home_of(function: Any) -> Any:
    """Name of the module that a function counts to; None for what hides it.

    Examples
    --------
    >>> import math
    >>> home_of(math.sqrt), home_of([].sort)
    ('math', 'builtins')
    """
    if isinstance(function, FunctionType):
        # not __module__, which decorators copy from what they wrap
        return function.__globals__.get("__name__")
    module = getattr(function, "__module__", None)
    if isinstance(module, str):
        return module
    # Routines of f2py, of which many write into what they get, look like builtins.
    kind = type(function)
    return kind.__module__ if kind.__module__ != "builtins" or kind in _BUILTIN else None


def asks_for_it(names: Iterable[Any], keywords: frozenset[str] = KEYWORDS) -> bool:
    """Whether names of arguments tell that a call changes what it is given.

    Examples
    --------
    >>> asks_for_it(["axis", "out"]), asks_for_it(["axis"]), asks_for_it(["overwrite_x"])
    (True, False, True)
    """
    return _asks(tuple(names), keywords)


@lru_cache(1_000)
def _asks(names: tuple[Any, ...], keywords: frozenset[str]) -> bool:
    return any(n in keywords or n.startswith("overwrite") for n in names if isinstance(n, str))


def _public(owners: Iterable[Any]) -> set[str]:
    return {n for owner in owners for n in dir(owner) if not n.startswith("_")}


def _owners() -> list[Any]:
    found: list[Any] = [str, bytes, int, float, complex, list, tuple, dict, set, frozenset]
    if numpy := sys.modules.get("numpy"):
        found += [numpy, numpy.ndarray, numpy.generic, numpy.ma]
    if pandas := sys.modules.get("pandas"):
        found += [pandas, pandas.DataFrame, pandas.Series, pandas.Index, pandas.Timestamp]
        found += [pandas.Series.str, pandas.Series.dt, pandas.Series.cat]
        found += [pandas.core.groupby.DataFrameGroupBy, pandas.core.groupby.SeriesGroupBy]
    return found


_harmless: dict[bool, frozenset[str]] = {}


def harmless_methods() -> frozenset[str]:
    """Methods of builtins, arrays and frames that change nothing.

    Examples
    --------
    >>> "upper" in harmless_methods(), "sort" in harmless_methods()
    (True, False)
    """
    key = "pandas" in sys.modules
    if key not in _harmless:
        _harmless[key] = frozenset(
            _public(_owners()) - METHODS - FUNCTIONS - AMBIGUOUS - DRAWS.keys()
        )
    return _harmless[key]


BUILTINS = vars(builtins)
