"""Layers with too many chunks to be made visible at first sight are, once it is known to pay."""

from __future__ import annotations

import time

import dask
import dask.array as da
import helpers
import numpy as np
import pytest
from helpers import ran

from cachingclient import Client

META = np.empty((0,))
N = 20


@pytest.fixture
def client():
    """A client that may make ten layers' keys visible at first sight, not twenty."""
    settings = {
        "cachingclient.first-sight-overhead": "100ms",
        "cachingclient.task-overhead": "10ms",
    }
    with dask.config.set({"cachingclient.min-cost": "0s", **settings}):
        with Client(**helpers.INPROC) as client:
            yield client
            helpers.validate(client)


def slow(block):
    time.sleep(0.04)
    helpers.count()
    return block + 1


def quick(block):
    helpers.count()
    return block + 1


def build(function, value=0.0):
    return da.full(N, value, chunks=1).map_blocks(function, dtype="f8", meta=META)


def test_third_question_reuses_what_is_slow(client):
    x = build(slow)
    assert (x.sum().compute(), ran()) == (N, N)
    assert (x.mean().compute(), ran()) == (1, N)
    assert (x.std().compute(), ran()) == (0, 0)


def test_first_sight_of_a_known_function_is_not_blind(client):
    x = build(slow)
    assert (x.sum().compute(), ran()) == (N, N)
    y = build(slow, 1.0)
    assert (y.sum().compute(), ran()) == (2 * N, N)
    assert (y.mean().compute(), ran()) == (2, 0)


def test_what_is_quick_is_not_split(client):
    x = build(quick)
    for _ in range(2):
        assert (x.sum().compute(), x.mean().compute(), x.std().compute()) == (N, 1, 0)
    assert client.cache.entries("quick") == []


QUESTIONS = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "further": lambda x: (x * 2 + 1).max(),
    "itself": lambda x: x,
    "window": lambda x: x[5:],
    "reshaped": lambda x: x.reshape(4, 5).T.std(axis=0),
}
ORDERS = [
    ("sum", "mean", "further"),
    ("further", "sum", "itself"),
    ("reshaped", "window", "sum"),
    ("window", "further", "reshaped"),
    ("itself", "mean", "window"),
    ("mean", "itself", "sum"),
]


def ask(question, get):
    """The answer, compared with numpy's, and how many calls it took."""
    lazy = QUESTIONS[question](get())
    answer, calls = lazy.compute(), ran()
    if question == "reshaped":
        want = np.zeros(4)
    else:
        want = QUESTIONS[question](np.ones(N))
    assert np.allclose(answer, want)
    return calls


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_whatever_the_order(client, order):
    x = build(slow)
    calls = [ask(question, lambda: x) for question in order]
    assert calls[2] <= (5 if "window" in order[:2] and "itself" not in order[:2] else 0)
    assert sum(calls) <= 2 * N


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_whether_or_not_anything_is_kept_in_variables(client, order):
    calls = [ask(question, lambda: build(slow)) for question in order]
    assert calls[2] <= (5 if "window" in order[:2] and "itself" not in order[:2] else 0)
    assert sum(calls) <= 2 * N


def test_steps_in_between(client):
    """Each step adds to the one before, and all are asked about."""

    def study():
        x = build(slow)
        y = (x + 1).map_blocks(slow, dtype="f8", meta=META)
        return [x.sum(), y.sum(), y.mean(), (y * 2).max(), x.max()]

    for _ in range(2):
        assert [float(q.compute()) for q in study()] == [20, 60, 3, 6, 1]
    ran()
    assert float(study()[2].compute()) == 3
    lazy = build(slow)
    both = (lazy + 1).map_blocks(slow, dtype="f8", meta=META)
    assert (float(both.std().compute()), float(lazy.std().compute())) == (0, 0)
    assert ran() == 0
