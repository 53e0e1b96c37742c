"""What a client can do with futures is the same where their keys are held by the cache too.

Most tests run with a plain client as well: what they expect is what that one does.
"""

from __future__ import annotations

import asyncio
import time

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from distributed import (
    CancelledError,
    LocalCluster,
    Nanny,
    Queue,
    Scheduler,
    Variable,
    Worker,
    as_completed,
    fire_and_forget,
    wait,
)
from distributed.utils_test import gen_test
from helpers import calls, count, forgotten, ran, wait_until
from utils_cluster import until

from cachingclient import Client, caching
from cachingclient.scattering import is_named_by_content, is_plain, trustworthy

META = np.empty((0,))
FAST = helpers.KEEN


@pytest.fixture(autouse=True)
def keep_everything():
    with dask.config.set(FAST):
        yield


@pytest.fixture
def cluster():
    """Workers of this process, reached as others are: what is sent to them is copied."""
    how = {**helpers.INPROC, "protocol": "tcp"}
    with LocalCluster(**how) as cluster:
        yield cluster


@pytest.fixture(params=[distributed.Client, Client], ids=["plain", "caching"])
def client(request, cluster):
    with request.param(cluster) as client:
        yield client
        helpers.validate(client)


@pytest.fixture
def caching_client(cluster):
    with Client(cluster) as client:
        yield client
        helpers.validate(client)


def slow(v):
    count()
    return v + 1


def total(values):
    count("total")
    return sum(values)


def build(value=1.0, blocks=4):
    return da.full(blocks, value, chunks=1, dtype="f8").map_blocks(slow, dtype="f8", meta=META)


def is_caching(client):
    return isinstance(client, Client)


def warm(client, v=1):
    """A future of a key that had been computed, and let go of, before."""
    first = client.submit(slow, v, pure=True)
    assert first.result() == v + 1
    key = first.key
    first.release()
    del first
    forgotten(client)
    tasks = client.cluster.scheduler.tasks
    if is_caching(client):
        assert key in helpers.held(client)
    else:
        wait_until(lambda: key not in tasks)
    ran()
    return client.submit(slow, v, pure=True)


def wanted_by(client, key):
    ts = client.cluster.scheduler.tasks.get(key)
    found = {cs.client_key for cs in ts.who_wants or ()} if ts is not None else set()
    return found - {"cachingclient"}


def gone_or_held(client, key):
    """Nobody but the cache has any use for a key."""
    wait_until(lambda: not wanted_by(client, key))
    if not is_caching(client):
        wait_until(lambda: key not in client.cluster.scheduler.tasks)


def heard(*clients):
    """What the scheduler said of keys is with the clients: it would hit what they ask for next."""
    for client in clients:
        assert client.submit(sum, [1, time.time()]).result() > 1


# -- cancelling -------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
def test_cancel(client, force):
    f = warm(client)
    assert f.result() == 2
    f.cancel(force=force)
    key = f.key
    wait_until(f.cancelled)
    with pytest.raises(CancelledError):
        f.result()
    gone_or_held(client, key)
    heard(client)
    del f
    forgotten(client)
    assert client.submit(slow, 1, pure=True).result() == 2


@pytest.mark.parametrize("force", [False, True])
def test_cancel_what_another_client_holds(client, force):
    with type(client)(client.cluster, set_as_default=False) as other:
        f = warm(client)
        g = other.submit(slow, 1, pure=True)
        assert (f.result(), g.result()) == (2, 2)
        f.cancel(force=force)
        wait_until(f.cancelled)
        if force:
            wait_until(g.cancelled)
        else:
            assert g.result() == 2
            assert other.submit(abs, g).result() == 2
        heard(client, other)
        del f, g
        forgotten(client)
        forgotten(other)
        assert client.submit(slow, 1, pure=True).result() == 2
        assert other.submit(slow, 1, pure=True).result() == 2


@pytest.mark.parametrize("force", [False, True])
def test_cancel_what_others_are_made_of(client, force):
    """What is made of it goes with it, and can be asked for again."""
    f = warm(client)
    g = client.submit(total, [f, f], pure=True)
    assert g.result() == 4
    client.cancel([f], force=force)
    wait_until(f.cancelled)
    heard(client)
    del f, g
    forgotten(client)
    f = client.submit(slow, 1, pure=True)
    assert client.submit(total, [f, f], pure=True).result() == 4
    assert client.status == "running"


