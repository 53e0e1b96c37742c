"""What objects are, found without running any code of the user.

Objects are looked at by their type, and attributes in the dictionaries of modules and classes:
properties, ``__getattr__`` and proxies never get to run.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from enum import Enum
from functools import cached_property, lru_cache, partialmethod, singledispatchmethod
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

from cachingclient.inspection.tables import GENERATORS


class _Missing(Enum):
    """One object also where this module has travelled by value, in several parts."""

    MISSING = "missing"


#: What is not there, or what nobody can know
MISSING: Any = _Missing.MISSING


class Absent(NamedTuple):
    """Something of a module that is not loaded here: all that is known is its full name."""

    name: str


class Instance(NamedTuple):
    """Something that a function makes of a class, or gets as `self`."""

    cls: type


class Super(NamedTuple):
    """What ``super()`` is: an instance of a class whose attributes are those behind another."""

    cls: type
    behind: type


#: Packages whose code is known, however they are installed
_KNOWN = frozenset(("dask", "distributed", "cachingclient", "toolz", "tlz", "cytoolz"))
_INSTALLED = re.compile(
    r"[\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python3\.\d+[\\/]|<frozen |<__array_function__"
)
#: What is typed into a shell is the user's, whatever module it says it is in
_TYPED = ("<doctest ", "<ipython-input")
_PATHS = tuple(
    os.path.join(path, "")
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    if path
)
#: Private modules whose functions are known under public names
_PRIVATE = re.compile(r"^(?:posix|nt)(?=\.)|^_(?=(?:io|socket|random|pickle|time)\.)")
_MTRAND = re.compile(r"^numpy\.random\.(_generator|mtrand|bit_generator|_\w+)\.")


# Attributes of classes and modules themselves: metaclasses and lazy modules may have code for them


def _mro(cls: type) -> tuple[type, ...]:
    return type.__dict__["__mro__"].__get__(cls)


def class_dict(cls: type) -> Any:
    """What is defined in a class."""
    return type.__dict__["__dict__"].__get__(cls)


def module_dict(module: Any) -> dict[str, Any]:
    """What is defined in a module."""
    return vars(ModuleType)["__dict__"].__get__(module)


def is_a(thing: Any, cls: Any) -> bool:
    """`isinstance` that does not ask the thing, which may be a proxy."""
    return issubclass(type(thing), cls)


def _is_installed_file(filename: str) -> bool:
    return filename.startswith(_PATHS) or _INSTALLED.search(filename) is not None


@lru_cache(10_000)
def is_installed(module: Any, filename: str = "") -> bool:
    """Whether something of this module belongs to an installed package or the standard library."""
    if filename.startswith(_TYPED):
        return False
    if str(module).partition(".")[0] in _KNOWN:
        return True
    if filename[:1] in ("", "<"):
        # made by exec, as the methods of data classes are: where its module is from counts
        filename = filename if filename.startswith("<frozen ") else _origin(module)
    return filename in ("built-in", "frozen") or _is_installed_file(filename)


def _origin(module: Any) -> str:
    loaded = sys.modules.get(module) if type(module) is str and module != "__main__" else None
    spec = module_dict(loaded).get("__spec__") if is_a(loaded, ModuleType) else None
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) else ""


def is_own(thing: Any) -> bool:
    """Whether this is a function or class of the user, whose code is looked into."""
    if type(thing) is FunctionType:
        return not is_installed(thing.__module__, thing.__code__.co_filename)
    if is_a(thing, type):
        return not is_installed(_module_of(thing))
    return False


def _module_of(cls: type) -> Any:
    module = class_dict(cls).get("__module__")
    return module if isinstance(module, str) else type.__dict__["__module__"].__get__(cls)


def name_in(cls: type, which: str) -> str:
    """``__name__`` or ``__qualname__`` of a class."""
    return type.__dict__[which].__get__(cls)


def static(cls: type, name: str, behind: type | None = None) -> Any:
    """An attribute of a class or of one of its bases, as it was written there.

    With `behind`, of those bases only that come after this one.
    """
    found = _defined(cls, name, behind)
    kind = type(found)
    if kind in (staticmethod, classmethod):
        return found.__func__
    if kind in (partialmethod, cached_property):
        return found.func
    if kind is singledispatchmethod:
        return found.dispatcher
    return found.fget if kind is property else found


def _defined(cls: type, name: str, behind: type | None = None) -> Any:
    bases = iter(_mro(cls))
    if behind is not None:
        # not "in": metaclasses may have their own idea of what is equal
        any(base is behind for base in bases)
    return next((names[name] for base in bases if name in (names := class_dict(base))), MISSING)


def is_holder(thing: Any) -> bool:
    """Whether this is an object of the user's, whose attributes may be looked at."""
    kind = type(thing)
    return kind is SimpleNamespace or (not is_a(thing, type) and is_own(kind))


