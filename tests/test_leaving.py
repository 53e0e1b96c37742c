"""`caching(client)` leaves nothing behind, a restart nothing in the cache, closing no warnings."""

from __future__ import annotations

import time

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster
from distributed.utils_test import gen_test
from helpers import INPROC, PROCESS, count, forgotten, logged, look, note, noted, ran, wait_until

from cachingclient import Client, caching
from cachingclient.session import Session

META = np.empty((0,))


def slow(block):
    count()
    time.sleep(0.02)
    return block + 1


def slow_noted(block, path):
    note(path)
    time.sleep(0.05)
    return block + 1


def build(value=1.0):
    return da.full(40, value, chunks=10, dtype="f8").map_blocks(slow, dtype="f8", meta=META)


def build_noted(path):
    return da.ones(40, chunks=10).map_blocks(slow_noted, str(path), dtype="f8", meta=META)


@pytest.fixture
def plain():
    """A client of distributed."""
    with distributed.Client(**INPROC) as client:
        yield client
        helpers.validate(client)


class State:
    """What a client and its scheduler are like, to be compared later."""

    def __init__(self, client):
        self.client = client
        self.scheduler = look(client)
        self.own = self._of_client()

    def _of_client(self):
        return {
            "vars": set(vars(self.client)),
            "stream handlers": {k: str(v) for k, v in self.client._stream_handlers.items()},
            "type": type(self.client),
        }

    def check(self):
        """Nothing is left; the scheduler forgets tasks in its own time."""
        forgotten(self.client)
        wait_until(lambda: not look(self.client)["tasks"])
        assert look(self.client) == self.scheduler
        assert self._of_client() == self.own
        for name, method in vars(distributed.Client).items():
            if callable(method) and not isinstance(method, (type, staticmethod, classmethod)):
                found = getattr(self.client, name)
                assert getattr(found, "__func__", found) is method, name


# -- caching ------------------------------------------------------------------------


def test_inside_it_caches_afterwards_nothing_is_left(plain):
    before = State(plain)
    x = build()
    for _ in range(2):
        with caching(plain) as cache:
            assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
            assert ran() == 4
            info = cache.info()
            assert info.hits > 0 and info.keys > 0
            assert helpers.held(plain)
        before.check()
        assert x.sum().compute() == 80
        assert x.mean().compute() == 2
        assert ran() == 8


def test_inside_it_watches_a_state_that_differs(plain):
    """The tests of what is left would notice: inside, all of it is different."""
    before = State(plain)
    with caching(plain):
        build().sum().compute()
        after = State(plain)
        for part in ("clients", "wanted", "plugins", "handlers", "stream handlers"):
            assert after.scheduler[part] != before.scheduler[part], part
        assert after.own["vars"] != before.own["vars"]
        assert after.own["stream handlers"] != before.own["stream handlers"]


def test_left_by_an_exception(plain):
    before = State(plain)
    with pytest.raises(KeyError, match="the user's"):
        with caching(plain):
            assert build().max().compute() == 2
            raise KeyError("the user's")
    before.check()


def test_left_while_something_runs(plain):
    before = State(plain)
    with caching(plain):
        f = plain.compute(build().sum())
    assert f.result() == 80
    del f
    before.check()
    assert ran() == 4


def test_futures_from_outside_and_from_inside(plain):
    before = State(plain)
    x = build()
    outer = plain.submit(abs, -3)
    early = plain.compute(x.sum())
    assert early.result() == 80
    with caching(plain):
        assert outer.result() == 3
        assert plain.submit(abs, outer).result() == 3
        inner = plain.compute(build(2.0).sum())
        p = build(3.0).persist()
        assert p.sum().compute() == 160
    assert (inner.result(), early.result(), outer.result()) == (120, 80, 3)
    assert p.mean().compute() == 4
    del outer, early, inner, p
    before.check()


def test_results_from_inside_are_not_known_outside(plain):
    """Nor is a name that the client remembers."""
    x = build()
    for _ in range(2):
        with caching(plain):
            assert x.sum().compute() == 80
    assert ran() == 8


