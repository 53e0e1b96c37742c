"""All kinds of graphs: their shared parts are computed once, and the values are right.

Each kind is a generator that asks related questions and yields what it got, and what
NumPy, pandas or plain Python say. Beside it stands how often users' functions have to run
for all questions together, if somebody had put a `persist` into the best places.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import cachingclient  # isort: skip

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.base import DaskMethodsMixin, tokenize
from dask.highlevelgraph import HighLevelGraph
from helpers import INPROC, calls, count, ran

Ask = Callable[[], Iterator[tuple[Any, Any]]]


class Kind(NamedTuple):
    """One kind of graph."""

    ask: Ask
    #: calls of users' functions that suffice for all of its questions
    calls: int
    #: whether a plain client needs more of them
    shares: bool
    #: why it needs more today
    todo: str
    #: how many
    today: int


KINDS: dict[str, Kind] = {}


def kind(calls: int, shares: bool = True, todo: str = "", today: int = 0) -> Callable[[Ask], Ask]:
    """Put a kind into the table."""

    def add_kind(ask: Ask) -> Ask:
        assert ask.__name__ not in KINDS
        KINDS[ask.__name__] = Kind(ask, calls, shares, todo, today)
        return ask

    return add_kind


# -- users' functions, and what they are used on -----------------------------------------

V = np.arange(12.0)
A = np.arange(24.0).reshape(4, 6)
PDF = pd.DataFrame({"a": V, "k": np.arange(12) % 3})


def slow(block, by=1):
    # dask tries functions on blocks of no or one element, to learn what they return
    if np.size(block) > 1:
        count()
        time.sleep(0.01)
    return block + by


def slow_value(v):
    count()
    time.sleep(0.01)
    return v + 1


def slow_frame(df):
    if len(df):
        count()
        time.sleep(0.01)
    return df.assign(a=df.a + 1)


#: What they make of it.
V1, A1, PDF1 = V + 1, A + 1, PDF.assign(a=PDF.a + 1)


def vector():
    """V1, in four chunks."""
    return da.from_array(V, chunks=3).map_blocks(slow)


def table():
    """A1, in four chunks."""
    return da.from_array(A, chunks=(2, 3)).map_blocks(slow)


def numbers():
    """A bag of 1 to 12 in three partitions; each number is a call."""
    return db.from_sequence(range(12), npartitions=3).map(slow_value)


NUMBERS = list(range(1, 13))


def pure(function, **kwargs):
    return dask.delayed(function, pure=True, **kwargs)


# -- functions on blocks -----------------------------------------------------------------


@kind(calls=4)
def map_blocks():
    x = table()
    yield x.sum().compute(), A1.sum()
    yield x.mean(axis=0).compute(), A1.mean(axis=0)
    yield (x * 2).max().compute(), 48


@kind(calls=8)
def map_blocks_chain():
    x = table()
    y = x.map_blocks(slow, 2)
    yield y.sum().compute(), (A1 + 2).sum()
    yield y.mean().compute(), (A1 + 2).mean()
    yield y.std().compute(), A.std()


@kind(calls=12)
def map_blocks_fork():
    x = table()
    y, z = x.map_blocks(slow, 2), x.map_blocks(slow, 3)
    yield dask.compute(y.sum(), z.sum()), ((A + 3).sum(), (A + 4).sum())
    yield x.mean().compute(), A1.mean()
    yield (y - z).max().compute(), -1


def slow_offset(block, block_info=None):
    (start, _), *_ = block_info[0]["array-location"]
    return slow(block) + start


@kind(calls=4)
def map_blocks_block_info():
    x = da.from_array(V, chunks=3).map_blocks(slow_offset, dtype=V.dtype, meta=V[:0])
    want = V1 + V // 3 * 3
    yield x.sum().compute(), want.sum()
    yield x[2:5].compute(), want[2:5]
    yield x.max().compute(), want.max()


def slow_position(block, block_id=None):
    return slow(block) + block_id[0]


@kind(calls=4)
def map_blocks_block_id():
    x = da.from_array(V, chunks=3).map_blocks(slow_position, dtype=V.dtype, meta=V[:0])
    want = V1 + V // 3
    yield x.sum().compute(), want.sum()
    yield x.mean().compute(), want.mean()


@kind(calls=4)
def map_blocks_array_argument():
    x = da.from_array(V, chunks=3).map_blocks(slow, da.from_array(V, chunks=3))
    yield x.sum().compute(), 2 * V.sum()
    yield x.min().compute(), 0


@kind(calls=4)
def map_blocks_array_keyword():
    x = da.from_array(V, chunks=3).map_blocks(slow, by=np.arange(3.0), dtype=V.dtype)
    want = V + np.tile(np.arange(3.0), 4)
    yield x.sum().compute(), want.sum()
    yield x.mean().compute(), want.mean()


@kind(calls=4)
def map_blocks_lazy_keyword():
    x = da.from_array(V, chunks=3).map_blocks(slow, by=da.from_array(V[:3]), dtype=V.dtype)
    want = V + np.tile(V[:3], 4)
    yield x.sum().compute(), want.sum()
    yield x.mean().compute(), want.mean()


@kind(calls=2)
def map_blocks_drop_axis():
    x = da.from_array(A, chunks=(2, 6)).map_blocks(
        lambda block: slow(block).sum(axis=1), drop_axis=1, dtype=A.dtype
    )
    yield x.compute(), A1.sum(axis=1)
    yield x.max().compute(), A1.sum(axis=1).max()


@kind(calls=4)
def map_blocks_new_axis():
    x = da.from_array(V, chunks=3).map_blocks(
        lambda block: slow(block)[:, None], new_axis=1, chunks=((3, 3, 3, 3), (1,)), dtype=V.dtype
    )
    yield x.compute(), V1[:, None]
    yield x.sum(axis=0).compute(), [V1.sum()]


@kind(calls=4)
def map_blocks_other_chunks():
    x = da.from_array(V, chunks=3).map_blocks(
        lambda block: slow(block).repeat(2), chunks=(6,), dtype=V.dtype
    )
    yield x.compute(), V1.repeat(2)
    yield x[::2].compute(), V1


@kind(calls=2)
def map_blocks_without_input():
    def make(block_id=None):
        return slow(np.full(3, float(block_id[0])))

    x = da.map_blocks(make, chunks=((3, 3),), dtype="f8", meta=V[:0])
    yield x.sum().compute(), 9
    yield x.max().compute(), 2


@kind(calls=16)
def blockwise_outer():
    v = da.from_array(V, chunks=3)
    x = da.blockwise(lambda u, v: slow(np.add.outer(u, v)), "ij", v, "i", v, "j", dtype=V.dtype)
    want = np.add.outer(V, V) + 1
    yield x.sum(axis=0).compute(), want.sum(axis=0)
    yield x.mean().compute(), want.mean()


@kind(calls=2)
def blockwise_concatenate():
    def of_rows(block):
        return slow(block).sum(axis=1)

    a = da.from_array(A, chunks=(2, 3))
    x = da.blockwise(of_rows, "i", a, "ij", concatenate=True, dtype=A.dtype)
    yield x.compute(), A1.sum(axis=1)
    yield x.mean().compute(), A1.sum(axis=1).mean()


@kind(calls=2)
def gufunc():
    a = da.from_array(A, chunks=(2, 6))
    x = da.apply_gufunc(lambda u: slow(u).sum(axis=-1), "(i)->()", a, output_dtypes=A.dtype)
    yield x.compute(), A1.sum(axis=1)
    yield x.max().compute(), A1.sum(axis=1).max()


def slow_extremes(u):
    u = slow(u)
    return u.min(axis=-1), u.max(axis=-1)


@kind(calls=2)
def gufunc_of_two_outputs():
    a = da.from_array(A, chunks=(2, 6))
    low, high = da.apply_gufunc(slow_extremes, "(i)->(),()", a, output_dtypes=(A.dtype, A.dtype))
    yield low.compute(), A1.min(axis=1)
    yield high.sum().compute(), A1.max(axis=1).sum()
    yield (high - low).mean().compute(), 5


@kind(calls=4)
def gufunc_vectorized():
    a = da.from_array(A, chunks=(2, 6))
    x = da.apply_gufunc(
        lambda u: slow(u).sum(), "(i)->()", a, vectorize=True, output_dtypes=A.dtype
    )
    yield x.compute(), A1.sum(axis=1)
    yield x.max().compute(), A1.sum(axis=1).max()


@kind(calls=4)
def along_axis():
    a = da.from_array(A, chunks=(2, 3))
    x = da.apply_along_axis(lambda row: slow(row).sum(), 1, a, dtype=A.dtype, shape=())
    yield x.compute(), A1.sum(axis=1)
    yield x.max().compute(), A1.sum(axis=1).max()


@kind(calls=4)
def overlap():
    x = da.from_array(V, chunks=3).map_overlap(slow, depth=1, boundary="none")
    yield x.sum().compute(), V1.sum()
    yield x[1:4].compute(), V1[1:4]
    yield x.max().compute(), 12


@kind(calls=8)
def overlap_of_what_was_slow():
    x = vector()
    y = x.map_overlap(slow, depth=1, boundary="reflect")
    yield x.sum().compute(), V1.sum()
    yield y.sum().compute(), (V + 2).sum()
    yield (y - x).max().compute(), 1


@kind(calls=13)
def ufunc_of_a_python_function():
    # one call is dask's, to learn the type
    x = da.frompyfunc(slow_value, 1, 1)(da.from_array(V, chunks=3)).astype("f8")
    yield x.sum().compute(), V1.sum()
    yield x.mean().compute(), V1.mean()


# -- shapes --------------------------------------------------------------------------------


@kind(calls=4)
def reshape():
    x = vector()
    yield x.reshape(4, 3).sum(axis=1).compute(), V1.reshape(4, 3).sum(axis=1)
    yield x.reshape(2, 6).max(axis=0).compute(), V1[6:]
    yield x.sum().compute(), V1.sum()


@kind(calls=4)
def reshaped_and_held():
    x = table().reshape(24)
    yield x.sum().compute(), A1.sum()
    yield x[::5].compute(), A1.ravel()[::5]


@kind(calls=4)
def rechunk():
    x = table()
    yield x.rechunk((4, 2)).sum().compute(), A1.sum()
    y = x.rechunk((1, 6))
    yield y.map_blocks(np.cumsum, 1, chunks=(1, 6), dtype="f8").max().compute(), A1[-1].sum()
    yield y.mean().compute(), A1.mean()


@kind(calls=4)
def rechunk_p2p():
    with dask.config.set({"array.rechunk.method": "p2p"}):
        x = table()
        y = x.rechunk((4, 2))
        yield y.sum().compute(), A1.sum()
        yield y.max(axis=0).compute(), A1.max(axis=0)
        yield x.mean().compute(), A1.mean()


@kind(calls=4)
def transpose():
    x = table()
    yield x.T.sum(axis=0).compute(), A1.sum(axis=1)
    yield (x.T @ x).max().compute(), (A1.T @ A1).max()


@kind(calls=8)
def stack():
    several = [vector(), vector() * 2, da.from_array(V, chunks=3).map_blocks(slow, 5)]
    x = da.stack(several)
    want = np.stack([V1, 2 * V1, V + 5])
    yield x[0].sum().compute(), V1.sum()
    yield x.max(axis=0).compute(), want.max(axis=0)
    yield x[2].compute(), V + 5


@kind(calls=8)
def concatenate():
    u, v = vector(), da.from_array(V, chunks=3).map_blocks(slow, 5)
    x = da.concatenate([u, v])
    want = np.concatenate([V1, V + 5])
    yield u.sum().compute(), V1.sum()
    yield x.sum().compute(), want.sum()
    yield x[8:16].compute(), want[8:16]


@kind(calls=4)
def block():
    x = table()
    y = da.block([[x, x], [x, x * 0]])
    yield y.sum().compute(), 3 * A1.sum()
    yield y.max(axis=0).compute(), np.tile(A1.max(axis=0), 2)


@kind(calls=4)
def pad_roll_and_broadcast():
    x = vector()
    yield da.pad(x, 1).sum().compute(), V1.sum()
    yield da.roll(x, 2).compute(), np.roll(V1, 2)
    yield da.broadcast_to(x, (2, 12)).sum().compute(), 2 * V1.sum()


# -- linear algebra -------------------------------------------------------------------------

TALL = np.vander(np.linspace(0, 1, 8), 3)


def tall():
    return da.from_array(TALL - 1, chunks=(2, 3)).map_blocks(slow)


@kind(calls=4)
def qr():
    x = tall()
    q, r = da.linalg.qr(x)
    yield (q @ r).compute(), TALL
    yield abs(r).compute(), abs(np.linalg.qr(TALL)[1])
    yield x.sum().compute(), TALL.sum()


@kind(calls=4)
def svd():
    x = tall()
    _, s, _ = da.linalg.svd(x)
    want = np.linalg.svd(TALL, compute_uv=False)
    yield s.compute(), want
    yield s.max().compute(), want.max()
    yield x.mean().compute(), TALL.mean()


@kind(calls=4)
def svd_asked_for_while_a_future_of_it_lives():
    x = tall()
    _, s, _ = da.linalg.svd(x)
    want = np.linalg.svd(TALL, compute_uv=False)
    future = distributed.default_client().compute(s)
    yield future.result(), want
    yield s.max().compute(), want.max()
    yield x.mean().compute(), TALL.mean()


@kind(calls=4)
def norm():
    x = table()
    yield da.linalg.norm(x).compute(), np.linalg.norm(A1)
    yield da.linalg.norm(x, axis=1).compute(), np.linalg.norm(A1, axis=1)


@kind(calls=4)
def matmul():
    x = table()
    yield (x @ x.T).compute(), A1 @ A1.T
    yield (x.T @ x).sum().compute(), (A1.T @ A1).sum()
    yield x.dot(V[:6]).compute(), A1.dot(V[:6])


@kind(calls=4)
def tensordot():
    x = table()
    yield da.tensordot(x, x, axes=2).compute(), (A1 * A1).sum()
    yield da.einsum("ij,kj->ik", x, x).compute(), A1 @ A1.T


@kind(calls=4)
def fft():
    x = da.from_array(A, chunks=(1, 6)).map_blocks(slow)
    yield abs(da.fft.fft(x)).compute(), abs(np.fft.fft(A1))
    yield abs(da.fft.fft(x)).max().compute(), abs(np.fft.fft(A1)).max()


# -- reductions -----------------------------------------------------------------------------


@kind(calls=4)
def reductions():
    x = table()
    yield x.sum(axis=1).compute(), A1.sum(axis=1)
    yield x.var().compute(), A1.var()
    yield dask.compute(x.prod(), x.any(), da.median(x, axis=0)), (
        A1.prod(),
        True,
        np.median(A1, axis=0),
    )


@kind(calls=4)
def users_reduction():
    def chunk(block, axis, keepdims):
        return slow(block).sum(axis=axis, keepdims=keepdims)

    x = da.reduction(da.from_array(A, chunks=(2, 3)), chunk, np.sum, axis=1, dtype=A.dtype)
    yield x.compute(), A1.sum(axis=1)
    yield x.max().compute(), A1.sum(axis=1).max()


@kind(calls=4)
def arg_reductions():
    x = vector()
    yield x.argmax().compute(), 11
    yield x.argmin().compute(), 0
    yield abs(x - 6).argmin().compute(), 5


@kind(calls=4)
def cumulative_sums():
    x = vector()
    y = x.cumsum(axis=0)
    yield y.compute(), V1.cumsum()
    yield y[5].compute(), V1.cumsum()[5]
    yield da.cumprod(x, axis=0)[:4].compute(), V1.cumprod()[:4]


@kind(calls=4)
def topk():
    x = vector()
    yield x.topk(3).compute(), [12, 11, 10]
    yield x.argtopk(2).compute(), [11, 10]
    yield x.topk(-2).compute(), [1, 2]


@kind(calls=4)
def percentile():
    x = vector()
    yield da.percentile(x, [0, 100]).compute(), [1, 12]
    yield x.max().compute(), 12


@kind(calls=4)
def histogram():
    x = vector()
    yield da.histogram(x, bins=[1, 4, 13])[0].compute(), [3, 9]
    yield da.histogram(x, bins=4, range=(1, 13))[0].compute(), [3, 3, 3, 3]
    yield da.bincount(x.astype("i8"), minlength=13).compute(), [0, *[1] * 12]


@kind(calls=4)
def unique():
    x = vector() // 2
    yield da.unique(x).compute(), np.unique(V1 // 2)
    yield da.isin(x, [3]).sum().compute(), 2


@kind(calls=4)
def nonzero():
    x = vector()
    (where,) = da.nonzero(x > 6)
    yield where.compute(), np.nonzero(V1 > 6)[0]
    yield where.max().compute(), 11
    yield x.sum().compute(), V1.sum()


# -- parts ------------------------------------------------------------------------------------


@kind(calls=4)
def masks():
    x = vector()
    large = x[x > 6]
    yield large.compute(), V1[V1 > 6]
    yield large.sum().compute(), V1[V1 > 6].sum()
    yield da.compress(V1 > 10, x).compute(), [11, 12]


@kind(calls=4)
def slices():
    x = table()
    yield x[:2, :3].sum().compute(), A1[:2, :3].sum()
    yield x[::2, 1:5].compute(), A1[::2, 1:5]
    yield x[-1].compute(), A1[-1]


@kind(calls=2)
def slices_of_half_of_it():
    x = table()
    yield x[:2].sum().compute(), A1[:2].sum()
    yield x[1].compute(), A1[1]


@kind(calls=4)
def fancy_index():
    x = vector()
    yield x[[1, 8, 4]].compute(), V1[[1, 8, 4]]
    yield da.take(x, [0, 11]).compute(), [1, 12]
    yield x.vindex[[3, 10]].compute(), [4, 11]


@kind(calls=4)
def blocks():
    x = vector()
    yield x.blocks[1].compute(), V1[3:6]
    yield x.blocks[[0, 2]].sum().compute(), V1[:3].sum() + V1[6:9].sum()
    yield x.sum().compute(), V1.sum()


@kind(calls=4)
def where():
    x = vector()
    y = da.where(x > 6, x, 0)
    yield y.sum().compute(), V1[V1 > 6].sum()
    yield y.max().compute(), 12
    yield da.where(x < 3, 1, -x).compute(), np.where(V1 < 3, 1, -V1)


@kind(calls=4)
def assignment():
    x = vector()
    y = x.copy()
    y[y > 6] = 0
    yield y.sum().compute(), 21
    yield x.sum().compute(), V1.sum()
    yield y.max().compute(), 6


@kind(calls=4)
def searched_and_digitized():
    x = vector()
    yield da.digitize(x, np.array([4, 8])).compute(), np.digitize(V1, [4, 8])
    yield da.searchsorted(x, da.from_array(np.array([3.0])), side="left").compute(), [2]


# -- where arrays come from -------------------------------------------------------------------


@kind(calls=3)
def from_delayed():
    several = [da.from_delayed(pure(slow)(V + i), (12,), V.dtype) for i in range(3)]
    x = da.concatenate(several)
    yield x.sum().compute(), (V1 + np.arange(3)[:, None]).sum()
    yield x[:12].mean().compute(), V1.mean()
    yield several[2].compute(), V + 3


class Store:
    """A user's store: reading a part of it is slow."""

    shape, ndim, dtype = (12,), 1, V.dtype

    def __getitem__(self, index):
        return slow(V[index])


