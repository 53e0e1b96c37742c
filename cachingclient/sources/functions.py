"""What a user's function names: its constants, closure, defaults and the globals that it uses."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: Wherever they are installed, files are not read because these packages name them.
_LIBRARIES = frozenset(
    {"cachingclient", "cloudpickle", "dask", "distributed", "fsspec", "numcodecs", "numpy"}
    | {"pandas", "pyarrow", "scipy", "tlz", "toolz", "xarray", "zarr"}
)
_INSTALLED = tuple(
    {
        os.path.join(path, "")
        for key in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(key))
    }
)
#: Functions that read what has no fingerprint.
_ELSEWHERE = re.compile(
    r"read_(?:sql|gbq|bigquery|mongo|snowflake|database|postgres)|^url(?:open|retrieve)$"
)


@lru_cache(10_000)
def _is_installed(filename: str) -> bool:
    return (
        filename.startswith(("<frozen", *_INSTALLED))
        or f"{os.sep}site-packages{os.sep}" in filename
        or f"{os.sep}dist-packages{os.sep}" in filename
    )


def root(thing: Any) -> str:
    """The package that a function or type is from.

    Examples
    --------
    >>> root(os.path.join), root(len)
    ('posixpath', 'builtins')
    """
    module = getattr(thing, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_users(function: FunctionType) -> bool:
    """Whether a function is the user's own code.

    Examples
    --------
    >>> is_users(os.path.join)
    False
    """
    return root(function) not in _LIBRARIES and not _is_installed(function.__code__.co_filename)


def is_users_type(kind: type) -> bool:
    """Whether a type is the user's own code.

    Examples
    --------
    >>> is_users_type(list), is_users_type(re.Pattern)
    (False, False)
    """
    return kind.__module__ == "__main__" or _is_users_module(sys.modules.get(kind.__module__))


def _is_users_module(module: ModuleType | None) -> bool:
    filename = getattr(module, "__file__", None)
    if module is None or filename is None or _is_installed(filename):
        return False
    return module.__name__.partition(".")[0] not in _LIBRARIES


def reads_elsewhere(name: str) -> bool:
    """Whether a function of a name asks a database, or another computer.

    Examples
    --------
    >>> reads_elsewhere("read_sql_query"), reads_elsewhere("read_csv")
    (True, False)
    """
    return _ELSEWHERE.search(name) is not None


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of functions defined in it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from codes(constant)


def elsewhere(code: CodeType) -> str | None:
    """The name of a function that it calls, and that reads what has no fingerprint."""
    return next((n for c in codes(code) for n in c.co_names if reads_elsewhere(n)), None)


def named(function: FunctionType) -> Iterator[Any]:
    """Everything that a function names.

    Examples
    --------
    >>> def load(path="x.npy"):
    ...     return path or "y.npy"
    >>> [v for v in named(load) if isinstance(v, str)]
    ['y.npy', 'x.npy']
    """
    for code in codes(function.__code__):
        for constant in code.co_consts:
            # A docstring is a constant too, and no path.
            if type(constant) is not CodeType and constant is not function.__doc__:
                yield constant
        yield from _globals(code, function.__globals__)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from _closure(function)


def members(cls: type) -> Iterator[Any]:
    """What is written into a class itself: values, and functions of methods and properties.

    Examples
    --------
    >>> class Loader:
    ...     path = "x.npy"
    ...     @property
    ...     def size(self): return 1
    >>> [v if isinstance(v, str) else v.__name__ for v in members(Loader)]
    ['x.npy', 'size']
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, (staticmethod, classmethod)):
            yield member.__func__
        elif isinstance(member, property):
            yield member.fget
        elif isinstance(member, cached_property):
            yield member.func
        elif not name.startswith("__") or isinstance(member, FunctionType):
            yield member


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            pass


def _globals(code: CodeType, variables: dict[str, Any]) -> Iterator[Any]:
    for name in code.co_names:
        value = variables.get(name)
        if isinstance(value, ModuleType):
            yield from _attributes(value, code)
        else:
            yield value


def _attributes(module: ModuleType, code: CodeType) -> Iterator[Any]:
    """What is used of a user's own module, such as ``settings.PATH``."""
    if _is_users_module(module):
        for name in code.co_names:
            yield vars(module).get(name)