def test_cancel_while_it_runs(client):
    event = distributed.Event("go", client=client)

    def blocked(v, event=event):
        event.wait()
        return v

    f = warm(client)
    g = client.submit(blocked, f, pure=True)
    wait_until(lambda: client.cluster.scheduler.total_occupancy > 0)
    g.cancel()
    wait_until(g.cancelled)
    event.set()
    heard(client)
    assert f.result() == 2
    assert client.submit(abs, f, pure=True).result() == 2


# -- errors -----------------------------------------------------------------------------


def flaky(v):
    count("flaky")
    if calls("flaky") == 1:
        raise ValueError("the first time")
    return v + 1


def test_retry(client):
    f = warm(client)
    g = client.submit(flaky, f, pure=True)
    wait(g)
    assert g.status == "error"
    client.retry([g])
    assert g.result() == 3
    # one that is well is left alone
    client.retry([f])
    assert (f.result(), g.result()) == (2, 3)
    assert calls("flaky") == 2


def test_what_was_retried_is_not_held(caching_client):
    client = caching_client
    f = client.submit(flaky, 1, pure=True)
    wait(f)
    client.retry([f])
    assert f.result() == 2
    key = f.key
    del f
    forgotten(client)
    wait_until(lambda: key not in client.cluster.scheduler.tasks)


def bad(v):
    raise ZeroDivisionError("the user's")


def test_erred(client):
    f = warm(client)
    g = client.submit(bad, f, pure=True)
    h = client.submit(abs, g, pure=True)
    for future in (g, h):
        with pytest.raises(ZeroDivisionError, match="the user's"):
            future.result()
        assert future.status == "error"
        assert isinstance(future.exception(), ZeroDivisionError)
    assert client.gather([f, g], errors="skip") == [2]
    assert f.result() == 2
    assert client.submit(abs, f, pure=True).result() == 2


#: where memory fails, say: nothing that the code shows
broken = np.zeros(100_000)


def picky(block, what):
    """Fails where it is told to."""
    if broken[0]:
        raise ValueError("for a moment")
    return block + 1


def set_broken(value):
    broken[0] = value


@pytest.mark.parametrize("kind", [distributed.Client, Client])
def test_an_error_is_not_held_by_what_is_held(caching_client, kind):
    """What failed has been there before, and something made of it is held."""
    client = caching_client
    f = client.submit(picky, 1, 7, pure=True)
    g = client.submit(slow, f, pure=True)
    assert g.result() == 3
    source, made = f.key, g.key
    del f, g
    forgotten(client)
    scheduler = client.cluster.scheduler
    client.sync(_let_go, scheduler.plugins["cachingclient"], [source])
    wait_until(lambda: scheduler.tasks[source].state == "released")
    assert helpers.held(client) == [made]
    client.run(set_broken, True)
    failed = client.submit(picky, 1, 7, pure=True)
    wait(failed)
    client.run(set_broken, False)
    assert failed.status == "error"
    failed.release()
    del failed
    forgotten(client)
    wait_until(lambda: not wanted_by(client, source))
    # it is made of what failed, and still there
    assert helpers.held(client) == [made]
    with kind(client.cluster, set_as_default=False) as other:
        assert other.submit(picky, 1, 7, pure=True).result() == 2
        assert client.submit(slow, client.submit(picky, 1, 7, pure=True), pure=True).result() == 3
    assert helpers.held(client)


async def _let_go(plugin, keys):
    plugin.release.now(keys)


# -- actors, and work that nobody waits for -------------------------------------------------


class Counter:
    n = 0

    def increment(self):
        self.n += 1
        return self.n


def test_actors(client):
    for _ in range(2):
        future = client.submit(Counter, actor=True, pure=True)
        counter = future.result()
        assert [counter.increment().result() for _ in range(3)] == [1, 2, 3]
        key = future.key
        # what is computed with it is not held either
        seen = client.submit(lambda c, n: c.increment().result(), counter, 1, pure=True)
        assert seen.result() == 4
        held = helpers.held(client)
        assert key not in held and seen.key not in held
        del future, counter, seen
        forgotten(client)
        wait_until(lambda: key not in client.cluster.scheduler.tasks)