@kind(calls=4)
def from_a_users_store():
    x = da.from_array(Store(), chunks=3, meta=V[:0])
    yield x.sum().compute(), V1.sum()
    yield x.mean().compute(), V1.mean()
    yield x.max().compute(), 12


@kind(calls=2, todo="a barrier on a slice would have it load whole chunks", today=4)
def slices_of_a_users_store():
    x = da.from_array(Store(), chunks=3, meta=V[:0])
    y = x[1:5]
    yield y.sum().compute(), V1[1:5].sum()
    yield y.mean().compute(), V1[1:5].mean()


@kind(calls=4)
def function_on_a_users_store():
    class Quick(Store):
        def __getitem__(self, index):
            return V[index]

    x = da.from_array(Quick(), chunks=3, meta=V[:0]).map_blocks(slow)
    yield x.sum().compute(), V1.sum()
    yield x[:6].mean().compute(), V1[:6].mean()


@kind(calls=4)
def from_array_inlined():
    x = da.from_array(V, chunks=3, inline_array=True).map_blocks(slow)
    yield x.sum().compute(), V1.sum()
    yield x.mean().compute(), V1.mean()


@kind(calls=4)
def random_numbers_with_a_seed():
    def draw():
        return da.random.default_rng(7).normal(size=12, chunks=3)

    x, want = draw().map_blocks(slow), draw().compute(scheduler="sync") + 1
    yield x.sum().compute(), want.sum()
    yield x.std().compute(), want.std()


