"""The plugin beside a real scheduler."""

from __future__ import annotations

import dask
import dask.array as da
import helpers
import numpy as np
import pytest
from distributed import LocalCluster

from cachingclient import CachePlugin, Client
from cachingclient.config import read_settings

META = np.empty((0,))


def slow(block):
    helpers.count()
    return block + 1


def build(value=0.0, n=4, size=2):
    return da.full(n * size, value, chunks=size).map_blocks(slow, dtype="f8", meta=META)


def scheduler_of(client):
    return client.cluster.scheduler


def plugin_of(client):
    return scheduler_of(client).plugins["cachingclient"]


def nothing_is_held(client):
    scheduler, plugin = scheduler_of(client), plugin_of(client)
    return not (
        plugin.holder.client.wants_what
        or plugin.ledger.kept
        or plugin.ledger.currsize
        or scheduler.tasks
    )


def test_clear_lets_everything_go(keen):
    assert build().sum().compute() == 8
    assert keen.cache.info().keys > 4
    keen.cache.clear()
    helpers.forgotten(keen)
    helpers.wait_until(lambda: nothing_is_held(keen))
    assert not any(keen.has_what().values())
    assert keen.cache.info().evictions == 0


def test_clear_of_a_prefix_and_of_a_collection(keen):
    x, y = build(1.0), build(2.0)
    assert (x.sum().compute(), y.sum().compute()) == (16, 24)
    helpers.ran()
    keen.cache.clear(x)
    assert {e.name for e in keen.cache.entries("slow")} == {y.name}
    keen.cache.clear(y.name[:20])
    assert keen.cache.entries("slow") == []
    assert x.max().compute() == 2
    assert helpers.ran() == 4


def test_entries(keen):
    x = build(size=100)
    assert x.sum().compute() == 400
    assert x.max().compute() == 1
    (entry,) = keen.cache.entries(x.name)
    assert entry.keys == entry.total == 4
    assert entry.nbytes == 4 * 800
    assert entry.hits == 4
    assert entry.seconds > 0 and entry.score > 0
    assert entry.alive is True
    assert set(entry.workers) <= set(keen.scheduler_info(n_workers=-1)["workers"])
    scores = [e.score for e in keen.cache.entries()]
    assert scores == sorted(scores, reverse=True)


def test_looking_changes_no_score(keen):
    assert build().sum().compute() == 8
    before = keen.cache.entries()
    keen.cache.info()
    assert keen.cache.entries() == before


def test_info_counts(keen):
    x = build()
    before = keen.cache.info()
    assert x.sum().compute() == 8
    first = keen.cache.info()
    assert (first - before).misses >= 4
    assert x.mean().compute() == 1
    second = keen.cache.info() - first
    assert second.hits == 4
    assert second.skipped >= 4
    assert second.saved > 0
    middle = keen.cache.info()
    assert x.mean().compute() == 1
    repeat = keen.cache.info() - middle
    assert (repeat.hits, repeat.misses) == (1, 0)
    assert repeat.skipped > 1
    assert keen.cache.info().recomputed == 0
    keen.cache.clear()
    helpers.forgotten(keen)
    helpers.wait_until(lambda: nothing_is_held(keen))
    assert x.sum().compute() == 8
    assert keen.cache.info().recomputed > 0


def test_limit_is_kept():
    with dask.config.set(helpers.KEEN):
        with Client(**helpers.INPROC, cache_limit=50_000) as client:
            for value in range(8):
                assert build(float(value), size=500).sum().compute() == 2000 * (value + 1)
                info = client.cache.info()
                assert 0 < info.currsize <= info.maxsize == 50_000
            helpers.forgotten(client)
            wanted = plugin_of(client).holder.client.wants_what
            helpers.wait_until(lambda: len(wanted) == client.cache.info().keys)
            assert client.cache.info().evictions > 0
            helpers.validate(client)


def test_resize(keen):
    assert build(size=500).sum().compute() == 2000
    keen.cache.resize("10 kB")
    info = keen.cache.info()
    assert info.maxsize == 10_000 and info.currsize <= 10_000
    with pytest.raises(ValueError, match="limit"):
        keen.cache.resize("lots")


def test_cheap_work_is_not_kept(client):
    assert build(n=1).sum().compute() == 2
    assert client.cache.entries("slow") == []


def test_a_value_that_cannot_be_read_twice_taints_what_follows(keen):
    source = dask.delayed(iter, pure=True)([1, 2])
    total = dask.delayed(sum, pure=True)(source)
    assert total.compute() == 3
    helpers.forgotten(keen)
    assert total.compute() == 3
    assert keen.cache.info().keys == 0


def flaky(block):
    helpers.count("flaky")
    if helpers.calls("flaky") == 1:
        raise ValueError("the first time")
    return block + 1


