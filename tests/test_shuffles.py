"""P2P shuffles: of them their outputs are held alone, and they end right whatever is held."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import helpers
import numpy as np
import pandas as pd
import pytest
import utils_cluster
from distributed.shuffle._exceptions import P2PConsistencyError
from distributed.utils_test import gen_test
from utils_cluster import until

from cachingclient.admission import key_name
from cachingclient.tasks import is_barrier, is_p2p

META = np.empty((0, 0))
FAST = {
    "cachingclient.min-cost": "0s",
    "cachingclient.task-overhead": "0s",
    "dataframe.shuffle.method": "p2p",
    "array.rechunk.method": "p2p",
}
FOLLOWED, OUTPUTS = ["frame", "array"], ["outputs of a frame", "outputs of an array"]
KINDS = [*FOLLOWED, *OUTPUTS]
N = 8


def slow(block):
    helpers.count("slow")
    return block + 1


def later(block):
    helpers.count("later")
    return block * 2


def make(kind):
    """A slow source, shuffled, and something slow after it, or nothing."""
    if kind.endswith("array"):
        x = da.from_array(np.arange(64.0).reshape(8, 8), chunks=(1, 8))
        x = x.map_blocks(slow, dtype="f8", meta=META)
        x = x.rechunk((8, 1))
        return x if kind in OUTPUTS else x.map_blocks(later, dtype="f8", meta=META)
    frame = pd.DataFrame({"a": np.arange(64) % N, "b": np.arange(64.0)})
    df = dd.from_pandas(frame, npartitions=N, sort=False)
    df = df.map_partitions(slow, meta=frame.iloc[:0])
    df = df.shuffle("a", npartitions=N)
    return df if kind in OUTPUTS else df.map_partitions(later, meta=frame.iloc[:0])


def questions(kind, made):
    by = 1.0 if kind in OUTPUTS else 2.0
    values = made if kind.endswith("array") else made.b
    return [
        (values.sum(), by * (2016 + 64)),
        (values.max(), by * 64),
        (values.min(), by),
    ]


class Cluster(utils_cluster.Cluster):
    stays_on = True

    @property
    def shuffles(self):
        return self.scheduler.plugins["shuffle"]

    async def ask(self, lazy):
        answer = await self.client.compute(lazy)
        self.check()
        return float(answer)

    def shuffled(self):
        """How many shuffles ran."""
        return sum(
            t.finish == "memory" and str(t.key).startswith("shuffle-barrier")
            for t in self.scheduler.transition_log
        )

    def drop_half(self):
        """Let go of all that follows the shuffle but every other block of one layer."""
        kept = self.plugin.ledger.kept
        blocks = [k for k in kept if key_name(k).startswith(("later", "rechunk-p2p", "p2pshuffle"))]
        blocks = [k for k in blocks if key_name(k) == key_name(blocks[-1])]
        assert len(blocks) == N
        left = {*blocks[1::2], *(k for k in kept if str(k).startswith(("slow", "('slow")))}
        self.plugin.release.now([k for k in kept if k not in left])
        self.check()

    async def end(self, future, lazy):
        """The answer, also where the shuffle did not survive the loss of a worker.

        That happens to plain clients as well (10 of 30 rechunks): the barrier runs before the
        scheduler has started the shuffle anew. What counts is that it can be asked for again.
        """
        try:
            return float(await future)
        except P2PConsistencyError:
            future.release()
            await self.let_go()
            return float(await self.client.compute(lazy))

    def check(self):
        """Nothing of a shuffle's insides is held."""
        for ts in self.plugin.holder.client.wants_what:
            if ts.run_spec is not None and is_p2p(ts.run_spec):
                assert any(is_barrier(d.run_spec) for d in ts.dependencies), ts
            assert not str(ts.key).startswith("shuffle-barrier")
            assert "transfer" not in str(ts.key)

    async def closed(self):
        """The runs are over: no worker is kept by them."""
        await until(lambda: not self.shuffles.active_shuffles)
        workers = [w for w in self.workers if w.status.name == "running"]
        await until(
            lambda: not any(w.plugins["shuffle"].shuffle_runs._active_runs for w in workers)
        )
        assert len(self.scheduler.workers_to_close()) == len(self.scheduler.workers)


@pytest.mark.parametrize("kind", KINDS)
@gen_test(config=FAST, timeout=60)
async def test_what_comes_out_is_held_and_nothing_inside(kind):
    async with Cluster() as c:
        made = make(kind)
        (first, want), *others = questions(kind, made)
        assert await c.ask(first) == want
        await c.let_go()
        await c.closed()
        for lazy, want in others:
            assert await c.ask(lazy) == want
        assert helpers.calls("slow") == N and c.shuffled() == 1
        assert helpers.calls("later") == (N if kind in FOLLOWED else 0)
        await c.let_go()
        await c.closed()