@kind(calls=8)
def made_anew_each_time():
    yield table().sum().compute(), A1.sum()
    yield table().sum().compute(), A1.sum()
    yield table().mean().compute(), A1.mean()
    yield table().max().compute(), 24


@kind(calls=4)
def to_delayed_and_back():
    x = vector()
    parts = [da.from_delayed(d, (3,), x.dtype) for d in x.to_delayed()]
    y = da.concatenate(parts)
    yield x.sum().compute(), V1.sum()
    yield y.sum().compute(), V1.sum()
    yield y.mean().compute(), V1.mean()


@kind(calls=4)
def masked():
    x = da.ma.masked_greater(vector(), 6)
    yield x.sum().compute(), 21
    yield x.mean().compute(), 3.5
    yield da.ma.filled(x, 0).max().compute(), 6


@kind(calls=4)
def structured():
    def record(block):
        out = np.zeros(block.shape, [("u", "f8"), ("v", "i8")])
        out["u"] = slow(block)
        out["v"] = 2
        return out

    x = da.from_array(V, chunks=3).map_blocks(record)
    yield x["u"].sum().compute(), V1.sum()
    yield x["v"].sum().compute(), 24
    yield x["u"].max().compute(), 12


@kind(calls=4)
def object_blocks():
    x = da.from_array(V, chunks=3).map_blocks(lambda b: slow(b).astype(object), dtype=object)
    yield x.sum().compute(), V1.sum()
    yield x.max().compute(), 12


