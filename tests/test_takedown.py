"""A cache that goes takes everything with it, whoever takes it down, and in whatever order."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster, Scheduler, Worker
from distributed.utils_test import gen_test
from helpers import INPROC, forgotten, look, ran, wait_until
from utils_cluster import until

from cachingclient import CachePlugin, Client, caching
from cachingclient.config import read_settings
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.leaving import Undo
from cachingclient.scheduler.permits import PERMIT, Permits

META = np.empty((0,))
FAST = helpers.KEEN
GUARD = "cachingclient-guard"


@pytest.fixture(autouse=True)
def keep_everything():
    with dask.config.set(FAST):
        yield


def slow(block):
    helpers.count()
    return block + 1


def build(value=1.0, n=4):
    return da.full(10 * n, value, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def plugin_of(cluster):
    return cluster.scheduler.plugins.get("cachingclient")


def state(cluster):
    """All that a cache may leave behind, beside tasks, on the scheduler and its workers."""
    with distributed.Client(cluster, set_as_default=False) as client:
        found = look(client)
    s = cluster.scheduler
    for handlers in ("handlers", "stream handlers"):  # they tell how many tasks there are
        found[handlers] = sorted(found[handlers])
    found["own"] = {n: getattr(vars(s).get(n), "__qualname__", "") for n in ("adaptive_target",)}
    found["ours"] = [
        name
        for table in (s.handlers, s.stream_handlers)
        for name, handler in table.items()
        if "cachingclient" in f"{handler!r}{getattr(handler, '__globals__', {}).get('__name__')}"
    ]
    found["guards"] = [GUARD in w.plugins for w in cluster.workers.values()]
    found["execute"] = ["execute" in vars(w) for w in cluster.workers.values()]
    found["http"] = len(s.http_application.applications)
    found["registry"] = PLUGINS.get(s.id) is not None
    return found


@pytest.fixture
def cluster():
    with LocalCluster(**INPROC) as cluster:
        yield cluster
        cluster.scheduler.validate_state()


def nothing_is_left(cluster, before):
    gc.collect()
    wait_until(lambda: not cluster.scheduler.tasks)
    wait_until(lambda: state(cluster) == before or time.sleep(0.05))


def test_a_cache_that_is_there_is_seen(cluster):
    """What the tests look at is different while there is a cache."""
    before = state(cluster)
    with caching(distributed.Client(cluster, set_as_default=False)) as cache:
        cache._session.client.compute(build().sum()).result()
        inside = state(cluster)
        same = {part for part in before if before[part] == inside[part]}
        assert same <= {"extensions", "worker plugins", "periodic callbacks"}
        cache._session.client.close()


# -- somebody else takes it down ----------------------------------------------------------


def unregister(client):
    client.unregister_scheduler_plugin("cachingclient")


def remove(client):
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin("cachingclient"))


def overwrite(client):
    """Another plugin takes the name."""

    class Other(distributed.SchedulerPlugin):
        name = "cachingclient"

    client.register_plugin(Other())


@pytest.mark.parametrize("way", [unregister, remove, overwrite])
def test_unregistered_by_somebody_else(cluster, way):
    before = state(cluster)
    with Client(cluster) as client:
        x = build()
        assert x.sum().compute() == 80
        assert helpers.held(client)
        held = client.submit(abs, -3, pure=True)
        plugin = plugin_of(cluster)
        way(client)
        # asked before and after it is noticed, it all goes on
        wait_until(lambda: client.submit(sum, [1, 2], pure=True).result() == 3 and plugin.left)
        assert client._session.scheduler_id is None or client.submit(abs, -1).result() == 1
        wait_until(lambda: client._session.scheduler_id is None)
        assert held.result() == 3
        assert x.mean().compute() == 2
        assert client.submit(sum, [1, 2], pure=True).result() == 3
        assert client.cache.info().keys == 0
        assert client.cache.entries() == []
        ran()
        assert x.max().compute() == 2
        assert ran() == 4
        del held
        forgotten(client)
        if way is overwrite:
            unregister(client)
        nothing_is_left(cluster, before)


def test_a_submission_notices_at_once(cluster):
    with Client(cluster) as client:
        assert build().sum().compute() == 80
        plugin = plugin_of(cluster)
        plugin.vigil.stop()
        unregister(client)
        assert build(3.0).sum().compute() == 160
        assert plugin.left
        forgotten(client)
        wait_until(lambda: not cluster.scheduler.tasks)


def test_a_new_client_brings_a_new_one(cluster):
    with Client(cluster) as first:
        assert build().sum().compute() == 80
        unregister(first)
        with Client(cluster) as second:
            x = build()
            assert second.compute(x.sum()).result() == 80
            ran()
            assert second.compute(x.mean()).result() == 2
            assert ran() == 0
            helpers.validate(second)


# -- messages on their way ------------------------------------------------------------------


class Pair:
    """A scheduler and a worker of this event loop, and clients of it."""

    async def __aenter__(self):
        self.scheduler = await Scheduler(dashboard_address=None, port=0)
        self.worker = await Worker(self.scheduler.address, nthreads=2)
        self.clients = []
        return self

    async def __aexit__(self, *exception):
        self.scheduler.validate_state()
        for client in self.clients:
            await client.close()
        await self.worker.close()
        await self.scheduler.close()

    async def join(self, kind=Client):
        self.clients.append(await kind(self.scheduler.address, asynchronous=True))
        return self.clients[-1]

    @property
    def plugin(self):
        return self.scheduler.plugins["cachingclient"]


@gen_test(config=FAST)
async def test_what_a_client_says_to_a_cache_that_has_left():
    """A message without a handler would end its connection, and all its futures."""
    async with Pair() as p:
        client = await p.join()
        held = client.submit(abs, -3, pure=True)
        assert await held == 3
        p.plugin.leave()
        assert client._session.scheduler_id is not None  # it has not heard of it yet
        f = client.submit(abs, -4, pure=True)
        assert await f == 4
        assert await held == 3
        await until(lambda: client._session.scheduler_id is None)
        await until(lambda: PERMIT not in p.scheduler.stream_handlers)
        assert await client.submit(abs, -5, pure=True) == 5
        assert client.status == "running" and held.status == "finished"


@gen_test(config=FAST)
async def test_what_was_said_before_leaving_is_heard_before():
    async with Pair() as p:
        client = await p.join(distributed.Client)
        for i in range(10):
            async with caching(client):
                futures = client.map(abs, range(-20 * i, 0), pure=True)
            assert PERMIT not in p.scheduler.stream_handlers
            assert "cachingclient" not in p.scheduler.plugins
            await asyncio.gather(*futures)
        assert client.status == "running"


@gen_test(config=FAST)
async def test_a_client_that_dies_without_a_last_word():
    async with Pair() as p:
        client = await p.join()
        await p.join(distributed.Client)
        plugin = p.plugin
        client._session.voice.last_word = lambda: None  # as if it was busy
        plugin.leave()
        await until(lambda: client._session.scheduler_id is None)
        assert PERMIT in p.scheduler.stream_handlers
        assert await client.submit(abs, -4, pure=True) == 4
        await client.close()
        await until(lambda: PERMIT not in p.scheduler.stream_handlers)


class FakeScheduler:
    def __init__(self, *clients):
        self.stream_handlers = {}
        self.clients = dict.fromkeys(clients)


@gen_test()
async def test_permits_go_with_the_last_that_may_speak():
    scheduler, heard = FakeScheduler("a", "b"), []
    permits = Permits(scheduler, lambda client, **said: heard.append((client, said)))
    permits.add("a")
    permits.add("b")
    permits("a", allowed=["x"])
    permits("stranger", allowed=["y"])
    assert heard == [("a", {"allowed": ["x"]})]
    permits.close()
    permits("a", allowed=["z"])
    assert len(heard) == 1 and scheduler.stream_handlers == {PERMIT: permits}
    permits("a", last=True)
    assert scheduler.stream_handlers == {PERMIT: permits}
    permits("b", last=True)
    assert scheduler.stream_handlers == {}


@gen_test()
async def test_permits_of_a_successor_hear_who_may_still_speak():
    scheduler = FakeScheduler("a")
    old = Permits(scheduler, lambda client, **said: None)
    old.add("a")
    old.close()
    new = Permits(scheduler, lambda client, **said: None)
    new.close()
    assert scheduler.stream_handlers == {PERMIT: new}
    new("a", last=True)
    assert scheduler.stream_handlers == {}


# -- several clients ----------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_clients_leave_in_any_order(cluster, order):
    """The first brings it and wants nothing left: it goes with the last, whoever that is."""
    before = state(cluster)
    plain = [distributed.Client(cluster, set_as_default=False) for _ in range(2)]
    inside = [caching(client) for client in plain]
    for cached in inside:
        cached.__enter__()
    joined = Client(cluster, set_as_default=False)
    x = build()
    for client, lazy, want in zip([*plain, joined], [x.sum(), x.mean(), x.max()], [80, 2, 2]):
        assert client.compute(lazy).result() == want
    assert ran() == 4
    leave = [lambda c=c: c.__exit__(None, None, None) for c in inside] + [joined.close]
    for i, who in enumerate(order):
        assert helpers.held(plain[0])
        leave[who]()
        if who < 2:
            forgotten(plain[who])
    for client in plain:
        client.close()
    nothing_is_left(cluster, before)
    assert ran() == 0


def test_the_last_one_dies(cluster):
    """Without a goodbye: what was brought for a while goes all the same."""
    before = state(cluster)
    plain = distributed.Client(cluster, set_as_default=False)
    cached = caching(plain)
    cached.__enter__()
    other = Client(cluster, set_as_default=False)
    assert other.compute(build().sum()).result() == 80
    cached.__exit__(None, None, None)
    assert helpers.held(plain)
    other._reconnect = lambda: asyncio.sleep(0)  # it would bring a cache of its own
    other.loop.add_callback(other.scheduler_comm.comm.abort)
    wait_until(lambda: other.id not in cluster.scheduler.clients)
    other.close()
    plain.close()
    nothing_is_left(cluster, before)


@gen_test(config=FAST)
async def test_clients_that_come_at_once_share_one_plugin():
    async with Pair() as p:
        await asyncio.gather(*(p.join() for _ in range(5)))
        plugin = p.plugin
        assert PLUGINS[p.scheduler.id] is plugin
        assert plugin.desk.clients == {c.id for c in p.clients}
        assert p.scheduler.stream_handlers[PERMIT] is plugin.desk.permits
        x = build()
        assert await p.clients[0].compute(x.sum()) == 80
        ran()
        for client in p.clients[1:]:
            assert await client.compute(x.mean()) == 2
        assert ran() == 0
        assert sum(c._session.installed for c in p.clients) == 1


@gen_test(config=FAST)
async def test_clients_that_come_and_go_at_once():
    """Each ends right; at the end there is one cache, or none."""
    async with Pair() as p:
        clients = [await p.join(distributed.Client) for _ in range(4)]

        async def work(client, value):
            for _ in range(5):
                async with caching(client):
                    f = client.compute(build(value).sum())
                    assert await f == 40 * (value + 1)
                    del f

        await asyncio.gather(*(work(c, float(i)) for i, c in enumerate(clients)))
        await until(lambda: "cachingclient" not in p.scheduler.plugins)
        await until(lambda: not p.scheduler.tasks)
        await until(lambda: GUARD not in p.worker.plugins)
        assert PERMIT not in p.scheduler.stream_handlers
        assert "cachingclient" not in p.scheduler.clients


@gen_test(config=FAST)
async def test_guards_are_there_each_time():
    """What the cache before took out must not be what this one has put in."""
    async with Pair() as p:
        client = await p.join(distributed.Client)
        for _ in range(5):
            async with caching(client):
                assert p.plugin.guards.complete()
                assert GUARD in p.worker.plugins
        await until(lambda: GUARD not in p.worker.plugins)


@gen_test(config={**FAST, "cachingclient.idle-time": "50ms"})
async def test_one_that_has_gone_before_it_was_greeted():
    async with Pair() as p:
        client = await p.join()
        assert await client.compute(build().sum()) == 80
        await client.close()
        await p.plugin.desk.answer("hello", client=client.id)
        assert not p.plugin.desk.clients
        await until(lambda: not p.scheduler.tasks)


def test_two_clusters_are_taken_down_apart(cluster):
    before = state(cluster)
    with LocalCluster(**INPROC) as other:
        with Client(cluster, set_as_default=False) as one:
            with Client(other, set_as_default=False) as two:
                assert one.compute(build().sum()).result() == 80
                assert two.compute(build().sum()).result() == 80
                assert ran() == 8
                unregister(one)
                wait_until(lambda: not helpers.held(one))
                assert two.compute(build().mean()).result() == 2
                assert ran() == 0
                helpers.validate(two)
            forgotten(one)
            nothing_is_left(cluster, before)


# -- one after the other --------------------------------------------------------------------


def registered_again(client, **settings):
    with dask.config.set({f"cachingclient.{k.replace('_', '-')}": v for k, v in settings.items()}):
        client.register_plugin(CachePlugin(read_settings()))


@pytest.fixture
def keen(cluster):
    with Client(cluster) as client:
        yield client
        helpers.validate(client)


@pytest.mark.filterwarnings("ignore:Scheduler already contains a plugin")
class TestSuccessor:
    def test_takes_over_what_is_held(self, cluster, keen):
        x = build()
        assert (x.sum().compute(), x.mean().compute()) == (80, 2)
        forgotten(keen)
        before, held, old = keen.cache.info(), helpers.held(keen), plugin_of(cluster)
        hits = {e.name: e.hits for e in keen.cache.entries()}
        ran()
        registered_again(keen, halflife=7, cache_limit="50 MiB")
        new = plugin_of(cluster)
        assert new is not old and old.left and not new.off
        assert helpers.held(keen) == held
        info = keen.cache.info()
        assert info.maxsize == 50 * 2**20
        assert info._replace(maxsize=0) == before._replace(maxsize=0)
        assert {e.name: e.hits for e in keen.cache.entries()} == hits
        assert all(e.score > 0 and e.seconds > 0 for e in keen.cache.entries())
        assert (x.std().compute(), x.sum().compute()) == (0, 80)
        assert keen.compute(x.min()).result() == 2
        assert ran() == 0
        assert (keen.cache.info() - info).hits >= 2

    def test_lets_go_of_what_its_limit_leaves_no_room_for(self, keen):
        assert build(n=40).sum().compute() == 800
        forgotten(keen)
        held = len(helpers.held(keen))
        registered_again(keen, cache_limit="2 kB")
        wait_until(lambda: len(helpers.held(keen)) < held)
        info = keen.cache.info()
        assert info.currsize <= info.maxsize == 2000
        assert info.keys == len(helpers.held(keen))

    def test_serves_the_clients_of_the_first(self, cluster, keen):
        registered_again(keen)
        assert plugin_of(cluster).desk.clients == {keen.id}
        f = keen.submit(slow, 1, pure=True)
        assert f.result() == 2
        del f
        forgotten(keen)
        ran()
        assert keen.submit(slow, 1, pure=True).result() == 2
        assert ran() == 0

    def test_knows_what_the_first_knew(self, cluster, keen):
        old = plugin_of(cluster)
        nothing = dask.delayed(lambda v: None, pure=True)(1)
        f = keen.compute(nothing)
        f.result()
        old.books.rejected.add("rejected")
        tainted = set(old.books.tainted)
        registered_again(keen, source_lifetime="17s")
        new = plugin_of(cluster)
        assert new.books.rejected == {"rejected"} and new.books.tainted == tainted
        assert new.freshness is old.freshness and new.freshness.lifetime == 17
        assert new.durations is old.durations

    def test_keeps_the_guards_where_they_are(self, cluster, keen):
        registered_again(keen)
        assert plugin_of(cluster).guards.complete()
        assert all(GUARD in w.plugins for w in cluster.workers.values())

    def test_leaves_nothing_behind_either(self, cluster):
        before = state(cluster)
        with Client(cluster) as client:
            x = build()
            for n in range(3):
                assert x.sum().compute() == 80
                registered_again(client, halflife=10 + n)
            assert ran() == 4
            forgotten(client)
            unregister(client)
            nothing_is_left(cluster, before)

    def test_of_one_that_was_switched_off(self, cluster, keen, errors_of_ours):
        plugin = plugin_of(cluster)
        keen.loop.add_callback(plugin.switch_off, RuntimeError("ours"))
        wait_until(lambda: keen._session.scheduler_id is None)
        errors_of_ours.clear()
        registered_again(keen)
        with Client(cluster, set_as_default=False) as other:
            x = build()
            assert other.compute(x.sum()).result() == 80
            ran()
            assert other.compute(x.mean()).result() == 2
            assert ran() == 0

    @pytest.mark.parametrize("times", [1, 3])
    def test_comes_while_something_is_on_its_way(self, cluster, keen, times):
        """What a submission counts on is held on to, by whichever plugin there is."""
        x = build()
        assert x.sum().compute() == 80
        forgotten(keen)
        ran()
        plugin = plugin_of(cluster)
        plugin_open = plugin.open_submission
        done = []

        def opened(request):
            submission = plugin_open(request)
            planned = submission.planned

            def and_then(*args, **kwargs):
                planned(*args, **kwargs)

                async def register():
                    for n in range(times):
                        with dask.config.set({"cachingclient.halflife": 5 + n}):
                            new = CachePlugin(read_settings())
                        await cluster.scheduler.register_scheduler_plugin(new, idempotent=False)

                asyncio.run_coroutine_threadsafe(register(), plugin.loop).result(10)
                done.append(1)

            submission.planned = and_then
            return submission

        plugin.open_submission = opened
        assert x.mean().compute() == 2
        assert done and ran() == 0
        assert not plugin_of(cluster).submissions.any()


# -- errors of ours ---------------------------------------------------------------------------


def doomed(plugin, part, name):
    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    setattr(getattr(plugin, part), name, fail)


@pytest.mark.parametrize(
    "part, name",
    [
        ("keeper", "finished"),
        ("ledger", "offer"),
        ("ledger", "hit"),
        ("submissions", "end"),
        ("submissions", "add"),
        ("books", "forgotten"),
        ("books", "allow"),
        ("audits", "transition"),
        ("freshness", "submitted"),
        ("release", "names"),
    ],
)
def test_an_error_in_a_hook_takes_all_down_and_work_goes_on(cluster, errors_of_ours, part, name):
    before = state(cluster)
    client = Client(cluster)
    x = build()
    assert x.sum().compute() == 80
    plugin = plugin_of(cluster)
    held = client.submit(abs, -3, pure=True)
    assert held.result() == 3
    # Where nothing is audited no transition is of interest.
    plugin.audits.share = 1e-9
    doomed(plugin, part, name)
    for value in (1.0, 3.0):
        y = build(value)
        assert y.mean().compute() == value + 1
        assert y.sum().compute() == 40 * (value + 1)
        f = client.submit(sum, [1, int(value)], pure=True)
        assert f.result() == 1 + value
        assert client.gather(client.map(abs, [-1, -2], pure=True)) == [1, 2]
        assert client.submit(abs, -7 - value).result() == 7 + value  # is forgotten then
    assert held.result() == 3
    del f, held
    forgotten(client)
    wait_until(lambda: plugin.off)
    assert len(errors_of_ours) == 1 and "switched off" in errors_of_ours[0]
    errors_of_ours.clear()
    wait_until(lambda: not cluster.scheduler.tasks)
    cluster.scheduler.validate_state()
    wait_until(lambda: client._session.scheduler_id is None)
    # only the plugin stays, to say that it is off
    wait_until(lambda: state(cluster)["guards"] == [False, False])
    after = state(cluster)
    assert after["plugins"] == sorted([*before["plugins"], "cachingclient"])
    assert after["ours"] == ["cachingclient", PERMIT]
    assert after["clients"] == before["clients"] and after["own"] == before["own"]
    with pytest.warns(UserWarning, match="switched off"):
        with Client(cluster, set_as_default=False) as other:
            assert other.compute(x.max()).result() == 2
    unregister(client)
    client.close()
    assert errors_of_ours == []


@gen_test(config=FAST)
async def test_an_error_when_a_worker_leaves(errors_of_ours):
    async with Pair() as p:
        client = await p.join()
        extra = await Worker(p.scheduler.address, nthreads=1)
        assert await client.compute(build().sum()) == 80
        plugin = p.plugin
        doomed(plugin, "losses", "event")
        await extra.close()
        await until(lambda: plugin.off and not p.scheduler.tasks)
        assert len(errors_of_ours) == 1
        errors_of_ours.clear()
        assert await client.compute(build().mean()) == 2


def test_a_part_that_cannot_be_taken_down_keeps_no_other(cluster, errors_of_ours):
    before = state(cluster)
    with Client(cluster) as client:
        assert build().sum().compute() == 80
        plugin = plugin_of(cluster)

        def fail():
            raise RuntimeError("ours")

        plugin.undo.add(fail)
        plugin.at_the_end.add(fail)
        unregister(client)
        wait_until(lambda: len(errors_of_ours) == 2)
        errors_of_ours.clear()
        forgotten(client)
        nothing_is_left(cluster, before)


def test_parts_that_are_added_later_go_too(cluster):
    """As a dashboard, its routes or a collector of metrics do."""
    with Client(cluster) as client:
        plugin = plugin_of(cluster)
        gone = []
        plugin.undo.add(lambda: gone.append("routes"))
        plugin.at_the_end.add(lambda: gone.append("collector"))
        unregister(client)
        wait_until(lambda: gone == ["routes", "collector"])


def test_undo_is_done_once(errors_of_ours):
    undo, done = Undo(), []

    def fail():
        done.append("b")
        raise RuntimeError("ours")

    for step in (lambda: done.append("a"), fail, lambda: done.append("c")):
        undo.add(step)
    undo.run()
    undo.run()
    assert done == ["c", "b", "a"]
    assert len(errors_of_ours) == 1
    errors_of_ours.clear()
