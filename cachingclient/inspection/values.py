"""Texts of settings: what tells a value that functions use from another one, at a bounded cost.

Settings are numbers, words, dates, small arrays and frames, and what containers and objects of the
user hold of such. Everything else is data or machinery, and known by the name of its type.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from cachingclient.inspection.members import attributes, mro
from cachingclient.inspection.objects import class_dict, full_name, is_a, is_own, name_in

#: Items, attributes and elements of a setting that are looked at; what has more is data.
OBJECTS = 2_000
#: Bytes of its arrays
BYTES = 64_000
#: Letters of its words: prompts and queries may be long
LETTERS = 4_000_000
#: Frames, and each of their columns, take as much time as so many items
PANDAS = 20
#: Longer texts are remembered by a digest
_LONG = 200
_NUMBERS = (int, float, complex, bool, type(None), type(...), range)
#: Types whose values never change in place
FIXED = frozenset((*_NUMBERS, str, bytes, date, timedelta, timezone, Decimal, Fraction, UUID))


class Look(NamedTuple):
    """What is seen of a value."""

    #: the same for equal values, in every process
    text: Any
    #: functions and classes of the user in it: their code belongs to it
    parts: tuple[Any, ...] = ()


def look(value: Any) -> Look | None:
    """What tells a setting from another one; None for what is none.

    Parameters
    ----------
    value : object
        None of its code is run, unless it belongs to Python, numpy or pandas.

    Examples
    --------
    >>> look({"b": (1, 2.0), "a": None}).text, look(object())
    ("dict['b': tuple[1, 2.0], 'a': None]", None)
    """
    kind = type(value)
    if kind is str or kind is bytes:
        return Look(_short(repr(value)))  # however long: it is looked at once
    looks = _moment.looks
    if looks is None or kind in FIXED:
        return _look(value, kind)
    found = looks.get(id(value))
    if found is None or found[0] is not value:
        # the value is held, so that its id stays its own
        looks[id(value)] = found = value, _look(value, kind)
    return found[1]


class _Moment(threading.local):
    """What has been looked at, while nothing changes."""

    looks: dict[int, tuple[Any, Look | None]] | None = None

    def __reduce__(self) -> Any:
        return type(self), ()


_moment = _Moment()


@contextmanager
def at_one_moment() -> Iterator[None]:
    """Look at each value once: many functions use the same settings."""
    if _moment.looks is not None:
        yield
        return
    _moment.looks = {}
    try:
        yield
    finally:
        _moment.looks = None


def _look(value: Any, kind: type) -> Look | None:
    if kind is FunctionType or is_a(value, (type, ModuleType)):
        return None
    reader = _Reader()
    try:
        text = reader.read(value)
    except Exception:
        # Somebody else's objects: whatever they do, it must not fail a computation.
        return None
    return None if text is None else Look(_short(text), tuple(reader.parts.values()))


def _short(text: str) -> str:
    if len(text) <= _LONG:
        return text
    return hashlib.blake2b(text.encode("utf8", "replace"), digest_size=16).hexdigest()


class _Reader:
    """Reads one value."""

    def __init__(self) -> None:
        self.objects = OBJECTS
        self.bytes = BYTES
        self.letters = LETTERS
        self.parts: dict[int, Any] = {}
        #: ids of what is being read: things may hold themselves
        self.inside: set[int] = set()

    def read(self, value: Any) -> str | None:
        """Text of a value; None if it is data, or nothing is known of its type."""
        kind = type(value)
        if kind in _NUMBERS:
            # Python refuses to write very long numbers with decimals
            return hex(value) if kind is int and value.bit_length() > 1_000 else repr(value)
        if kind is str:
            self.letters -= len(value)
            return _short(repr(value)) if self.letters >= 0 else None
        key = id(value)
        if key in self.inside:
            return "itself"
        self.inside.add(key)
        try:
            return (_READERS.get(kind) or _reader_of(kind))(self, value)
        finally:
            self.inside.discard(key)

    def nested(self, value: Any) -> str:
        """The same of a part of a value: what is data in it does not hide the rest."""
        text = self.read(value)
        return name_in(type(value), "__qualname__") if text is None else text

    def takes(self, n: int) -> bool:
        """Whether so many bytes may still be looked at."""
        fits = n <= self.bytes
        self.bytes -= n if fits else 0
        return fits

    def counts(self, n: int) -> bool:
        """Whether so many objects may still be looked at."""
        fits = n <= self.objects
        self.objects -= n if fits else 0
        return fits

    def each(self, kind: type, items: Iterable[Any]) -> str:
        return f"{self.name(kind)}[{', '.join(map(self.nested, items))}]"

    def pairs(self, kind: type, items: Iterable[tuple[Any, Any]]) -> str:
        texts = [f"{self.nested(key)}: {self.nested(value)}" for key, value in items]
        return f"{self.name(kind)}[{', '.join(texts)}]"

    def name(self, kind: type) -> str:
        """Name of a type, which counts itself if it is the user's."""
        if is_own(kind):
            self.parts[id(kind)] = kind
        return name_in(kind, "__qualname__")


