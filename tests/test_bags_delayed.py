"""Inputs that bags and delayed values share are computed once, if they are pure."""

from __future__ import annotations

import time

import dask
import dask.bag as db
import pytest
from helpers import calls, count, forgotten, ran, started, watch


def slow(v):
    count()
    time.sleep(0.005)
    return v + 1


def load(v):
    count("load")
    time.sleep(0.05)
    return v * 10


def add(*values):
    time.sleep(0.01)
    return sum(values)


def build():
    return db.from_sequence(range(40), npartitions=4).map(slow)


def test_bag_is_mapped_once(client):
    b = build()
    assert b.sum().compute() == 820
    assert b.max().compute() == 40
    assert b.mean().compute() == 20.5
    assert b.std().compute() == pytest.approx(11.543396)
    assert ran() == 40
    assert b.filter(lambda v: v % 2).count().compute() == 20
    assert dict(b.frequencies().compute()) == dict.fromkeys(range(1, 41), 1)
    assert b.take(3) == (1, 2, 3)
    assert b.compute() == list(range(1, 41))
    assert list(b.topk(2).compute()) == [40, 39]
    assert ran() == 0


def test_bag_built_anew(client):
    b = build()
    assert b.sum().compute() == 820
    del b
    assert build().sum().compute() == 820
    assert build().min().compute() == 1
    assert ran() == 40


def test_bag_starmap_and_fold(client):
    b = build()
    total = b.map(lambda v: (v, v)).starmap(lambda u, v: u * v).sum().compute()
    assert total == sum(v * v for v in range(1, 41))
    assert b.fold(lambda u, v: max(u, v)).compute() == 40
    assert b.distinct().count().compute() == 40
    assert ran() == 40


def test_repeat_of_a_bag_runs_nothing(client):
    b = build()
    assert b.sum().compute() == 820
    forgotten(client)
    watch(client)
    assert b.sum().compute() == 820
    assert started == []


def test_bags_at_once(client):
    b = build()
    assert dask.compute(b.sum(), b.max(), b.count()) == (820, 40, 40)
    assert b.min().compute() == 1
    assert ran() == 40


def test_bag_disabled(client):
    b = build()
    assert b.sum().compute() == 820
    assert b.max().compute() == 40
    forgotten(client)
    assert ran() == 40
    with client.cache.disabled():
        assert b.sum().compute() == 820
    assert ran() == 40


def test_delayed_of_one_input(client):
    pure, plus = dask.delayed(load, pure=True), dask.delayed(add, pure=True)
    shared = pure(7)
    assert plus(shared, 1).compute() == 71
    assert plus(shared, 2).compute() == 72
    assert shared.compute() == 70
    assert ran() == 1


def test_delayed_built_anew(client):
    pure, plus = dask.delayed(load, pure=True), dask.delayed(add, pure=True)
    assert pure(7).compute() == 70
    forgotten(client)
    assert plus(pure(7), 1).compute() == 71
    assert pure(7).compute() == 70
    assert ran() == 1


def test_delayed_overlapping_sets(client):
    pure, plus = dask.delayed(load, pure=True), dask.delayed(add, pure=True)
    days = [pure(i) for i in range(5)]
    assert dask.compute(*days) == (0, 10, 20, 30, 40)
    assert dask.compute(*days[1:3]) == (10, 20)
    assert plus(*days[2:4]).compute() == 50
    assert plus(plus(days[0], days[4]), days[1]).compute() == 50
    assert ran() == 5


def test_repeat_of_delayed_runs_nothing(client):
    total = dask.delayed(add, pure=True)(*[dask.delayed(load, pure=True)(i) for i in range(4)])
    assert total.compute() == 60
    forgotten(client)
    watch(client)
    assert total.compute() == 60
    assert started == []
    assert ran() == 4


def test_delayed_without_a_word_runs_each_time(client):
    value = dask.delayed(load)(8)
    for _ in range(3):
        assert value.compute() == 80
        forgotten(client)
    assert ran() == 3


def test_what_depends_on_it_runs_each_time(client):
    value = dask.delayed(slow, pure=True)(dask.delayed(load)(8))
    for _ in range(3):
        assert value.compute() == 81
        forgotten(client)
    assert (calls("slow"), calls("load")) == (3, 3)


def test_pure_below_impure_is_kept(client):
    shared = dask.delayed(load, pure=True)(8)
    value = dask.delayed(slow)(shared)
    for _ in range(3):
        assert value.compute() == 81
        forgotten(client)
    assert calls("slow") == 3
    assert shared.compute() == 80
    # Not named by anything that is alive without the impure step, until it is asked for itself.
    assert calls("load") <= 2
    ran()
    assert dask.delayed(slow)(shared).compute() == 81
    assert (calls("slow"), calls("load")) == (1, 0)


def test_delayed_unoptimized(client):
    value = dask.delayed(slow, pure=True)(dask.delayed(load, pure=True)(3))
    assert value.compute(optimize_graph=False) == 31
    forgotten(client)
    assert value.compute() == 31
    assert (calls("slow"), calls("load")) == (1, 1)
