"""What the shape of a graph, transfers, and living collections say of a result's worth."""

from __future__ import annotations

import gc
import time

import dask
import dask.array as da
import dask.dataframe as dd
import helpers
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster

from cachingclient import Client
from cachingclient.graph.departed import Departed
from cachingclient.policy import GroupPolicy
from cachingclient.policy.group import FIRST
from cachingclient.scheduler import shapes
from cachingclient.scheduler.living import Living

META = np.empty((0,))


def plugin_of(client):
    return client.cluster.scheduler.plugins["cachingclient"]


def add(block):
    helpers.count()
    return block + 1


def build(value, n=4):
    return da.full(n * 2, float(value), chunks=2).map_blocks(add, dtype="f8", meta=META)


# -- shuffles ------------------------------------------------------------------------


@pytest.fixture
def parts(keen, monkeypatch):
    """Numbers of keys that are worth something together, by the beginning of names."""
    found: dict = {}
    plain = shapes.Shapes.parts

    def parts(self, ts, name):
        n = plain(self, ts, name)
        found.setdefault(str(name).rsplit("-", 1)[0], set()).add(n)
        return n

    monkeypatch.setattr(shapes.Shapes, "parts", parts)
    return found


def test_outputs_of_a_shuffle_by_tasks_belong_together(keen, parts):
    frame = pd.DataFrame({"a": range(60), "b": range(60)})
    df = dd.from_pandas(frame, npartitions=6)
    shuffled = df.shuffle("a", shuffle_method="tasks")
    with dask.annotate(cache=True):
        assert len(shuffled.map_partitions(lambda x: x.assign(c=1)).compute()) == 60
    assert any(6 in numbers for numbers in parts.values())


def test_a_rechunk_that_cuts_all_inputs_into_all_outputs(keen, parts):
    x = da.ones((8, 8), chunks=(2, 8)).map_blocks(lambda b: b + 1)
    y = x.rechunk((8, 2), method="tasks")
    assert keen.persist(y).sum().compute() == 128
    print(parts)
    assert {n for name, found in parts.items() if name == "rechunk-merge" for n in found} == {4}
    assert {n for name, found in parts.items() if name != "rechunk-merge" for n in found} == {0}


def test_chunks_and_sums_stand_alone(keen, parts):
    x = build(1, n=40)
    assert (x.sum().compute(), x.mean().compute()) == (160, 2)
    assert x.cumsum(axis=0).sum().compute() > 0
    assert parts and {n for found in parts.values() for n in found} == {0}


# -- transfers -----------------------------------------------------------------------


class Scheduler:
    """As much of one as is looked at."""

    bandwidth = 100e6

    def __init__(self, *workers):
        self.workers = dict.fromkeys(workers)


def test_seconds_of_a_transfer():
    several = Scheduler("tcp://10.0.0.1:1", "tcp://10.0.0.2:1")
    assert shapes.transfer_seconds(several, 50_000_000) == 0.5
    assert shapes.transfer_seconds(Scheduler("tcp://10.0.0.1:1"), 10**9) == 0
    assert shapes.transfer_seconds(Scheduler(), 10**9) == 0
    assert shapes.transfer_seconds(Scheduler("tcp://10.0.0.1:1", "tcp://10.0.0.1:2"), 10**9) == 0
    here = Scheduler("inproc://10.0.0.1/1/1", "inproc://10.0.0.1/1/2")
    assert shapes.transfer_seconds(here, 10**9) == 0


