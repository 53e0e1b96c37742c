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
