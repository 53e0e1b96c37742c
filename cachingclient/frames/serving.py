"""How a leaf is served: from frames that are kept, and by reading what is missing of them.

The tasks call functions of dask, pandas and Python alone, so that each worker has them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dask.tokenize import tokenize
from dask.typing import Key
from dask.utils import M

from cachingclient.frames.index import Family, Frame
from cachingclient.frames.leaves import CSV, MAP, PARQUET, Leaf, can_select, widened
from cachingclient.internals import (
    Task,
    TaskList,
    TaskRef,
    expr_name,
    read_file,
    read_files,
    reader_label,
)

#: Part of the limit that wide frames of one family may take.
FILL = 0.8
#: Bytes in memory for a byte of text, until it is known better.
SWELL = 2.0


class View(Protocol):
    """What the scheduler knows, at the moment of a submission."""

    #: bytes that may be kept
    limit: float
    #: seconds below which nothing is kept
    min_cost: float
    #: keys that are kept
    kept: Container[Key]

    def number_kept(self, name: str) -> int:
        """How many keys of a name are kept."""

    def nbytes(self, name: str) -> float | None:
        """Bytes of a key of a name, as far as known."""

    def seconds(self, name: str) -> float | None:
        """Seconds that a key of a name cost, if it ran."""


@dataclass
class Served:
    """Tasks in place of those of a leaf."""

    #: {key: task}; what is missing has to be read as it was asked for
    tasks: dict[Key, Any] = field(default_factory=dict)
    #: {key: key of the same value}
    same: dict[Key, Key] = field(default_factory=dict)
    #: keys whose tasks take no time: {key: whether they copy nothing}
    selections: dict[Key, bool] = field(default_factory=dict)
    #: names of frames that are read
    read: set[str] = field(default_factory=set)


class _Source(NamedTuple):
    """A partition that columns can be taken from."""

    key: Key
    columns: tuple[Any, ...]
    series: bool


def serve(
    leaf: Leaf,
    name: str,
    family: Family,
    view: View,
    only_length: bool = False,
    may_read: bool = True,
) -> Served:
    """Serve a leaf.

    Parameters
    ----------
    leaf : Leaf
    name : str
        What its keys are called.
    family : Family
    view : View
    only_length : bool
        Whether only the number of rows is wanted.
    may_read : bool
        Whether something else may be read than what was asked for.
    """
    serving = _Serving(leaf, name, family, view)
    if can_select(leaf):
        serving.serve(only_length)
        if serving.rest and may_read:
            serving.read(only_length)
    return serving.served


def note(leaf: Leaf, name: str, family: Family) -> None:
    """Note that a leaf may be kept under its own name."""
    _note(family, name, leaf.columns, leaf.series, leaf.units)


def _note(
    family: Family,
    name: str,
    columns: tuple[Any, ...],
    series: bool,
    units: Iterable[tuple[int, ...]],
) -> None:
    if name not in family.frames:
        at = {unit: n for n, unit in enumerate(units)}
        family.frames.note(name, Frame(name, columns, series, at))


class _Serving:
    """Serves one leaf."""

    def __init__(self, leaf: Leaf, name: str, family: Family, view: View) -> None:
        self.leaf, self.name = leaf, name
        self.family, self.view = family, view
        self.served = Served()
        #: {number of a partition that cannot be served: (sources of some columns, the others)}
        self.rest: dict[int, tuple[list[_Source], set[Any]]] = {}

    def serve(self, only_length: bool) -> None:
        """Take what is kept."""
        view, leaf = self.view, self.leaf
        frames = [
            f
            for f in self.family.frames.values()
            if f.name != self.name and view.number_kept(f.name)
        ]
        wanted = () if only_length else leaf.columns
        for n, unit in enumerate(leaf.units):
            if (self.name, n) in view.kept:
                continue
            sources, missing = _cover(wanted, list(_sources(frames, unit, view.kept)), leaf.kind)
            if missing or not sources:
                self.rest[n] = sources, missing
            elif only_length:
                self.served.same[self.name, n] = sources[0].key
            else:
                self._take(n, sources)

    def read(self, only_length: bool) -> None:
        """Read what is missing: what is left out here is read as it was asked for."""
        leaf = self.leaf
        if leaf.kind == CSV:
            # Parsing costs the same for one column as for all of them.
            columns = leaf.all_columns()
            if columns is not None and columns != leaf.columns:
                self._read_files(columns)
        elif leaf.kind == MAP:
            if only_length or len(self.rest) * 2 < leaf.total:
                return  # a look at the first rows is no wish for columns
            asked = self.family.asked
            anew = not asked
            asked.update(dict.fromkeys(leaf.columns))
            if not anew and len(asked) > len(leaf.columns):
                self._read_files(tuple(asked))
        elif leaf.kind == PARQUET:
            self._read_missing()

    def _take(self, n: int, sources: list[_Source]) -> None:
        """Take the columns of a partition out of sources."""
        leaf, served, key = self.leaf, self.served, (self.name, n)
        columns = list(leaf.columns)
        if len(sources) > 1:
            served.tasks[key] = Task(key, operator.getitem, _joined(sources, columns), columns)
            served.selections[key] = False
            return
        (source,) = sources
        if source.columns == leaf.columns and source.series == leaf.series:
            served.same[key] = source.key
        elif source.series:
            served.tasks[key] = Task(key, M.to_frame, TaskRef(source.key))
            served.selections[key] = True
        else:
            label = columns[0] if leaf.series else columns
            served.tasks[key] = Task(key, operator.getitem, TaskRef(source.key), label)
            served.selections[key] = leaf.series

    def _read_files(self, columns: tuple[Any, ...]) -> None:
        """Read more columns than were asked for, as far as there is room for them."""
        wide = widened(self.leaf, columns)
        name = expr_name(wide)
        seconds = self.view.seconds(name)
        if seconds is not None and seconds < self.view.min_cost:
            return  # it would not be kept
        most = self._number_that_fits(name)
        _note(self.family, name, columns, False, ((file,) for file in range(self.leaf.total)))
        for n in self.rest:
            (file,) = self.leaf.units[n]
            # Always the same ones, whatever was kept before.
            if file < most:
                self._read(wide, name, file, self.leaf.units[n])
                self._take(n, [_Source((name, file), columns, False)])

    def _number_that_fits(self, name: str) -> float:
        leaf = self.leaf
        nbytes = self.view.nbytes(name)
        if nbytes is None and leaf.nbytes is not None:
            nbytes = SWELL * leaf.nbytes / max(leaf.total, 1)
        return self.view.limit * FILL / nbytes if nbytes else math.inf

    def _read_missing(self) -> None:
        """Read the columns that no source has."""
        leaf = self.leaf
        for n, (sources, missing) in self.rest.items():
            if not (sources and missing):
                continue
            columns = tuple(c for c in leaf.columns if c in missing)
            other = widened(leaf, columns)
            if leaf.together:
                token = tokenize("cachingclient", leaf.family, columns, leaf.units)
                name, units, number = f"{reader_label(other)}-{token}", leaf.units, n
            else:
                units = tuple((file,) for file in range(leaf.total))
                name, number = expr_name(other), leaf.units[n][0]
            _note(self.family, name, columns, False, units)
            self._read(other, name, number, leaf.units[n])
            self._take(n, [*sources, _Source((name, number), columns, False)])

    def _read(self, reader: Any, name: str, number: int, unit: tuple[int, ...]) -> None:
        key = name, number
        self.served.read.add(name)
        if self.leaf.together:
            self.served.tasks[key] = read_files(self.leaf.node, reader, key, unit)
        else:
            self.served.tasks[key] = read_file(reader, key, unit[0])


def _sources(
    frames: Iterable[Frame], unit: tuple[int, ...], kept: Container[Key]
) -> Iterator[_Source]:
    for frame in frames:
        n = frame.at.get(unit)
        if n is not None and (frame.name, n) in kept:
            yield _Source((frame.name, n), frame.columns, frame.series)


def _cover(
    wanted: tuple[Any, ...], sources: list[_Source], kind: str
) -> tuple[list[_Source], set[Any]]:
    """Sources that have the wanted columns, and the columns that no source has."""
    needed = set(wanted)
    whole = [s for s in sources if needed.issubset(s.columns)]
    if whole:
        return [min(whole, key=lambda s: (len(s.columns), not s.series))], set()
    if kind == MAP:
        # Nobody says that rows of two calls are the same.
        return [], needed
    found = []
    while sources and needed:
        best = max(sources, key=lambda s: len(needed.intersection(s.columns)))
        if needed.isdisjoint(best.columns):
            break
        found.append(best)
        needed.difference_update(best.columns)
    return found, needed


def _joined(sources: list[_Source], columns: list[Any]) -> Task:
    """Columns side by side, each from one source."""
    import pandas as pd

    parts: list[Any] = []
    left = set(columns)
    for source in sources:
        mine = [c for c in source.columns if c in left]
        left.difference_update(mine)
        part: Any = TaskRef(source.key)
        if len(mine) < len(source.columns):
            part = Task(None, operator.getitem, part, mine)
        parts.append(part)
    return Task(None, pd.concat, TaskList(*parts), axis=1)
