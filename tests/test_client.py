"""A `Client` takes all that its parent takes, and a `cache_limit`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster, Scheduler, Worker
from distributed.utils_test import gen_test
from helpers import INPROC, count, forgotten, logged, look, ran, wait_until
from utils_cluster import until

from cachingclient import CacheInfo, CachingClient, Client, caching

META = np.empty((0,))


def slow(block):
    count()
    time.sleep(0.02)
    return block + 1


def build(value=1.0, blocks=4):
    return da.full(10 * blocks, value, chunks=10, dtype="f8").map_blocks(
        slow, dtype="f8", meta=META
    )


@pytest.fixture
def cluster():
    with LocalCluster(**INPROC) as cluster:
        yield cluster


def check_it_caches(client):
    x = build()
    assert client.compute(x.sum()).result() == 80
    assert client.compute(x.mean()).result() == 2
    assert ran() == 4
    assert client.cache.info().keys > 0
    helpers.validate(client)


# -- making one ------------------------------------------------------------------------


def test_alias():
    assert Client is CachingClient
    assert issubclass(Client, distributed.Client)


def test_without_an_address():
    with Client(**INPROC) as client:
        assert isinstance(client.cluster, LocalCluster)
        check_it_caches(client)


def test_of_a_cluster(cluster):
    with Client(cluster) as client:
        check_it_caches(client)


def test_by_address():
    with LocalCluster(**{**INPROC, "protocol": "tcp://"}) as cluster:
        with Client(cluster.scheduler_address) as client:
            check_it_caches(client)


def test_by_keyword(cluster):
    with Client(address=cluster, name="me", set_as_default=False) as client:
        assert "-me-" in client.id
        check_it_caches(client)


def test_from_a_cluster_file(tmp_path):
    with LocalCluster(**{**INPROC, "protocol": "tcp://"}) as cluster:
        path = tmp_path / "scheduler.json"
        with distributed.Client(cluster, set_as_default=False) as other:
            other.write_scheduler_file(str(path))
        with Client(scheduler_file=str(path)) as client:
            check_it_caches(client)


@gen_test(clean_kwargs={"threads": False})
async def test_asynchronous():
    async with LocalCluster(**INPROC, asynchronous=True) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            x = build()
            assert await client.compute(x.sum()) == 80
            assert await client.compute(x.mean()) == 2
            assert await client.compute(x.sum()) == 80
            assert ran() == 4
            info = await client.cache.info()
            assert info.keys > 0 and info.hits > 0
            assert await client.cache.entries()
            await client.cache.resize("1 MiB")
            assert (await client.cache.info()).maxsize == 2**20
            await client.cache.clear()
            assert (await client.cache.info()).keys == 0
            with client.cache.disabled():
                assert await client.compute(x.max()) == 2
            assert (await client.cache.info()).keys == 0
            cluster.scheduler.validate_state()


@gen_test(clean_kwargs={"threads": False})
async def test_asynchronous_awaited():
    client = await Client(**INPROC, asynchronous=True)
    try:
        assert await client.compute(build().sum()) == 80
        assert (await client.cache.info()).keys > 0
    finally:
        await client.close()


def test_signature_is_the_parents_and_cache_limit():
    own = inspect.signature(Client).parameters
    parents = inspect.signature(distributed.Client).parameters
    assert set(own) >= set(parents)
    assert [p for p in own if p in parents] == list(parents)
    assert "cache_limit" in own
    assert own["cache_limit"].kind is inspect.Parameter.KEYWORD_ONLY
    assert own["cache_limit"].default is None


@pytest.mark.parametrize("method", ["submit", "map", "compute", "persist", "get", "cancel"])
def test_signatures_of_methods_are_the_parents(method):
    own = inspect.signature(getattr(Client, method))
    assert own == inspect.signature(getattr(distributed.Client, method))


def test_repr(client):
    assert repr(client).startswith("<CachingClient: ")
    assert "CachingClient" in client._repr_html_()


def test_of_a_closed_client_the_users_own_message_is_told_of(cluster):
    client = Client(cluster)
    assert client.submit(abs, -1, pure=True).result() == 1
    client.close()
    with pytest.raises(Exception, match="update-graph"):
        client.submit(abs, -2, pure=True)


@pytest.mark.parametrize("kind", [Client, caching])
def test_code_of_a_computation_is_the_users(cluster, kind):
    """No frame of ours is shown where the user asked for."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context((Client if kind is Client else distributed.Client)(cluster))
        if kind is caching:
            stack.enter_context(caching(client))
        with dask.config.set({"distributed.diagnostics.computations.nframes": 2}):
            build().sum().compute()
            client.submit(abs, -1, pure=True).result()
            client.gather(client.map(abs, [-2, -3]))
        found = list(cluster.scheduler.computations)
        assert len(found) == 3
        for computation in found:
            (frames,) = computation.code
            assert frames[-1].filename == __file__