@pytest.mark.parametrize("kind", KINDS)
@gen_test(config=FAST, timeout=60)
async def test_half_of_what_follows_is_gone(kind):
    """The shuffle runs again whole, for the other half."""
    async with Cluster() as c:
        made = make(kind)
        (first, want), (second, then), (third, last) = questions(kind, made)
        assert await c.ask(first) == want
        await c.let_go()
        await c.closed()
        c.drop_half()
        assert await c.ask(second) == then
        assert c.shuffled() == 2
        assert helpers.calls("later") == (N + N // 2 if kind in FOLLOWED else 0)
        await c.let_go()
        await c.closed()
        assert await c.ask(third) == last
        assert c.shuffled() == 2
        assert helpers.calls("later") == (N + N // 2 if kind in FOLLOWED else 0)


@pytest.mark.parametrize("kind", KINDS)
@gen_test(config=FAST, timeout=60)
async def test_a_source_is_held_and_what_follows_is_not(kind):
    async with Cluster() as c:
        made = make(kind)
        (first, want), (second, then), _ = questions(kind, made)
        assert await c.ask(first) == want
        await c.let_go()
        c.plugin.release.now(list(c.plugin.ledger.kept))
        await c.closed()
        await until(lambda: not c.scheduler.tasks)
        assert await c.ask(second) == then
        assert c.shuffled() == 2


@pytest.mark.parametrize("kind", KINDS)
@gen_test(config=FAST, timeout=60)
async def test_a_worker_is_lost_after_it(kind):
    """Nothing is computed for the cache; the next answer is right."""
    async with Cluster() as c:
        made = make(kind)
        (first, want), (second, then), (third, last) = questions(kind, made)
        assert await c.ask(first) == want
        await c.let_go()
        await c.closed()
        ran = helpers.calls()
        await c.workers[0].close()
        await until(lambda: len(c.scheduler.workers) == 2)
        assert {ts.state for ts in c.scheduler.tasks.values()} <= {"memory", "released"}
        assert not c.shuffles.active_shuffles
        assert helpers.calls() == ran
        assert await c.ask(second) == then
        await c.let_go()
        await c.closed()
        await c.client.retire_workers([c.workers[1].address])
        assert await c.ask(third) == last
        await c.let_go()
        await c.closed()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", [False, True])
@gen_test(config=FAST, timeout=60)
async def test_a_worker_is_lost_in_the_middle(kind, held):
    async with Cluster() as c:
        made = make(kind)
        (first, want), (second, then), _ = questions(kind, made)
        if held:  # half of what follows is held when it happens
            assert await c.ask(first) == want
            await c.let_go()
            c.drop_half()
            await c.closed()
        future = c.client.compute(second)
        await until(lambda: c.shuffles.active_shuffles)
        await c.workers[2].close()
        assert await c.end(future, second) == then
        del future
        c.check()
        await c.let_go()
        await c.closed()


@pytest.mark.parametrize("kind", KINDS)
@gen_test(config=FAST, timeout=60)
async def test_all_is_let_go_in_the_middle(kind):
    async with Cluster() as c:
        made = make(kind)
        (first, want), (second, then), _ = questions(kind, made)
        assert await c.ask(first) == want
        await c.let_go()
        c.drop_half()
        await c.closed()
        future = c.client.compute(second)
        await until(lambda: c.shuffles.active_shuffles)
        c.plugin.clear()
        assert float(await future) == then
        del future
        await c.let_go()
        await c.closed()


@gen_test(config=FAST, timeout=60)
async def test_a_merge_of_what_is_held():
    async with Cluster() as c:
        left = make("frame")
        frame = pd.DataFrame({"a": range(N), "c": np.arange(N) * 10.0})
        right = dd.from_pandas(frame, npartitions=N, sort=False)
        right = right.map_partitions(slow, meta=frame.iloc[:0])
        pandas = _pandas_left().merge(frame + 1, on="a")
        for _ in range(2):
            merged = left.merge(right, on="a")
            assert await c.ask(merged.c.sum()) == pandas.c.sum()
            assert await c.ask(merged.b.sum()) == pandas.b.sum()
            await c.let_go()
            await c.closed()


@gen_test(config=FAST, timeout=60)
async def test_what_a_merge_returned_is_held():
    async with Cluster() as c:
        frame = pd.DataFrame({"a": range(N), "c": np.arange(N) * 10.0})
        right = dd.from_pandas(frame, npartitions=N, sort=False)
        merged = make("frame").merge(right, on="a")
        pandas = _pandas_left().merge(frame, on="a")
        for factor in (1, 2, 3):
            scaled = merged.map_partitions(pd.DataFrame.mul, factor, meta=pandas.iloc[:0])
            assert await c.ask(scaled.c.sum()) == factor * pandas.c.sum()
            await c.let_go()
            await c.closed()
        # One of the first frame, and one for each side of the merge.
        assert c.shuffled() == 3 and helpers.calls("later") == N


def _pandas_left():
    frame = pd.DataFrame({"a": np.arange(64) % N, "b": np.arange(64.0)})
    return (frame + 1) * 2


@gen_test(config=FAST, timeout=60)
async def test_the_tests_shuffle_p2p():
    async with Cluster() as c:
        for kind in KINDS:
            before = len(c.scheduler.transition_log)
            lazy, want = questions(kind, make(kind))[0]
            assert await c.ask(lazy) == want
            log = list(c.scheduler.transition_log)[before:]
            assert any(str(t.key).startswith("shuffle-barrier") for t in log)