def test_submit_and_map_inside(plain):
    with caching(plain):
        for _ in range(2):
            assert plain.submit(slow, 1, pure=True).result() == 2
            assert plain.gather(plain.map(slow, [2, 3], pure=True)) == [3, 4]
            forgotten(plain)
        assert ran() == 3
        for _ in range(2):
            assert plain.submit(slow, 1).result() == 2
            forgotten(plain)
        assert ran() == 2


def test_disabled_inside(plain):
    x = build()
    with caching(plain) as cache:
        assert x.sum().compute() == 80
        forgotten(plain)
        with cache.disabled():
            assert x.sum().compute() == 80
        assert ran() == 8


def test_of_a_caching_client(client):
    x = build()
    assert x.sum().compute() == 80
    with caching(client) as cache:
        assert cache.info() == client.cache.info()
        assert x.mean().compute() == 2
    assert x.std().compute() == 0
    assert client.cache.info().keys > 0
    assert ran() == 4


def test_nested_is_refused(plain):
    before = State(plain)
    with caching(plain):
        assert build().sum().compute() == 80
        with pytest.raises(RuntimeError, match="already"):
            with caching(plain):
                raise AssertionError("inside")
        assert build().mean().compute() == 2
        assert ran() == 4
    before.check()


def test_used_again(plain):
    """The same object twice, one after the other."""
    before = State(plain)
    cached = caching(plain)
    for _ in range(2):
        with cached:
            assert build().sum().compute() == 80
    before.check()


def test_of_two_clients_of_one_scheduler(plain):
    before = State(plain)
    with distributed.Client(plain.cluster, set_as_default=False) as other:
        with caching(plain):
            with caching(other):
                assert plain.compute(build().sum()).result() == 80
                assert other.compute(build().mean()).result() == 2
            assert plain.compute(build().std()).result() == 0
            assert ran() == 4
            assert helpers.held(plain)
    before.check()


def test_first_of_two_leaves_first(plain):
    """What the first brought serves the other, and goes with the last."""
    before = State(plain)
    with distributed.Client(plain.cluster, set_as_default=False) as other:
        one, two = caching(plain), caching(other)
        one.__enter__()
        two.__enter__()
        assert plain.compute(build().sum()).result() == 80
        one.__exit__(None, None, None)
        assert other.compute(build().mean()).result() == 2
        assert ran() == 4
        two.__exit__(None, None, None)
    before.check()


@pytest.mark.parametrize("thing", [5, None, "tcp://127.0.0.1:8786", distributed.Client])
def test_what_is_no_client(thing):
    with pytest.raises(TypeError, match="client"):
        caching(thing)


@pytest.mark.parametrize("limit", ["lots", -1, "-1 GiB", "2.5e99 GiB", True, float("nan"), [1]])
def test_bad_limit(plain, limit):
    before = State(plain)
    with pytest.raises((TypeError, ValueError), match="cache_limit"):
        with caching(plain, cache_limit=limit):
            raise AssertionError("inside")
    before.check()


def test_closed_inside(plain):
    with distributed.Client(plain.cluster, set_as_default=False) as other:
        with caching(other):
            assert other.compute(build().sum()).result() == 80
            other.close()


@gen_test(clean_kwargs={"threads": False})
async def test_asynchronous():
    async with LocalCluster(**INPROC, asynchronous=True) as cluster:
        async with distributed.Client(cluster, asynchronous=True) as client:
            scheduler = cluster.scheduler
            names = set(vars(client))
            handlers = dict(client._stream_handlers)
            parts = [set(scheduler.plugins), set(scheduler.handlers), set(scheduler.extensions)]
            clients, stream = set(scheduler.clients), dict(scheduler.stream_handlers)
            x = build()
            async with caching(client) as cache:
                assert await client.compute(x.sum()) == 80
                assert await client.compute(x.mean()) == 2
                assert (await cache.info()).keys > 0
                assert "cachingclient" in scheduler.clients
            assert ran() == 4
            assert set(vars(client)) == names
            assert client._stream_handlers == handlers
            assert parts == [
                set(scheduler.plugins),
                set(scheduler.handlers),
                set(scheduler.extensions),
            ]
            assert set(scheduler.clients) == clients
            assert scheduler.stream_handlers == stream
            scheduler.validate_state()