# -- cache_limit ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["lots", -1, "-1 GiB", "2.5e99 GiB", True, float("nan"), [1]])
def test_bad_limit_before_anything_is_connected(limit, monkeypatch):
    def connected(self, *args, **kwargs):
        raise AssertionError("connected")

    monkeypatch.setattr(distributed.Client, "__init__", connected)
    with pytest.raises((TypeError, ValueError), match="cache_limit"):
        Client("tcp://127.0.0.1:9", timeout="1s", cache_limit=limit)


def test_bad_limit_leaves_no_client_behind():
    before = set(distributed.Client._instances)
    with pytest.raises(ValueError, match="cache_limit"):
        Client("tcp://127.0.0.1:9", timeout="1s", cache_limit=-1)
    made = set(distributed.Client._instances) - before
    assert not any(getattr(c, "status", None) == "running" for c in made)


@pytest.mark.parametrize(
    "key, value", [("min-cost", "slow"), ("halflife", 0), ("cache-limit", -1), ("no-such", 1)]
)
def test_bad_setting_names_its_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((TypeError, ValueError), match=f"cachingclient.{key}"):
            Client("tcp://127.0.0.1:9", timeout="1s")


def test_each_client_is_told_each_time(cluster):
    """As Python shows warnings by default: a text once a line of code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            with Client(cluster, cache_limit=0) as client:
                for _ in range(2):
                    client.cache.resize("1 GiB")
    assert len([w for w in caught if "resize() has no effect" in str(w.message)]) == 4


def test_limit_zero():
    with Client(**INPROC, cache_limit=0) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = build()
            assert (x.max().compute(), x.min().compute(), x.max().compute()) == (2, 2, 2)
            assert client.submit(slow, 1, pure=True).result() == 2
            assert client.cache.info() == CacheInfo()
            assert client.cache.entries() == []
            client.cache.clear()
            with client.cache.disabled():
                assert x.sum().compute() == 80
        assert ran() == 17
        with pytest.warns(UserWarning, match=r"cache_limit is 0.*pin\(\) has no effect"):
            client.cache.pin(x)
        assert "cachingclient" not in look(client)["plugins"]


@pytest.mark.parametrize(
    "limit, bytes_", [("1 MiB", 2**20), (3_000_000, 3_000_000), (2_000.0, 2000)]
)
def test_limit_in_bytes(limit, bytes_):
    with Client(**INPROC, cache_limit=limit) as client:
        assert client.cache.info().maxsize == bytes_


def test_limit_as_a_share():
    with Client(**INPROC, memory_limit="100 MiB", cache_limit=0.5) as client:
        assert client.cache.info().maxsize == 100 * 2**20
        client.cache.resize(0.25)
        assert client.cache.info().maxsize == 50 * 2**20


def test_limit_is_kept():
    def wide(block):
        count()
        time.sleep(0.02)
        return np.ones(2**17)

    with Client(**INPROC, cache_limit="4 MiB") as client:
        for blocks in range(2, 6):
            x = da.ones(blocks, chunks=1).map_blocks(wide, dtype="f8", meta=META, chunks=(2**17,))
            assert x.sum().compute() == blocks * 2**17
            assert 0 < client.cache.info().currsize <= 4 * 2**20
        helpers.validate(client)


# -- schedulers that take no plugin --------------------------------------------------------


def test_scheduler_that_refuses_plugins():
    blocked = {"distributed.scheduler.blocked-handlers": ["register_scheduler_plugin"]}
    with dask.config.set(blocked), LocalCluster(**INPROC) as cluster:
        with pytest.warns(UserWarning) as warned:
            client = Client(cluster)
        with client:
            texts = [str(w.message) for w in warned if "kept" in str(w.message)]
            assert len(texts) == 1
            assert "register_scheduler_plugin" in texts[0]
            assert "distributed.scheduler.blocked-handlers" in texts[0]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                x = build()
                assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
                assert ran() == 12
                assert client.submit(slow, 1, pure=True).result() == 2
                assert client.cache.info() == CacheInfo()
                assert client.cache.entries() == []
                client.cache.clear()
                with client.cache.disabled():
                    assert x.max().compute() == 2
                f, g = client.compute(x.sum()), client.compute(x.sum())
                f.cancel()
                assert g.result() == 80
            for wish in (lambda: client.cache.resize("1 MiB"), lambda: client.cache.pin(x)):
                with pytest.warns(UserWarning, match=r"keeps no cache .* has no effect"):
                    wish()
            helpers.validate(client)


def test_caching_a_closed_client(cluster):
    client = distributed.Client(cluster, set_as_default=False)
    client.close()
    with pytest.raises(ValueError, match="client is closed"):
        with caching(client):
            raise AssertionError("this would be worked in without a cache")


def test_caching_on_a_scheduler_that_refuses_plugins():
    blocked = {"distributed.scheduler.blocked-handlers": ["register_scheduler_plugin"]}
    with dask.config.set(blocked), LocalCluster(**INPROC) as cluster:
        with distributed.Client(cluster) as client:
            names = set(vars(client))
            with pytest.warns(UserWarning, match="blocked-handlers"):
                with caching(client) as cache:
                    assert build().sum().compute() == 80
                    assert cache.info() == CacheInfo()
            assert set(vars(client)) == names


def test_scheduler_that_refuses_plugins_and_was_started_with_ours():
    started = {
        "distributed.scheduler.blocked-handlers": ["register_scheduler_plugin"],
        "distributed.scheduler.preload": ["cachingclient.preload"],
    }
    with dask.config.set(started), LocalCluster(**INPROC) as cluster:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Client(cluster) as client:
                x = build()
                assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
                assert ran() == 4
                helpers.validate(client)
            with distributed.Client(cluster) as plain, caching(plain) as cache:
                assert x.sum().compute() == 80
                assert ran() == 0
                assert cache.info().hits > 0
        assert "cachingclient" in cluster.scheduler.plugins, "it is not theirs to take away"


# -- schedulers that come and go -------------------------------------------------------------


@gen_test(timeout=60, clean_kwargs={"threads": False})
async def test_scheduler_restarted_on_the_same_port():
    x = build()
    async with contextlib.AsyncExitStack() as stack:
        first = await Scheduler(port=0, dashboard_address=":0")
        port, address = first.port, first.address
        async with first, Worker(address, nthreads=1):
            client = Client(address, asynchronous=True, timeout=20)
            client = await stack.enter_async_context(client)
            assert await client.compute(x.sum()) == 80
            assert await client.compute(x.mean()) == 2
            assert await client.compute(x.sum()) == 80
            assert ran() == 4
            assert (await client.cache.info()).keys > 0
        async with Scheduler(port=port, dashboard_address=":0") as second:
            async with Worker(address, nthreads=1):
                await until(lambda: client.status == "running" and second.clients)
                info = await welcomed(client)
                assert "cachingclient" in second.plugins
                assert (info.keys, info.hits, info.currsize) == (0, 0, 0)
                assert await client.compute(x.sum()) == 80
                assert await client.compute(x.std()) == 0
                assert await client.compute(x.sum()) == 80
                assert ran() == 4
                assert (await client.cache.info()).hits > 0
                second.validate_state()


@gen_test(timeout=60, clean_kwargs={"threads": False})
async def test_connection_lost_and_found_again():
    """The scheduler is the same: what it keeps is still good."""
    x = build()
    async with Scheduler(port=0, dashboard_address=":0") as scheduler:
        async with Worker(scheduler.address, nthreads=1):
            async with Client(scheduler.address, asynchronous=True, timeout=20) as client:
                assert await client.compute(x.sum()) == 80
                assert await client.compute(x.mean()) == 2
                comm = client.scheduler_comm
                comm.comm.abort()
                await until(
                    lambda: client.scheduler_comm not in (None, comm) and client.status == "running"
                )
                await welcomed(client)
                assert await client.compute(x.sum()) == 80
                assert await client.compute(x.std()) == 0
                assert ran() == 4
                scheduler.validate_state()


async def welcomed(client):
    """Wait for the answer to what a client says after it has connected; what is kept then."""
    deadline = time.monotonic() + 20
    while not (info := await client.cache.info()).maxsize:
        assert time.monotonic() < deadline, "the client has not joined the cache"
        await asyncio.sleep(0.01)
    return info


# -- several clients, several threads -----------------------------------------------------------


def limit_warnings(warned):
    return [str(w.message) for w in warned if "cache_limit" in str(w.message)]


def test_two_explicit_limits(cluster):
    with Client(cluster, cache_limit="1 MiB", set_as_default=False) as one:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with Client(cluster, cache_limit="2 MiB", set_as_default=False) as two:
                assert one.cache.info().maxsize == two.cache.info().maxsize == 2**20
                two.cache.resize("3 MiB")
                assert one.cache.info().maxsize == 3 * 2**20
        (text,) = limit_warnings(warned)
        assert "cache.resize" in text
        assert str(2**20) in text or "1 MiB" in text or "1.00 MiB" in text


@pytest.mark.parametrize("limit", [None, "1 MiB"])
def test_no_warning_where_limits_agree_or_none_is_said(cluster, limit):
    with Client(cluster, cache_limit="1 MiB", set_as_default=False):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with Client(cluster, cache_limit=limit, set_as_default=False) as two:
                assert two.cache.info().maxsize == 2**20
        assert limit_warnings(warned) == []


def test_clients_share(cluster):
    with Client(cluster, set_as_default=False) as one:
        with Client(cluster, set_as_default=False) as two:
            x = build()
            assert one.compute(x.sum()).result() == 80
            assert two.compute(x.sum()).result() == 80
            assert two.compute(build().max()).result() == 2
            assert ran() == 4
            assert one.cache.info() == two.cache.info()
            one.close()
            assert two.compute(x.mean()).result() == 2
            assert ran() == 0
            helpers.validate(two)


def test_cleared_by_another_client(cluster):
    """The first must not count on what is gone."""
    with Client(cluster, set_as_default=False) as one:
        with Client(cluster, set_as_default=False) as two:
            x = build()
            for _ in range(3):
                assert one.compute(x.sum()).result() == 80
                forgotten(one)
                two.cache.clear()
            assert ran() == 12


def test_plain_client_beside(cluster):
    with Client(cluster, set_as_default=False) as one:
        with distributed.Client(cluster, set_as_default=False) as plain:
            with logged("distributed", "distributed.core", "distributed.client") as messages:
                x = build()
                assert one.compute(x.sum()).result() == 80
                assert plain.compute(x.sum()).result() == 80
                assert plain.compute(x.mean()).result() == 2
                assert one.compute(x.mean()).result() == 2
                one.cache.clear()
                assert plain.compute(x.max()).result() == 2
            assert [m for m in messages if "rror" in m or "Unexpected" in m] == []
            helpers.validate(one)


def test_threads_with_overlapping_questions(client):
    x = build(3.0, blocks=8)
    asked = [x.sum(), x.mean(), x.max(), x.min(), x.std()]
    asked += [x[:40].sum(), (x + 1).sum(), x[30:].max()]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda lazy: float(client.compute(lazy).result()), asked))
    assert got == [320, 4, 4, 4, 0, 160, 400, 4]
    assert ran() == 8


def test_threads_with_windows(client):
    x = build(4.0, blocks=8)

    def window(i):
        return x[i % 8 * 10 : i % 8 * 10 + 20].compute()

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(window, range(64)))
    for i, values in enumerate(got):
        assert np.array_equal(values, np.full(10 if i % 8 == 7 else 20, 5.0))
    assert ran() == 8


def test_threads_that_build_the_same(client):
    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(lambda i: client.compute(build(5.0 + i % 2).sum()).result(), range(16))
        assert list(asked) == [240, 280] * 8
    assert ran() == 8


def test_threads_one_of_them_disabled(client):
    """What is switched off is so for one thread alone."""
    x = build()
    assert x.sum().compute() == 80
    ran()

    def mean():
        return float(client.compute(build().mean()).result())

    with client.cache.disabled():
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(mean).result() == 2
    assert ran() == 0


def test_counters(client):
    before = client.cache.info()
    x = build()
    assert x.sum().compute() == 80
    first = client.cache.info() - before
    assert first.hits == 0 and first.misses > 4 and first.saved == 0
    assert first.keys > 0 and first.currsize > 0
    assert x.sum().compute() == 80
    wait_until(lambda: (client.cache.info() - before).hits == 1)
    second = client.cache.info() - before - first
    assert second.misses == 0 and second.skipped > 4 and second.saved >= 0.08
