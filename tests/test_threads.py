"""Many threads on one client, and clients in threads of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster
from helpers import INPROC, KEEN, count, forgotten, ran

from cachingclient import Client, caching

META = np.empty((0,))
THREADS = 8
PATIENCE = 150


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
def cluster():
    with dask.config.set(KEEN), LocalCluster(**INPROC) as cluster:
        yield cluster
        with distributed.Client(cluster, set_as_default=False) as client:
            helpers.validate(client)


def at_once(function, n=THREADS):
    """What a function gives in threads that start together."""
    start = threading.Barrier(n)

    def run(i):
        start.wait(PATIENCE)
        return function(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


ASKS = [
    (lambda x: x.sum(), 80),
    (lambda x: x.mean(), 2),
    (lambda x: (x + 1).sum(), 120),
    (lambda x: x[:20].max(), 2),
]


def asked_by(client, i):
    ask, known = ASKS[i % len(ASKS)]
    for _ in range(3):
        assert client.compute(ask(build())).result(PATIENCE) == known


def test_related_questions_at_once(keen):
    at_once(lambda i: asked_by(keen, i))
    # whoever asks first computes: those who have asked meanwhile may have it fused into theirs
    assert 4 <= ran() <= 4 * THREADS
    at_once(lambda i: asked_by(keen, i))
    assert ran() == 0


def test_equal_questions_at_once_are_one(keen):
    x = build()
    assert at_once(lambda i: float(keen.compute(x.sum()).result(PATIENCE))) == THREADS * [80]
    assert ran() == 4
    at_once(lambda i: asked_by(keen, 0))
    assert ran() == 0


def test_equal_tasks_at_once_are_one(keen):
    def submit(i):
        return keen.submit(double, 7, pure=True).result(PATIENCE)

    assert at_once(submit) == THREADS * [14]
    forgotten(keen)
    assert at_once(submit) == THREADS * [14]
    assert ran() == 1


def test_purity_is_of_one_thread(keen):
    """One says pure, others don't: theirs are computed, and nothing gets lost."""

    def submit(i):
        said = {"pure": True} if i % 2 else {}
        return [keen.submit(double, (i, n), **said).result(PATIENCE) for n in range(5)]

    known = [[2 * (i, n) for n in range(5)] for i in range(THREADS)]
    assert at_once(submit) == known
    forgotten(keen)
    assert ran() == 5 * THREADS
    assert at_once(submit) == known
    assert ran() == 5 * THREADS // 2


def test_clear_and_disabled_beside_computations(keen):
    done = threading.Event()

    def disturb(i):
        while not done.is_set():
            keen.cache.clear()
            with keen.cache.disabled():
                asked_by(keen, i)

    with ThreadPoolExecutor(2) as pool:
        disturbing = [pool.submit(disturb, i) for i in range(2)]
        try:
            at_once(lambda i: asked_by(keen, i))
        finally:
            done.set()
        for future in disturbing:
            future.result(PATIENCE)


def test_clients_of_threads_of_their_own(cluster):
    """They share what is kept; each comes, asks and leaves."""
    with Client(cluster, set_as_default=False) as first:
        asked_by(first, 0)
        ran()

        def ask(i):
            with Client(cluster, set_as_default=False) as client:
                asked_by(client, i)
                with client.as_current():
                    assert build().max().compute() == 2
                return client.id

        assert len(set(at_once(ask))) == THREADS
        assert ran() == 0
        helpers.wait_until(lambda: len(helpers.look(first)["clients"]) <= 2)


def test_a_client_closed_by_another_thread(cluster):
    """What waits for it hears of it, as with a plain client."""
    for make in (distributed.Client, Client):
        go.clear()
        client = make(cluster, set_as_default=False)
        with ThreadPoolExecutor(2) as pool:
            futures = [client.submit(hold_open, n, pure=True) for n in range(2)]
            waiting = [pool.submit(f.result, PATIENCE) for f in futures]
            client.close()
            go.set()
            for one in waiting:
                with pytest.raises(distributed.client.FutureCancelledError):
                    one.result(PATIENCE)


go = threading.Event()


def hold_open(n):
    assert go.wait(PATIENCE)
    return n


def test_caching_from_several_threads(cluster):
    """One client each."""
    # A graph that is not rewritten, beside one that is and while the last cache goes: the
    # scheduler keeps the older of two tasks of one key, and forgets what only the other needs
    # when that is computed again.
    left = threading.Barrier(THREADS)

    def ask(i):
        with distributed.Client(cluster, set_as_default=False) as client:
            with caching(client) as cache:
                asked_by(client, i)
                assert cache.info().keys > 0
            left.wait(PATIENCE)
            asked_by(client, i)

    at_once(ask)
    with distributed.Client(cluster, set_as_default=False) as client:
        helpers.wait_until(lambda: not helpers.look(client)["tasks"])
