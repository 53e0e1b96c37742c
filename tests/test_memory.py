"""Memory goes to running work first: shares of workers, pressure, and what is told of both."""

from __future__ import annotations

import asyncio
import os
import time

import dask
import dask.array as da
import dask.bag as db
import distributed
import helpers
import numpy as np
import psutil
import pytest
import utils_cluster
from dask.distributed import wait
from distributed import LocalCluster, Status
from distributed.utils_test import gen_test
from utils_cluster import until

from cachingclient import Client
from cachingclient.admission import NO_MEMORY
from cachingclient.scheduler import pressure
from cachingclient.scheduler.heartbeats import OPERATION
from cachingclient.worker.memory import INTERVAL, RARELY, SOON, TOPIC

MB = 10**6
META = np.empty((0,))
FAST = {
    "cachingclient.min-cost": "0s",
    "cachingclient.task-overhead": "0s",
    # All of the tests' memory is in one process, which says nothing of a worker.
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}


def block(i, nbytes=MB, seconds=0):
    helpers.count()
    time.sleep(seconds)
    return np.full(nbytes // 8, float(i))


def total(*blocks):
    return float(sum(b.sum() for b in blocks))


class Cluster(utils_cluster.Cluster):
    """Two workers of 10 MB."""

    stays_on = True

    def __init__(self, limit=4 * MB, memory=10 * MB, many=2):
        self.many = many
        self.worker_options = {"memory_limit": memory}
        self.client_options = {"cache_limit": limit}

    async def __aenter__(self):
        await super().__aenter__()
        for worker in self.workers:
            await worker.heartbeat()
        return self

    async def worker(self):
        worker = await super().worker()
        # The tests say what heartbeats tell, and when.
        worker.periodic_callbacks["heartbeat"].stop()
        return worker

    def kept(self, worker):
        """Keys that are kept on a worker, as the scheduler knows them."""
        ws = self.scheduler.workers[worker.address]
        return {ts.key for ts in ws.has_what if ts.key in self.plugin.ledger}

    def kept_bytes(self, worker):
        ws = self.scheduler.workers[worker.address]
        return sum(ts.get_nbytes() for ts in ws.has_what if ts.key in self.plugin.ledger)

    def submit(self, *args, on=0, **kwargs):
        address = self.workers[on].address
        return self.client.submit(*args, pure=True, workers=[address], **kwargs)

    async def ask(self, *args, **kwargs):
        """Compute something, and keep it for the cache alone."""
        future = self.submit(*args, **kwargs)
        value = await future
        key = future.key
        future.release()
        await self.let_go()
        return key, value

    async def beat(self, worker, **metrics):
        """A heartbeat that tells these metrics."""
        told = worker.metrics[TOPIC]
        worker.metrics[TOPIC] = lambda w: {**told(w), **metrics}
        try:
            await worker.heartbeat()
        finally:
            worker.metrics[TOPIC] = told


# -- shares -------------------------------------------------------------------------


@gen_test(config=FAST)
async def test_a_worker_keeps_no_more_than_its_share():
    async with Cluster() as c:
        for i in range(6):
            await c.ask(block, i)
        assert c.plugin.ledger.limit == 4 * MB
        assert c.kept_bytes(c.workers[0]) == 2 * MB
        for i in range(6):
            await c.ask(block, 10 + i, on=1)
        assert c.kept_bytes(c.workers[0]) == c.kept_bytes(c.workers[1]) == 2 * MB
        assert c.plugin.ledger.evicted["limit"] + len(c.plugin.ledger.kept) <= 12
        assert not c.plugin.ledger.evicted["pressure"]


@gen_test(config=FAST)
async def test_shares_follow_workers():
    async with Cluster(limit=4 * MB, many=1) as c:
        for i in range(4):
            await c.ask(block, i)
        assert c.kept_bytes(c.workers[0]) == 4 * MB
        c.workers.append(await c.worker())
        await until(lambda: c.kept_bytes(c.workers[0]) == 2 * MB)
        assert c.plugin.ledger.evicted == {"limit": 2}
        await c.workers.pop().close()
        await until(lambda: len(c.scheduler.workers) == 1)
        for i in range(4, 8):
            await c.ask(block, i)
        await until(lambda: c.kept_bytes(c.workers[0]) == 4 * MB)


@gen_test(config=FAST)
async def test_replicas_count_where_they_are():
    async with Cluster() as c:
        x = c.submit(block, 1)
        await x
        assert c.plugin.ledger.places.held(c.workers[1].address) == 0
        await c.submit(total, x, on=1)
        assert x.key in c.kept(c.workers[1])
        assert x.key in c.plugin.ledger.places.at(c.workers[1].address)
        assert x.key in c.plugin.ledger.places.at(c.workers[0].address)


@gen_test(config=FAST)
async def test_copies_grow_nothing_beyond_a_workers_share():
    async with Cluster() as c:
        for i in range(2):
            await c.ask(block, i)
        x = c.submit(block, 10, on=1)
        await x
        # whose own result is not offered, which would make room for itself
        await c.client.submit(total, x, pure=False, workers=[c.workers[0].address])
        places = c.plugin.ledger.places
        await until(lambda: all(c.kept_bytes(w) <= 2 * MB for w in c.workers))
        assert all(places.held(w.address) <= 2 * MB for w in c.workers)


@gen_test(config=FAST)
async def test_copies_that_nothing_tells_of_are_found_and_lost():
    async with Cluster() as c:
        key, _ = await c.ask(block, 1)
        there = c.workers[1].address
        await c.scheduler.replicate(keys=[key], n=2)
        c.plugin.pressure._recount_at = 0
        await c.beat(c.workers[1])
        assert key in c.plugin.ledger.places.at(there)
        await c.scheduler.delete_worker_data(there, [key], "test")
        c.plugin.pressure._recount_at = 0
        await c.beat(c.workers[1])
        assert key not in c.plugin.ledger.places.at(there)
        assert key in c.plugin.ledger.places.at(c.workers[0].address)


# -- pressure -----------------------------------------------------------------------


@gen_test(config=FAST)
async def test_what_users_hold_takes_the_place_of_what_is_kept():
    """Before the worker's target is reached, so that nothing is spilled."""
    async with Cluster(limit=0.2) as c:
        worker, other = c.workers
        for on in (0, 1):
            for i in range(2):
                await c.ask(block, 10 * on + i, on=on, seconds=0.05)
        assert c.kept_bytes(worker) == c.kept_bytes(other) == 2 * MB
        held = []
        for i in range(5):
            held.append(c.submit(block, 100 + i))
            await held[-1]
        await until(lambda: set(worker.data) == {f.key for f in held})
        assert not worker.data.slow
        assert worker.data.cumulative_metrics.get(("disk-write", "count"), 0) == 0
        assert c.kept_bytes(other) == 2 * MB
        assert c.plugin.ledger.evicted["pressure"] > 0
        # and when there is memory again, it is used
        held.clear()
        await c.let_go()
        await until(lambda: set(worker.data) == c.kept(worker))
        key, _ = await c.ask(block, 1000, seconds=0.2)
        assert key in c.kept(worker)


@gen_test(config=FAST)
async def test_a_paused_worker_gives_all():
    async with Cluster() as c:
        for on in (0, 1):
            await c.ask(block, on, on=on)
        c.workers[0].status = Status.paused
        await until(lambda: not c.kept(c.workers[0]))
        await until(lambda: not c.workers[0].data)
        assert len(c.kept(c.workers[1])) == 1
        assert c.plugin.ledger.evicted == {"pressure": 1}
        c.workers[0].status = Status.running
        await c.ask(block, 7)
        assert len(c.kept(c.workers[0])) == 1


@gen_test(config=FAST)
async def test_a_worker_that_spills_gives_all():
    async with Cluster() as c:
        for on in (0, 1):
            await c.ask(block, on, on=on)
        await c.beat(c.workers[0], spilled=1000)
        await until(lambda: not c.kept(c.workers[0]))
        await until(lambda: not c.workers[0].data)
        assert len(c.kept(c.workers[1])) == 1
        await c.ask(block, 2)
        assert not c.kept(c.workers[0])
        small, _ = await c.ask(block, 2, nbytes=800)
        await c.beat(c.workers[0], spilled=1000)
        assert c.kept(c.workers[0]) == {small}
        await c.beat(c.workers[0], spilled=1001)
        await until(lambda: not c.kept(c.workers[0]))
        await c.beat(c.workers[0])
        await c.ask(block, 3)
        assert len(c.kept(c.workers[0])) == 1


@gen_test(config=FAST)
async def test_memory_of_a_process_is_told_between_heartbeats():
    """The least valuable goes first, on the worker that needs it, and no more than it needs."""
    async with Cluster() as c:
        worker, other = c.workers
        for on in (0, 1):
            for i in range(2):
                await c.ask(block, 10 * on + i, on=on)
        before = c.kept(worker)
        await c.beat(worker, process=3 * MB, shared=False, pid=0, spill=0.7)
        assert c.kept(worker) == before
        message = {"action": TOPIC, "worker": worker.address, "managed": 2 * MB, "spilled": 0}
        worker.log_event(TOPIC, {**message, "process": 6 * MB + 1})
        await until(lambda: len(c.kept(worker)) == 1)
        await until(lambda: len(worker.data) == 1)
        assert len(c.kept(other)) == 2
        # The same again, of a moment before the key was gone, asks for no more.
        worker.log_event(TOPIC, {**message, "process": 6 * MB + 1})
        await c.client.run_on_scheduler(lambda: None)
        assert len(c.kept(worker)) == 1


@gen_test(config=FAST)
async def test_the_process_of_several_workers_is_not_judged():
    async with Cluster() as c:
        await c.ask(block, 1)
        worker = c.workers[0]
        assert worker.monitor.get_process_memory() > c.worker_options["memory_limit"]
        await c.beat(worker, spill=0.7)
        assert len(c.kept(worker)) == 1
        # nor is that of one that shares the scheduler's
        await c.beat(worker, spill=0.7, shared=False)
        assert len(c.kept(worker)) == 1
        await c.beat(worker, spill=0.7, shared=False, pid=0)
        await until(lambda: not c.kept(worker))


@gen_test(config=FAST)
async def test_running_tasks_have_what_they_use():
    """It is let go in the middle of its consumers: they end, and nothing is computed again."""
    async with Cluster() as c:
        x = da.zeros(80_000, chunks=10_000).map_blocks(counted, dtype="f8", meta=META)
        assert await c.client.compute(x.sum()) == 0
        await c.let_go()
        assert helpers.ran() == 8
        future = c.client.compute((x + 1).map_blocks(slowly, dtype="f8", meta=META).sum())
        await until(lambda: any(ts.state == "processing" for ts in c.scheduler.tasks.values()))
        for worker in c.workers:
            c.plugin.pressure._give_all(worker.address)
        assert await future == x.size
        assert helpers.ran() == 0
        assert c.plugin.ledger.evicted["pressure"] >= 8


def counted(x):
    helpers.count()
    return x


def slowly(x):
    time.sleep(0.02)
    return x


@gen_test(config=FAST)
async def test_small_results_are_worth_no_trouble():
    async with Cluster() as c:
        small, _ = await c.ask(block, 1, nbytes=800)
        held = [c.submit(block, 100 + i) for i in range(6)]
        await wait(held)
        assert NO_MEMORY in c.plugin.books.refused.values()
        assert small in c.kept(c.workers[0])
        other = c.submit(block, 2, nbytes=800)
        await other
        assert {small, other.key} <= c.kept(c.workers[0])


@gen_test(config=FAST)
async def test_many_small_results_are_not_for_a_worker_to_write(monkeypatch):
    monkeypatch.setattr(pressure, "MANY", 3)
    async with Cluster() as c:
        for i in range(6):
            await c.ask(block, i, nbytes=800, seconds=0.001 * i)
        assert len(c.kept(c.workers[0])) == 6
        await c.beat(c.workers[0], process=9 * MB, spill=0.7, shared=False, pid=0)
        await until(lambda: len(c.kept(c.workers[0])) == 3)
        await c.ask(block, 7, nbytes=800)
        assert len(c.kept(c.workers[0])) == 3


@gen_test(config=FAST)
async def test_leaving_takes_everything_along():
    async with Cluster() as c:
        assert all(TOPIC in w.metrics for w in c.workers)
        plain = c.plugin.pressure._heartbeats._plain
        assert c.scheduler.handlers[OPERATION] != plain
        plugin = c.plugin
        plugin.leave()
        assert c.scheduler.handlers[OPERATION] == plain
        await until(lambda: not any(TOPIC in w.metrics for w in c.workers))
        c.scheduler.plugins["cachingclient"] = plugin
        plugin.off = False
        plugin.desk.plugin = plugin


# -- real processes -----------------------------------------------------------------


class Opaque:
    """Dask sees 48 bytes of it."""

    def __init__(self, value, nbytes):
        self.values = [np.full(nbytes // 8, float(value))]


def an_array(i, value, nbytes):
    return np.full(nbytes // 8, float(value))


def an_object(i, value, nbytes):
    return Opaque(value, nbytes)


def texts(i, value, nbytes):
    return [f"{value}-{i}-{j}".ljust(100, "x") for j in range(nbytes // 165)]


def an_object_array(i, value, nbytes):
    result = np.empty(4, dtype=object)
    result[:] = [f"{value}-{i}-{j}".ljust(nbytes // 4, "y") for j in range(4)]
    return result


def slow(make, *args):
    time.sleep(0.01)
    return make(*args)


def count_of(parts):
    return len(parts)


def types_of(parts):
    return {type(p).__name__ for p in parts}


def state(dask_worker):
    data = dask_worker.data
    written = data.cumulative_metrics.get(("disk-write", "count"), 0)
    return os.getpid(), len(data.slow), written, dask_worker.status.name


@pytest.fixture(scope="module")
def small_limit():
    """400 MiB; more where a worker that does nothing leaves no room in it for 100 MiB.

    A plain client spills there too (with Python 3.13, say, whose bokeh is larger).
    """
    with LocalCluster(**helpers.PROCESS) as cluster, distributed.Client(cluster) as client:
        client.submit(texts, 0, 0, 100).result()  # it imports what that needs
        (process,) = client.run(lambda: psutil.Process().memory_info().rss).values()
    if process + 110 * 2**20 <= 0.7 * 400 * 2**20:
        return 400 * 2**20
    return int((process + 150 * 2**20) / 0.7)


@pytest.mark.parametrize("make", [an_array, an_object, texts, an_object_array])
def test_large_results_one_after_the_other(make, small_limit):
    """A worker of 400 MiB, results of 100 MiB: nothing is spilled, and it never pauses."""
    how = {**helpers.PROCESS, "memory_limit": small_limit}
    with dask.config.set({"cachingclient.min-cost": "1ms"}), Client(**how) as client:
        [address] = client.run(os.getpid)
        before = client.run(state)
        kept = 0
        for value in range(3):
            parts = [dask.delayed(slow, pure=True)(make, i, value, 10 * 2**20) for i in range(10)]
            assert dask.delayed(count_of, pure=True)(parts).compute() == 10
            assert len(dask.delayed(types_of, pure=True)(parts).compute()) == 1
            info = client.cache.info()
            assert info.currsize <= info.maxsize
            kept = max(kept, info.currsize)
            assert client.run(state) == before
        assert kept > 10 * 2**20
        events = [e for _, e in client.get_events(address) if "status" in e]
        assert not [e for e in events if "paused" in (e["status"], e.get("prev-status"))]
        helpers.validate(client)


def test_hidden_bytes_count():
    """Six objects of 20 MB of which dask sees 48 bytes each: three fit into 64 MB."""
    how = {**helpers.PROCESS, "memory_limit": "2GiB", "cache_limit": 64 * MB}
    with dask.config.set({"cachingclient.min-cost": "1ms"}), Client(**how) as client:
        for value in range(6):
            dask.delayed(slow, pure=True)(an_object, 0, value, 20 * MB).compute()
            helpers.forgotten(client)
        entries = client.cache.entries("slow")
        assert sum(e.keys for e in entries) == 3
        assert all(e.nbytes > 20 * MB for e in entries)
        assert sum(ws.nbytes for ws in client.cluster.scheduler.workers.values()) < MB


class Native:
    """Nobody can look into it."""

    __slots__ = ()


_native = []


def a_native_object(i, nbytes):
    """Memory that belongs to an object, as that of compiled code does."""
    _native.append(np.ones(nbytes // 8))
    return Native()


def test_bytes_that_nobody_can_see_are_told_by_the_process():
    how = {**helpers.PROCESS, "memory_limit": "2GiB"}
    with dask.config.set({"cachingclient.min-cost": "1ms"}), Client(**how) as client:
        bag = db.from_sequence([0], npartitions=1).map(a_native_object, 50 * MB)
        assert bag.count().compute() == 1
        names = {e.name: e.nbytes for e in client.cache.entries()}
        assert max(names.values()) > 40 * MB


def hog(seconds, nbytes):
    memory = np.ones(nbytes // 8)
    time.sleep(seconds)
    return memory.size


def test_memory_that_running_tasks_use():
    """No task has returned it, and no task ends meanwhile: the process tells."""
    how = {**helpers.PROCESS, "memory_limit": "1GiB"}
    with dask.config.set({"cachingclient.min-cost": "0s"}), Client(**how) as client:
        parts = [dask.delayed(slow, pure=True)(an_array, i, 0, 10 * MB) for i in range(12)]
        assert dask.delayed(count_of, pure=True)(parts).compute() == 12
        helpers.forgotten(client)
        assert client.cache.info().currsize > 100 * MB
        future = client.submit(hog, 10, 450 * MB, pure=False)
        helpers.wait_until(lambda: client.cache.info().currsize < 100 * MB, seconds=9)
        assert not future.done()
        future.cancel()
        assert client.cluster.scheduler.plugins["cachingclient"].ledger.evicted["pressure"] > 0


# -- what of distributed is relied on -----------------------------------------------


@gen_test(config=FAST)
async def test_workers_tell_what_is_read_of_them():
    """Public, and documented by their code alone."""
    async with Cluster() as c:
        worker, _ = c.workers
        assert worker.memory_manager.memory_limit == c.worker_options["memory_limit"]
        assert (worker.memory_manager.memory_target_fraction) == 0.6
        assert worker.memory_manager.memory_spill_fraction is False
        assert worker.memory_manager.memory_pause_fraction is False
        assert worker.data.spilled_total == (0, 0)
        assert callable(worker.data.evict) and not worker.data.fast
        key, _ = await c.ask(block, 1)
        assert worker.state.nbytes == MB and set(worker.data.fast) == {key}
        await worker.heartbeat()
        ws = c.scheduler.workers[worker.address]
        assert ws.metrics[TOPIC]["managed"] == ws.metrics["managed_bytes"] == MB
        assert {"memory", "spilled_bytes"} <= set(ws.metrics)
        assert set(ws.metrics["spilled_bytes"]) == {"memory", "disk"}


async def looks_sooner(dask_worker):
    """Whether the timer of a worker starts anew, and how long it waits, before and after."""
    (guard,) = (p for p in dask_worker.plugins.values() if hasattr(p, "hooks"))
    watch = guard.hooks[id(dask_worker)].memory
    timer, started = watch._timer, asyncio.Event()
    process = 0.01 * watch.limit
    dask_worker.monitor.get_process_memory = lambda: int(process)
    while timer.callback_time <= INTERVAL:
        await asyncio.sleep(0.01)
    before, start = timer.callback_time, timer.start
    timer.start = lambda: (start(), started.set())
    process = 0.35 * watch.limit
    await asyncio.sleep(SOON)
    watch.look()
    await asyncio.wait_for(started.wait(), 10)
    return before, timer.callback_time, timer.is_running()


def test_a_process_that_has_grown_is_looked_at_sooner():
    """By a result that came: the timer would not come for a while."""
    with Client(**{**helpers.PROCESS, "memory_limit": "64GiB"}) as client:
        [found] = client.run(looks_sooner).values()
    assert found == (RARELY, INTERVAL, True)
