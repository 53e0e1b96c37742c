"""What is kept costs the scheduler a constant, and is what it was to everybody else."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Task, TaskRef
from distributed import wait
from helpers import wait_until
from utils_loss import (
    BLOCKS,
    META,
    Cluster,
    build,
    calls_of,
    cluster,
    consumed,
    gate,
    other_client,
    slow,
)

import cachingclient.worker.plugin as worker_plugin
from cachingclient import Client
from cachingclient.scheduler import detaching
from cachingclient.scheduler.recipes import Recipe, assemble


def grow(n):
    helpers.count("grow")
    return n + 1


SUM = BLOCKS * (BLOCKS + 1) / 2


@pytest.fixture
def c():
    with cluster() as c:
        yield c


def test_ancestors_are_forgotten(c):
    x = c.warm()
    assert x.mean().compute() == SUM / BLOCKS
    c.wait_detached()
    assert helpers.calls() == 0
    for ts in c.scheduler.tasks.values():
        assert ts.who_wants == {c.plugin.holder.client} and ts.state == "memory"
    c.wait_forgotten()


def test_few_tasks_are_left_as_they_are(c, monkeypatch):
    monkeypatch.setattr(detaching, "ROOM", 60)
    x = build()
    assert x.sum().compute() == SUM
    helpers.forgotten(c.client)
    c.on_loop(c.detaching._sweep)
    kept = [c.scheduler.tasks[k] for k in c.plugin.ledger.kept]
    assert kept and all(ts.run_spec is not None for ts in kept)
    many = da.full(80, 1, chunks=1).map_blocks(lambda block: block + 1, meta=META)
    assert many.sum().compute() == 160
    helpers.forgotten(c.client)
    wait_until(lambda: any(ts.run_spec is None for ts in c.scheduler.tasks.values()))
    wait_until(lambda: len(c.scheduler.tasks) <= max(60, len(c.plugin.ledger.kept)))
    helpers.ran()
    assert x.mean().compute() == SUM / BLOCKS
    assert many.max().compute() == 2 and not helpers.calls()


def test_workers_forget_them_too(c):
    """They would know of each task for as long as they have what was made of it."""
    x = c.warm()
    workers = c.client.cluster.workers.values()

    def known():
        alive = [w for w in workers if w.address in c.scheduler.workers]
        return {key for worker in alive for key in worker.state.tasks}

    wait_until(lambda: known() == set(c.plugin.ledger.kept))

    def validate():
        for worker in workers:
            worker.state.validate_state()

    c.on_loop(validate)
    # They can be computed again there, and their parts are used.
    victim = max(c.scheduler.workers, key=lambda a: len(c.blocks_on(a, x.name)))
    total = c.client.compute(x.sum())
    y = (x * 2).persist()
    wait([y, total], 30)
    c.on_loop(validate)
    c.lose(victim)
    assert y.sum().compute() == 2 * SUM and total.result(timeout=30) == SUM
    del y, total
    c.wait_forgotten()
    wait_until(lambda: not known())


def test_where_workers_cannot_forget_all_get_their_tasks_back(monkeypatch):
    """They would wait for what a task had needed, where it comes again without needing it."""

    def fail(*args):
        raise AttributeError("dask has changed")

    monkeypatch.setattr(worker_plugin, "forget_ancestors", fail)
    with dask.config.set(helpers.KEEN), Client(**{**helpers.INPROC, "n_workers": 1}) as client:
        c = Cluster(client)
        x = build()
        assert x.sum().compute() == SUM
        # First they are forgotten, and then they are there again.
        wait_until(lambda: c.detaching._ended and not c.detaching._idle)
        for key in c.plugin.ledger.kept:
            ts = c.scheduler.tasks[key]
            assert ts.run_spec is not None and ts.run_spec.dependencies <= c.scheduler.tasks.keys()
        # All but the final result, by which the worker still knows what it was made of.
        parts = [k for k in c.plugin.ledger.kept if isinstance(k, tuple)]
        assert len(parts) < len(c.plugin.ledger.kept)
        c.on_loop(c.plugin.release.now, parts)
        with dask.annotate(cache=False):
            future = client.compute(x.sum())
        assert future.result(timeout=20) == SUM
        helpers.validate(client)


def test_restarted_while_tasks_are_packed(c, monkeypatch):
    """What is kept afterwards is detached as well."""
    go_on = threading.Event()
    pack = detaching.Draft.pack

    def slow_pack(draft):
        assert go_on.wait(30)
        return pack(draft)

    monkeypatch.setattr(detaching.Draft, "pack", slow_pack)
    try:
        assert build().sum().compute() == SUM
        wait_until(lambda: c.detaching._packing is not None)
        c.wait_forgotten()
        c.on_loop(c.plugin.restart, c.scheduler)
    finally:
        go_on.set()
    helpers.ran()
    c.warm()
    c.wait_forgotten()


def test_what_a_user_holds_is_not_detached(c):
    y = build().persist()
    total = y.sum().persist()
    wait([y, total], 30)
    detaching_has_looked(c)
    tasks = c.scheduler.tasks
    keys = [f.key for f in distributed.futures_of([y, total])]
    assert all(tasks[k].run_spec is not None and tasks[k].dependencies for k in keys)
    del y, total
    c.wait_detached()
    c.wait_forgotten()


def detaching_has_looked(c):
    """Wait for a sweep that found nothing to do."""
    wait_until(lambda: c.detaching._pause > detaching.SHORT or c.detaching._timer is None)


def test_nothing_happens_while_there_is_nothing_to_detach(c):
    """Every transition restarts the clock of the scheduler's idle-timeout."""
    c.warm()
    assert c.detaching._timer is None
    seen = len(c.scheduler.transition_log)
    y = build().persist()
    wait(y, 30)
    detaching_has_looked(c)
    assert c.detaching._timer is not None
    log = list(c.scheduler.transition_log)[seen:]
    assert [t for t in log if "cachingclient" in t.stimulus_id] == []
    assert len(log) == 0 and helpers.calls() == 0
    del y
    c.wait_forgotten()


