"""Held results make no cluster grow, keep none from shrinking, and are copied nowhere."""

from __future__ import annotations

import asyncio
import time

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
import utils_cluster
from distributed import LocalCluster, SchedulerPlugin, wait
from distributed.deploy.adaptive import Adaptive
from distributed.utils_test import gen_test
from utils_cluster import until

from cachingclient import Client
from cachingclient.scheduler.scaling import StandIn

META = np.empty((0,))
FAST = {
    "cachingclient.min-cost": "0s",
    "cachingclient.task-overhead": "0s",
    "cachingclient.cache-limit": "20 MiB",
    # The limits of workers are smaller than what this process takes.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}
#: Memory of a worker, and of a block: four of them fill it.
LIMIT = 4 * 2**20
BYTES = 2**20


def slow(block):
    helpers.count()
    return np.ones(BYTES // 8)


def build(n=8):
    return da.zeros(n, chunks=1).map_blocks(slow, dtype="f8", meta=META, chunks=(BYTES // 8,))


def unlucky(block):
    raise ValueError("the user's")


class Cluster(utils_cluster.Cluster):
    """Workers of a few MiB."""

    worker_options = {"memory_limit": LIMIT}

    def __init__(self, kind=Client, workers=2, **scheduler):
        self.kind, self.many, self.scheduler_options = kind, workers, scheduler

    async def worker(self):
        self.worker_options = {**self.worker_options, "name": str(len(self.scheduler.workers))}
        return await super().worker()

    async def fill(self):
        """Keep results that take more than a plain scheduler would leave alone."""
        x = build(4 * self.many)  # alive, so that its blocks are kept
        assert await self.client.compute(x.sum()) == BYTES // 2 * self.many
        await self.let_go()
        assert self.plugin.ledger.currsize > 0.6 * LIMIT * self.many

    def wanted(self):
        return {ts.key for ts in self.plugin.holder.client.wants_what}


# -- targets ----------------------------------------------------------------------------


@gen_test(config=FAST)
async def test_held_bytes_do_not_make_a_cluster_grow():
    async with Cluster() as c:
        await c.fill()
        held = sum(ws.nbytes for ws in c.scheduler.workers.values())
        assert held > 0.6 * 2 * LIMIT  # more than what makes a plain scheduler ask for more
        assert c.scheduler.adaptive_target() == 0
        assert await c.client.scheduler.adaptive_target() == 0
        # nothing has changed by asking
        c.scheduler.validate_state()
        assert sum(ws.nbytes for ws in c.scheduler.workers.values()) == held
        assert c.wanted() == set(c.plugin.ledger.kept)


@gen_test(config=FAST)
async def test_what_a_user_holds_counts():
    async with Cluster() as c:
        x = c.client.persist(build())
        await wait(x)
        assert c.scheduler.adaptive_target() == 4
        assert c.scheduler.workers_to_close() == []
        del x
        await c.let_go()
        assert c.scheduler.adaptive_target() == 0


@gen_test(config=FAST)
async def test_all_workers_may_close():
    async with Cluster(workers=3) as c:
        await c.fill()
        assert len(c.scheduler.workers_to_close()) == 3
        assert len(c.scheduler.workers_to_close(target=1)) == 2
        assert set(c.scheduler.workers_to_close(attribute="name")) == {"0", "1", "2"}
        by_host = c.scheduler.workers_to_close(key=lambda ws: ws.host)
        assert set(by_host) == set(c.scheduler.workers)


@gen_test(config=FAST)
async def test_those_with_the_least_of_others_close_first():
    """A worker full of held results closes before one that holds a little of a user's."""
    async with Cluster() as c:
        users, ours = c.scheduler.workers
        x = build(3)
        with dask.annotate(workers=[ours]):
            assert await c.client.compute(x.sum(), optimize_graph=False) == 3 * BYTES / 8
        await c.let_go()
        assert c.scheduler.workers[ours].nbytes >= 3 * BYTES
        (f,) = await c.client.scatter([np.ones(10)], workers=[users])
        assert c.scheduler.workers_to_close(target=1) == [ours]
        assert await f is not None


@gen_test(config=FAST)
async def test_a_busy_cluster_has_the_targets_of_a_plain_one():
    targets = {}
    for kind in (distributed.Client, Client):
        async with Cluster(kind) as c:
            x = build()
            assert await c.client.compute(x.sum()) == BYTES
            await until(lambda: not c.client.futures)
            if kind is Client:
                assert c.plugin.ledger.currsize > 0.6 * 2 * LIMIT
            else:
                await until(lambda: not c.scheduler.tasks)
            event = distributed.Event("go", client=c.client)

            def work(i, event=event):
                event.wait()
                return np.ones(10)

            futures = c.client.map(work, range(6), pure=True)
            await until(lambda: sum(len(w.processing) for w in c.scheduler.workers.values()) >= 2)
            targets[kind] = [
                c.scheduler.adaptive_target(target_duration=seconds)
                for seconds in (0.01, 0.25, 0.5, 1, 60)
            ]
            await event.set()
            await wait(futures)
            del futures
    assert targets[Client] == targets[distributed.Client]
    assert targets[Client][0] > 2


@gen_test(config=FAST)
async def test_an_error_of_ours_leaves_the_decision_to_the_scheduler(errors_of_ours):
    async with Cluster() as c:
        await c.fill()

        def fail(*args):
            raise RuntimeError("ours")

        c.plugin.holder.only_ours = fail
        assert c.scheduler.adaptive_target() == 4
        assert len(errors_of_ours) == 1 and "switched off" in errors_of_ours[0]
        errors_of_ours.clear()
        assert c.plugin.off
        assert c.scheduler.workers_to_close() == []
        await until(lambda: not c.scheduler.tasks)
        assert c.scheduler.adaptive_target() == 0


def test_a_stand_in_is_its_worker():
    worker = distributed.scheduler.WorkerState(
        address="tcp://127.0.0.1:1",
        status=distributed.core.Status.running,
        pid=1,
        name="a",
        nthreads=1,
        memory_limit=10,
        local_directory="",
        nanny=None,
        server_id="a",
    )
    stand_in = StandIn(worker, 3)
    assert stand_in == worker and hash(stand_in) == hash(worker)
    assert stand_in == StandIn(worker, 4)
    assert (stand_in.nbytes, stand_in.address, stand_in.memory_limit) == (3, worker.address, 10)
    assert stand_in != 3


# -- adaptive clusters ------------------------------------------------------------------


@gen_test(config=FAST, clean_kwargs={"threads": False})
async def test_an_adaptive_cluster_reaches_zero_workers():
    async with LocalCluster(
        n_workers=0,
        processes=False,
        threads_per_worker=1,
        memory_limit=LIMIT,
        dashboard_address=None,
        asynchronous=True,
    ) as cluster:
        cluster.adapt(minimum=0, maximum=4, interval="20ms", wait_count=3)
        async with Client(cluster, asynchronous=True) as client:
            x = build()
            assert await client.compute(x.sum()) == BYTES
            assert await client.compute(x.max()) == 1
            kept = helpers.calls()
            await until(lambda: not cluster.scheduler.workers)
            await until(lambda: not cluster.scheduler.tasks)
            assert helpers.calls() == kept
            # and it comes back for work
            assert await client.compute(build(2).sum()) == BYTES / 4
            await until(lambda: not cluster.scheduler.workers)


@gen_test(config=FAST)
async def test_a_step_of_adapting_is_that_of_a_plain_client():
    """The decision of one step, without the clock: what is asked for, and who is closed."""
    async with Cluster(workers=3) as c:
        adaptive = Adaptive(FakeCluster(c.scheduler), interval=0, minimum=0, maximum=4)
        await c.fill()
        adaptive.wait_count = 1
        assert await adaptive.safe_target() == 0
        advice = await adaptive.recommendations(0)
        assert advice["status"] == "down"
        assert set(advice["workers"]) == {"0", "1", "2"}


class FakeCluster:
    """What `Adaptive` needs of a cluster."""

    scheduler_comm: object

    def __init__(self, scheduler):
        self.scheduler_comm = Calls(scheduler)
        self.plan = self.requested = self.observed = {"0", "1", "2"}


class Calls:
    """Awaitable methods of a scheduler, as over a comm."""

    def __init__(self, scheduler):
        self._scheduler = scheduler

    def __getattr__(self, name):
        handler = self._scheduler.handlers[name]

        async def call(**kwargs):
            answer = handler(**kwargs)
            return await answer if asyncio.iscoroutine(answer) else answer

        return call


# -- retiring ---------------------------------------------------------------------------


def copied(workers):
    return [m for w in workers for m in w.transfer_incoming_log]


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("remove", [True, False])
@gen_test(config=FAST)
async def test_retiring_copies_nothing_for_the_cache(close, remove):
    async with Cluster(workers=3) as c:
        await c.fill()
        for worker in c.workers:
            worker.transfer_incoming_log.clear()
        ran = helpers.calls()
        victim = c.workers[0].address
        only_there = {
            ts.key
            for ts in c.scheduler.workers[victim].has_what
            if len(ts.who_has) == 1 and ts.key in c.plugin.ledger
        }
        assert only_there
        before = c.wanted()
        with helpers.logged("distributed.scheduler") as messages:
            answer = await c.client.retire_workers([victim], close_workers=close, remove=remove)
        assert list(answer) == [victim]
        assert copied(c.workers) == []
        assert c.wanted() == set(c.plugin.ledger.kept) == before - only_there
        assert helpers.calls() == ran
        assert not [m for m in messages if "lose" in m or "Could not retire" in m]
        if not remove:
            await until(lambda: victim not in {ws.address for ws in c.scheduler.running})
        assert await c.client.compute(build().max()) == 1


@gen_test(config=FAST)
async def test_all_workers_retire_at_once():
    async with Cluster(workers=3) as c:
        await c.fill()
        for worker in c.workers:
            worker.transfer_incoming_log.clear()
        with helpers.logged("distributed.scheduler") as messages:
            answer = await c.client.retire_workers(list(c.scheduler.workers), close_workers=True)
        assert len(answer) == 3
        assert copied(c.workers) == []
        assert not [m for m in messages if "lose" in m or "Could not retire" in m]
        assert not c.plugin.ledger.kept and not c.wanted()
        await until(lambda: not c.scheduler.tasks)


@gen_test(config=FAST)
async def test_two_that_retire_hold_the_only_replicas():
    async with Cluster(workers=3) as c:
        await c.fill()
        first, second, third = c.scheduler.workers
        key = next(
            ts.key
            for ts in c.scheduler.workers[first].has_what
            if len(ts.who_has) == 1 and ts.key in c.plugin.ledger
        )
        await c.client.scheduler.replicate(keys=[key], workers=[first, second], n=2)
        assert {ws.address for ws in c.scheduler.tasks[key].who_has} == {first, second}
        for worker in c.workers:
            worker.transfer_incoming_log.clear()
        await c.client.retire_workers([first, second])
        assert copied(c.workers) == []
        assert key not in c.plugin.ledger


@gen_test(config=FAST)
async def test_a_replica_elsewhere_stays_held():
    async with Cluster(workers=3) as c:
        await c.fill()
        first, second, third = c.scheduler.workers
        key = next(
            ts.key
            for ts in c.scheduler.workers[first].has_what
            if len(ts.who_has) == 1 and ts.key in c.plugin.ledger
        )
        await c.client.scheduler.replicate(keys=[key], workers=[first, second], n=2)
        await c.client.retire_workers([first])
        assert key in c.plugin.ledger
        assert {ws.address for ws in c.scheduler.tasks[key].who_has} == {second}


@gen_test(config=FAST)
async def test_what_a_user_holds_is_copied_and_stays_held():
    async with Cluster() as c:
        x = c.client.persist(build(2))
        await wait(x)
        ran = helpers.calls()
        await c.client.retire_workers([c.workers[0].address])
        assert await c.client.compute(x.sum()) == BYTES / 4
        assert {k for k in c.plugin.ledger.kept if k[0] == x.name} == set(x.__dask_keys__())
        assert helpers.calls() == ran


@gen_test(config=FAST)
async def test_what_ends_on_a_retiring_worker_is_not_held():
    """It would be copied for the cache alone, once what waits for it has run."""
    async with Cluster() as c:
        event = distributed.Event("go", client=c.client)

        def blocked(i, event=event):
            event.wait()
            return np.ones(10)

        victim = c.workers[0].address
        f = c.client.submit(blocked, 1, pure=True, workers=[victim])
        await until(lambda: c.scheduler.workers[victim].processing)
        key = f.key
        await c.client.scheduler.retire_workers(workers=[victim], remove=False)
        await event.set()
        await f
        assert key not in c.plugin.ledger
        assert "close" in c.plugin.books.refused[key]
        assert c.wanted() == set(c.plugin.ledger.kept)


@gen_test(config=FAST)
async def test_what_is_waited_for_on_a_retiring_worker_is_only_as_long():
    async with Cluster() as c:
        event = distributed.Event("go", client=c.client)

        def total(block, event=event):
            event.wait()
            return block.sum()

        x = build(1)
        assert await c.client.compute(x.sum()) == BYTES / 8
        await c.let_go()
        key = (x.name, 0)
        assert key in c.plugin.ledger
        (holder,) = (ws.address for ws in c.scheduler.tasks[key].who_has)
        f = c.client.compute(dask.delayed(total, pure=True)(x.to_delayed()[0]))
        await until(lambda: c.scheduler.tasks[key].waiters)
        retiring = asyncio.ensure_future(c.client.retire_workers([holder]))
        await until(lambda: c.scheduler.workers[holder] not in c.scheduler.running)
        assert key not in c.plugin.ledger
        await event.set()
        assert await f == BYTES / 8
        await retiring


# -- rebalancing ------------------------------------------------------------------------


@gen_test(config={**FAST, "distributed.worker.memory.rebalance.measure": "managed"})
async def test_rebalancing_moves_nothing_that_is_only_cached():
    async with Cluster() as c:
        first, second = c.scheduler.workers
        x = build(3)
        with dask.annotate(workers=[first]):
            assert await c.client.compute(x.sum(), optimize_graph=False) == 3 * BYTES / 8
        await c.let_go()
        held = {ts.key for ts in c.scheduler.workers[first].has_what}
        assert len(held) >= 3 and not c.scheduler.workers[second].has_what
        await c.client.rebalance()
        assert {ts.key for ts in c.scheduler.workers[first].has_what} == held
        assert not c.scheduler.workers[second].has_what
        # what somebody holds is
        (f,) = await c.client.scatter([np.ones(BYTES // 16)], workers=[first])
        await c.client.rebalance()
        assert {ts.key for ts in c.scheduler.workers[second].has_what} == {f.key}
        c.scheduler.validate_state()


# -- idle schedulers --------------------------------------------------------------------


@gen_test(config={**FAST, "cachingclient.idle-time": "1s"})
async def test_an_idle_scheduler_closes_when_it_would_without_us():
    """Expiry lies within its patience, and does not start that anew."""
    async with Cluster(idle_timeout="1500ms") as c:
        begin = time.time()
        await c.fill()
        await c.client.close()
        ours = []
        let_go = c.plugin.holder.let_go

        def watch(keys):
            ours.append(c.scheduler.idle_since)
            let_go(keys)
            ours.append(c.scheduler.idle_since)

        c.plugin.holder.let_go = watch
        await until(lambda: (c.scheduler.idle_since or 0) > begin)
        since = c.scheduler.idle_since
        await until(lambda: not c.plugin.ledger.kept)
        await until(lambda: c.scheduler.status.name in ("closing", "closed"))
        assert c.scheduler.idle_since == since
        assert ours[:2] == [since, since]
        assert helpers.calls()


class Transitions(SchedulerPlugin):
    """Counts transitions."""

    def __init__(self):
        self.count = 0

    def transition(self, *args, **kwargs):
        self.count += 1


@gen_test(config=FAST)
async def test_nothing_happens_while_idle():
    """No transition in the time in which the plugin looks whether it is still there, twice."""
    async with Cluster() as c:
        await c.fill()
        looks = []
        is_registered = c.plugin.is_registered
        vigil = c.plugin.vigil

        def look():
            looks.append(1)
            return is_registered()

        vigil._is_there = look
        watch = Transitions()
        c.scheduler.add_plugin(watch, name="watch")
        await until(lambda: len(looks) >= 2)
        assert watch.count == 0
        assert c.wanted()
