"""What a chaos session computes, each beside the same in memory, without dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import xarray as xr
from chaos import tasks

#: Made of numbers from a small range: what is asked for is asked for again.
VARIETY = 4


class Question(NamedTuple):
    """A sort of collection, and what is asked about it."""

    #: makes it lazily
    make: Callable[[int], Any]
    #: what it is
    known: Callable[[int], Any]
    #: asked of both, and giving the same
    asks: tuple[Callable[[Any], Any], ...]

    def ask(self, lazy: Any, n: int, m: int) -> tuple[Any, Any]:
        """Something lazy that is made of a collection, and what it comes to."""
        ask = self.asks[m % len(self.asks)]
        return ask(lazy), ask(self.known(n))


def values(n: int) -> np.ndarray:
    return np.arange(24.0).reshape(6, 4) * (n + 1)


def array(n: int) -> da.Array:
    return da.from_array(values(n), chunks=(2, 2))


def frame(n: int) -> dd.DataFrame:
    return dd.from_pandas(tasks.table(n), npartitions=4)


def same(value: Any) -> Any:
    return value


def labelled(data: Any) -> xr.DataArray:
    return xr.DataArray(data, dims=("x", "y"), coords={"g": ("x", [0, 1, 2, 0, 1, 2])})


def overlapping(n: int) -> da.Array:
    return array(n).map_overlap(tasks.neighbours, depth={0: 1}, boundary=0, dtype="f8")


def known_overlapping(n: int) -> np.ndarray:
    return tasks.neighbours(np.pad(values(n), ((1, 1), (0, 0))))[1:-1]


def delayed(n: int) -> Any:
    bump, total = dask.delayed(tasks.bump, pure=True), dask.delayed(tasks.total, pure=True)
    return total(*[bump(i, n) for i in range(5)])


def bag(n: int) -> db.Bag:
    return db.from_sequence(range(n, n + 12), npartitions=4).map(tasks.bump, n)


def known_bag(n: int) -> list[int]:
    return [i + n for i in range(n, n + 12)]


def array_of_delayed(n: int) -> da.Array:
    parts = [dask.delayed(tasks.rows, pure=True)(n + i) for i in range(4)]
    return da.concatenate([da.from_delayed(p, (4,), dtype="f8") for p in parts])


def frame_of_delayed(n: int) -> dd.DataFrame:
    parts = [dask.delayed(tasks.table, pure=True)(n + i) for i in range(3)]
    return dd.from_delayed(parts, meta=tasks.table(0))


def known_frame_of_delayed(n: int) -> pd.DataFrame:
    return pd.concat([tasks.table(n + i) for i in range(3)])


def shuffled(n: int) -> dd.DataFrame:
    return frame(n).shuffle("a", shuffle_method="p2p").map_partitions(tasks.grow)


def merged(n: int) -> dd.DataFrame:
    return frame(n).merge(frame(n + 1), on="a", shuffle_method="p2p")


def known_merged(n: int) -> pd.DataFrame:
    return tasks.table(n).merge(tasks.table(n + 1), on="a")


def bumped(n: int) -> da.Array:
    return array(n).map_blocks(tasks.bump, n, dtype="f8")


_NUMBERS = (
    lambda x: x.sum(),
    lambda x: x.mean(axis=0),
    lambda x: x.max(),
    lambda x: (x * 2).std(axis=1),
    lambda x: (x - x.mean()).sum(axis=0),
    lambda x: x[:3].min(),
)
_GROUPS = (
    lambda f: f.groupby("a").b.sum(),
    lambda f: f.b.max(),
    lambda f: f.groupby("a").b.count(),
)

QUESTIONS: dict[str, Question] = {
    "blocks": Question(bumped, lambda n: values(n) + n, _NUMBERS),
    "reduction": Question(array, values, _NUMBERS),
    "rechunk": Question(
        lambda n: bumped(n).rechunk((3, 4), method="tasks").map_blocks(tasks.double),
        lambda n: (values(n) + n) * 2,
        _NUMBERS[:2],
    ),
    "rechunk_p2p": Question(
        lambda n: bumped(n).rechunk((3, 4), method="p2p").map_blocks(tasks.double),
        lambda n: (values(n) + n) * 2,
        _NUMBERS[:2],
    ),
    "overlap": Question(overlapping, known_overlapping, _NUMBERS[:3]),
    "xarray": Question(
        lambda n: labelled(bumped(n)),
        lambda n: labelled(values(n) + n),
        (
            lambda x: x.groupby("g").sum(),
            lambda x: x.mean("y"),
            lambda x: x.isel(x=slice(1, 4)).max("x"),
        ),
    ),
    "delayed": Question(delayed, lambda n: 10 + 5 * n, (same, lambda v: v + 1)),
    "bag": Question(
        bag,
        known_bag,
        (lambda b: total(b, tasks.total_of), lambda b: odd(b), same),
    ),
    "groupby": Question(
        lambda n: frame(n).map_partitions(tasks.grow), lambda n: tasks.grow(tasks.table(n)), _GROUPS
    ),
    "shuffle": Question(shuffled, lambda n: tasks.grow(tasks.table(n)), _GROUPS),
    "merge": Question(
        merged, known_merged, (lambda f: f.b_x.sum(), lambda f: f.groupby("a").b_y.sum())
    ),
    "array_of_delayed": Question(
        array_of_delayed,
        lambda n: np.concatenate([tasks.rows(n + i) for i in range(4)]),
        (lambda x: x.sum(), lambda x: x.max(), lambda x: (x + 1).mean()),
    ),
    "frame_of_delayed": Question(frame_of_delayed, known_frame_of_delayed, _GROUPS),
}
#: Collections that can be persisted
PERSISTED = ("blocks", "overlap", "bag", "groupby", "shuffle", "xarray", "array_of_delayed")


def total(values: Any, function: Callable[[Any], Any]) -> Any:
    return values.reduction(tasks.total_of, tasks.total_of) if is_bag(values) else function(values)


def odd(values: Any) -> Any:
    return values.filter(tasks.is_odd) if is_bag(values) else [v for v in values if v % 2]


def is_bag(value: Any) -> bool:
    return isinstance(value, db.Bag)


def equal(one: Any, other: Any) -> bool:
    """Whether an answer is what is known, up to the order of groups, and to sorts of numbers."""
    if isinstance(other, xr.DataArray):
        return isinstance(one, xr.DataArray) and one.equals(other)
    if isinstance(other, pd.Series):
        return isinstance(one, pd.Series) and equal(
            dict(one.sort_index()), dict(other.sort_index())
        )
    if isinstance(other, dict):
        return list(one) == list(other) and all(equal(one[k], other[k]) for k in other)
    if isinstance(other, list):
        return list(one) == other
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=1e-12))
