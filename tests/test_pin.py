"""What is pinned is kept when it is computed next, and not evicted."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import dask.bag as db
import helpers
import numpy as np
import pytest
from helpers import ran

from cachingclient import Client
from cachingclient.ledger import Ledger
from cachingclient.policy import CacheyPolicy

META = np.empty((0,))
BLOCKS, SIZE = 4, 1000


def user(block):
    helpers.count()
    return block + 1


def build(value=0.0, blocks=BLOCKS):
    x = da.full(blocks * SIZE, value, chunks=SIZE)
    return x.map_blocks(user, dtype="f8", meta=META)


@pytest.fixture
def client():
    """A client with room for two of these arrays."""
    with Client(**helpers.INPROC, cache_limit=2 * BLOCKS * SIZE * 8 + 1000) as client:
        yield client
        helpers.validate(client)


def kept(client, x):
    return sum(e.keys for e in client.cache.entries(x.name))


def test_what_is_pinned_is_kept_although_it_is_cheap(client):
    with dask.config.set({"cachingclient.min-cost": "10s"}), Client(**helpers.INPROC) as keeps_none:
        x = build()
        keeps_none.cache.pin(x)
        assert (x.sum().compute(), ran()) == (BLOCKS * SIZE, BLOCKS)
        assert (x.max().compute(), ran()) == (1, 0)
        assert kept(keeps_none, x) == BLOCKS


def test_it_is_not_evicted(client):
    x = build()
    client.cache.pin(x)
    assert x.sum().compute() == BLOCKS * SIZE
    for value in range(1, 6):
        y = build(float(value))
        client.cache.unpin(y)  # of what was never pinned
        assert y.max().compute() == value + 1
        assert client.cache.info().currsize <= client.cache.info().maxsize
    ran()
    assert (x.mean().compute(), ran()) == (1, 0)


def part(frame):
    helpers.count()
    return frame.assign(z=frame.b * 2)


@pytest.mark.parametrize("column", [None, "z"])
def test_dataframes(column, client, tmp_path):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    for i in range(3):
        pd.DataFrame({"b": range(20)}).to_csv(tmp_path / f"{i}.csv", index=False)
    df = dd.read_csv(str(tmp_path / "*.csv")).map_partitions(part)
    ran()
    with dask.config.set({"cachingclient.min-cost": "10s"}), Client(**helpers.INPROC) as client:
        pinned = df if column is None else df[column]
        client.cache.pin(pinned)
        assert (df.z.sum().compute(), ran()) == (1140, 3)
        assert (df.z.max().compute(), ran()) == (38, 0)
        assert any(e.pinned for e in client.cache.entries())
        client.cache.unpin(pinned)
        assert not any(e.pinned for e in client.cache.entries())


def test_unpinned_it_is_as_all_others(client):
    x = build()
    client.cache.pin(x)
    assert x.sum().compute() == BLOCKS * SIZE
    client.cache.unpin(x)
    client.cache.resize(1000)
    assert kept(client, x) == 0


def test_a_lower_limit_leaves_what_is_pinned(client):
    x = build()
    client.cache.pin(x)
    assert x.sum().compute() == BLOCKS * SIZE
    client.cache.resize(1000)
    assert kept(client, x) == BLOCKS
    client.cache.unpin(x)
    assert client.cache.info().currsize <= 1000


def test_a_limit_of_nothing_switches_the_cache_off_and_on_again(client):
    x = build()
    client.cache.pin(x)
    assert x.sum().compute() == BLOCKS * SIZE
    maxsize = client.cache.info().maxsize
    client.cache.resize(0)
    assert (client.cache.info().currsize, kept(client, x)) == (0, 0)
    client.cache.resize(maxsize)
    assert x.max().compute() == 1
    assert kept(client, x) == BLOCKS


def test_clear_lets_it_go_and_it_is_kept_again(client):
    x = build()
    client.cache.pin(x)
    assert (x.sum().compute(), ran()) == (BLOCKS * SIZE, BLOCKS)
    client.cache.clear()
    assert kept(client, x) == 0
    assert (x.max().compute(), ran()) == (1, BLOCKS)
    assert kept(client, x) == BLOCKS


def test_what_is_known_to_be_too_large_is_refused_and_nothing_is_changed(client):
    large = build(blocks=3 * BLOCKS)
    with pytest.raises(ValueError, match="collection has .* limit is .*"):
        client.cache.pin(large)
    assert client.run_on_scheduler(pinned) == []


def pinned(dask_scheduler):
    return sorted(dask_scheduler.plugins["cachingclient"].books.pinned)


def test_what_turns_out_too_large_is_kept_as_far_as_it_fits(client):
    bag = db.from_sequence(range(8), npartitions=8).map_partitions(grow)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.cache.pin(bag)
        assert bag.count().compute() == 8 * 400
        helpers.wait_until(lambda: any("pinned" in str(w.message) for w in caught))
    assert len([w for w in caught if "pinned" in str(w.message)]) == 1
    info = client.cache.info()
    assert 0 < kept(client, bag) < 8 and info.currsize <= info.maxsize


def grow(partition):
    return [float(i) for i in range(400) for _ in partition]


@pytest.mark.parametrize("what", [None, 7, "slow"])
def test_what_is_no_collection_is_refused(client, what):
    with pytest.raises(TypeError, match="collection must be a dask collection"):
        client.cache.pin(what)
    with pytest.raises(TypeError, match="collection must be a dask collection"):
        client.cache.unpin(what)


def test_impure_is_impure(client):
    x = da.zeros(4, chunks=1).map_blocks(lambda b: b + np.random.random(), dtype="f8", meta=META)
    client.cache.pin(x)
    assert x.sum().compute() != x.sum().compute()
    assert kept(client, x) == 0


def test_running_work_takes_what_is_pinned_last():
    ledger = Ledger(CacheyPolicy(halflife=100), 1000)
    ledger.pinned = {"a"}
    for name in "abc":
        assert ledger.offer(name, name, paid={"a": 0.1}.get(name, 1.0), nbytes=100)[0]
    assert ledger.relieve(["a", "b", "c"], 150) == ["b", "c"]
    assert ledger.relieve(["a"], 50) == ["a"]


def test_what_is_pinned_makes_room_for_itself():
    ledger = Ledger(CacheyPolicy(halflife=100), 100)
    ledger.pinned = {"a", "c"}
    assert ledger.offer("b", "b", paid=9.0, nbytes=100) == (True, [])
    assert ledger.offer("a", "a", paid=0.1, nbytes=60) == (True, ["b"])
    assert ledger.offer("b", "b", paid=9.0, nbytes=100) == (False, [])
    assert ledger.offer("c", "c", paid=9.0, nbytes=60) == (False, [])