# -- delayed ----------------------------------------------------------------------------------


@kind(calls=4)
def delayed_tree():
    leaves = [pure(slow_value)(i) for i in range(4)]
    left, right = pure(add)(*leaves[:2]), pure(add)(*leaves[2:])
    yield pure(add)(left, right).compute(), 10
    yield pure(max)(leaves).compute(), 4
    yield dask.compute(left, leaves[3]), (3, 4)


@kind(calls=4)
def delayed_chain():
    value = pure(slow_value)(0)
    middle = pure(slow_value)(pure(slow_value)(value))
    yield pure(slow_value)(middle).compute(), 4
    yield middle.compute(), 3
    yield pure(add)(value, middle).compute(), 4


def slow_pair(v):
    return slow_value(v), -v


@kind(calls=1)
def delayed_nout():
    u, v = pure(slow_pair, nout=2)(4)
    yield u.compute(), 5
    yield v.compute(), -4
    yield dask.compute(u, v, u + v), (5, -4, 1)


@kind(calls=1)
def delayed_attributes_and_items():
    value = pure(slow_value)(V)
    yield value[3].compute(), 4
    yield value.sum(pure=True).compute(), V1.sum()
    yield value.shape.compute(), (12,)


@kind(
    calls=5,
    todo="dask gives what a delayed function needs of collections random names",
    today=9,
)
def delayed_over_collections():
    x = vector()
    total = pure(slow_value)(x.sum())
    yield total.compute(), V1.sum() + 1
    yield pure(np.sum)(x).compute(), V1.sum()
    yield pure(add)(total, 1).compute(), V1.sum() + 2


@kind(calls=2)
def delayed_lists_and_dicts():
    u, v = pure(slow_value)(1), pure(slow_value)(2)
    yield pure(sum)([u, v, 1]).compute(), 6
    yield pure(dict)(a=u, b=[v]).compute(), {"a": 2, "b": [3]}
    yield dask.compute({"a": u}, [v]), ({"a": 2}, [3])