@pytest.mark.parametrize("optimize", [True, False])
def test_collections_that_are_actors(client, optimize):
    counter = dask.delayed(Counter)()
    counted = [dask.delayed(lambda c: c.increment().result())(counter) for _ in range(3)]
    last = dask.delayed(lambda c, _: c.increment().result())(counter, counted)
    assert last.compute(actors=counter, optimize_graph=optimize) == 4


def test_fire_and_forget(client):
    f = warm(client)
    key = f.key
    fire_and_forget(f)
    del f
    forgotten(client)
    gone_or_held(client, key)
    event = distributed.Event("go", client=client)

    def blocked(v, event=event):
        event.wait()
        return slow(v)

    g = client.submit(blocked, 5, pure=True)
    new = g.key
    # One that is there before its work is done; a plain scheduler keeps the others for ever.
    fire_and_forget(g)
    wait_until(lambda: "fire-and-forget" in wanted_by(client, new))
    del g
    event.set()
    wait_until(lambda: calls() >= 1)
    gone_or_held(client, new)
    fire_and_forget(client.compute(build().sum()))
    wait_until(lambda: calls() >= 5)
    # One that is there, and not kept: somebody else has just asked for it.
    with Client(client.scheduler.address, set_as_default=False) as other:
        h = other.compute(build(7).sum())
        h.result()
        if is_caching(client):
            client.cache.clear()
        f = client.compute(build(7).sum())
        fire_and_forget(f)
        assert f.result() == 32
        key = f.key
        assert client.submit(slow, 7, pure=True).result() == 8, "all that was said was heard"
        del f, h
        gone_or_held(client, key)
    assert client.submit(slow, 5, pure=True).result() == 6
    assert client.status == "running"


# -- what is shared by name -----------------------------------------------------------------


def test_variables(client):
    f = warm(client)
    variable = Variable("x", client=client)
    variable.set(f)
    key = f.key
    del f
    g = variable.get()
    assert g.result() == 2
    assert g.key == key
    variable.set(client.submit(slow, 2, pure=True))
    assert variable.get().result() == 3
    del g
    variable.delete()
    gone_or_held(client, key)


def test_queues(client):
    f = warm(client)
    key = f.key
    queue = Queue("q", client=client)
    queue.put(f)
    queue.put(client.submit(slow, 2, pure=True))
    del f
    forgotten(client)
    assert [queue.get().result(), queue.get().result()] == [2, 3]
    queue.close()
    forgotten(client)
    gone_or_held(client, key)


def test_published_datasets(client):
    x = build()
    assert x.sum().compute() == 8
    forgotten(client)
    p = x.persist()
    wait(p)
    keys = p.__dask_keys__()
    client.publish_dataset(p, name="p")
    del p
    forgotten(client)
    ran()
    with type(client)(client.cluster, set_as_default=False) as other:
        q = other.get_dataset("p")
        assert other.compute(q.sum()).result() == 8
        assert client.list_datasets() == ("p",)
        del q
        forgotten(other)
    assert ran() == 0
    assert client.get_dataset("p").sum().compute() == 8
    client.unpublish_dataset("p")
    forgotten(client)
    for key in keys:
        gone_or_held(client, key)


# -- where it is ------------------------------------------------------------------------------


def test_who_has_it(client):
    f = warm(client)
    wait(f)
    who = client.who_has([f])
    assert list(who) == [f.key] and len(who[f.key]) == 1
    (where,) = who[f.key]
    assert f.key in client.has_what()[where]
    assert f.key in client.nbytes(summary=False)


def test_replicate_and_rebalance(client):
    f = warm(client)
    wait(f)
    client.replicate([f], n=2)
    assert len(client.who_has([f])[f.key]) == 2
    client.replicate([f], n=1)
    key = f.key
    wait_until(lambda: len(client.who_has()[key]) == 1)
    client.rebalance([f])
    client.rebalance()
    assert f.result() == 2
    del f
    forgotten(client)
    gone_or_held(client, key)


def test_recreated_here(client):
    f = warm(client)
    assert f.result() == 2
    assert client.recreate_task_locally(f) == 2