def test_sweeps_become_rare(c, monkeypatch):
    y = build().persist()
    wait(y, 30)
    monkeypatch.setattr(detaching, "LONG", 1.0)
    wait_until(lambda: c.detaching._pause == 1.0)
    del y
    c.wait_detached()


@pytest.mark.parametrize("plain", [False, True], ids=["caching", "plain"])
def test_graph_that_has_a_detached_key_attaches_it(c, plain):
    x = c.warm()
    with helpers.logged("distributed.scheduler") as messages, other_client(c, plain) as other:
        with dask.annotate(cache=True) if plain else dask.annotate():
            y = other.persist(x, optimize_graph=False)
        wait(y, 30)
        assert helpers.calls() == 0
        total = other.compute(x.sum(), optimize_graph=False)
        assert total.result(timeout=30) == SUM
        if plain:
            ts = c.scheduler.tasks[(x.name, 0)]
            assert ts.run_spec is not None and ts.dependencies
        del y, total
        helpers.forgotten(other)
    assert [m for m in messages if "run_spec" in m] == []
    c.wait_detached()
    c.wait_forgotten()


def test_plain_graph_while_a_pruned_one_uses_the_key(c):
    """It is the same task to the scheduler, and leaves nothing behind."""
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    c.wait_consuming(x.name)
    wait_until(lambda: all(c.detaching.in_use.values()))
    assert c.detaching.in_use
    with helpers.logged("distributed.scheduler") as messages, other_client(c, True) as other:
        total = other.compute(x.sum(), optimize_graph=False)
        gate.set()
        assert total.result(timeout=30) == SUM
        assert future.result(timeout=30) > 0
        del total, future
        helpers.forgotten(other)
    assert [m for m in messages if "run_spec" in m] == []
    assert not calls_of("slow")
    c.wait_forgotten()


