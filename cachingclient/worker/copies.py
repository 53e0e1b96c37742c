"""Copies of what tasks and users may change in place.

Copied are numpy arrays, frames, series and indexes of pandas, objects of xarray, the
containers of Python, and all of these inside of containers and object arrays; instances of
other classes as `copy.deepcopy` copies them. Handed over as they are: what that cannot copy,
read-only arrays (whoever writes to them fails, as with a plain client), arrays on files.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

#: An array is copied for the sake of a view that has more than this part of its memory.
WORTH = 2


@dataclass
class Copier:
    """Copies values; what is shared between them is shared between the copies."""

    #: whether frames are copied to their last byte although pandas copies on write
    deep: bool = False
    #: {id of a value: its copy}; whoever asks for a copy holds the value meanwhile
    seen: dict[int, Any] = field(default_factory=dict)

    def __call__(self, value: Any) -> Any:
        """Copy of a value, or the value where there is nothing to copy."""
        rule = rule_for(type(value))
        if rule is None:
            return value
        found = self.seen.get(id(value))
        return found if found is not None else self.note(value, rule(value, self))

    def note(self, value: Any, copy: Any) -> Any:
        """Remember a copy, for containers before they are filled: they may hold themselves."""
        self.seen[id(value)] = copy
        return copy


def copied(value: Any) -> Any:
    """Copy of one value.

    Examples
    --------
    >>> nested = {"a": [1, 2]}
    >>> copied(nested)["a"].append(3)
    >>> nested
    {'a': [1, 2]}
    """
    return Copier()(value)


def is_plain(values: Iterable[Any]) -> bool:
    """Whether there is nothing to copy among values: most are of a few types."""
    kinds = set(map(type, values))
    return kinds <= _plain or all(rule_for(kind) is None for kind in kinds)


def _list(value: Any, copier: Copier) -> Any:
    copy = copier.note(value, value.copy())
    if not is_plain(value):
        for i, item in enumerate(value):
            copy[i] = copier(item)
    return copy


def _dict(value: Any, copier: Copier) -> Any:
    copy = copier.note(value, value.copy())
    if not is_plain(value.values()):
        for key, item in value.items():
            copy[key] = copier(item)
    return copy


def _tuple(value: Any, copier: Copier) -> Any:
    if is_plain(value):
        return value
    items = [copier(item) for item in value]
    if all(a is b for a, b in zip(items, value)):
        return value
    return tuple.__new__(type(value), items)


def _flat(value: Any, copier: Copier) -> Any:
    """Sets can only hold what cannot change, the others only numbers."""
    return value[:] if type(value) is array else value.copy()


def _array(value: Any, copier: Copier) -> Any:
    if not value.flags.writeable:
        return value
    if not value.dtype.hasobject:
        return _window(value, copier) if _is_view(value) else _whole(value)
    copy = value.copy(order="C")
    _fill(copy, copier)
    return copy


def _is_view(value: Any) -> bool:
    return type(value.base) is type(value) is sys.modules["numpy"].ndarray


def _whole(value: Any) -> Any:
    return value.copy(order="K")


def _window(value: Any, copier: Copier) -> Any:
    """A view: of the copy of the array whose memory it is a part of.

    So what is written to one of them is read from the other.
    """
    base = value.base
    if id(base) not in copier.seen and WORTH * value.nbytes <= base.nbytes:
        return _whole(value)
    if base.dtype.hasobject or not base.flags.forc:
        return _whole(value)
    memory = copier(base)
    if memory is base or memory.strides != base.strides:
        return _whole(value)
    try:
        offset = _address(value) - _address(base)
        return type(value)(value.shape, value.dtype, memory, offset, value.strides)
    except (TypeError, ValueError):  # somebody has it reach beyond the array
        return _whole(value)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _fill(values: Any, copier: Copier) -> None:
    """Replace, in an array, the objects that may change by copies."""
    for name in values.dtype.names or ():
        if values.dtype[name].hasobject:
            _fill(values[name], copier)
    if values.dtype == object:
        flat = values.reshape(-1)  # a view: the array is contiguous, or a field of one that is
        items = flat.tolist()
        if not is_plain(items):
            for i, item in enumerate(items):
                flat[i] = copier(item)


def _by_method(value: Any, copier: Copier) -> Any:
    return value.copy()


def _masked(value: Any, copier: Copier) -> Any:
    copy = value.copy()
    if value.dtype.hasobject:
        _fill(copy.data, copier)
    return copy


def copies_on_write() -> bool:
    """Whether pandas copies by itself what is written to, so that copies cost nothing."""
    pandas = sys.modules["pandas"]
    if int(pandas.__version__.partition(".")[0]) >= 3:
        return True
    return getattr(pandas.options.mode, "copy_on_write", False) is True


def _pandas(value: Any, copier: Copier) -> Any:
    return value.copy(deep=copier.deep or not copies_on_write())


def _series(value: Any, copier: Copier) -> Any:
    copy = _pandas(value, copier)
    if value.dtype == object and not is_plain(value):
        copy.iloc[:] = _objects(value, copier)
    return copy


def _frame(value: Any, copier: Copier) -> Any:
    copy = _pandas(value, copier)
    for i, dtype in enumerate(value.dtypes):
        if dtype == object and not is_plain(column := value.iloc[:, i]):
            fresh = column.copy(deep=True)
            fresh.iloc[:] = _objects(column, copier)
            copy.isetitem(i, fresh)
    return copy


def _objects(column: Any, copier: Copier) -> Any:
    values = column.to_numpy(copy=True)
    _fill(values, copier)
    return values


def _deep(value: Any, copier: Copier) -> Any:
    return value.copy(deep=True)


def _other(value: Any, copier: Copier) -> Any:
    """Instances of other classes: models, clients, whatever has a state."""
    many = len(copier.seen)
    try:
        return deepcopy(value, copier.seen)
    except Exception:
        # Copies that were begun may have only a part of what they should have.
        for key in list(copier.seen)[many:]:
            del copier.seen[key]
        return value


def _as_it_is(value: Any, copier: Copier) -> Any:
    return value


Rule = Callable[[Any, Copier], Any]

#: Modules whose objects stand for something outside, or are what they are.
_LEFT_ALONE = frozenset(("dask", "distributed", "_thread", "threading"))

#: {type: rule}; subclasses may be anything, and are left alone
EXACT: dict[type, Rule] = {
    list: _list,
    deque: _list,
    dict: _dict,
    OrderedDict: _dict,
    defaultdict: _dict,
    Counter: _flat,
    set: _flat,
    bytearray: _flat,
    array: _flat,
}
#: {name of a class: rule} for it and for what inherits from it; the first in the order of
#: inheritance decides. By names, so that nothing is imported that nobody uses.
BY_NAME: dict[str, Rule] = {
    "numpy.memmap": _as_it_is,
    "numpy.MaskedArray": _masked,
    "numpy.ndarray": _array,
    "pandas.DataFrame": _frame,
    "pandas.Series": _series,
    "pandas.Index": _pandas,
    "pandas.ExtensionArray": _by_method,
    "xarray.Dataset": _deep,
    "xarray.DataArray": _deep,
    "xarray.Variable": _deep,
}

_rules: dict[type, Rule | None] = {}
#: Types without a rule that are met all the time
_plain = {int, float, complex, bool, str, bytes, type(None)}
#: Types that are remembered; more than that are made by somebody who makes them all the time.
MANY_TYPES = 1000


def rule_for(kind: type) -> Rule | None:
    """How values of a type are copied; None for what is handed over as it is."""
    try:
        return _rules[kind]
    except KeyError:
        if len(_rules) >= MANY_TYPES:
            _rules.clear()
        return _rules.setdefault(kind, _find(kind))


def _find(kind: type) -> Rule | None:
    if kind in EXACT:
        return EXACT[kind]
    if issubclass(kind, tuple):
        return _tuple
    for base in kind.__mro__:
        module = (getattr(base, "__module__", None) or "").partition(".")[0]
        if rule := BY_NAME.get(f"{module}.{base.__name__}"):
            return rule
        if module in _LEFT_ALONE or kind in _plain:
            return None
    return _other
