"""Looks through the parts of tasks for what they read."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from functools import partial
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from dask.blockwise import BlockwiseDep

from cachingclient.inspection import logs
from cachingclient.internals import Alias, Expr, GraphNode, TaskRef
from cachingclient.sources import functions, stores
from cachingclient.sources.source import LONGEST, Source, from_url, is_url, looks_like_path, unknown
from cachingclient.tasks import task_functions

#: Parts of parts of parts: deeper ones are data.
DEPTH = 10
#: After so many items without a source, the rest of a long list is of the same kind.
SAMPLE = 1_000
#: What one layer or expression may read before it is said to read more than can be looked at.
MOST_SOURCES = 20_000
#: Things of one layer or expression that are looked at: lists may hold themselves.
MOST_LOOKS = 200_000
#: Types whose handling is remembered.
_MANY_TYPES = 10_000
#: Longer words are no names of files.
_LONGEST_WORD = 255
#: Packages whose functions get words that are no paths: names of methods, types and axes.
_QUIET = frozenset({"builtins", "dask", "functools", "numpy", "operator", "_operator", "toolz"})

_TOO_MANY = unknown("more files than can be looked at")

_Handler = Callable[["Finder", Any, int], None]


class Finder:
    """Collects the sources that things lead to; one per submission.

    Parameters
    ----------
    cheap : frozenset of str
        Protocols whose file systems may be asked for checksums.

    Examples
    --------
    >>> finder = Finder(frozenset())
    >>> sorted(map(str, finder.collect(finder.look, ["data/x.csv", {"a": "y.csv"}, "mean"])))
    ['data/x.csv', 'y.csv']
    """

    #: what was found since `collect` began
    found: set[Source]
    #: how often something was found, known or not
    hits: int
    #: how many things were looked at since `collect` began
    looks: int

    def __init__(self, cheap: frozenset[str]) -> None:
        self.cheap = cheap
        self.found = set()
        self.hits = 0
        self.looks = 0
        #: whether words without separator and extension may name files: known from the function
        self.words = False
        # Kept with what was looked through: an id is only good while its object lives.
        self._once: dict[int, tuple[Any, frozenset[Source]]] = {}

    def collect(self, look: Callable[..., None], *args: Any) -> frozenset[Source]:
        """What a call finds."""
        outer, self.found, self.words = self.found, set(), False
        looks, self.looks = self.looks, 0
        try:
            look(*args)
        except Exception as e:
            self.add(unknown(f"what cannot be looked at ({type(e).__name__})"))
        finally:
            inner, self.found, self.looks = self.found, outer, looks
        return frozenset(inner)

    def add(self, source: Source) -> None:
        """Note a source."""
        self.hits += 1
        self.found.add(source if len(self.found) < MOST_SOURCES else _TOO_MANY)

    def look(self, thing: Any, depth: int = DEPTH) -> None:
        """Look at anything."""
        kind = type(thing)
        handler = _handlers.get(kind, _NEW)
        if handler is _NEW:
            handler = _new_handler(kind)
        if handler is None or not depth:
            return
        self.looks += 1
        if self.looks > MOST_LOOKS:
            # Data, where nothing was found; else there may be more.
            return self.found.update({_TOO_MANY} if self.found else ())
        try:
            handler(self, thing, depth - 1)
        except Exception:
            self.add(unknown(f"a {kind.__name__} that cannot be looked at"))

    def each(self, things: Iterable[Any], depth: int = DEPTH) -> None:
        """Look at each of many things, or at the first of them if they lead to nothing."""
        hits = self.hits
        for n, thing in enumerate(things):
            if n == SAMPLE and hits == self.hits:
                return
            self.look(thing, depth)

    def path(self, thing: Any, depth: int = DEPTH) -> None:
        """Look at what surely is a path, or a file."""
        if not isinstance(thing, (str, os.PathLike)):
            return self.look(thing, depth)
        text = os.fspath(thing)
        if isinstance(text, str):
            self.add(from_url(text, self.cheap) if is_url(text) else Source(text))

    def function(self, function: Any, depth: int = DEPTH) -> None:
        """Look at a function."""
        self.once(function, _function, depth)
        self.words = self.words or functions.root(function) not in _QUIET

    def once(self, thing: Any, look: Callable[..., None], *args: Any) -> None:
        """Look at what many share, and remember what was found."""
        key = id(thing)
        if key not in self._once:
            self._once[key] = thing, frozenset()  # it may lead to itself
            words = self.words
            self._once[key] = thing, self.collect(look, self, thing, *args)
            self.words = words
        sources = self._once[key][1]
        self.hits += len(sources)
        self.found |= sources


# -- what to do with things, by their types ----------------------------------------


def _text(finder: Finder, text: str, depth: int) -> None:
    if len(text) > LONGEST:
        return
    if "://" in text and is_url(text):
        finder.add(from_url(text, finder.cheap))
    elif looks_like_path(text):
        # A sentence may have a slash or end in one word after a dot.
        if " " not in text or os.path.exists(text):
            finder.add(Source(str(text)))
    elif finder.words and 0 < len(text) <= _LONGEST_WORD and text.isidentifier():
        if os.path.exists(text):
            finder.add(Source(str(text)))


def _items(finder: Finder, things: Iterable[Any], depth: int) -> None:
    finder.each(things, depth)


def _mapping(finder: Finder, things: Mapping[Any, Any], depth: int) -> None:
    finder.each(chain.from_iterable(things.items()), depth)


def _task(finder: Finder, task: Any, depth: int) -> None:
    if (function := getattr(task, "func", None)) is not None:
        finder.function(function, depth)
        finder.each(task.args or (), depth)
        finder.each((task.kwargs or {}).values(), depth)
    else:
        finder.look(getattr(task, "value", None), depth)


def _callable(finder: Finder, function: Any, depth: int) -> None:
    finder.function(function, depth)


def _function(finder: Finder, function: Any, depth: int) -> None:
    """Look through a function: all that `Finder.function` remembers."""
    name = getattr(function, "__name__", "")
    if functions.reads_elsewhere(name):
        finder.add(unknown(f"what {name} reads"))
    elif isinstance(function, FunctionType):
        _python_function(finder, function, depth)
    elif isinstance(function, type):
        _members(finder, function, depth)
    elif isinstance(function, MethodType):
        finder.look(function.__func__, depth)
        finder.look(function.__self__, depth)
    else:
        _callable_object(finder, function, depth)


def _python_function(finder: Finder, function: FunctionType, depth: int) -> None:
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        finder.look(wrapped, depth)
    if functions.is_users(function):
        if name := functions.elsewhere(function.__code__):
            finder.add(unknown(f"what {name} reads"))
        finder.each(functions.named(function), depth)


def _callable_object(finder: Finder, function: Any, depth: int) -> None:
    if isinstance(function, partial):
        finder.look(function.func, depth)
        finder.each(function.args, depth)
        finder.each(function.keywords.values(), depth)
    elif functions.root(type(function)) in ("toolz", "tlz", "cytoolz"):  # compose
        finder.look(getattr(function, "first", None), depth)
        finder.each(getattr(function, "funcs", ()), depth)
    elif functions.is_users_type(type(function)):
        _object(finder, function, depth)


def _object(finder: Finder, thing: Any, depth: int) -> None:
    """An object of a user's own type: a loader, a data class."""
    finder.each(getattr(thing, "__dict__", {}).values(), depth)
    finder.look(type(thing), depth)


