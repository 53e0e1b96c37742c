"""What holding memory costs is weighed: large results that are soon made again are not kept."""

from __future__ import annotations

import time

import dask
import dask.array as da
import helpers
import numpy as np
import pytest

from cachingclient import Client
from cachingclient.admission import LARGE

META = np.empty((0,))
MB = 10**6
#: What is cheap counts too, where it is small.
CONFIG = {"cachingclient.min-cost": "0.1ms", "cachingclient.task-overhead": "0s"}


def slow(block, nbytes):
    helpers.count("slow")
    time.sleep(0.1)
    return np.ones(nbytes // 8)


def widened(block, nbytes):
    """Many bytes, in no time: the system gives them when they are written to."""
    return np.empty(nbytes // 8)


def blocks(x, function, nbytes, n=2):
    chunks = ((nbytes // 8,) * n,)
    return x.map_blocks(function, nbytes, dtype="f8", meta=META, chunks=chunks)


@pytest.fixture
def client():
    with dask.config.set(CONFIG), Client(**helpers.INPROC) as client:
        yield client
        helpers.validate(client)


def names_kept(client, layer):
    return [e.keys for e in client.cache.entries() if e.name == layer.name]


def length(block, times):
    return np.array([times * len(block)], dtype="f8")


def ask(x, times=1):
    """A question that is answered by numbers of the blocks."""
    answer = x.map_blocks(length, times, dtype="f8", meta=META, chunks=((1,) * x.numblocks[0],))
    assert answer.sum().compute() == times * x.size


def learn(*arrays):
    """Ask for each until its tasks are known to be worth tasks of their own."""
    for times in range(1, 4):
        for x in arrays:
            ask(x, times)


@pytest.mark.parametrize("nbytes, kept", [(400 * MB, False), (8000, True)])
def test_what_is_soon_made_from_what_is_kept(client, nbytes, kept):
    x = blocks(da.zeros(2, chunks=1), slow, 8000)
    y = blocks(x, widened, nbytes)
    z = blocks(y, widened, nbytes)  # after something that is not kept itself
    learn(x, y, z)
    assert names_kept(client, x) == [2]
    assert names_kept(client, y) == names_kept(client, z) == ([2] if kept else [])
    assert (LARGE in str(client.cache.explain(z))) is not kept
    helpers.ran()
    ask(z, 9)
    assert not helpers.calls("slow")


def test_what_is_large_and_slow_is_kept(client):
    x = blocks(da.zeros(2, chunks=1), slow, 40 * MB)
    learn(x)
    helpers.ran()
    ask(x, 9)
    assert helpers.ran() == 0
    assert names_kept(client, x) == [2]


def test_what_is_pinned_is_kept_whatever_it_takes(client):
    x = blocks(da.zeros(2, chunks=1), slow, 8000)
    y = blocks(x, widened, 400 * MB)
    client.cache.pin(y)
    learn(x, y)
    assert names_kept(client, y) == [2]


def test_earlier_runs_are_not_counted_again(client):
    """A worker that has what was made of a task still knows it, and tells of all its runs."""
    x = blocks(da.zeros(2, chunks=1), slow, 8000)
    y = blocks(x, slow, 8000)
    z = blocks(y, slow, 8000)
    learn(x, y, z)
    assert names_kept(client, z) == names_kept(client, y) == names_kept(client, x) == [2]
    client.sync(drop, client, y.name)
    helpers.ran()
    for times in range(10, 15):
        client.sync(drop, client, x.name)
        ask(x, times)
    # Two blocks of 0.1 s; all runs together took ten times as much.
    assert helpers.calls("slow") == 10
    (entry,) = (e for e in client.cache.entries() if e.name == x.name)
    assert 0.2 <= entry.seconds < 0.5


async def drop(client, name):
    """Let go of a layer, and of nothing that was made of it."""
    plugin = client.cluster.scheduler.plugins["cachingclient"]
    plugin.release.now([k for k in plugin.ledger.kept if k[0] == name])


def test_partial_sums_that_only_the_answer_needs_are_not_kept():
    """What all blocks below them have cost is no reason to."""
    with dask.config.set({"cachingclient.min-cost": "50ms"}), Client(**helpers.INPROC) as client:
        x = da.zeros(16, chunks=1).map_blocks(slow, 8, dtype="f8", meta=META)
        assert x.sum(split_every=8).compute() == 16
        names = {e.name.partition("-")[0] for e in client.cache.entries()}
        assert "sum" not in names and "finalize" in str(names), names
        row, *_ = (r for r in client.cache.explain(x.sum(split_every=8) + 1) if "partial" in r.name)
        assert "nothing that is held needs it" in str(row), row
