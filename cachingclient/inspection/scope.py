"""What the names in a function stand for, found without running any code of the user.

Objects are looked at by their type, and attributes in the dictionaries of modules and classes:
properties, ``__getattr__`` and proxies never get to run.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from cachingclient.inspection.outline import Attribute, Call, Name, Outline, outline
from cachingclient.inspection.tables import GENERATORS

MISSING: Any = type("Missing", (), {"__doc__": "What is not there, or what nobody can know."})()


class Absent(NamedTuple):
    """Something of a module that is not loaded here: all that is known is its full name."""

    name: str


class Instance(NamedTuple):
    """Something that a function makes of a class, or gets as `self`."""

    cls: type


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
    return ModuleType.__dict__["__dict__"].__get__(module)


def is_a(thing: Any, cls: Any) -> bool:
    """`isinstance` that does not ask the thing, which may be a proxy."""
    return issubclass(type(thing), cls)


@lru_cache(10_000)
def _is_installed_file(filename: str) -> bool:
    return filename.startswith(_PATHS) or _INSTALLED.search(filename) is not None


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


def _name_in(cls: type, which: str) -> str:
    return type.__dict__[which].__get__(cls)


def static(cls: type, name: str) -> Any:
    """An attribute of a class or of one of its bases, as it was written there."""
    for base in _mro(cls):
        if name in (names := class_dict(base)):
            found = names[name]
            if type(found) in (staticmethod, classmethod):
                return found.__func__
            return found.fget if type(found) is property else found
    return MISSING


def held(thing: Any, slots: bool) -> Iterator[Any]:
    """What an object holds in its attributes and, on demand, slots; properties are left alone."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        attributes = {}
    if type(attributes) is dict:
        yield from list(attributes.values())
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
        return _public(f"{_module_of(thing)}.{_name_in(thing, '__qualname__')}")
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


def _module(name: str) -> Any:
    found = sys.modules.get(name)
    return Absent(name) if found is None else found


class _Outlines(dict):
    """Outlines of code; a copy that travels is empty."""

    #: Codes remembered at the most
    maxsize = 5_000

    def __missing__(self, code: CodeType) -> Outline:
        if len(self) >= self.maxsize:
            self.clear()
        # read without a lock: at worst a code is looked at twice
        self[code] = found = outline(code)
        return found

    def __reduce__(self) -> Any:
        return type(self), ()


_outlines = _Outlines()


class Scope:
    """Resolves what the names in one function stand for."""

    #: the class whose instance is the first argument, if this is known
    cls: type | None

    def __init__(self, function: FunctionType, cls: type | None = None):
        self.function = function
        self.cls = cls
        self.outline = _outlines[function.__code__]
        self.globals = function.__globals__
        self._found: dict[int, Any] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        #: [(function, module or class, name or number of a cell, what was found)]
        self.loaded: list[tuple[Any, Any, Any]] = []

    def resolve(self, node: Any) -> Any:
        """What a node stands for: an object, `Absent`, `Instance` or `MISSING`."""
        key = id(node)
        if key not in self._found:
            self._found[key] = MISSING
            self._found[key] = self._resolve(node)
        return self._found[key]

    def _resolve(self, node: Any) -> Any:
        if type(node) is Name:
            return getattr(self, f"_{node.where}")(node.name)
        if type(node) is Attribute:
            return self._attribute(self.resolve(node.base), node.name)
        if type(node) is Call:
            cls = self.resolve(node.function)
            return Instance(cls) if is_a(cls, type) else MISSING
        return MISSING

    def _global(self, name: str) -> Any:
        found = self.globals.get(name, MISSING)
        self.loaded.append((self.function, name, found))
        return vars(builtins).get(name, MISSING) if found is MISSING else found

    def _cell(self, name: str) -> Any:
        index = self.function.__code__.co_freevars.index(name)
        found = cell_contents(self.function, index)
        self.loaded.append((self.function, index, found))
        return found

    def _self(self, name: str) -> Any:
        return MISSING if self.cls is None else Instance(self.cls)

    def _import(self, name: str) -> Any:
        bare = name.lstrip(".")
        if bare != name:
            parents = str(self.globals.get("__package__") or "").split(".")
            parents = parents[: len(parents) - (len(name) - len(bare) - 1)]
            bare = ".".join((*parents, bare)) if bare else ".".join(parents)
        return _module(bare)

    def _attribute(self, base: Any, name: str) -> Any:
        if type(base) is Absent:
            return Absent(f"{base.name}.{name}")
        if is_a(base, ModuleType):
            return self._of_module(base, name)
        if base is MISSING:
            return MISSING
        if type(base) is Instance:
            return self._of_class(base.cls, name)
        return self._of_class(base if is_a(base, type) else type(base), name)

    def _of_module(self, module: ModuleType, name: str) -> Any:
        found = module_dict(module).get(name, MISSING)
        if not is_installed(full_name(module)):
            self.loaded.append((module, name, found))
        if found is MISSING:
            return _module(f"{full_name(module)}.{name}")
        return found

    def _of_class(self, cls: type, name: str) -> Any:
        found = static(cls, name)
        if is_own(found) and is_own(cls):
            self.loaded.append((cls, name, class_dict(cls).get(name, MISSING)))
        return found

    def names(self, node: Any) -> tuple[str, ...]:
        """Full names of what a node stands for: as the function gets there, and its own.

        None for what is the user's: its code tells more.
        """
        key = id(node)
        if key not in self._names:
            found = self.resolve(node)
            known = found is not MISSING and not is_own(found)
            names = (self._name(node), full_name(found)) if known else ()
            self._names[key] = tuple(name for name in names if name is not None)
        return self._names[key]

    def _name(self, node: Any) -> str | None:
        if type(node) is Attribute:
            base = self.resolve(node.base)
            if type(base) is Absent or is_a(base, ModuleType):
                return f"{full_name(base)}.{node.name}"
            if is_a(base, type):
                return f"{_name_in(base, '__name__')}.{node.name}"
        return None