# -- bags -------------------------------------------------------------------------------------


@kind(calls=12)
def bag_map():
    b = numbers()
    yield b.sum().compute(), 78
    yield b.mean().compute(), 6.5
    yield b.take(2), (1, 2)


@kind(calls=12)
def bag_filter():
    b = numbers()
    even = b.filter(lambda v: v % 2 == 0)
    yield even.compute(), NUMBERS[1::2]
    yield even.count().compute(), 6
    yield b.remove(lambda v: v > 1).compute(), [1]


@kind(calls=12)
def bag_fold():
    b = numbers()
    yield b.fold(add).compute(), 78
    yield b.fold(max, initial=0).compute(), 12
    yield b.reduction(sum, max).compute(), 42


@kind(calls=12)
def bag_foldby():
    b = numbers()
    want = {0: 42, 1: 36}
    yield dict(b.foldby(lambda v: v % 2, add, 0, add, 0).compute()), want
    yield dict(b.foldby(lambda v: v % 2, max).compute()), {0: 12, 1: 11}


@kind(calls=12)
def bag_groupby():
    b = numbers()
    groups = b.groupby(lambda v: v % 2, shuffle="tasks")
    yield sorted((k, sorted(v)) for k, v in groups.compute()), [
        (0, NUMBERS[1::2]),
        (1, NUMBERS[::2]),
    ]
    yield sorted(groups.starmap(lambda k, v: sum(v)).compute()), [36, 42]
    yield b.max().compute(), 12


@kind(calls=12)
def bag_pluck():
    b = db.from_sequence(range(12), npartitions=3).map(lambda v: {"a": slow_value(v), "b": -v})
    yield b.pluck("a").sum().compute(), 78
    yield b.pluck("b").min().compute(), -11
    yield b.pluck("a").topk(2).compute(), [12, 11]


def slow_list(n):
    return [slow_value(n)] * 2


@kind(calls=3)
def bag_from_delayed():
    b = db.from_delayed([pure(slow_list)(i) for i in range(3)])
    yield b.sum().compute(), 12
    yield b.distinct().count().compute(), 3
    yield b.compute(), [1, 1, 2, 2, 3, 3]


@kind(calls=3)
def bag_map_partitions():
    b = db.from_sequence(range(12), npartitions=3).map_partitions(
        lambda part: [v + 1 for v in (count(), *part)[1:]]
    )
    yield b.sum().compute(), 78
    yield b.compute(), NUMBERS
    yield dict(b.frequencies().compute()), dict.fromkeys(NUMBERS, 1)


@kind(calls=12)
def bags_joined_and_zipped():
    b = numbers()
    yield db.zip(b, b.map(lambda v: -v)).starmap(add).sum().compute(), 0
    yield db.concat([b, b]).sum().compute(), 156
    yield sorted(b.product(db.from_sequence([1], npartitions=1)).pluck(0).compute()), NUMBERS
    yield b.accumulate(add).compute(), list(accumulate(NUMBERS))


@kind(calls=12)
def bag_to_frame():
    b = numbers().map(lambda v: {"a": v})
    df = b.to_dataframe(meta={"a": int})
    yield df.a.sum().compute(), 78
    yield df.a.max().compute(), 12


@kind(calls=12)
def bag_repartitioned_and_delayed():
    b = numbers()
    yield b.repartition(npartitions=1).sum().compute(), 78
    yield pure(sum)(b.to_delayed()[0]).compute(), 10
    yield b.random_sample(1, random_state=3).count().compute(), 12


# -- frames that come from elsewhere -------------------------------------------------------------


@kind(calls=3)
def frame_from_delayed():
    parts = [PDF.iloc[i : i + 4] for i in (0, 4, 8)]
    df = dd.from_delayed([pure(slow_frame)(part) for part in parts], meta=PDF)
    yield df.a.sum().compute(), 78
    yield df.groupby("k").a.sum().compute(), PDF1.groupby("k").a.sum()
    yield df.a.mean().compute(), 6.5


@kind(calls=4, todo="no barrier in the array inside of a dataframe expression", today=8)
def frame_from_array():
    x = vector()
    df = dd.from_dask_array(x, columns="a")
    yield df.sum().compute(), 78
    yield x.mean().compute(), 6.5
    yield df.max().compute(), 12


@kind(calls=3, todo="the expression is fused before its graph becomes an array's", today=6)
def frame_to_array():
    df = dd.from_pandas(PDF, npartitions=3).map_partitions(slow_frame, meta=PDF)
    x = df.a.to_dask_array(lengths=[4, 4, 4])
    yield x.sum().compute(), 78
    yield x.mean().compute(), 6.5
    yield df.k.max().compute(), 2


# -- ways to compute ------------------------------------------------------------------------------


@kind(
    calls=17,
    todo="dask gives what a delayed function needs of collections random names",
    today=33,
)
def mixture():
    # not array, bag, array: plain dask would give back the results in other places
    x, b, d = table(), numbers(), pure(slow_value)(5)
    yield dask.compute(x.sum(), b.sum(), d), (A1.sum(), 78, 6)
    yield dask.compute(x.mean(), d, b.max()), (A1.mean(), 6, 12)
    yield pure(lambda *args: sum(args))(x.max(), b.min(), d).compute(), 31


@kind(calls=8)
def several_arrays_at_once():
    x, y = table(), vector()
    yield dask.compute(x.sum(), y.sum(), x.max()), (A1.sum(), 78, 24)
    yield dask.compute(y.mean(), x), (6.5, A1)
    yield dask.compute([x.min(), {"y": y}])[0], [1, {"y": V1}]


@kind(calls=8, shares=False)
def persisted_together():
    x, y = dask.persist(table(), vector())
    yield x.sum().compute(), A1.sum()
    yield (y + 1).sum().compute(), 90
    yield x.rechunk((4, 6)).mean().compute(), A1.mean()


@kind(calls=8)
def persisted_after_a_question():
    x, y = table(), vector()
    yield dask.compute(x.sum(), y.sum()), (A1.sum(), 78)
    x, y = dask.persist(x, y)
    yield dask.compute(x.mean(), y.mean()), (A1.mean(), 6.5)
    del x, y
    yield table().std().compute(), A1.std()


