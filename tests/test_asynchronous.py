"""All that a client does on an event loop, and that nothing of ours stops the loop."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import contextlib
import os
import sys
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from helpers import INPROC, KEEN, count, ran

import cachingclient
from cachingclient import Client, caching

META = np.empty((0,))
FILES = 5


def slow(block):
    count()
    return block + 1


def build(value=1.0, blocks=4):
    x = da.full(10 * blocks, value, chunks=10, dtype="f8")
    return x.map_blocks(slow, dtype="f8", meta=META)


def double(value):
    count("double")
    return 2 * value


@pytest.fixture
def address():
    """Of a cluster whose loop is in another thread."""
    with dask.config.set(KEEN), LocalCluster(**INPROC, protocol="tcp://") as cluster:
        yield cluster.scheduler_address
        with distributed.Client(cluster, set_as_default=False) as client:
            helpers.validate(client)


@contextlib.asynccontextmanager
async def caching_client(address):
    async with Client(address, asynchronous=True) as client:
        yield client, client.cache


@contextlib.asynccontextmanager
async def inside_caching(address):
    async with distributed.Client(address, asynchronous=True) as client:
        async with caching(client) as cache:
            yield client, cache


@pytest.fixture(params=[caching_client, inside_caching], ids=["client", "caching"])
def connect(request):
    return request.param


async def forgotten(client):
    deadline = time.monotonic() + 10
    while client.futures:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def everything(client, cache, top):
    """Do all that a client and a cache can do."""
    x = build()
    assert await client.compute(x.sum()) == 80
    assert await client.compute(x.mean()) == 2
    assert [float(v) for v in await client.gather(client.compute([x.max(), x.min()]))] == [2, 2]
    assert ran() == 4
    held = client.persist(x + 1)
    await distributed.wait(held)
    assert await client.compute(held.sum()) == 120
    # waiting in `get` itself is for those who are not on a loop: with a plain client, too
    assert await client.get({"x": (sum, [1, 2])}, "x", sync=False) == 3
    assert ran() == 0
    for _ in range(2):
        assert await client.submit(double, 4, pure=True) == 8
        assert await client.gather(client.map(double, [1, 2], pure=True)) == [2, 4]
        await forgotten_but(client, held)
    assert ran() == 3
    scattered = await client.scatter([1, 2], hash=True)
    assert await client.submit(sum, scattered, pure=True) == 3
    assert await client.compute(dask.delayed(double)(1)) == 2
    del held, scattered
    ran()

    info = await cache.info()
    assert info.hits > 0 and info.keys > 0
    assert any(entry.name.startswith("slow") for entry in await cache.entries("slow"))
    assert "slow" in repr(await cache.explain(x.std()))
    await cache.pin(x)
    await cache.unpin(x)
    await cache.resize("1 GiB")
    assert (await cache.info()).maxsize == 2**30
    with cache.disabled():
        assert await client.compute(x.sum()) == 80
    assert ran() == 4
    recording = await cache.record(top / "trace")
    assert await client.compute(x.sum()) == 80
    await recording.stop()
    async with await cache.record(top / "trace"):
        pass
    assert os.path.getsize(top / "trace")
    await cache.clear(x)
    await cache.clear("double")
    assert not await cache.entries("slow") and not await cache.entries("double")
    await cache.clear()
    assert (await cache.info()).keys == 0
    assert repr(cache)
    future = client.submit(abs, -1)
    await future.cancel()
    assert future.cancelled()


async def forgotten_but(client, held):
    """Wait until nothing is left but what a collection holds."""
    mine = {f.key for f in distributed.futures_of(held)}
    deadline = time.monotonic() + 10
    while set(client.futures) - mine:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


class Blocking:
    """Calls that wait, or touch files, made in this thread by code of ours."""

    def __init__(self, monkeypatch):
        self.thread = threading.get_ident()
        self.calls = []
        for where, name in (
            (time, "sleep"),
            (threading.Event, "wait"),
            (threading.Condition, "wait"),
            (threading.Thread, "join"),
            (concurrent.futures.Future, "result"),
            (distributed.utils, "sync"),
            (builtins, "open"),
            (os, "stat"),
            (os, "scandir"),
        ):
            self._watch(monkeypatch, where, name)

    def _watch(self, monkeypatch, where, name):
        plain = getattr(where, name)

        def call(*args, **kwargs):
            if threading.get_ident() == self.thread and (line := _line_of_ours(sys._getframe(1))):
                self.calls.append((name, line))
            return plain(*args, **kwargs)

        monkeypatch.setattr(where, name, call)

    def names(self):
        return {name for name, _ in self.calls}


def _line_of_ours(frame):
    """The line of this package that calls, if it is one, past what is called from it."""
    top = os.path.dirname(cachingclient.__file__)
    while frame is not None:
        if frame.f_code.co_filename.startswith(top):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def test_everything(address, connect, tmp_path):
    async def run():
        async with connect(address) as (client, cache):
            await everything(client, cache, tmp_path)

            # these read templates, as those of a plain client do
            assert cache._repr_html_() and client._repr_html_()

    asyncio.run(run())


def test_nothing_waits_on_the_loop(address, connect, tmp_path, monkeypatch):
    async def run():
        # What is imported at first use is a matter of once.
        async with connect(address) as (client, cache):
            await everything(client, cache, tmp_path)
        blocking = Blocking(monkeypatch)
        async with connect(address) as (client, cache):
            await everything(client, cache, tmp_path)
        return blocking

    blocking = asyncio.run(run())
    # The trace is a file, and opened where the user can be told that it cannot be.
    mine = {call for call in blocking.calls if "recording.py" not in call[1]}
    assert mine == set()


def test_files_are_looked_at_and_not_read(address, connect, tmp_path, monkeypatch):
    """A graph has to be sent before `compute` returns: a look at each file is what there is."""
    for n in range(FILES):
        pd.DataFrame({"a": [n, n]}).to_csv(tmp_path / f"{n}.csv", index=False)
        os.utime(tmp_path / f"{n}.csv", (1, 1))

    async def run():
        async with connect(address) as (client, cache):
            frame = dd.read_csv(str(tmp_path / "*.csv"))
            assert await client.compute(frame.a.sum()) == 20
            blocking = Blocking(monkeypatch)
            assert await client.compute(frame.a.max()) == 4
            return blocking

    blocking = asyncio.run(run())
    assert blocking.names() <= {"stat"}
    assert len(blocking.calls) <= 2 * FILES


def test_a_file_that_is_young_is_not_waited_for(address, connect, tmp_path, monkeypatch):
    """In a thread a moment is waited until one can tell; on a loop it is read again."""
    path = tmp_path / "young.csv"
    pd.DataFrame({"a": [1, 2]}).to_csv(path, index=False)

    async def run():
        async with connect(address) as (client, cache):
            blocking = Blocking(monkeypatch)
            for value in (2, 3):
                pd.DataFrame({"a": [1, value]}).to_csv(path, index=False)
                assert await client.compute(dd.read_csv(str(path)).a.sum()) == 1 + value
            return blocking

    assert asyncio.run(run()).names() <= {"stat"}


def test_blocking_calls_would_be_noticed(monkeypatch):
    from cachingclient import watching

    blocking = Blocking(monkeypatch)
    time.sleep(0)
    assert blocking.calls == []
    watch = watching.Watch(())
    watch._check({"name": set()})
    monkeypatch.setattr(watch.sources, "check", lambda found: _Young())
    watch._check({})
    assert blocking.names() == {"sleep"}


class _Young:
    young = True


def test_many_coroutines(address, connect):
    async def run():
        async with connect(address) as (client, cache):
            x = build(3.0, blocks=8)
            asked = [x.sum(), x.mean(), x.max(), x[:40].sum(), (x + 1).sum(), x[30:].max()]
            got = await asyncio.gather(*[client.compute(lazy).result() for lazy in 4 * asked])
            assert [float(v) for v in got] == 4 * [320, 4, 4, 160, 400, 4]
            # those that asked before anything was kept may have fused it into theirs
            await forgotten(client)
            assert await client.compute(x.min()) == 4
            assert ran() <= 8 * len(asked)
            assert await client.compute(x.std()) == 0
            assert ran() == 0

    asyncio.run(run())


def test_disabled_is_for_one_coroutine(address, connect):
    async def run():
        async with connect(address) as (client, cache):
            x = build()
            assert await client.compute(x.sum()) == 80
            assert ran() == 4
            inside, asked = asyncio.Event(), asyncio.Event()

            async def without():
                with cache.disabled():
                    inside.set()
                    await asked.wait()

            task = asyncio.create_task(without())
            await inside.wait()
            assert await client.compute(x.mean()) == 2
            assert ran() == 0
            asked.set()
            await task

    asyncio.run(run())


def test_closed_while_it_computes(address, connect):
    async def run():
        async with connect(address) as (client, cache):
            futures = [client.compute((build(float(n)) * 2).sum()) for n in range(3)]
        for future in futures:
            with pytest.raises((distributed.CancelledError, asyncio.CancelledError)):
                await future
        # the next one finds all in order
        async with connect(address) as (client, cache):
            assert await client.compute(build(7.0).sum()) == 320

    asyncio.run(run())


def test_two_loops(address):
    """Asynchronous clients of two threads share what is kept."""
    x = build()  # somebody has it in a variable: more may be asked of it
    kept, met = threading.Event(), []

    async def first():
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            assert await client.compute(x.sum()) == 80
            await forgotten(client)
            kept.set()
            while not met:
                await asyncio.sleep(0.01)

    async def second():
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            assert await client.compute(x.mean()) == 2
            met.append(await client.cache.info())

    def later():
        try:
            assert kept.wait(30)
            asyncio.run(second())
        finally:
            met.append(None)

    thread = threading.Thread(target=later)
    thread.start()
    asyncio.run(first())
    thread.join(30)
    assert met[0] is not None and met[0].hits > 0
    assert ran() == 4
