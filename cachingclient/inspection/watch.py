"""Answers on functions, remembered as long as all that they were found from is still the same.

Nothing here keeps a function, its globals or any value in them alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, Generic, NamedTuple, TypeVar

from cachingclient.inspection.objects import MISSING, cell_contents, class_dict, is_a, module_dict
from cachingclient.inspection.values import FIXED, Look

T = TypeVar("T")


class _Setting(NamedTuple):
    """A value that the answer depends on."""

    name: Any
    #: the value, if it never changes in place
    value: Any
    text: str
    #: functions and classes in it
    parts: tuple[Callable[[], Any], ...]


class _Watch(NamedTuple):
    """What names in one place stood for."""

    #: a function (its globals, closure and defaults), module or class
    owner: Callable[[], Any]
    #: the code of the function
    code: Any
    #: ((name, what it must still be), ...)
    same: tuple[tuple[Any, Callable[[], Any]], ...]
    #: ((name, type of what it must still be), ...)
    typed: tuple[tuple[Any, Callable[[], Any]], ...]
    #: those that are looked at again if the value is another or can change
    settings: tuple[_Setting, ...]


def _nothing() -> None:
    """What is not there, as `dict.get` has it."""


def _watch(owner: Any, loaded: dict[Any, Any], look: Callable[[Any], Look | None]) -> _Watch:
    same, typed, settings = [], [], []
    for name, thing in loaded.items():
        seen = look(thing)
        if thing is MISSING:
            same.append((name, _nothing))
        elif seen is not None:
            value = thing if type(thing) in FIXED else MISSING
            settings.append(_Setting(name, value, seen.text, tuple(map(weakref.ref, seen.parts))))
        elif callable(thing) and (found := _reference(thing)):
            same.append((name, found))
        else:
            typed.append((name, weakref.ref(type(thing))))
    code = owner.__code__ if type(owner) is FunctionType else None
    return _Watch(weakref.ref(owner), code, tuple(same), tuple(typed), tuple(settings))


def _reference(thing: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(thing)
    except TypeError:
        return None


def _holds(watch: _Watch, look: Callable[[Any], Look | None]) -> bool:
    owner = watch.owner()
    if owner is None:
        return False
    if watch.code is None:
        names = class_dict(owner) if is_a(owner, type) else module_dict(owner)
    elif owner.__code__ is watch.code:
        names = _Names(owner) if _has_more(owner) else owner.__globals__
    else:
        return False
    get = names.get
    for name, reference in watch.same:
        if get(name) is not reference():
            return False
    for name, reference in watch.typed:
        if type(get(name)) is not reference():
            return False
    for setting in watch.settings:
        now = get(setting.name)
        if now is not setting.value and not _is_as_before(setting, look(now)):
            return False
    return True


def _is_as_before(setting: _Setting, seen: Look | None) -> bool:
    return (
        seen is not None
        and seen.text == setting.text
        and len(seen.parts) == len(setting.parts)
        and all(part is before() for part, before in zip(seen.parts, setting.parts))
    )


def _has_more(owner: FunctionType) -> bool:
    return bool(owner.__closure__ or owner.__defaults__ or owner.__kwdefaults__)


class Default(NamedTuple):
    """A default value of a function, where others are known by a name."""

    key: Any


class _Names:
    """Globals, cells and defaults of a function."""

    def __init__(self, owner: FunctionType):
        self.owner = owner

    def get(self, name: Any) -> Any:
        if type(name) is int:
            found = cell_contents(self.owner, name)
            return None if found is MISSING else found
        if type(name) is Default:
            return dict(defaults_of(self.owner)).get(name)
        return self.owner.__globals__.get(name)


def defaults_of(function: FunctionType) -> Iterator[tuple[Default, Any]]:
    """Values that arguments have if they are not given."""
    for n, value in enumerate(function.__defaults__ or ()):
        yield Default(n), value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield Default(name), value


def no_look(value: Any) -> None:
    """For answers that do not depend on values."""


class Entry(NamedTuple):
    """What is remembered of a function, or of a class."""

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
        scopes and other entries that it was found in.
    look : callable, optional
        What is seen of a value that the answer depends on, None for other values.
    """

    #: Functions remembered at the most
    maxsize = 10_000

    def __init__(
        self,
        find: Callable[..., tuple[T, Iterable[Any]]],
        look: Callable[[Any], Look | None] = no_look,
    ):
        self.find = find
        self.look = look
        self.entries: dict[tuple[Any, ...], Entry] = {}

    def __reduce__(self) -> Any:
        return type(self), (self.find, self.look)

    def __call__(
        self, function: FunctionType, cls: type | None = None, how: Any = None, *more: Any
    ) -> T:
        """The answer, remembered or new; `more` is for `find`, and `how` all that it tells."""
        answer: T = self.entry(function, cls, how, *more).answer
        return answer

    def entry(self, function: Any, cls: type | None = None, how: Any = None, *more: Any) -> Entry:
        """The same with what it depends on."""
        if entry := self.recall(function, cls, how):
            return entry
        key = id(function), id(cls), how
        answer, scopes = self.find(function, cls, *more)
        if len(self.entries) >= self.maxsize:
            self.entries.clear()
        gone = weakref.ref(function, lambda _: self.entries.pop(key, None))
        owner = _nothing if cls is None else weakref.ref(cls)
        self.entries[key] = entry = Entry(gone, owner, self.watches(scopes), answer)
        return entry

    def recall(self, function: Any, cls: type | None = None, how: Any = None) -> Entry | None:
        """What is remembered, if it still holds; of anything that is asked for."""
        entry = self.entries.get((id(function), id(cls), how))
        if entry is None or entry.function() is not function or entry.cls() is not cls:
            return None
        for watch in entry.watches:
            if not _holds(watch, self.look):
                return None
        return entry

    def watches(self, found: Iterable[Any]) -> tuple[_Watch, ...]:
        owners: dict[int, tuple[Any, dict[Any, Any]]] = {}
        others: list[_Watch] = []
        for scope in found:
            if type(scope) is Entry:
                others += scope.watches
                continue
            owners.setdefault(id(scope.function), (scope.function, {}))
            for owner, name, thing in scope.loaded:
                owners.setdefault(id(owner), (owner, {}))[1][name] = thing
        return (*(_watch(*watched, self.look) for watched in owners.values()), *others)
