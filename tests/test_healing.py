"""Holders of kept results are lost while these are in use: whoever waits gets what is right."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import dask
import distributed
import helpers
import pytest
from distributed import wait
from distributed.protocol.pickle import dumps
from helpers import wait_until
from utils_loss import (
    BLOCKS,
    TOTAL,
    Cluster,
    build,
    calls_of,
    cluster,
    consumed,
    gate,
    other_client,
)

from cachingclient import caching
from cachingclient.config import read_settings
from cachingclient.scheduler import healing
from cachingclient.scheduler.plugin import CachePlugin


@pytest.fixture
def c():
    with cluster() as c:
        yield c


def lose_in_the_middle(c, x):
    """Lose a worker whose blocks are being consumed; returns what may be computed again."""
    victim = c.wait_consuming(x.name)
    lost = c.blocks_on(victim, x.name)
    running = {ts.key for ts in c.scheduler.workers[victim].processing if isinstance(ts.key, tuple)}
    lost_results = {
        ts.key
        for ts in c.scheduler.workers[victim].has_what
        if len(ts.who_has) == 1 and isinstance(ts.key, tuple)
    }
    c.lose(victim)
    gate.set()
    return lost, {k[1] for k in running | lost_results}


def check_only_lost_ran(lost, consumers):
    ran = calls_of("slow")
    assert ran and set(ran) <= lost
    assert max(ran.values()) == 1
    again = {i for i, n in calls_of("consume").items() if n > 1}
    assert again <= consumers


def test_get(c):
    x = c.warm()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(consumed(x).sum().compute)
        affected = lose_in_the_middle(c, x)
        assert answer.result(30) == TOTAL
    check_only_lost_ran(*affected)
    del answer
    c.wait_forgotten()


@pytest.mark.parametrize("quick", [0, healing.QUICK], ids=["in a thread", "at once"])
def test_compute(c, quick, monkeypatch):
    monkeypatch.setattr(healing, "QUICK", quick)
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    affected = lose_in_the_middle(c, x)
    assert future.result(timeout=30) == TOTAL
    check_only_lost_ran(*affected)
    del future
    c.wait_forgotten()


def test_persist(c):
    x = c.warm()
    y = consumed(x).persist()
    affected = lose_in_the_middle(c, x)
    wait(y, 30)
    assert y.sum().compute() == TOTAL
    check_only_lost_ran(*affected)
    del y
    c.wait_forgotten()


@pytest.mark.parametrize("plain", [False, True], ids=["caching", "plain"])
def test_second_client(c, plain):
    """Two clients wait for the same: one pruned it, the other may have sent all of it."""
    x = c.warm()
    with other_client(c, plain) as other:
        mine = c.client.compute(consumed(x).sum())
        # A plain client's graph has the keys that are kept when nothing is fused.
        theirs = other.compute(consumed(build()).max(), optimize_graph=not plain)
        lost, _ = lose_in_the_middle(c, x)
        assert mine.result(timeout=30) == TOTAL
        assert theirs.result(timeout=30) == 2 * BLOCKS
        ran = calls_of("slow")
        assert ran and set(ran) <= lost and max(ran.values()) == 1
        del mine, theirs
        helpers.forgotten(other)
    c.wait_forgotten()


def test_chained_use(c):
    """What was persisted from kept blocks is used later."""
    x = c.warm()
    y = (x + 1).persist()
    wait(y, 30)
    future = c.client.compute(consumed(y - 1).sum())
    affected = lose_in_the_middle(c, x)
    assert future.result(timeout=30) == TOTAL
    ran = calls_of("slow")
    assert set(ran) <= affected[0] and max(ran.values(), default=0) <= 1
    assert y.sum().compute() == BLOCKS * (BLOCKS + 3) / 2
    del y, future
    c.wait_forgotten()


@pytest.mark.parametrize("quick", [0, healing.QUICK], ids=["in a thread", "at once"])
@pytest.mark.parametrize("way", ["future", "persisted"])
def test_answered_from_the_cache(c, way, quick, monkeypatch):
    """A future that was answered from the cache outlives its worker."""
    monkeypatch.setattr(healing, "QUICK", quick)
    x = c.warm()
    held = c.client.compute(x.sum()) if way == "future" else c.client.persist(x)
    wait(held, 30)
    assert helpers.calls() == 0
    keys = {f.key for f in distributed.futures_of(held)}
    victim = max(
        c.scheduler.workers.values(), key=lambda ws: sum(ts.key in keys for ts in ws.has_what)
    )
    lost = c.blocks_on(victim.address, x.name)
    c.lose(victim.address)
    if way == "future":
        assert held.result(timeout=30) == BLOCKS * (BLOCKS + 1) / 2
    else:
        assert held.sum().compute() == BLOCKS * (BLOCKS + 1) / 2
    wait_until(lambda: all(c.scheduler.tasks[key].state == "memory" for key in keys))
    ran = calls_of("slow")
    assert ran and set(ran) <= lost and max(ran.values()) == 1
    del held
    c.wait_forgotten()


def test_loss_of_two_holders(c):
    """One after the other, before the first is healed."""
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    first = c.wait_consuming(x.name)
    second = next(a for a in c.scheduler.workers if a != first)

    async def both():
        await c.scheduler.remove_worker(first, stimulus_id="test")
        await c.scheduler.remove_worker(second, stimulus_id="test")

    c.on_loop(both)
    gate.set()
    assert future.result(timeout=30) == TOTAL
    assert max(calls_of("slow").values()) == 1
    del future
    c.wait_forgotten()


def test_what_is_lost_and_not_needed_is_not_computed(c):
    x = c.warm()
    victim = next(a for a in c.scheduler.workers if c.blocks_on(a, x.name))
    started = len(c.scheduler.transition_log)
    lost = {ts.key for ts in c.scheduler.workers[victim].has_what if len(ts.who_has) == 1}
    with helpers.logged("distributed.scheduler") as messages:
        c.lose(victim)
    # neither of data that cannot be recovered, nor of any that will be computed again
    assert messages == []
    assert lost.isdisjoint(c.scheduler.tasks)
    log = list(c.scheduler.transition_log)[started:]
    assert {(t.start, t.finish) for t in log} == {("memory", "forgotten")}
    assert helpers.calls() == 0
    c.wait_forgotten()


def test_cancelled_while_it_heals(c, monkeypatch):
    """Nobody waits any more when the recipe has been unpacked."""
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    victim = c.wait_consuming(x.name)
    healer = c.detaching.healing
    heal, waiting = healer._attach, []

    def attach(*args):
        if not waiting:
            waiting.append(True)
            return False
        return heal(*args)

    monkeypatch.setattr(healer, "_attach", attach)
    c.lose(victim)
    future.cancel()
    gate.set()
    del future
    c.wait_forgotten()


def test_graph_arrives_while_it_is_lost(c, monkeypatch):
    """A plain client submits all of it before the recipe is unpacked: that heals it."""
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    victim = c.wait_consuming(x.name)
    healer = c.detaching.healing
    monkeypatch.setattr(healer, "_attach", lambda *args: False)
    monkeypatch.setattr(healing, "ATTEMPTS", 10**6)
    c.lose(victim)
    wait_until(lambda: healer.parked)
    with other_client(c, plain=True) as other:
        theirs = other.compute(build().sum(), optimize_graph=False)
        wait_until(lambda: not healer.parked)
        gate.set()
        assert theirs.result(timeout=30) == BLOCKS * (BLOCKS + 1) / 2
        assert future.result(timeout=30) == TOTAL
        del theirs, future
        helpers.forgotten(other)
    c.wait_forgotten()


def test_what_cannot_be_healed_is_sent_again(c, monkeypatch):
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    victim = c.wait_consuming(x.name)
    monkeypatch.setattr(c.detaching.healing, "_attach", lambda *args: False)
    c.lose(victim)
    gate.set()
    assert future.result(timeout=30) == TOTAL
    del future
    c.wait_forgotten()


def test_needed_before_it_has_its_tasks_again(c, monkeypatch):
    """Let go of and lost in the same moment: what it depends on may not run either."""
    x = c.warm()
    y = (x * 2).persist()
    wait(y, 30)
    wait_until(lambda: all(c.detaching.in_use.values()) and c.detaching.in_use)
    healer = c.detaching.healing
    start = healer._start
    monkeypatch.setattr(healer, "_start", lambda: None)
    c.client.cache.clear()
    wait_until(lambda: c.scheduler.tasks[x.name, 0].state == "released")
    c.lose(next(a for a in c.scheduler.workers if c.blocks_on(a, y.name)))
    assert any(ts.state == "no-worker" for ts in c.scheduler.tasks.values())
    monkeypatch.undo()
    c.on_loop(start)
    assert y.sum().compute() == BLOCKS * (BLOCKS + 1)
    assert max(calls_of("slow").values()) == 1
    del y
    c.wait_forgotten()


def test_one_that_is_hopeless_does_not_keep_others_from_healing(c, monkeypatch):
    x = c.warm()
    y = x.persist()
    wait(y, 30)
    victim = max(c.scheduler.workers, key=lambda a: len(c.blocks_on(a, x.name)))
    lost = c.blocks_on(victim, x.name)
    assert len(lost) > 1
    healer = c.detaching.healing
    heal, hopeless = healer._attach, (x.name, min(lost))
    monkeypatch.setattr(
        healer, "_attach", lambda keys, *args: hopeless not in keys and heal(keys, *args)
    )
    c.lose(victim)
    futures = {f.key: f for f in distributed.futures_of(y)}
    wait_until(futures[hopeless].cancelled)
    wait_until(lambda: set(calls_of("slow")) == {i for i in lost if (x.name, i) != hopeless})
    others = [f for key, f in futures.items() if key != hopeless]
    wait(others, 30)
    assert not any(f.cancelled() for f in others)
    del y, futures, others
    c.wait_forgotten()


def test_another_plugin_is_registered_at_the_moment_of_a_loss(c):
    """What is lost then is healed by the first one, and what is lost later by the second."""
    x = c.warm()
    y = x.persist()
    wait(y, 30)

    async def lose_and_register(victim):
        new = CachePlugin(read_settings(None))
        await asyncio.gather(
            c.scheduler.remove_worker(victim, stimulus_id="test"),
            c.scheduler.register_scheduler_plugin(dumps(new), idempotent=False),
        )

    for _ in range(2):
        helpers.ran()
        victim = next(a for a in c.scheduler.workers if c.blocks_on(a, x.name))
        lost = c.blocks_on(victim, x.name)
        c.on_loop(lose_and_register, victim)
        assert not wait(y, 30).not_done
        assert calls_of("slow") == Counter(lost)
    del y
    c.plugin = c.scheduler.plugins["cachingclient"]
    c.detaching = c.plugin.detaching
    c.wait_forgotten()


@pytest.fixture
def keen_plain():
    """A plain client that is made a caching one for a while."""
    with dask.config.set(helpers.KEEN):
        with distributed.Client(**{**helpers.INPROC, "n_workers": 3}) as client:
            yield client
            helpers.validate(client)


def test_cache_is_left_while_its_results_are_used(keen_plain):
    """What users hold can be lost when the cache has gone, as with any client."""
    with caching(keen_plain):
        c = Cluster(keen_plain)
        x = c.warm()
        held = x.sum().persist()
        y = x.persist()
        wait([held, y], 30)
        assert c.detaching.stands_in((x.name, 0))
    assert helpers.calls() == 0
    assert "cachingclient" not in c.scheduler.plugins
    for address in list(c.scheduler.workers)[:2]:
        c.lose(address)
    assert y.sum().compute() == held.compute() == BLOCKS * (BLOCKS + 1) / 2
    assert max(calls_of("slow").values()) == 1
    del held, y
    helpers.forgotten(keen_plain)
    wait_until(lambda: not c.scheduler.tasks)


def test_switched_off_while_its_results_are_used(c, errors_of_ours):
    x = c.warm()
    y = x.persist()
    wait(y, 30)
    c.on_loop(c.plugin.switch_off, RuntimeError("of the test"))
    for address in list(c.scheduler.workers)[:2]:
        c.lose(address)
    assert y.sum().compute() == BLOCKS * (BLOCKS + 1) / 2
    assert max(calls_of("slow").values()) == 1
    errors_of_ours.clear()
    del y
    helpers.forgotten(c.client)
    wait_until(lambda: not c.scheduler.tasks)
    c.plugin.off = False  # as the fixture expects