# -- ways to read values, by their types -------------------------------------------


def _word(reader: _Reader, value: Any) -> str | None:
    return repr(value) if reader.takes(len(value)) else None


def _repr(reader: _Reader, value: Any) -> str:
    return f"{name_in(type(value), '__qualname__')} {value!r}"


def _sequence(base: Any) -> Callable[[_Reader, Any], str | None]:
    def read(reader: _Reader, value: Any) -> str | None:
        if not reader.counts(base.__len__(value)):
            return None
        return reader.each(type(value), list(base.__iter__(value))) + _more(reader, value)

    return read


def _set(base: Any) -> Callable[[_Reader, Any], str | None]:
    def read(reader: _Reader, value: Any) -> str | None:
        if not reader.counts(base.__len__(value)):
            return None
        outer, found = reader.parts, []
        for item in list(base.__iter__(value)):
            # The order of a set differs between processes: so must that of its parts not.
            reader.parts = {}
            found.append((reader.nested(item), reader.parts))
        reader.parts = outer
        for _, parts in sorted(found, key=lambda of_item: of_item[0]):
            outer.update(parts)
        return f"{reader.name(type(value))}{sorted(text for text, _ in found)}"

    return read


def _mapping(reader: _Reader, value: Any) -> str | None:
    if not reader.counts(dict.__len__(value)):
        return None
    return reader.pairs(type(value), list(dict.items(value))) + _more(reader, value)


def _more(reader: _Reader, value: Any) -> str:
    """Attributes that a user's own kind of a container has."""
    own = list(attributes(value)) if is_own(type(value)) else ()
    return reader.pairs(type(value), own) if own else ""


def _object(reader: _Reader, value: Any) -> str | None:
    pairs = list(attributes(value))
    return reader.pairs(type(value), pairs) if reader.counts(len(pairs)) else None


def _member(reader: _Reader, value: Any) -> str:
    names = object.__getattribute__(value, "__dict__")
    return f"{reader.name(type(value))}.{names['_name_']} {reader.nested(names['_value_'])}"


def _function(reader: _Reader, value: Any) -> str:
    if is_own(value):
        reader.parts[id(value)] = value
        return str(value.__qualname__)
    wrapped = value.__dict__.get("__wrapped__")
    return f"{full_name(value)}" if wrapped is None else f"{reader.nested(wrapped)} wrapped"


def _class(reader: _Reader, value: Any) -> str:
    return reader.name(value) if is_own(value) else str(full_name(value))


def _partial(reader: _Reader, value: Any) -> str:
    inner = [partial.func.__get__(value), partial.args.__get__(value)]
    return reader.each(partial, (*inner, partial.keywords.__get__(value)))


def _method(reader: _Reader, value: Any) -> str:
    return reader.each(MethodType, (value.__func__, value.__self__))


def _slice(reader: _Reader, value: Any) -> str:
    return reader.each(slice, (value.start, value.stop, value.step))


def _clock(reader: _Reader, value: Any) -> str:
    # Zones may be the user's, and code of theirs would tell what they are called.
    return f"{value.replace(tzinfo=None)!r} {reader.nested(value.tzinfo)}"


def _pattern(reader: _Reader, value: Any) -> str:
    return reader.each(re.Pattern, (value.pattern, value.flags))


def _plain(base: Any) -> Callable[[_Reader, Any], str | None]:
    def read(reader: _Reader, value: Any) -> str | None:
        text = base.__repr__(value)
        return f"{reader.name(type(value))} {text}" if reader.takes(len(text)) else None

    return read


def _number(reader: _Reader, value: Any) -> str:
    """A number of numpy, which may be a date or a record."""
    return f"{value.dtype.str} {value.tobytes()!r}"


