"""Workers come and go: nothing is computed, copied or warned of for the cache's sake."""

from __future__ import annotations

import dask
import dask.array as da
import helpers
import numpy as np
import pytest
import utils_cluster
from distributed import wait
from distributed.utils_test import gen_test
from utils_cluster import until

from cachingclient import Client

META = np.empty((0,))
FAST = helpers.KEEN


def slow(block):
    helpers.count()
    return block + 1


def build(n=12):
    return da.zeros(2 * n, chunks=2).map_blocks(slow, dtype="f8", meta=META)


class Cluster(utils_cluster.Cluster):
    async def ask(self, lazy):
        value = await self.client.compute(lazy)
        await self.let_go()
        return value


def states(scheduler):
    return {ts.state for ts in scheduler.tasks.values()}


@pytest.mark.parametrize("way", ["close", "remove", "retire"])
@gen_test(config=FAST)
async def test_nothing_is_computed_for_the_cache(way):
    async with Cluster() as c:
        x = build()
        assert await c.ask(x.sum()) == 24
        assert helpers.ran() == 12
        before = dict(c.plugin.ledger.kept)
        assert len(before) > 12
        victim = c.workers[0]
        lost = {
            ts.key
            for ts in c.scheduler.workers[victim.address].has_what
            if len(ts.who_has) == 1  # others have been copied for their consumers
        }
        assert lost & set(before)
        started = len(c.scheduler.transition_log)
        if way == "close":
            await victim.close()
        elif way == "remove":
            await c.scheduler.remove_worker(victim.address, stimulus_id="test")
        else:
            await c.client.retire_workers([victim.address])
        await until(lambda: victim.address not in c.scheduler.workers)
        assert set(c.plugin.ledger.kept) == set(before) - lost
        assert {ts.key for ts in c.plugin.holder.client.wants_what} == set(before) - lost
        assert states(c.scheduler) <= {"memory", "released"}
        log = list(c.scheduler.transition_log)[started:]
        assert not [t for t in log if t.finish in ("waiting", "processing", "queued")]
        assert helpers.ran() == 0
        # and the next question is answered right, from what is left
        assert await c.ask(x.mean()) == 1
        assert helpers.ran() == sum(k[0] == x.name for k in lost if isinstance(k, tuple))


@gen_test(config=FAST)
async def test_what_a_user_holds_is_computed_again():
    async with Cluster() as c:
        x = c.client.persist(build())
        await wait(x)
        assert helpers.ran() == 12
        await c.workers[0].close()
        await until(lambda: helpers.calls() > 0)
        assert await c.client.compute(x.sum()) == 24


@gen_test(config=FAST)
async def test_retiring_copies_nothing_that_is_only_cached():
    async with Cluster() as c:
        assert await c.ask(build().sum()) == 24
        victim = c.workers[0].address
        assert c.scheduler.workers[victim].nbytes
        await c.client.retire_workers([victim])
        assert not any("get_data" in str(m) for w in c.workers for m in w.transfer_incoming_log)


@gen_test(config=FAST)
async def test_running_computation_heals():
    """A worker is lost while consumers of kept keys run: they end with the right answer."""
    async with Cluster() as c:
        x = build()
        assert await c.ask(x.sum()) == 24
        f = c.client.compute((x * 2).map_blocks(slow, dtype="f8", meta=META).max())
        await until(lambda: any(ts.state == "processing" for ts in c.scheduler.tasks.values()))
        await c.workers[1].close()
        assert await f == 3


@gen_test(config=FAST)
async def test_losing_all_workers_leaves_no_task():
    async with Cluster() as c:
        assert await c.ask(build().sum()) == 24
        for worker in c.workers:
            await worker.close()
        await until(lambda: not c.scheduler.workers)
        await until(lambda: not c.scheduler.tasks)
        assert not c.plugin.ledger.kept
        assert c.plugin.ledger.currsize == 0
        assert not c.plugin.books.paid and not c.plugin.books.outputs


@gen_test(config=FAST)
async def test_limit_follows_workers():
    async with Cluster() as c:
        three = c.plugin.ledger.limit
        await c.workers[0].close()
        await until(lambda: c.plugin.ledger.limit < three)


def test_closing_a_cluster_warns_of_nothing():
    with dask.config.set(FAST), helpers.logged("distributed.scheduler") as messages:
        with Client(**helpers.INPROC) as client:
            assert build().sum().compute() == 24
            assert client.cache.info().keys > 12
    assert not [m for m in messages if "lose" in m]