def test_what_was_retried_is_not_kept_nor_what_follows(keen):
    x = da.zeros(2, chunks=2).map_blocks(flaky, dtype="f8", meta=META)
    assert keen.compute(x.sum(), retries=2).result() == 2
    assert x.mean().compute() == 1
    assert helpers.ran() == 3


def test_what_failed_before_it_worked_runs_again(keen):
    for calls in (2, 3):  # it fails once
        future = keen.submit(flaky, 1, pure=True, retries=2)
        follower = keen.submit(abs, future, pure=True)
        assert follower.result() == 2
        assert helpers.calls("flaky") == calls
        del future, follower
        helpers.forgotten(keen)
        assert keen.cache.info().keys == (0 if calls == 2 else 2)  # then it had not failed


def test_none_is_not_kept(keen):
    nothing = dask.delayed(lambda v: helpers.count(), pure=True)(1)
    follower = dask.delayed(lambda v: (helpers.count(), 1)[1], pure=True)(nothing)
    for turn in range(2):
        assert follower.compute() == 1
        helpers.forgotten(keen)
    assert helpers.ran() == 4


@pytest.fixture
def doomed():
    """A client whose cache will be switched off."""
    with dask.config.set(helpers.KEEN):
        with Client(**helpers.INPROC) as client:
            yield client
            scheduler_of(client).validate_state()


def test_error_in_a_hook_switches_off_and_the_computation_goes_on(doomed, errors_of_ours):
    keen = doomed
    assert build().sum().compute() == 8
    plugin = plugin_of(keen)

    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    plugin.ledger.ran = fail
    assert build(5.0).sum().compute() == 48
    assert plugin.off
    assert len(errors_of_ours) == 1 and "switched off" in errors_of_ours[0]
    errors_of_ours.clear()
    assert build(5.0).mean().compute() == 6
    assert keen.submit(sum, [1, 2], pure=True).result() == 3
    helpers.forgotten(keen)
    helpers.wait_until(lambda: not scheduler_of(keen).tasks)
    assert errors_of_ours == []


def test_error_while_rewriting_sends_the_plain_graph(keen, monkeypatch, errors_of_ours):
    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    monkeypatch.setattr("cachingclient.sending.make_plan", fail)
    with pytest.warns(UserWarning, match="RuntimeError: ours") as warned:
        assert build().sum().compute() == 8
        assert build().mean().compute() == 1
    assert len([w for w in warned if "ours" in str(w.message)]) == 1
    errors_of_ours.clear()


def test_error_while_pruning_sends_the_plain_graph(keen, monkeypatch, errors_of_ours):
    x = build()
    assert x.sum().compute() == 8

    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    monkeypatch.setattr("cachingclient.graph.envelope.prune_tasks", fail)
    assert x.mean().compute() == 1
    assert any("could not be pruned" in m for m in errors_of_ours)
    errors_of_ours.clear()


def test_second_registration_takes_over(keen):
    assert build().sum().compute() == 8
    old = plugin_of(keen)
    with dask.config.set({"cachingclient.cache-limit": "1 MiB"}):
        plugin = CachePlugin(read_settings())
    keen.register_plugin(plugin)
    new = plugin_of(keen)
    assert new is not old and old.off
    assert keen.cache.info().maxsize == 2**20
    assert build().mean().compute() == 1
    helpers.validate(keen)


def test_two_clusters_in_one_process(keen):
    x = build()
    assert x.sum().compute() == 8
    with dask.config.set(helpers.KEEN):
        with Client(**helpers.INPROC, set_as_default=False) as other:
            assert other.compute(x.sum()).result() == 8
            assert helpers.ran() == 8
            assert other.compute(x.mean()).result() == 1
            assert keen.compute(x.mean()).result() == 1
            assert helpers.ran() == 0


def test_idle_time_starts_when_the_last_client_goes():
    settings = {**helpers.KEEN, "cachingclient.idle-time": "20ms"}
    with dask.config.set(settings), LocalCluster(**helpers.INPROC) as cluster:
        with Client(cluster, set_as_default=False) as client:
            assert client.compute(build().sum()).result() == 8
            assert client.cache.info().keys > 4
        plugin = cluster.scheduler.plugins["cachingclient"]
        helpers.wait_until(lambda: not plugin.ledger.kept and not cluster.scheduler.tasks)


def test_plugin_forgets_what_it_knew_of_forgotten_tasks(keen):
    assert build().sum().compute() == 8
    keen.cache.clear()
    helpers.forgotten(keen)
    plugin = plugin_of(keen)
    helpers.wait_until(lambda: nothing_is_held(keen))
    books = plugin.books
    assert not books.paid and not books.outputs and not books.tainted