def test_waiting_for_what_is_there(client):
    f = warm(client)
    g = client.submit(slow, 7, pure=True)
    assert sorted(future.result() for future in as_completed([f, g])) == [2, 8]
    done = []
    f.add_done_callback(lambda future: done.append(future.key))
    wait_until(lambda: done == [f.key])
    assert wait([f, g]).not_done == set()


# -- scattered data -----------------------------------------------------------------------------


def collections_of(client, data, alive, **kwargs):
    """Answers of an array and a frame that are built on scattered data, each time anew.

    The futures stay alive: what is scattered again while it is being released, under the same
    name, is lost at times, with a plain client too.
    """
    array, frame = data
    f, g = client.scatter([array, frame], **kwargs)
    alive += [f, g]
    x = da.from_delayed(dask.delayed(f), array.shape, array.dtype).map_blocks(
        slow, dtype="f8", meta=META
    )
    df = dd.from_delayed([dask.delayed(g)], meta=frame.iloc[:0], verify_meta=False)
    answers = [
        float(x.sum().compute()),
        float(x.max().compute()),
        int(df.map_partitions(slow, meta=frame.iloc[:0]).a.sum().compute()),
    ]
    del x, df
    keys = {future.key for future in alive}
    wait_until(lambda: set(client.futures) == keys)
    return answers


DATA = np.arange(6.0), pd.DataFrame({"a": [1, 2, 3]})
ANSWERS = [21, 6, 9]


@pytest.mark.parametrize("kwargs", [{}, {"hash": False}, {"broadcast": True}])
def test_scatter(client, kwargs):
    alive = []
    for _ in range(3):
        assert collections_of(client, DATA, alive, **kwargs) == ANSWERS
    changed = DATA[0] + 1, DATA[1] + 1
    assert collections_of(client, changed, alive, **kwargs) == [27, 7, 12]


def check_held(client):
    alive = []
    for times in (2, 0):
        assert collections_of(client, DATA, alive) == ANSWERS
        assert ran() == times
    # the data goes when the user lets go of it
    data = {future.key for future in alive}
    alive.clear()
    forgotten(client)
    tasks = client.cluster.scheduler.tasks
    wait_until(lambda: not any(tasks[k].state == "memory" for k in data if k in tasks))
    assert helpers.held(client)


@pytest.mark.parametrize("data", [3, "text", [3], (1, 2), {"a": 1}, abs, None])
def test_scatter_returns_what_a_plain_client_returns(caching_client, data):
    with distributed.Client(caching_client.cluster, set_as_default=False) as plain:
        theirs, ours = plain.scatter(data), caching_client.scatter(data)
        assert type(ours) is type(theirs)
        assert str(caching_client.gather(ours)) == str(plain.gather(theirs))


def test_what_is_made_of_scattered_data_is_held(caching_client):
    check_held(caching_client)
    caching_client.cache.clear()
    wait_until(lambda: not caching_client.cluster.scheduler.tasks)


def test_inside_caching_too(cluster):
    with distributed.Client(cluster) as client, caching(client):
        check_held(client)


def test_what_is_made_of_data_with_a_name_of_its_own_is_not_held(caching_client):
    alive = []
    for _ in range(2):
        assert collections_of(caching_client, DATA, alive, hash=False) == ANSWERS
        assert ran() == 3
    assert not [k for k in helpers.held(caching_client) if "slow" in k]


@pytest.mark.parametrize(
    "data",
    [
        {"ndarray-" + 32 * "0": np.ones(3)},
        "a path of a file",
        np.array([[1], "a"], dtype=object),
        range(3),
        [np.ones(3), "a"],
    ],
    ids=["named", "text", "objects", "range", "mixed"],
)
def test_what_may_be_another_one_next_time_is_not_trusted(caching_client, data):
    scattered = caching_client.scatter(data)
    futures = distributed.client.futures_of(scattered)
    if type(data) is range:
        assert caching_client.gather(scattered) == [0, 1, 2]
    for f in futures:
        assert f.key not in caching_client._session.trusted
        assert caching_client.submit(total, [[f.key and 1]], pure=False) is not None


def test_data_shared_with_workers_is_not_trusted():
    """Workers of this process hold the user's own array, which he may change."""
    with Client(**helpers.INPROC) as client:
        a = np.ones(4)
        for want in (8, 12):
            f = client.scatter(a)
            x = da.from_delayed(dask.delayed(f), a.shape, a.dtype)
            assert x.map_blocks(slow, dtype="f8", meta=META).sum().compute() == want
            a += 1
            del f, x
            forgotten(client)
        assert not client._session.trusted.keys() & {"ndarray"}