def test_what_is_sooner_computed_than_sent_is_not_kept(monkeypatch):
    # As where each worker has a machine of its own.
    monkeypatch.setattr(shapes, "get_address_host", lambda address: address)
    settings = {**helpers.KEEN, "cachingclient.min-cost": "1us"}
    cluster = dict(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
    with dask.config.set(settings), LocalCluster(protocol="tcp", **cluster) as cluster:
        with Client(cluster) as client:
            cluster.scheduler.bandwidth = 1.0  # a byte a second
            x = build(1)
            client.persist(x).sum().compute()
            assert client.cache.entries("add") == []
            assert "longer to transfer" in plugin_of(client).books.refused[x.name]
            client.cache.pin(x)
            assert x.max().compute() == 2
            assert len(client.cache.entries("add")) == 1


# -- what is alive -------------------------------------------------------------------


def test_of_several_clients_one_that_needs_it_is_enough():
    living = Living(3)
    living.tell("a", {"x": True, "y": False})
    living.tell("b", {"x": False})
    assert (living.get("x"), living.get("y"), living.get("z")) == (True, False, None)
    living.tell("a", {"x": False})
    assert living.get("x") is False
    assert sorted(living.gone("a")) == ["x", "y"]
    assert (living.get("x"), living.get("y")) == (False, None)
    for i in range(5):
        living.tell("b", {i: True})
    assert living.get("x") is None and living.get(4) is True


def test_departed_layers_with_several_objects():
    class Layer:
        pass

    departed, first, second = Departed(), Layer(), Layer()
    departed.watch({"x": first})
    departed.watch({"x": second, "y": first})
    departed.watch({"x": second})
    del first
    assert departed.take() == ["y"]
    del second
    assert departed.take() == ["x"]
    departed.watch({"x": Layer()})
    departed.clear()
    assert departed.take() == []


def test_a_deleted_variable_makes_its_layer_worth_little(keen):
    plugin = plugin_of(keen)
    x, y = build(1), build(2)
    assert (x.sum().compute(), y.sum().compute()) == (16, 24)
    name = x.name
    (before,) = keen.cache.entries(name)
    assert before.alive is True
    del x
    gc.collect()
    helpers.forgotten(keen)
    assert y.max().compute() == 3  # tells
    (after,) = keen.cache.entries(name)
    assert after.alive is False and plugin.books.alive.get(y.name) is True
    assert after.score < 0.05 * before.score
    x = build(1)
    helpers.ran()
    assert x.max().compute() == 2 and helpers.ran() == 0
    assert keen.cache.entries(name)[0].alive is True


def test_what_a_client_needed_is_unknown_when_it_has_gone(keen):
    plugin = plugin_of(keen)
    with Client(keen.scheduler.address) as other:
        x = build(1)
        assert other.compute(x.sum(), sync=True) == 16
        assert plugin.books.alive.get(x.name) is True
    helpers.wait_until(lambda: plugin.books.alive.get(x.name) is None)
    assert keen.cache.entries(x.name)[0].alive is None


# -- the policy in the product ---------------------------------------------------------


@pytest.mark.parametrize("policy, kept", [("group", "dear"), ("cachey", "dear"), ("lru", "cheap")])
def test_the_configured_policy_decides(policy, kept):
    settings = {**helpers.KEEN, "cachingclient.policy": policy}
    with dask.config.set(settings):
        with Client(**{**helpers.INPROC, "n_workers": 1}, cache_limit=100_000) as client:
            ledger, arrays = plugin_of(client).ledger, {}
            for what, seconds in {"dear": 0.125, "cheap": 0.0}.items():
                x = da.full(8000, seconds, chunks=8000)
                arrays[what] = x.map_blocks(wait, dtype="f8", meta=META)
                assert arrays[what].sum().compute() == 8000 * seconds
            assert type(ledger.policy).__name__.lower() == f"{policy}policy"
            names = {e.name for e in client.cache.entries("wait")}
            assert names == {arrays[kept].name}


def wait(block):
    time.sleep(block[0])
    return block.copy()


def test_a_computation_of_the_same_request_counts_once_for_its_layer(keen):
    policy = plugin_of(keen).ledger.policy
    assert isinstance(policy, GroupPolicy)
    x = build(1, n=20)
    assert (x.sum().compute(), x.max().compute()) == (80, 2)
    # The first counts twice, as somebody holds it.
    requests = policy._groups[x.name].requests / policy._weight
    assert requests == pytest.approx(FIRST + 1, abs=0.1)
