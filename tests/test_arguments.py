"""What tasks give to functions decides, too, whether these are impure: seeds and objects."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from utils_graphs import judged

from cachingclient.tasks import Weakly

PDF = pd.DataFrame({"a": [1.0, 2.0]})
FRAME = PDF.assign(b=PDF.a)
META = ("b", float)
FLOAT = {"dtype": float}


def noise(x, seed=None, n=1):
    return x + n * np.random.default_rng(seed).normal()


def plain(x, seed=None, n=1):
    return x + n


def with_info(x, block_info=None, seed=None):
    return noise(x, seed)


def starred(x, *args, **kwargs):
    return noise(x, *args, **kwargs)


class Clock:
    def now(self, x):
        return x + time.time()

    def run(self, x):
        return self.now(x)

    def __dask_tokenize__(self):
        return type(self).__name__

    @property
    def stamp(self):
        return self.now(0)

    @property
    def zero(self):
        return 0

    @classmethod
    def made(cls, x):
        return cls().now(x)

    @staticmethod
    def still(x):
        return x + time.time()

    def quiet(self, x):
        return x + self.zero

    def drawn(self, x, seed=None):
        return noise(x, seed)

    def __add__(self, other):
        return other + time.time()


class Quiet(Clock):
    def now(self, x):
        return x

    def __add__(self, other):
        return other


class Seeded:
    def __init__(self, seed=None):
        self.numbers = np.random.default_rng(seed).normal(size=3)


class Outer:
    def __init__(self, clock):
        self.clock = clock
        self.functions = [clock.run]

    def __dask_tokenize__(self):
        return "Outer", self.clock


def array():
    return da.ones(2, chunks=2)


def frame():
    return dd.from_pandas(FRAME, npartitions=1)


def bag():
    return db.from_sequence([1.0, 2.0], npartitions=1)


SEEDED = {
    "map_blocks": lambda *a, **k: array().map_blocks(noise, *a, **FLOAT, **k),
    "info": lambda *a, **k: array().map_blocks(with_info, *(0 for _ in a), **FLOAT, **k),
    "starred": lambda *a, **k: array().map_blocks(starred, *a, **FLOAT, **k),
    "partial": lambda *a, **k: array().map_blocks(partial(noise, *a, **k), **FLOAT),
    "gufunc": lambda *a, **k: da.apply_gufunc(
        noise, "()->()", array(), *a, output_dtypes=float, **k
    ),
    "along": lambda *a, **k: da.apply_along_axis(noise, 0, array(), *a, shape=(2,), **FLOAT, **k),
    "vectorize": lambda *a, **k: array().map_blocks(
        np.vectorize(partial(noise, **k), otypes=[float]), *a, **FLOAT
    ),
    "bag": lambda *a, **k: bag().map(noise, *a, **k),
    "bag_chain": lambda *a, **k: bag().map(noise, *a, **k).map(abs).filter(bool).sum(),
    "map_partitions": lambda *a, **k: frame().map_partitions(noise, *a, meta=FRAME, **k),
    "apply": lambda *a, **k: frame().apply(noise, axis=1, args=a, meta=FRAME, **k),
    "series": lambda *a, **k: frame().a.apply(noise, args=a, meta=("a", float), **k),
    "grouped": lambda *a, **k: frame().groupby("a").b.transform(noise, *a, meta=META, **k),
    "delayed": lambda *a, **k: delayed(noise, pure=True)(1, *a, **k),
    "lazy": lambda *a, **k: delayed(noise, pure=True)(delayed(abs, pure=True)(1), *a, **k),
}


def denied(lazy):
    return any("seed" in why or "clock" in why for why in judged(lazy)[1].denied.values())


@pytest.mark.parametrize("how", SEEDED)
def test_seed_that_a_task_gives(how):
    build = SEEDED[how]
    assert denied(build())
    assert denied(build(seed=None))
    assert not denied(build(seed=3))
    if how not in ("info", "partial", "gufunc", "grouped"):
        assert not denied(build(3))


def test_plain_functions_need_no_seed():
    assert not denied(array().map_blocks(plain, **FLOAT))
    assert not denied(frame().map_partitions(plain, meta=FRAME))


def test_place_of_a_block_is_a_seed():
    def by_block(x, block_id=None):
        return x + np.random.default_rng(block_id).normal()

    assert not denied(array().map_blocks(by_block, **FLOAT))


def test_xarray():
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(array(), dims="x")
    for vectorize in (False, True):
        options = {"dask": "parallelized", "output_dtypes": [float], "vectorize": vectorize}
        assert denied(xr.apply_ufunc(noise, x, **options))
        assert not denied(xr.apply_ufunc(noise, x, kwargs={"seed": 3}, **options))


OBJECTS = {
    "method": lambda m: array().map_blocks(lambda b, m: m.run(b), m, **FLOAT),
    "keyword": lambda m: array().map_blocks(lambda b, m=None: m.run(b), m=m, **FLOAT),
    "property": lambda m: array().map_blocks(lambda b, m: b + m.stamp, m, **FLOAT),
    "classmethod": lambda m: array().map_blocks(lambda b, m: m.made(b), m, **FLOAT),
    "operator": lambda m: array().map_blocks(lambda b, m: m + b, m, **FLOAT),
    "nested": lambda m: array().map_blocks(lambda b, o: o.clock.run(b), Outer(m), **FLOAT),
    "listed": lambda m: array().map_blocks(lambda b, o: o.functions[0](b), Outer(m), **FLOAT),
    "namespace": lambda m: array().map_blocks(
        lambda b, s: s.run(b), SimpleNamespace(run=m.run), **FLOAT
    ),
    "bound": lambda m: array().map_blocks(m.run, **FLOAT),
    "comprehension": lambda m: delayed(lambda ms: [m.run(1) for m in ms], pure=True)([m]),
    "delayed": lambda m: delayed(m, pure=True).run(1, pure=True),
    "lazy": lambda m: delayed(lambda m: m.run(1), pure=True)(delayed(m, pure=True)),
    "attribute": lambda m: delayed(m, pure=True).stamp,
}


@pytest.mark.parametrize("how", OBJECTS)
def test_objects_that_a_task_gives(how):
    assert denied(OBJECTS[how](Clock()))
    assert not denied(OBJECTS[how](Quiet()))


def test_other_methods_of_an_object_do_not_count():
    assert denied(array().map_blocks(lambda b, m: m.still(b), Clock(), **FLOAT))
    assert not denied(array().map_blocks(lambda b, m: m.quiet(b), Quiet(), **FLOAT))
    assert not denied(array().map_blocks(lambda b, m: m.drawn(b, seed=3), Quiet(), **FLOAT))
    assert denied(array().map_blocks(lambda b, m: m.drawn(b), Quiet(), **FLOAT))
    assert not denied(delayed(Clock(), pure=True).quiet(1, pure=True))


def test_classes_that_are_handed_on_need_no_seed():
    assert not denied(array().map_blocks(lambda b, kind: b, Seeded, **FLOAT))
    assert denied(delayed(Seeded, pure=True)())
    assert not denied(delayed(Seeded, pure=True)(3))


def test_methods_are_held_as_long_as_their_objects():
    clock = Clock()
    held = Weakly([clock.run])
    assert [method(1) > 1 for method in held] == [True]
    del clock
    assert not list(held)


def test_large_graphs_are_judged_as_fast_as_before():
    """One look for all objects of a kind, and for all that is given alike."""
    from cachingclient.inspection.impure import _impurity

    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, x):
            return self.factor * x

    parts = [delayed(lambda s, x: s.apply(x), pure=True)(Scale(i), i) for i in range(100)]
    parts += [delayed(noise, pure=True)(1, seed=i) for i in range(100)]
    before = len(_impurity.entries)
    with dask.config.set({"cachingclient.min-cost": 0}):
        assert not denied(delayed(sum, pure=True)(parts))
    # the lambdas are a hundred functions
    assert len(_impurity.entries) <= before + 105