@gen_test(config=FAST)
async def test_scatter_asynchronously():
    async with Scheduler(dashboard_address=None, port=0) as s, Worker(s.address):
        async with Client(s.address, asynchronous=True) as client:
            (f,) = await client.scatter([np.ones(4)])
            assert f.key in client._session.trusted
            (f,) = await client.scatter([np.zeros(4)], hash=False)
            assert f.key not in client._session.trusted


def test_values_that_are_told_by_their_token():
    assert all(map(is_plain, [1, 2.5, True, 1j, *DATA, DATA[1].a]))
    assert not any(map(is_plain, ["a", b"a", None, [1], {"a": 1}, object(), np.memmap]))

    class Sub(np.ndarray):
        pass

    assert not is_plain(DATA[0].view(Sub))


def test_arguments_of_scatter_are_read_as_it_reads_them():
    assert is_named_by_content(([1], None, False, None, True), {})
    assert not is_named_by_content(([1], None, False, None, False), {})
    assert is_named_by_content((), {"data": 1})
    assert not is_named_by_content((), {})
    assert not list(trustworthy({"a": 1}, []))


# -- clients, workers and schedulers that go ----------------------------------------------------


def processed(scheduler, since):
    """Keys that were sent to workers."""
    log = list(scheduler.transition_log)[since:]
    return [t.key for t in log if t.finish in ("processing", "queued", "no-worker")]


@gen_test(config=FAST)
async def test_a_client_that_is_lost():
    """Its futures go, what is kept stays, and nothing is computed."""
    async with Scheduler(dashboard_address=None, port=0) as s, Worker(s.address):
        client = await Client(s.address, asynchronous=True)
        x = build()
        assert await client.compute(x.sum()) == 8
        mine = client.submit(lambda: 1, key="mine")
        assert await mine == 1
        plugin = s.plugins["cachingclient"]
        kept = set(plugin.ledger.kept)
        assert len(kept) >= 4
        since = len(s.transition_log)
        client._reconnect = lambda: asyncio.sleep(0)
        client.scheduler_comm.comm.abort()
        await until(lambda: client.id not in s.clients)
        await until(lambda: "mine" not in s.tasks)
        assert set(plugin.ledger.kept) == kept
        assert {ts.key for ts in s.clients["cachingclient"].wants_what} == kept
        assert not plugin.desk.clients and not plugin.desk.permits.clients
        assert processed(s, since) == []
        async with Client(s.address, asynchronous=True) as other:
            ran()
            assert await other.compute(build().mean()) == 2
            assert ran() == 0
        s.validate_state()
        await client.close()


@gen_test(config=FAST)
async def test_a_client_that_is_lost_while_it_waits():
    async with Scheduler(dashboard_address=None, port=0) as s, Worker(s.address):
        client = await Client(s.address, asynchronous=True)
        other = await Client(s.address, asynchronous=True)
        event = distributed.Event("go", client=other)

        def blocked(block, event=event):
            event.wait()
            return block + 1

        x = build()
        assert await client.compute(x.sum()) == 8
        f = client.compute(x.map_blocks(blocked, dtype="f8", meta=META).sum())
        await until(lambda: any(ws.processing for ws in s.workers.values()))
        client._reconnect = lambda: asyncio.sleep(0)
        client.scheduler_comm.comm.abort()
        await until(lambda: client.id not in s.clients)
        await event.set()
        ours = s.plugins["cachingclient"].holder.client
        await until(lambda: all(ts.who_wants in (None, set(), {ours}) for ts in s.tasks.values()))
        await until(lambda: not any(ws.processing for ws in s.workers.values()))
        s.validate_state()
        ran()
        assert await other.compute(build().mean()) == 2
        assert ran() == 0
        del f
        await client.close()
        await other.close()