def _class(finder: Finder, cls: type, depth: int) -> None:
    """A class: which of its methods a function calls, and of what, is not known."""
    if functions.is_users_type(cls):
        finder.once(cls, _members, depth)


def _members(finder: Finder, cls: type, depth: int) -> None:
    for base in cls.__mro__:
        if functions.is_users_type(base):
            finder.each(functions.members(base), depth)


def _path(finder: Finder, thing: Any, depth: int) -> None:
    finder.path(thing, depth)


def _collection(finder: Finder, thing: Any, depth: int) -> None:
    """Delayed values that dataframes are made of."""
    for layer in getattr(thing.__dask_graph__(), "layers", {}).values():
        finder.once(layer, layer_parts)


def _blocks(finder: Finder, thing: Any, depth: int) -> None:
    """Arguments that each block has its own of."""
    if isinstance(mapping := getattr(thing, "mapping", None), Mapping):
        finder.each(mapping.values(), depth)
    else:
        finder.look(getattr(thing, "values", None), depth)


def layer_parts(finder: Finder, layer: Any) -> None:
    """Look at the tasks of a layer, without making them if they are not made yet.

    Parameters
    ----------
    finder : Finder
    layer : dask.highlevelgraph.Layer
    """
    if hasattr(layer, "io_deps"):  # Blockwise
        finder.look(layer.task)
        finder.each(_arguments(layer))
        finder.each(layer.io_deps.values())
    elif isinstance(mapping := getattr(layer, "mapping", None), Mapping):
        finder.each(mapping.values())


def _arguments(layer: Any) -> list[Any]:
    """What a Blockwise layer hands to each call of its function."""
    arguments = [thing for thing, index in layer.indices if index is None]
    if any(logs(function) for function in (*task_functions(arguments), layer.task.func)):
        arguments = [thing for thing in arguments if not isinstance(thing, (str, os.PathLike))]
    return arguments


_NEW: Any = object()
_PLAIN = (bool, int, float, complex, bytes, slice, date, timedelta, ModuleType, range)
_COLLECTIONS = (list, tuple, set, frozenset, deque)
#: Ways to look at what dask and Python have; the first that fits decides.
_GENERAL: tuple[tuple[Any, _Handler], ...] = (
    (str, _text),
    (os.PathLike, _path),
    (type, _class),
    (_COLLECTIONS, _items),
    ((FunctionType, BuiltinFunctionType, MethodType, partial), _callable),
    (GraphNode, _task),
    (BlockwiseDep, _blocks),
    (SimpleNamespace, _object),
    # Other mappings may load what they are asked for.
    (dict, _mapping),
)
_handlers: dict[type, _Handler | None] = {type(None): None}


def _new_handler(kind: type) -> _Handler | None:
    if len(_handlers) >= _MANY_TYPES:
        _handlers.clear()
    handler = _handlers[kind] = _handler_of(kind)
    return handler


def _handler_of(kind: type) -> _Handler | None:
    """How things of a type are looked at; None if they lead nowhere."""
    if issubclass(kind, (*_PLAIN, Alias, TaskRef, Expr)):
        return None
    for base in kind.__mro__:
        package = functions.root(base)
        # fsspec's OpenFiles is a list of files; file-like objects of its may have paths.
        if package in stores.HANDLERS and not issubclass(kind, (list, str)):
            return stores.HANDLERS[package]
    for base, handler in _GENERAL:
        if issubclass(kind, base):
            return handler
    if hasattr(kind, "__dask_graph__"):
        # The graph of a dataframe would have to be made first.
        return None if hasattr(kind, "expr") else _collection
    return _callable if hasattr(kind, "__call__") else _users_object(kind)


def _users_object(kind: type) -> _Handler | None:
    known = functions.root(kind) in ("builtins", "distributed", "", *stores.HANDLERS)
    return _object if not known and functions.is_users_type(kind) else None