@kind(calls=8)
def persisted_in_between():
    x = table()
    y = (x + 1).persist()
    yield y.sum().compute(), (A1 + 1).sum()
    z = y.map_blocks(slow)
    yield z.sum().compute(), (A1 + 2).sum()
    yield z.mean().compute(), (A1 + 2).mean()
    yield x.mean().compute(), A1.mean()


@kind(calls=4)
def unoptimized():
    x = table()
    yield x.sum().compute(optimize_graph=False), A1.sum()
    yield x.mean().compute(optimize_graph=False), A1.mean()
    yield x.std().compute(), A1.std()


@kind(calls=4)
def optimized_before():
    (x,) = dask.optimize(table())
    yield x.sum().compute(), A1.sum()
    yield x.mean().compute(), A1.mean()


@kind(calls=4)
def fusion_off():
    with dask.config.set({"optimization.fuse.active": False}):
        x = table()
        yield x.sum().compute(), A1.sum()
        yield x.mean().compute(), A1.mean()
        yield (x + 1)[:2].max().compute(), 13


@kind(
    calls=4,
    todo="dask gives what a delayed function needs of collections random names",
    today=8,
)
def futures_of_computations():
    client = distributed.default_client()
    x = table()
    yield client.compute(x.sum()).result(), A1.sum()
    yield client.compute([x.mean(), x.max()], sync=True), [A1.mean(), 24]
    yield client.gather(client.compute({"a": x.min()}))["a"], 1


@kind(calls=5)
def futures_in_delayed():
    future = distributed.default_client().compute(vector())
    value = pure(slow_value)(dask.delayed(future, pure=True))
    yield value.compute(), V + 2
    yield value.sum(pure=True).compute(), (V + 2).sum()
    yield pure(max)(value).compute(), 13


@kind(calls=8)
def futures_in_arrays():
    future = distributed.default_client().compute(vector())
    x = da.from_delayed(dask.delayed(future, pure=True), (12,), V.dtype)
    y = x.rechunk(3).map_blocks(slow)
    yield y.sum().compute(), 90
    yield y.mean().compute(), 7.5


@kind(calls=2)
def futures_of_pure_submits():
    client = distributed.default_client()
    future = client.submit(slow, V, pure=True)
    x = da.from_delayed(dask.delayed(future, pure=True), (12,), V.dtype)
    y = x.map_blocks(slow)
    yield y.sum().compute(), 90
    yield y.mean().compute(), 7.5
    yield client.submit(slow, V, pure=True).result(), V1


@kind(calls=1, todo="scattered data is not trusted", today=2)
def scattered_in_delayed():
    data = distributed.default_client().scatter(V, hash=True)
    value = pure(slow)(data)
    yield value.compute(), V1
    yield value.sum(pure=True).compute(), 78


@kind(calls=4, todo="scattered data is not trusted", today=8)
def scattered_in_arrays():
    three = distributed.default_client().scatter(V[:3], hash=True)
    x = da.from_array(V, chunks=3).map_blocks(slow, three, dtype=V.dtype, meta=V[:0])
    want = V + np.tile(V[:3], 4)
    yield x.sum().compute(), want.sum()
    yield x.mean().compute(), want.mean()


@kind(calls=4, todo="scattered data is not trusted", today=8)
def scattered_as_an_array():
    data = distributed.default_client().scatter(V, hash=True)
    x = da.from_delayed(dask.delayed(data, pure=True), (12,), V.dtype).rechunk(3).map_blocks(slow)
    yield x.sum().compute(), 78
    yield x.mean().compute(), 6.5


@kind(calls=4)
def stored_and_returned():
    x = vector()
    target = np.zeros(12)
    stored = da.store(x, target, return_stored=True, lock=False)
    yield stored.sum().compute(), 78
    yield target, V1
    yield x.mean().compute(), 6.5
    yield x.max().compute(), 12


@kind(calls=4)
def annotated():
    with dask.annotate(priority=3, retries=2):
        x = vector()
    yield x.sum().compute(), 78
    yield x.mean().compute(), 6.5
    with dask.annotate(allow_other_workers=True):
        yield x.max().compute(), 12


@kind(calls=4)
def retried():
    x = vector()
    yield x.sum().compute(retries=2), 78
    yield x.mean().compute(retries=2), 6.5
    yield x.max().compute(), 12


# -- xarray ---------------------------------------------------------------------------------------

DAYS = pd.date_range("2000-01-30", periods=4)


def lazy_array():
    return xr.DataArray(table(), dims=("t", "x"), coords={"t": DAYS, "x": range(6)}, name="u")


TRUTH = xr.DataArray(A1, dims=("t", "x"), coords={"t": DAYS, "x": range(6)}, name="u")


@kind(calls=4)
def data_array():
    u = lazy_array()
    yield u.mean("t").compute(), TRUTH.mean("t")
    yield u.isel(t=0).compute(), TRUTH.isel(t=0)
    yield (u - u.mean("x")).std().compute(), (TRUTH - TRUTH.mean("x")).std()


@kind(calls=120)
def dataset_of_many_variables():
    ds = xr.Dataset(
        {
            f"v{i}": ("x", da.from_array(np.full(2, float(i)), chunks=2).map_blocks(slow))
            for i in range(120)
        }
    )
    yield [float(v) for v in ds.sum().compute().values()], [2 * (i + 1.0) for i in range(120)]
    yield [float(v) for v in ds.mean().compute().values()], [i + 1.0 for i in range(120)]
    yield ds.isel(x=0).v7.values, 8


@kind(calls=4)
def dataset_loaded():
    ds = lazy_array().to_dataset()
    yield ds.u.sum().compute(), TRUTH.sum()
    yield ds.assign(w=ds.u * 2).w.max().compute(), 48
    yield ds.load().u, TRUTH


@kind(calls=4)
def xarray_groupby():
    u, months = lazy_array(), TRUTH.t.dt.month
    yield u.groupby(months).mean().compute(), TRUTH.groupby(months).mean()
    yield u.groupby(months).max(...).compute(), TRUTH.groupby(months).max(...)
    yield u.groupby("t.day").sum().compute(), TRUTH.groupby("t.day").sum()