#: Not what a function does with an object that it is given, and what only tells of it
_ASIDE = frozenset(
    "__init__ __new__ __post_init__ __del__ __repr__ __str__ __format__ __init_subclass__ __class__"
    " __class_getitem__ __subclasshook__ __reduce__ __reduce_ex__ __getstate__ __setstate__"
    " __getnewargs__ __getnewargs_ex__ __copy__ __deepcopy__ __sizeof__ __dir__"
    " __setattr__ __delattr__ __set_name__ __hash__ __dask_tokenize__".split()
)


def dunders(cls: type) -> Iterator[str]:
    """Names of the methods of a user's class that are called without their names."""
    for base in _mro(cls):
        if is_own(base):
            for name in list(class_dict(base)):
                if name[:2] == "__" == name[-2:] and name not in _ASIDE:
                    yield name


def _dict_of(thing: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def attributes(thing: Any) -> dict[str, Any]:
    """What an object has in its ``__dict__`` and its slots."""
    slots = {}
    for base in _mro(type(thing)):
        if "__slots__" in (names := class_dict(base)):
            for name, descriptor in list(names.items()):
                if type(descriptor) is MemberDescriptorType:
                    slots[name] = _get(descriptor, thing)
    return {**slots, **_dict_of(thing)}


def value_in(thing: Any, name: str) -> Any:
    """An attribute that an object has itself; `MISSING` for what its class makes of the name."""
    defined = _defined(type(thing), name)
    if type(defined) is MemberDescriptorType:
        return _get(defined, thing)
    if type(defined) in (property, cached_property):
        return MISSING
    return _dict_of(thing).get(name, MISSING)


def held(thing: Any, slots: bool) -> Iterator[Any]:
    """What an object holds in its attributes and, on demand, slots; properties are left alone."""
    yield from list(_dict_of(thing).values())
    wrapped = static(type(thing), "__wrapped__")
    if type(wrapped) is GetSetDescriptorType:
        yield _get(wrapped, thing)
    for base in _mro(type(thing)) if slots else ():
        for descriptor in list(class_dict(base).values()):
            if type(descriptor) is MemberDescriptorType:
                yield _get(descriptor, thing)


def _get(descriptor: Any, thing: Any) -> Any:
    try:
        return descriptor.__get__(thing)
    except (AttributeError, TypeError, ValueError):
        return None  # an empty slot


def cell_contents(function: FunctionType, index: int) -> Any:
    """What a closure holds; `MISSING` as long as it is empty."""
    try:
        return (function.__closure__ or ())[index].cell_contents
    except (IndexError, ValueError):
        return MISSING


def full_name(thing: Any) -> str | None:
    """Name of a module, function or class as the documentation has it.

    Examples
    --------
    >>> import random, time
    >>> from datetime import datetime
    >>> full_name(time.time), full_name(random.gauss), full_name(datetime.now)
    ('time.time', 'random.gauss', 'datetime.now')
    """
    if type(thing) is Absent:
        return thing.name
    if is_a(thing, ModuleType):
        return _public(_text(module_dict(thing).get("__name__")))
    if is_a(thing, type):
        return _public(f"{_module_of(thing)}.{name_in(thing, '__qualname__')}")
    if type(thing) in (BuiltinFunctionType, MethodType):
        return _bound_name(thing.__self__, thing.__name__)
    if type(thing) is FunctionType or type(thing).__name__ == "cython_function_or_method":
        return _public(f"{thing.__module__}.{thing.__qualname__}")
    if thing is os.environ:
        return "os.environ"
    return None


def _bound_name(owner: Any, name: str) -> str:
    if is_a(owner, (ModuleType, type)):
        prefix = full_name(owner) or ""
        return _public(f"{prefix if is_a(owner, ModuleType) else prefix.split('.')[-1]}.{name}")
    kind = generator_kind(owner)
    return f"{kind.rpartition('.')[0] if kind else type(owner).__name__}.{name}"


def generator_kind(thing: Any) -> str | None:
    """Name of the type of a random generator; None for anything else."""
    for cls in _mro(type(thing)):
        name = full_name(cls)
        if name in GENERATORS:
            return name
    return None


@lru_cache(10_000)
def _public(name: str) -> str:
    return _MTRAND.sub("numpy.random.", _PRIVATE.sub(lambda m: "" if m[0] == "_" else "os", name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "?"