def test_disabled_while_a_pruned_graph_uses_the_key(c):
    x = c.warm()
    future = c.client.compute(consumed(x).sum())
    c.wait_consuming(x.name)
    with helpers.logged("distributed.scheduler") as messages:
        with c.client.cache.disabled():
            total = c.client.compute(x.max(), optimize_graph=False)
        gate.set()
        assert total.result(timeout=30) == BLOCKS
        assert future.result(timeout=30) > 0
    assert [m for m in messages if "run_spec" in m] == []
    del total, future
    c.wait_forgotten()


def test_no_restriction_stays(c):
    """Where it had to run once is nothing to a later graph."""
    x = build()
    first, second, _ = c.scheduler.workers
    assert c.client.compute(x.sum(), workers=[first], retries=3).result() == SUM
    c.wait_detached()
    for ts in c.scheduler.tasks.values():
        assert not ts.worker_restrictions and not ts.retries
    c.lose(first)
    wait_until(lambda: not c.scheduler.tasks)
    assert c.client.compute(x.sum(), workers=[second]).result(timeout=30) == SUM
    c.wait_forgotten()


def test_restrictions_come_back_with_the_tasks(c):
    """What is healed runs where its user had said."""
    x = build()
    allowed = list(c.scheduler.workers)[:2]
    y = c.client.persist(x, workers=allowed)
    wait(y, 30)
    del y
    c.wait_detached()
    helpers.ran()
    y = c.client.persist(x, workers=allowed)
    wait(y, 30)
    assert helpers.calls() == 0
    c.lose(allowed[0])
    wait_until(helpers.calls)
    keys = {f.key for f in distributed.futures_of(y)}
    tasks = c.scheduler.tasks
    wait_until(lambda: all(tasks[key].state == "memory" for key in keys))
    assert {ws.address for key in keys for ws in tasks[key].who_has} == {allowed[1]}
    del y
    c.wait_forgotten()


def test_submitted_and_mapped(c):
    one = c.client.submit(slow, np.array([1.0]), pure=True)
    two = c.client.submit(slow, one, pure=True)
    three = c.client.map(grow, [4, 5], pure=True)
    assert (two.result()[0], c.client.gather(three)) == (3, [5, 6])
    del one, two, three
    c.wait_detached()
    helpers.ran()
    one = c.client.submit(slow, np.array([1.0]), pure=True)
    three = c.client.map(grow, [4, 5], pure=True)
    assert (one.result()[0], c.client.gather(three)) == (2, [5, 6])
    assert helpers.calls() == 0
    del one, three
    c.wait_forgotten()


def test_scattered_data_is_released_and_the_key_submitted_again(c):
    """Pinned with its ancestors it would be cancelled when its worker is lost."""
    data = c.client.scatter(np.array([1.0]))
    future = c.client.submit(slow, data, pure=True)
    assert future.result()[0] == 2
    key = future.key
    del data, future
    c.wait_detached()
    data = c.client.scatter(np.array([1.0]), broadcast=True)
    future = c.client.submit(slow, data, key=key)
    assert future.result()[0] == 2
    (holder,) = c.scheduler.tasks[key].who_has
    c.lose(holder.address)
    assert future.result(timeout=30)[0] == 2
    del data, future
    c.wait_forgotten()


def test_shuffle_outputs(c):
    frame = pd.DataFrame({"k": np.arange(40) % 7, "v": 1.0})
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        shuffled = dd.from_pandas(frame, npartitions=4).shuffle("k")
        for _ in range(2):
            assert len(shuffled.compute()) == 40
            c.wait_detached()
    for ts in c.scheduler.tasks.values():
        assert not ts.worker_restrictions
    c.wait_forgotten()


@pytest.mark.parametrize("detached", [True, False], ids=["detached", "attached"])
def test_cancelling_what_a_kept_key_was_made_of(c, detached):
    """The user's other futures stay alive."""
    x = build()
    y = x.persist()
    assert y.sum().compute() == SUM
    if detached:
        del y
        c.wait_detached()
        y = x.persist()
    other = c.client.submit(int, 5)
    total = c.client.compute(x.mean())
    assert total.result() == SUM / BLOCKS
    c.client.cancel(y)
    assert other.result() == 5 and total.result() == SUM / BLOCKS
    assert not other.cancelled()
    assert c.client.submit(int, 7).result() == 7
    assert x.sum().compute() == SUM
    del y, other, total
    c.wait_forgotten()