@kind(calls=4)
def xarray_resample():
    u = lazy_array()
    yield u.resample(t="2D").mean().compute(), TRUTH.resample(t="2D").mean()
    yield u.resample(t="2D").sum().compute(), TRUTH.resample(t="2D").sum()


@kind(calls=4)
def xarray_weighted():
    u, weights = lazy_array(), xr.DataArray(np.arange(6.0), dims="x")
    yield u.weighted(weights).mean("x").compute(), TRUTH.weighted(weights).mean("x")
    yield u.weighted(weights).sum().compute(), TRUTH.weighted(weights).sum()


@kind(calls=4)
def xarray_rolling():
    u = lazy_array()
    yield u.rolling(t=2).mean().compute(), TRUTH.rolling(t=2).mean()
    yield u.rolling(x=3, center=True).max().compute(), TRUTH.rolling(x=3, center=True).max()
    yield u.coarsen(x=2).sum().compute(), TRUTH.coarsen(x=2).sum()


@kind(calls=4)
def xarray_apply_ufunc():
    u = lazy_array().copy(data=da.from_array(A, chunks=(2, 3)))
    v = xr.apply_ufunc(slow, u, dask="parallelized", output_dtypes=[A.dtype])
    yield v.sum().compute(), TRUTH.sum()
    yield v.mean("t").compute(), TRUTH.mean("t")


@kind(calls=2)
def xarray_apply_ufunc_core_dimension():
    u = lazy_array().copy(data=da.from_array(A, chunks=(2, 6)))
    v = xr.apply_ufunc(
        lambda a: slow(a).sum(axis=-1),
        u,
        input_core_dims=[["x"]],
        dask="parallelized",
        output_dtypes=[A.dtype],
    )
    yield v.compute(), TRUTH.sum("x")
    yield v.max().compute(), TRUTH.sum("x").max()


@kind(
    calls=4, todo="xarray's names say nothing of the function, so that nothing may be kept", today=8
)
def xarray_map_blocks():
    u = lazy_array().copy(data=da.from_array(A, chunks=(2, 3)))
    v = xr.map_blocks(slow, u, template=u)
    yield v.sum().compute(), TRUTH.sum()
    yield v.mean("t").compute(), TRUTH.mean("t")


@kind(calls=4)
def xarray_persisted():
    u = lazy_array()
    yield u.max().compute(), 24
    p = u.persist()
    yield p.sum("t").compute(), TRUTH.sum("t")
    yield u.chunk(x=6).min("x").compute(), TRUTH.min("x")


@kind(calls=8)
def xarray_joined():
    u = lazy_array()
    v = u.copy(data=da.from_array(A, chunks=(2, 3)).map_blocks(slow, 9))
    both = xr.concat([u, v], "run")
    want = xr.concat([TRUTH, TRUTH + 8], "run")
    yield both.mean("run").compute(), want.mean("run")
    yield both.isel(run=0, t=1).compute(), TRUTH.isel(t=1)
    yield xr.where(u > 9, u, v).max().compute(), 24


# -- other people's collections --------------------------------------------------------------------


class Theirs(DaskMethodsMixin):
    """A collection that implements what it must, and nothing else."""

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __init__(self, graph, keys):
        self.graph, self.keys = graph, keys

    def __dask_graph__(self):
        return self.graph

    def __dask_keys__(self):
        return self.keys

    def __dask_layers__(self):
        return self.keys[0][:1]

    def __dask_postcompute__(self):
        return list, ()

    def __dask_postpersist__(self):
        return lambda graph, *args, **kwargs: Theirs(graph, self.keys), ()

    def __dask_tokenize__(self):
        return self.keys


class TheirsOptimized(Theirs):
    """The same, with dask's optimization of arrays."""

    __dask_optimize__ = staticmethod(da.Array.__dask_optimize__)


def then(source, function):
    """What they do with each value."""
    name = f"{function.__name__}-{tokenize(source.keys, function)}"
    graph = {(name, i): (function, key) for i, key in enumerate(source.keys)}
    inputs = source.__dask_graph__()
    if isinstance(inputs, HighLevelGraph):
        graph = HighLevelGraph.from_collections(name, graph, dependencies=[source])
    else:
        graph = {**inputs, **graph}
    return type(source)(graph, [(name, i) for i in range(3)])


def negate(v):
    return -v


def double(v):
    return 2 * v


def ask_theirs(source):
    yield list(then(source, negate).compute()), [-1, -2, -3]
    yield list(then(source, double).compute()), [2, 4, 6]
    yield list(source.compute()), [1, 2, 3]
    yield list(dask.compute(then(then(source, double), negate))[0]), [-2, -4, -6]


def their_graph(kind):
    name = f"theirs-{tokenize('theirs')}"
    graph = {(name, i): (slow_value, i) for i in range(3)}
    return kind(graph, list(graph))


def their_layers(kind):
    source = their_graph(kind)
    name = source.keys[0][0]
    layers = HighLevelGraph.from_collections(name, source.graph, dependencies=[])
    return kind(layers, source.keys)


@kind(calls=3)
def their_low_level_graph():
    yield from ask_theirs(their_graph(Theirs))


@kind(
    calls=3, todo="the layer has another name than its keys, so that they get no barrier", today=12
)
def their_low_level_graph_optimized():
    yield from ask_theirs(their_graph(TheirsOptimized))


@kind(calls=3)
def their_high_level_graph():
    yield from ask_theirs(their_layers(Theirs))


@kind(calls=3)
def their_high_level_graph_optimized():
    yield from ask_theirs(their_layers(TheirsOptimized))


@kind(calls=3)
def their_collection_persisted():
    source = their_layers(Theirs)
    yield list(source.persist().compute()), [1, 2, 3]
    yield list(then(source, double).compute()), [2, 4, 6]


@kind(calls=3)
def client_get_of_a_graph():
    client = distributed.default_client()
    source = their_graph(Theirs)
    total = f"total-{tokenize(source.keys)}"
    yield client.get(source.graph, source.keys), [1, 2, 3]
    yield client.get({**source.graph, total: (sum, source.keys)}, total), 6
    yield client.get(source.graph, source.keys[0]), 1


