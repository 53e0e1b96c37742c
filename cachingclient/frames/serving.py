"""How a leaf is served: from frames that are kept, and by reading what is missing of them.

The tasks call functions of dask, pandas and Python alone, so that each worker has them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from dask.tokenize import tokenize
from dask.typing import Key
from dask.utils import M

from cachingclient.frames.covering import Source, cover, joined
from cachingclient.frames.index import Family, Frame
from cachingclient.frames.leaves import CSV, MAP, PARQUET, Leaf, can_select, widened
from cachingclient.internals import (
    Task,
    TaskList,
    TaskRef,
    concatenated,
    expr_name,
    meta_of,
    read_file,
    read_files,
    reader_label,
    renumbers,
)

#: Part of the limit that wide frames of one family may take.
FILL = 0.8
#: Seconds a byte that it takes to put columns or files of several frames together: to copy them,
#: twice, into new memory, and to fetch some of them from other workers.
ASSEMBLING = 4e-9
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
    #: what was learnt of the cost of tasks
    experience: Any

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
    tasks: dict[tuple[str, int], Any] = field(default_factory=dict)
    #: {key: key of the same value}
    same: dict[Key, Key] = field(default_factory=dict)
    #: keys whose tasks take no time: {key: whether they copy nothing}
    selections: dict[Key, bool] = field(default_factory=dict)
    #: names of frames that are read
    read: set[str] = field(default_factory=set)
    #: whether there is no room for some of the files
    too_large: bool = False


def serve(
    leaf: Leaf,
    name: str,
    family: Family,
    view: View,
    coming: Container[Key] = (),
    only_length: bool = False,
    may_read: bool = True,
    also: Collection[Any] = (),
) -> Served:
    """Serve a leaf.

    Parameters
    ----------
    leaf : Leaf
    name : str
        What its keys are called.
    family : Family
    view : View
    coming : container of Key
        Keys that are read by now, for other leaves.
    only_length : bool
        Whether only the number of rows is wanted.
    may_read : bool
        Whether something else may be read than what was asked for.
    also : collection
        Columns that the same computation asks for.
    """
    serving = _Serving(leaf, name, family, view, coming)
    if can_select(leaf):
        serving.serve(only_length)
        if serving.rest and may_read:
            serving.read(only_length, also)
    return serving.served


def ask(leaf: Leaf, family: Family, only_length: bool) -> None:
    """Note which columns were asked for; a look at the first rows is no wish for them."""
    if not only_length and len(leaf.units) * 2 >= leaf.total:
        family.asked.update(dict.fromkeys(leaf.columns))


def note(leaf: Leaf, name: str, family: Family) -> None:
    """Note that a leaf may be kept under its own name."""
    units = leaf.units if leaf.filtered or leaf.together else None
    _note(family, name, leaf.columns, leaf.series, units)


def _note(
    family: Family,
    name: str,
    columns: tuple[Any, ...],
    series: bool = False,
    units: Iterable[tuple[int, ...]] | None = None,
) -> None:
    """Note a frame, which has all files one by one if no units are given."""
    frame = family.frames.get(name)
    if frame is None:
        at = None if units is None else {unit: n for n, unit in enumerate(units)}
        frame = Frame(name, columns, series, at)
    family.frames.note(name, frame)


class _Serving:
    """Serves one leaf."""

    def __init__(
        self, leaf: Leaf, name: str, family: Family, view: View, coming: Container[Key]
    ) -> None:
        self.leaf, self.name = leaf, name
        self.family, self.view, self.coming = family, view, coming
        self.served = Served()
        #: {number of a partition that cannot be served: (sources of some columns, the others)}
        self.rest: dict[int, tuple[list[Source], set[Any]]] = {}
        self._frames = [f for f in family.frames.values() if f.name != name]

    # -- what is there ---------------------------------------------------------

    def serve(self, only_length: bool) -> None:
        """Take what is kept."""
        wanted = () if only_length else self.leaf.columns
        for n, unit in enumerate(self.leaf.units):
            if (self.name, n) in self.view.kept:
                continue
            sources, missing = self._cover(wanted, unit)
            if sources and not missing:
                if only_length:
                    self.served.same[self.name, n] = sources[0].key
                elif len(sources) == 1 or self._is_slower_than_copying():
                    self._take(n, sources)
                else:
                    self.rest[n] = [], set(wanted)
            elif len(unit) > 1 and not only_length and self._can_concatenate():
                parts = [self._cover(wanted, (file,)) for file in unit]
                whole = all(found and not lacking for found, lacking in parts)
                if whole and self._is_slower_than_copying():
                    self._take_files(n, [found for found, _ in parts])
                else:
                    self.rest[n] = sources, missing
            else:
                self.rest[n] = sources, missing

    def _cover(
        self, wanted: tuple[Any, ...], unit: tuple[int, ...]
    ) -> tuple[list[Source], set[Any]]:
        sources = [
            Source((frame.name, n), frame.columns, frame.series)
            for frame in self._frames
            if (n := frame.number(unit)) is not None and self._is_there((frame.name, n))
        ]
        return cover(wanted, sources, self.leaf.kind)

    def _is_there(self, key: Key) -> bool:
        return key in self.view.kept or key in self.coming

    def _is_slower_than_copying(self, share: float = 1.0) -> bool:
        """Whether reading takes longer than putting what was read together, as far as known.

        Parameters
        ----------
        share : float
            Part of the bytes that would not be read.
        """
        return self._seconds_a_byte * share > ASSEMBLING

    @cached_property
    def _seconds_a_byte(self) -> float:
        """What reading takes at the least, as far as known."""
        found = [math.inf]
        for name in self.family.read:
            seconds, nbytes = self.view.seconds(name), self.view.nbytes(name)
            if seconds is not None and nbytes:
                found.append(seconds / nbytes)
        return min(found)

    def _can_concatenate(self) -> bool:
        """Whether frames of single files are, one after the other, what dask reads at once."""
        if not self.leaf.together:
            return False
        meta = meta_of(self.leaf.node)
        dtypes = meta.dtypes if meta.ndim > 1 else [meta.dtype]
        return not any(dtype == "category" for dtype in dtypes)

    # -- what is taken from it -------------------------------------------------

    def _take(self, n: int, sources: list[Source]) -> None:
        """Take the columns of a partition out of sources."""
        leaf, served, key = self.leaf, self.served, (self.name, n)
        if len(sources) == 1:
            (source,) = sources
            if source.columns == leaf.columns and source.series == leaf.series:
                served.same[key] = source.key
                return
        served.tasks[key] = self._selected(key, sources)
        served.selections[key] = len(sources) == 1 and (leaf.series or sources[0].series)

    def _selected(self, key: Key | None, sources: list[Source]) -> Any:
        leaf, columns = self.leaf, list(self.leaf.columns)
        if len(sources) > 1:
            label: Any = columns[0] if leaf.series else columns
            return Task(key, operator.getitem, joined(sources, columns), label)
        (source,) = sources
        if not source.series:
            label = columns[0] if leaf.series else columns
            return Task(key, operator.getitem, TaskRef(source.key), label)
        return TaskRef(source.key) if leaf.series else Task(key, M.to_frame, TaskRef(source.key))

    def _take_files(self, n: int, of_files: list[list[Source]]) -> None:
        """Put files together as one partition, as dask does when it reads them at once."""
        key = self.name, n
        parts = TaskList(*(self._selected(None, sources) for sources in of_files))
        whole = concatenated(key, parts, renumbered=renumbers(self.leaf.node))
        self.served.tasks[key] = whole
        self.served.selections[key] = False

    # -- what is read for it ---------------------------------------------------

    def read(self, only_length: bool, also: Collection[Any]) -> None:
        """Read what is missing: what is left out here is read as it was asked for."""
        leaf = self.leaf
        if leaf.kind == CSV:
            # Parsing costs the same for one column as for all of them.
            columns = leaf.all_columns()
            if columns is not None:
                self._read_wide(columns)
        elif leaf.kind == MAP:
            if not only_length:
                asked = self._asked(also)
                if set(leaf.columns) < set(asked):
                    self._read_wide(asked)
        elif leaf.kind == PARQUET:
            if leaf.together and self._is_by_file():
                self._read_by_file()
            else:
                self._read_missing()

    def _asked(self, also: Collection[Any]) -> tuple[Any, ...]:
        """Columns that were asked for, if they are there of all files that there is room for.

        Others may have failed: a file may lack them, and what does without them has to work.
        """
        asked = tuple(self.family.asked)
        most = self._number_that_fits(expr_name(widened(self.leaf, asked)))
        there = set(asked)
        for unit in self.leaf.units:
            if unit[0] < most:
                there.intersection_update(
                    column
                    for frame in self._frames
                    if (n := frame.number(unit)) is not None and (frame.name, n) in self.view.kept
                    for column in frame.columns
                )
        there.update(self.leaf.columns, also)
        return tuple(column for column in asked if column in there)

    def _read_wide(self, columns: tuple[Any, ...]) -> None:
        """Read more columns than were asked for, as far as there is room for them."""
        wide = widened(self.leaf, columns)
        name = expr_name(wide)
        seconds = self.view.seconds(name)
        if seconds is not None and seconds < self.view.min_cost:
            return  # it would not be kept
        most = self._number_that_fits(name)
        _note(self.family, name, columns)
        for n in self.rest:
            (file,) = self.leaf.units[n]
            # Always the same ones, whatever was kept before.
            if file + 1 <= most:
                self._read_file(wide, file)
                self._take(n, [Source((name, file), columns, False)])
            else:
                self.served.too_large = True

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
            if not self._is_slower_than_copying(1 - len(columns) / len(leaf.columns)):
                continue
            other = widened(leaf, columns)
            if not leaf.together:
                source = self._file(other, leaf.units[n][0], columns)
            else:
                token = tokenize("cachingclient", leaf.family, columns, leaf.units)
                key = f"{reader_label(other)}-{token}", n
                _note(self.family, key[0], columns, False, leaf.units)
                self._add(key, read_files(leaf.node, other, key, leaf.units[n]))
                source = Source(key, columns, False)
            self._take(n, [*sources, source])

    def _is_by_file(self) -> bool:
        """Whether this family is read file by file from now on.

        dask reads small files together, the more of them the fewer columns are asked for. What
        was read that way is of no use for who wants them otherwise: at the second time files
        are read one by one.
        """
        if not self.family.by_file and self._can_concatenate():
            wanted = set(self.leaf.columns)
            self.family.by_file = any(
                self.view.number_kept(frame.name)
                and not wanted.isdisjoint(frame.columns)
                and all(frame.number(unit) is None for unit in self.leaf.units)
                and self._pays(frame)
                for frame in self._frames
            )
        return self.family.by_file and self._can_concatenate() and self._is_slower_than_copying()

    def _pays(self, frame: Frame) -> bool:
        """Whether reading a file takes longer than a task of its own costs."""
        seconds = self.view.seconds(frame.name)
        files = len(next(iter(frame.at), (0,))) if frame.at else 1
        return seconds is None or seconds / files > self.view.experience.task_overhead

    def _read_by_file(self) -> None:
        leaf = self.leaf
        for n in self.rest:
            of_files = []
            for file in leaf.units[n]:
                sources, missing = self._cover(leaf.columns, (file,))
                if missing or not sources:
                    columns = tuple(c for c in leaf.columns if c in missing) or leaf.columns
                    sources = [*sources, self._file(widened(leaf, columns), file, columns)]
                of_files.append(sources)
            self._take_files(n, of_files)

    def _file(self, reader: Any, file: int, columns: tuple[Any, ...]) -> Source:
        name = expr_name(reader)
        _note(self.family, name, columns)
        return self._read_file(reader, file, columns)

    def _read_file(self, reader: Any, file: int, columns: tuple[Any, ...] = ()) -> Source:
        key = expr_name(reader), file
        if not self._is_there(key):
            self._add(key, read_file(reader, key, file))
        return Source(key, columns, False)

    def _add(self, key: tuple[str, int], task: Any) -> None:
        self.served.tasks[key] = task
        self.served.read.add(key[0])