def test_cleared_by_what_it_was_made_of(c):
    x, other = c.warm(), build() + 1
    assert other[:2].sum().compute() == 5
    z = da.ones(4, chunks=2).map_blocks(lambda b: b + 3, dtype="f8", meta=META)
    assert z.sum().compute() == 16
    c.wait_detached()
    kept = set(c.plugin.ledger.kept)
    c.client.cache.clear(x)
    wait_until(lambda: set(c.plugin.ledger.kept) < kept)
    names = {str(k) for k in c.plugin.ledger.kept}
    assert any(z.name in name for name in names)
    assert not any(x.name in name for name in names)
    helpers.ran()
    assert z.sum().compute() == 16 and helpers.calls() == 0
    c.wait_forgotten()


# -- how much the scheduler keeps -----------------------------------------------------


def test_least_valuable_go_where_recipes_take_too_much(c):
    for i in range(4):
        assert (build() + i).sum().compute() == SUM + i * BLOCKS
        c.wait_detached()
    assert c.detaching.size > 0
    before = c.client.cache.info()
    c.detaching.limit = c.detaching.size
    value = build() + 10
    assert value.sum().compute() == SUM + 10 * BLOCKS
    helpers.forgotten(c.client)
    wait_until(lambda: c.client.cache.info().evictions > before.evictions)
    wait_until(lambda: c.detaching.size <= c.detaching.limit)
    c.wait_forgotten()


def test_tasks_that_hold_much_are_not_packed(c):
    data = np.random.default_rng(0).random(100_000)
    c.detaching.limit = 2 * data.nbytes
    x = da.from_array(data, chunks=50_000).map_blocks(slow, dtype="f8", meta=META)
    assert x.sum().compute() == pytest.approx(data.sum() + len(data))
    helpers.forgotten(c.client)
    wait_until(lambda: c.detaching._stuck or not c.plugin.ledger.kept)
    c.detaching.limit = data.nbytes / 2
    c.on_loop(c.detaching._fit)
    wait_until(lambda: not c.detaching._stuck)
    c.wait_forgotten()


def test_limit_is_a_setting():
    with dask.config.set({"cachingclient.scheduler-memory": "3 MiB"}), cluster() as c:
        assert c.detaching.limit == 3 * 2**20


# -- recipes --------------------------------------------------------------------------


def chain(*keys):
    tasks = {keys[0]: Task(keys[0], int, 1)}
    for before, key in zip(keys, keys[1:]):
        tasks[key] = Task(key, abs, TaskRef(before))
    return tasks


def test_recipe_is_packed_and_unpacked():
    for data in (1, np.random.default_rng(0).bytes(2 * 2**20)):
        recipe = Recipe({"x": Task("x", len, data)}, {"x": {"retries": 2}})
        tasks, annotations = recipe.unpack()
        assert tasks["x"].args == (data,) and annotations == {"x": {"retries": 2}}
        assert recipe.length == 1 and recipe.names == {"x"}


def test_recipes_go_on_in_others():
    first = Recipe(chain("a", "b"), {"b": {"retries": 2}})
    second = Recipe({"c": Task("c", abs, TaskRef("b"))}, {}, [first])
    third = Recipe({"d": Task("d", max, TaskRef("b"), TaskRef("c"))}, {}, [second, first])
    graph = assemble(["d"], [third], lambda key: False)
    assert set(graph.tasks) == {"a", "b", "c", "d"} and not graph.outside
    assert graph.annotations == {"retries": {"b": 2}}
    graph = assemble(["d"], [third], {"b", "d"}.__contains__)
    assert set(graph.tasks) == {"c", "d"} and graph.outside == {"b"}


def test_what_no_recipe_has_is_left_to_others():
    graph = assemble(["x"], [Recipe({"x": Task("x", abs, TaskRef("data"))}, {})], lambda key: False)
    assert set(graph.tasks) == {"x"} and graph.outside == {"data"}