class Pair:
    """Two collections in one, as xarray would be of expressions."""

    def __init__(self, *parts):
        self.parts = parts

    def __dask_exprs__(self):
        return [part.expr for part in self.parts]

    def __dask_rebuild_from_exprs__(self, exprs):
        return Pair(*(dd.from_expr(e) if hasattr(dd, "from_expr") else e for e in exprs))

    def __dask_graph__(self):
        return {k: v for part in self.parts for k, v in part.__dask_graph__().items()}

    def __dask_keys__(self):
        return [part.__dask_keys__() for part in self.parts]

    def __dask_postcompute__(self):
        return _concatenated, ()

    def __dask_tokenize__(self):
        return [part.expr for part in self.parts]

    __dask_scheduler__ = staticmethod(dask.threaded.get)


def _concatenated(parts):
    return [pd.concat(part) if isinstance(part[0], pd.Series) else part[0] for part in parts]


@kind(calls=3)
def composite_of_expressions():
    df = dd.from_pandas(PDF, npartitions=3).map_partitions(slow_frame, meta=PDF)
    (pair,) = dask.compute(Pair(df.a, df.a.sum()))
    yield pair[0].tolist(), V1.tolist()
    yield pair[1], 78
    (pair,) = dask.compute(Pair(df.k, df.a.max()))
    yield pair[1], 12
    yield df.a.mean().compute(), 6.5


# -- the tests ------------------------------------------------------------------------------


class ComputedAgain(AssertionError):
    """Values were right, but users' functions ran more often than they had to."""


def same(got: Any, want: Any) -> None:
    if isinstance(want, (xr.DataArray, xr.Dataset)):
        xr.testing.assert_allclose(got, want)
    elif isinstance(want, pd.Series):
        pd.testing.assert_series_equal(got.sort_index(), want, check_index_type=False)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, (list, tuple)) and not isinstance(got, np.ndarray):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
    elif isinstance(want, (int, float, list, np.ndarray, np.generic)):
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(np.asarray(got, dtype="f8"), want, atol=1e-12)
    else:
        assert got == want


def settle(client: distributed.Client) -> None:
    """Let a client tell its scheduler, before it asks again, what it needs no more."""
    for _ in range(2):
        client.sync(asyncio.sleep, 0)


def play(kind: Kind, client: distributed.Client) -> int:
    """Ask all questions; returns how often users' functions ran."""
    asked = 0
    for got, want in kind.ask():
        same(got, want)
        del got
        settle(client)
        asked += 1
    assert asked > 1
    return calls()


def _param(name: str, missing: bool) -> Any:
    k = KINDS[name]
    reason = f"{k.todo}: {k.today} calls, not {k.calls}"
    xfail = pytest.mark.xfail(raises=ComputedAgain, strict=True, reason=reason)
    return pytest.param(k, id=name, marks=[xfail] if k.todo and missing else [])


@pytest.mark.parametrize("kind", [_param(n, missing=True) for n in KINDS])
def test_shared_parts_are_computed_once(keen, kind, errors_of_ours):
    n = play(kind, keen)
    assert n >= kind.calls, "fewer than there are chunks"
    if n > kind.calls:
        if kind.todo:
            errors_of_ours.clear()
        assert n == (kind.today or n), "another count than was measured"
        raise ComputedAgain(f"{n} calls, not {kind.calls}")


@pytest.fixture(scope="module")
def plain():
    with distributed.Client(**INPROC) as client:
        yield client


@pytest.mark.parametrize("kind", [_param(n, missing=False) for n in KINDS])
def test_plain_client_computes_more(plain, kind):
    """The values are those of plain dask, and there is something to be saved."""
    n = play(kind, plain)
    assert n > kind.calls if kind.shares else n == kind.calls


def test_xarray_map_blocks_of_functions_of_one_name(keen):
    """Their keys are equal although their values are not: xarray names them after no code."""
    u = lazy_array().copy(data=da.from_array(A, chunks=(2, 3)))
    names = set()
    for factor in (2, 3, 2):
        v = xr.map_blocks(lambda part: part * factor, u, template=u)  # noqa: B023
        names.add(v.data.name)
        assert float(v.sum()) == factor * A.sum()
        assert v.data.sum().compute() == factor * A.sum()
        settle(keen)
    assert len(names) == 1, "this is no test any more"


#: What dask can do with arrays that are expressions.
EXPRESSIONS = (
    "map_blocks map_blocks_fork map_blocks_block_info map_blocks_block_id map_blocks_new_axis"
    " map_blocks_array_argument map_blocks_array_keyword map_blocks_drop_axis gufunc overlap"
    " map_blocks_other_chunks map_blocks_without_input blockwise_outer blockwise_concatenate"
    " gufunc_vectorized overlap_of_what_was_slow ufunc_of_a_python_function rechunk stack"
    " concatenate users_reduction slices slices_of_half_of_it from_a_users_store"
    " slices_of_a_users_store function_on_a_users_store from_array_inlined object_blocks"
    " delayed_over_collections several_arrays_at_once persisted_in_between"
    " optimized_before fusion_off futures_in_delayed annotated retried"
).split()


def test_arrays_that_are_expressions():
    """Whether arrays are expressions is settled when dask.array is imported."""
    environment = {**os.environ, "DASK_ARRAY__QUERY_PLANNING": "True"}
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, __file__, *EXPRESSIONS],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {name: KINDS[name].calls for name in EXPRESSIONS}


def main(names: list[str]) -> None:
    """Print how often users' functions run for some kinds."""
    settings = {**helpers.KEEN, "distributed.scheduler.validate": True}
    with dask.config.set(settings), cachingclient.Client(**INPROC) as client:
        told = {}
        for name in names:
            ran()
            told[name] = play(KINDS[name], client)
            client.cache.clear()
        helpers.validate(client)
    print(json.dumps(told))


def test_there_are_many_kinds():
    assert len(KINDS) >= 75


if __name__ == "__main__":
    assert da.array_expr_enabled()
    main(sys.argv[1:])
