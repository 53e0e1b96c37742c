"""Answers on functions, remembered as long as all that they were found from is still the same.

Nothing here keeps a function, its globals or any value in them alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, Generic, NamedTuple, TypeVar

from cachingclient.inspection.objects import MISSING, cell_contents, class_dict, is_a, module_dict
from cachingclient.inspection.scope import Scope

T = TypeVar("T")

#: Values that cannot change in place, nor hold anything
_LASTING = (int, float, complex, bool, str, bytes, type(None))


class _Watch(NamedTuple):
    """What names in one place stood for."""

    #: a function (its globals and closure), module or class
    owner: Callable[[], Any]
    #: the code of the function
    code: Any
    #: ((name, what it must still be), ...)
    same: tuple[tuple[Any, Callable[[], Any]], ...]
    #: ((name, type of what it must still be), ...)
    typed: tuple[tuple[Any, Callable[[], Any]], ...]
    #: ((name, value, its text), ...): the text is compared if the value is another or can change
    texts: tuple[tuple[Any, Any, Any], ...]


def _nothing() -> None:
    """What is not there, as `dict.get` has it."""


def _watch(owner: Any, loaded: dict[Any, Any], text_of: Callable[[Any], Any]) -> _Watch:
    same, typed, texts = [], [], []
    for name, thing in loaded.items():
        text = text_of(thing)
        if text is not None:
            # a value that can change is never the same
            texts.append((name, thing if type(thing) in _LASTING else MISSING, text))
        elif thing is MISSING:
            same.append((name, _nothing))
        elif callable(thing) and (found := _reference(thing)):
            same.append((name, found))
        else:
            typed.append((name, weakref.ref(type(thing))))
    code = owner.__code__ if type(owner) is FunctionType else None
    return _Watch(weakref.ref(owner), code, tuple(same), tuple(typed), tuple(texts))


def _reference(thing: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(thing)
    except TypeError:
        return None


def _holds(watch: _Watch, text_of: Callable[[Any], Any]) -> bool:
    owner = watch.owner()
    if owner is None:
        return False
    if watch.code is None:
        names = class_dict(owner) if is_a(owner, type) else module_dict(owner)
    elif owner.__code__ is watch.code:
        names = owner.__globals__ if owner.__closure__ is None else _Names(owner)
    else:
        return False
    get = names.get
    for name, reference in watch.same:
        if get(name) is not reference():
            return False
    for name, reference in watch.typed:
        if type(get(name)) is not reference():
            return False
    for name, value, text in watch.texts:
        now = get(name)
        if now is not value and text_of(now) != text:
            return False
    return True


class _Names:
    """Globals and cells of a closure."""

    def __init__(self, owner: FunctionType):
        self.owner = owner

    def get(self, name: Any) -> Any:
        if type(name) is not int:
            return self.owner.__globals__.get(name)
        found = cell_contents(self.owner, name)
        return None if found is MISSING else found


def no_text(value: Any) -> None:
    """For answers that do not depend on values."""


class _Entry(NamedTuple):
    function: Callable[[], Any]
    cls: Callable[[], Any]
    watches: tuple[_Watch, ...]
    answer: Any


class Memory(Generic[T]):
    """Remembers what was found about functions.

    Parameters
    ----------
    find : callable
        Takes a function and the class of its first argument (or None), returns the answer and the
        scopes that it was found in.
    text_of : callable, optional
        Text of a value that the answer depends on, or anything else that can be compared; None for
        other values.
    """

    #: Functions remembered at the most
    maxsize = 10_000

    def __init__(
        self,
        find: Callable[..., tuple[T, Iterable[Scope]]],
        text_of: Callable[[Any], Any] = no_text,
    ):
        self.find = find
        self.text_of = text_of
        self.entries: dict[tuple[Any, ...], _Entry] = {}

    def __reduce__(self) -> Any:
        return type(self), (self.find, self.text_of)

    def __call__(
        self, function: FunctionType, cls: type | None = None, how: Any = None, *more: Any
    ) -> T:
        """The answer, remembered or new; `more` is for `find`, and `how` all that it tells."""
        if entry := self.recall(function, cls, how):
            remembered: T = entry.answer
            return remembered
        key = id(function), id(cls), how
        answer, scopes = self.find(function, cls, *more)
        if len(self.entries) >= self.maxsize:
            self.entries.clear()
        gone = weakref.ref(function, lambda _: self.entries.pop(key, None))
        owner = _nothing if cls is None else weakref.ref(cls)
        self.entries[key] = _Entry(gone, owner, self.watches(scopes), answer)
        return answer

    def recall(self, function: Any, cls: type | None = None, how: Any = None) -> _Entry | None:
        """What is remembered, if it still holds; of anything that is asked for."""
        entry = self.entries.get((id(function), id(cls), how))
        if entry is None or entry.function() is not function or entry.cls() is not cls:
            return None
        for watch in entry.watches:
            if not _holds(watch, self.text_of):
                return None
        return entry

    def watches(self, scopes: Iterable[Scope]) -> tuple[_Watch, ...]:
        owners: dict[int, tuple[Any, dict[Any, Any]]] = {}
        for scope in scopes:
            owners.setdefault(id(scope.function), (scope.function, {}))
            for owner, name, thing in scope.loaded:
                owners.setdefault(id(owner), (owner, {}))[1][name] = thing
        return tuple(_watch(*watched, self.text_of) for watched in owners.values())