def _array(reader: _Reader, value: Any) -> str | None:
    if value.dtype.hasobject:
        if value.dtype.kind != "O" or not reader.counts(value.size):
            return None
        return f"{value.shape} {reader.each(list, value.ravel().tolist())}"
    if not reader.takes(value.nbytes):
        return None
    dtype = value.dtype.descr if value.dtype.names else value.dtype.str
    return f"{dtype} {value.shape} {hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()}"


def _named(reader: _Reader, value: Any) -> str:
    return str(value.__name__)


def _vectorized(reader: _Reader, value: Any) -> str:
    return reader.each(type(value), (value.pyfunc,))


def _wrapper(reader: _Reader, value: Any) -> str:
    return reader.each(type(value), (value.__wrapped__,))


def _series(reader: _Reader, value: Any) -> str | None:
    if len(value) > reader.objects or not reader.counts(PANDAS):
        return None
    index = None if type(value).__name__.endswith("Index") else value.index
    values = value.to_numpy()
    return reader.each(type(value), (str(value.dtype), value.name, values, index))


def _range(reader: _Reader, value: Any) -> str:
    return reader.each(type(value), (value.start, value.stop, value.step, value.name))


def _frame(reader: _Reader, value: Any) -> str | None:
    if value.size > reader.objects or not reader.counts(PANDAS * (1 + value.shape[1])):
        return None
    columns = [value.iloc[:, n].to_numpy() for n in range(value.shape[1])]
    types = [str(dtype) for dtype in value.dtypes]
    return reader.each(type(value), (value.columns, types, value.index, *columns))


#: Those of Python itself
_READERS: dict[type, Callable[[_Reader, Any], str | None]] = {
    **dict.fromkeys((bytes, bytearray), _word),
    **dict.fromkeys((date, timedelta, timezone, Decimal, Fraction, UUID), _repr),
    **dict.fromkeys((datetime, time), _clock),
    **{base: _sequence(base) for base in (list, tuple, deque)},
    **{base: _set(base) for base in (set, frozenset)},
    **dict.fromkeys((dict, OrderedDict, defaultdict), _mapping),
    re.Pattern: _pattern,
    slice: _slice,
    partial: _partial,
    MethodType: _method,
    FunctionType: _function,
    SimpleNamespace: _object,
}
#: Those of others, which may not be there, by their packages: modules in these come and go
_NAMED: dict[str, Callable[[_Reader, Any], str | None]] = {
    "numpy.ndarray": _array,
    **dict.fromkeys(("numpy.ufunc", "numpy._ArrayFunctionDispatcher"), _named),
    "numpy.vectorize": _vectorized,
    "functools._lru_cache_wrapper": _wrapper,
    **dict.fromkeys(("pandas.Series", "pandas.Index", "pandas.DatetimeIndex"), _series),
    "pandas.DataFrame": _frame,
    "pandas.RangeIndex": _range,
    **dict.fromkeys(("pandas.Timestamp", "pandas.Timedelta"), _repr),
    **dict.fromkeys(("pathlib.PosixPath", "pathlib.WindowsPath", "zoneinfo.ZoneInfo"), _repr),
    "argparse.Namespace": _object,
}
#: Users derive from them; the first that fits decides.
_BASES: tuple[tuple[type, Callable[[_Reader, Any], str | None]], ...] = (
    (Enum, _member),
    (type, _class),
    (dict, _mapping),
    *((base, _sequence(base)) for base in (list, tuple, deque)),
    *((base, _set(base)) for base in (set, frozenset)),
    *((base, _plain(base)) for base in (int, float, complex, str, bytes)),
)


def _reader_of(kind: type) -> Callable[[_Reader, Any], str | None]:
    package = str(full_name(kind)).partition(".")[0]
    if found := _NAMED.get(f"{package}.{name_in(kind, '__qualname__')}"):
        return found
    bases = mro(kind)
    if package == "numpy":
        return _of_numpy(name_in(base, "__name__") for base in bases)
    for base, reader in _BASES:
        if base in bases:
            return reader
    known = is_own(kind) or "__dataclass_fields__" in class_dict(kind)
    return _object if known else _machinery


def _of_numpy(names: Iterable[str]) -> Callable[[_Reader, Any], str | None]:
    found = {"generic": _number, "dtype": _repr}
    return next((found[name] for name in names if name in found), _machinery)


def _machinery(reader: _Reader, value: Any) -> str | None:
    """Functions in C, loggers, locks...: some have a name."""
    return full_name(value)