@gen_test(clean_kwargs={"threads": False})
async def test_asynchronous_client_and_plain_with():
    async with LocalCluster(**INPROC, asynchronous=True) as cluster:
        async with distributed.Client(cluster, asynchronous=True) as client:
            names, plugins = set(vars(client)), set(cluster.scheduler.plugins)
            with pytest.raises(TypeError, match="async with"):
                with caching(client):
                    raise AssertionError("inside")
            assert set(vars(client)) == names
            assert set(cluster.scheduler.plugins) == plugins


# -- restarting and closing -----------------------------------------------------------


def test_restart_empties_the_cache(tmp_path):
    path = tmp_path / "ran"
    with Client(**PROCESS) as client:
        x = build_noted(path)
        assert (x.sum().compute(), x.mean().compute()) == (80, 2)
        assert noted(path) == 4
        client.restart(timeout=30)
        info = client.cache.info()
        assert (info.keys, info.currsize) == (0, 0)
        assert helpers.held(client) == []
        assert client.cache.entries() == []
        assert (x.sum().compute(), x.max().compute()) == (80, 2)
        assert noted(path) == 8
        assert client.cache.info().keys > 0
        helpers.validate(client)


@pytest.mark.parametrize("how", [INPROC, PROCESS], ids=["threads", "processes"])
@pytest.mark.parametrize("first", ["client", "cluster"])
def test_closing_with_a_full_cache(how, first, tmp_path):
    path = tmp_path / "ran"
    with logged("distributed", "distributed.scheduler", "distributed.core") as messages:
        cluster = LocalCluster(**how)
        client = Client(cluster)
        x = build_noted(path)
        assert (x.sum().compute(), x.mean().compute()) == (80, 2)
        assert client.cache.info().keys > 4
        for thing in (client, cluster) if first == "client" else (cluster, client):
            thing.close()
    assert [m for m in messages if "lose" in m or "Traceback" in m or "rror" in m] == []


def test_closing_own_cluster_with_a_full_cache():
    with logged("distributed", "distributed.scheduler", "distributed.core") as messages:
        with Client(**INPROC) as client:
            x = build()
            assert (x.sum().compute(), x.mean().compute()) == (80, 2)
            assert client.cache.info().keys > 4
    assert [m for m in messages if "lose" in m or "Traceback" in m or "rror" in m] == []


def test_retired_worker_is_not_warned_of():
    with logged("distributed", "distributed.scheduler", "distributed.core") as messages:
        with Client(**INPROC) as client:
            x = build()
            assert (x.sum().compute(), x.mean().compute()) == (80, 2)
            forgotten(client)
            ran()
            first, second = client.scheduler_info(n_workers=-1)["workers"]
            client.retire_workers([first], close_workers=True)
            assert x.std().compute() == 0
            helpers.validate(client)
    assert [m for m in messages if "lose" in m or "Traceback" in m] == []


def test_restarted_kernel_finds_what_the_first_one_left():
    with LocalCluster(**INPROC) as cluster:
        with Client(cluster) as first:
            assert build().sum().compute() == 80
            assert build().mean().compute() == 2
            kept = first.cache.info().keys
        assert ran() == 4
        with Client(cluster) as second:
            assert second.cache.info().keys == kept > 0
            assert build().sum().compute() == 80
            assert build().mean().compute() == 2
            assert build().std().compute() == 0
            assert ran() == 0
            helpers.validate(second)


def test_idle_time_is_the_end_of_it():
    with dask.config.set({"cachingclient.idle-time": "50ms"}), LocalCluster(**INPROC) as cluster:
        with distributed.Client(cluster, set_as_default=False) as watcher:
            with Client(cluster):
                assert build().sum().compute() == 80
                assert helpers.held(watcher)
            wait_until(lambda: not helpers.held(watcher))
            wait_until(lambda: not look(watcher)["tasks"])


def test_of_a_scheduler_that_closes_meanwhile(monkeypatch):
    async def closed(*args, **kwargs):
        raise distributed.comm.CommClosedError

    with distributed.Client(**INPROC) as client:
        with caching(client):
            monkeypatch.setattr(Session, "call", closed)
        assert "_graph_to_futures" not in vars(client)
        assert client.submit(abs, -1).result() == 1
