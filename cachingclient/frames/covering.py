"""What covers the columns that are wanted: one frame, or several side by side."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from dask.typing import Key

from cachingclient.frames.leaves import MAP
from cachingclient.internals import Task, TaskList, TaskRef


class Source(NamedTuple):
    """A partition that columns can be taken from."""

    key: Key
    columns: tuple[Any, ...]
    #: whether its only column is a series
    series: bool


def cover(
    wanted: tuple[Any, ...], sources: list[Source], kind: str
) -> tuple[list[Source], set[Any]]:
    """Sources that have the wanted columns, and the columns that no source has.

    Parameters
    ----------
    wanted : tuple
        Labels of columns.
    sources : list of Source
        All of the same rows.
    kind : str
        What kind of reader they are of.

    Examples
    --------
    >>> one, two = Source("x", ("a", "b"), False), Source("y", ("b", "c"), False)
    >>> [s.key for s in cover(("a", "c"), [one, two], "csv")[0]]
    ['x', 'y']
    >>> cover(("b", "d"), [one], "csv")[1]
    {'d'}
    """
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


def joined(sources: list[Source], columns: list[Any]) -> Task:
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
