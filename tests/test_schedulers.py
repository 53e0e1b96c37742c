"""Schedulers that not everybody may speak to, and those that do not take everything."""

from __future__ import annotations

import contextlib
import warnings

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster, Scheduler, Worker
from distributed.utils_test import gen_test
from helpers import INPROC, KEEN, count, ran

import cachingclient
from cachingclient import CacheInfo, Client, caching
from cachingclient.preload import dask_setup

META = np.empty((0,))
REFUSED = "distributed.scheduler.blocked-handlers"
TCP = {**INPROC, "protocol": "tcp://"}


@pytest.fixture(autouse=True)
def keep_everything():
    with dask.config.set(KEEN):
        yield


def slow(block):
    count()
    return block + 1


def build():
    return da.ones(40, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def computed(n):
    """Ask three times; `n` calls should have been needed."""
    x = build()
    assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
    assert ran() == n


@contextlib.contextmanager
def told(*parts):
    """Exactly one warning is given, and it says something."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught]
    assert len(texts) == 1, texts
    for part in ("Nothing is kept", "works as distributed.Client does", *parts):
        assert part in texts[0], texts[0]


# -- secured ones ---------------------------------------------------------------------------


def test_tls(tmp_path):
    security = helpers.certified(tmp_path)
    with LocalCluster(**INPROC | {"protocol": "tls://"}, security=security) as cluster:
        with Client(cluster.scheduler_address, security=security) as client:
            assert client.scheduler.address.startswith("tls://")
            computed(4)
            assert client.cache.info().hits
            helpers.validate(client)
        ours = {"set_as_default": True, "security": security}
        with distributed.Client(cluster.scheduler_address, **ours) as client:
            with caching(client) as cache:
                computed(0)
                assert cache.info().hits


def test_tls_with_certificates_that_dask_makes():
    pytest.importorskip("cryptography")
    with LocalCluster(**INPROC | {"protocol": "tls://"}, security=True) as cluster:
        with Client(cluster) as client:
            computed(4)
            assert client.cache.info().hits


def test_tls_through_a_scheduler_file(tmp_path):
    security = helpers.certified(tmp_path)
    path = str(tmp_path / "scheduler.json")
    with LocalCluster(**INPROC | {"protocol": "tls://"}, security=security) as cluster:
        with Client(cluster, set_as_default=False) as client:
            client.write_scheduler_file(path)
        with Client(scheduler_file=path, security=security) as client:
            computed(4)
            assert client.cache.info().hits


# -- those that refuse ----------------------------------------------------------------------


@pytest.mark.parametrize("handler", ["register_scheduler_plugin", "cachingclient"])
@pytest.mark.parametrize("kind", [INPROC, TCP], ids=["inproc", "tcp"])
def test_blocked_handlers(handler, kind):
    with dask.config.set({REFUSED: [handler]}), LocalCluster(**kind) as cluster:
        with told(REFUSED, handler):
            client = Client(cluster)
        with client, warnings.catch_warnings():
            warnings.simplefilter("error")
            computed(12)
            assert client.submit(slow, 1, pure=True).result() == 2
            assert client.cache.info() == CacheInfo()
            assert "cachingclient" not in cluster.scheduler.plugins
            assert "cachingclient" not in cluster.scheduler.handlers
        # who comes next is told as well
        with told(REFUSED), distributed.Client(cluster) as plain, caching(plain):
            assert plain.submit(abs, -1, pure=True).result() == 1
        cluster.scheduler.validate_state()


@pytest.mark.parametrize("handler", ["feed", "broadcast", "run_function", "scatter", "proxy"])
def test_blocked_handlers_that_are_not_needed(handler):
    with dask.config.set({REFUSED: [handler]}), LocalCluster(**TCP) as cluster:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Client(cluster) as client:
                computed(4)
                assert client.cache.info().hits


def test_workers_that_take_no_plugins():
    """What nobody guards is not kept."""
    blocked = {"distributed.worker.blocked-handlers": ["plugin-add"]}
    with dask.config.set(blocked), LocalCluster(**TCP) as cluster:
        with Client(cluster) as client:
            computed(12)
            assert client.cache.info().keys == 0


@gen_test(clean_kwargs={"threads": False})
async def test_a_preloaded_scheduler_needs_to_take_nothing():
    with dask.config.set({REFUSED: ["register_scheduler_plugin"], **KEEN}):
        async with Scheduler(port=0, dashboard_address=":0") as scheduler:
            await dask_setup.callback(scheduler, None)
            async with Worker(scheduler.address, nthreads=1):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    client = Client(scheduler.address, asynchronous=True, set_as_default=False)
                    async with client:
                        for _ in range(2):
                            assert await client.compute(build().sum()) == 80
                        assert ran() == 4
                        assert (await client.cache.info()).keys


class Distrustful(Scheduler):
    """Takes no pickles from clients, but graphs."""

    async def register_scheduler_plugin(self, plugin, name=None, *, idempotent):
        raise ValueError("Cannot deserialize a plugin: pickles are not allowed")


@gen_test(clean_kwargs={"threads": False})
async def test_schedulers_that_refuse_pickles():
    async with Distrustful(port=0, dashboard_address=":0") as scheduler:
        async with Worker(scheduler.address, nthreads=1):
            with told("pickles are not allowed", "let it accept plugins"):
                client = await Client(scheduler.address, asynchronous=True, set_as_default=False)
            async with client:
                for _ in range(2):
                    assert await client.compute(build().sum()) == 80
                assert ran() == 8
                assert await client.cache.info() == CacheInfo()
            scheduler.validate_state()


# -- those that are of another version ---------------------------------------------------------


def test_another_version(monkeypatch):
    with LocalCluster(**TCP) as cluster:
        monkeypatch.setattr("cachingclient.scheduler.desk.VERSION", "0.0.9")
        with told("version 0.0.9", f"Install {cachingclient.__version__}"):
            client = Client(cluster)
        with client:
            computed(12)
            # what it brought it has taken with it
            helpers.wait_until(lambda: "cachingclient" not in cluster.scheduler.plugins)