class Nannies:
    """Worker processes that are started again."""

    async def __aenter__(self):
        self.scheduler = await Scheduler(dashboard_address=None, port=0)
        self.nannies = [
            await Nanny(self.scheduler.address, nthreads=1, dashboard_address=None)
            for _ in range(2)
        ]
        self.client = await Client(self.scheduler.address, asynchronous=True)
        self.x = da.ones(8, chunks=1).map_blocks(lambda block: block + 1, dtype="f8", meta=META)
        assert await self.client.compute(self.x.sum()) == 16
        await until(lambda: not self.client.futures)
        self.since = len(self.scheduler.transition_log)
        assert len(self.plugin.ledger.kept) >= 8
        return self

    async def __aexit__(self, *exception):
        await self.client.close()
        self.scheduler.validate_state()
        for nanny in self.nannies:
            await nanny.close()
        await self.scheduler.close()

    @property
    def plugin(self):
        return self.scheduler.plugins["cachingclient"]

    def check(self):
        """Nothing was computed, and the books are those of the scheduler."""
        s = self.scheduler
        assert processed(s, self.since) == []
        held = {ts.key for ts in s.clients["cachingclient"].wants_what}
        assert held == set(self.plugin.ledger.kept)
        assert {ts.state for ts in s.tasks.values()} <= {"memory", "released"}
        s.validate_state()


@gen_test(config=FAST, timeout=60)
async def test_restart():
    async with Nannies() as c:
        await c.client.restart()
        c.check()
        assert not c.scheduler.tasks and not c.plugin.ledger.kept
        assert c.plugin.ledger.currsize == 0
        await until(lambda: c.plugin.guards.complete())
        assert await c.client.compute(c.x.sum()) == 16
        assert len(c.plugin.ledger.kept) >= 8


@gen_test(config=FAST, timeout=60)
async def test_restart_of_one_worker():
    async with Nannies() as c:
        first = list(c.scheduler.workers)[0]
        there = {ts.key for ts in c.scheduler.workers[first].has_what if len(ts.who_has) == 1}
        before = set(c.plugin.ledger.kept)
        with helpers.logged("distributed.scheduler") as messages:
            await c.client.restart_workers([first])
        c.check()
        assert set(c.plugin.ledger.kept) == before - there
        assert not [m for m in messages if "Traceback" in m]
        await until(lambda: len(c.scheduler.workers) == 2)
        assert await c.client.compute(c.x.max()) == 2


@gen_test(config=FAST, timeout=60)
async def test_a_worker_dies_and_is_started_again():
    async with Nannies() as c:
        victim = c.nannies[0]
        address = victim.worker_address
        await victim.kill(reason="test")
        await until(lambda: address not in c.scheduler.workers)
        c.check()
        await until(lambda: len(c.scheduler.workers) == 2)
        await until(lambda: c.plugin.guards.complete())
        c.check()
        assert await c.client.compute(c.x.max()) == 2


@gen_test(config=FAST)
async def test_nothing_leaks_after_clear():
    """However the keys came and went, no TaskState is left, nor a word of it in the books."""
    async with Scheduler(dashboard_address=None, port=0) as s:
        workers = [await Worker(s.address, nthreads=1) for _ in range(3)]
        async with Client(s.address, asynchronous=True) as client:
            plugin = s.plugins["cachingclient"]
            x, (f,) = build(), await client.scatter([np.ones(4)])
            p = client.persist(build(2.0))
            y = da.from_delayed(dask.delayed(f), (4,), "f8").map_blocks(slow, dtype="f8", meta=META)
            for lazy, want in [(x.sum(), 8), (x.max(), 2), (y.sum(), 8), (p.sum(), 12)]:
                assert await client.compute(lazy) == want
            await workers.pop().close()
            assert await client.compute(x.mean()) == 2
            assert await client.compute((p + x).sum()) == 20
            failed = client.compute(x.map_blocks(bad, dtype="f8", meta=META))
            await wait(failed)
            await client.cancel([p])
            await client.retire_workers([workers[0].address])
            assert await client.compute(x.min()) == 2
            del f, p, y, failed
            await until(lambda: not client.futures)
            await client.cache.clear()
            await until(lambda: not s.tasks)
            books = plugin.books
            assert not books.paid and not books.outputs and not books.tainted
            assert not plugin.ledger.kept and not plugin.ledger.names
            assert not s.clients["cachingclient"].wants_what
            assert not any(ws.has_what for ws in s.workers.values())
            assert not s.replicated_tasks
        for worker in workers:
            await worker.close()
