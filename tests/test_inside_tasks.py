"""Tasks that ask the cluster themselves, with one thread a worker: right answers, no deadlock."""

from __future__ import annotations

import random

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster, get_client, get_worker, rejoin, secede, worker_client
from helpers import INPROC, KEEN, count, forgotten, ran

from cachingclient import Client, caching

META = np.empty((0,))
PATIENCE = 150


def slow(block):
    count()
    return block + 1


def build(value=1.0, blocks=4):
    x = da.full(10 * blocks, value, chunks=10, dtype="f8")
    return x.map_blocks(slow, dtype="f8", meta=META)


def nested(value):
    """Computes as anybody would, who does not know that he is inside a task."""
    x = build(value)
    total, mean = dask.compute(x.sum(), x.mean())
    return float(total), float(mean)


def with_worker_client(value):
    with worker_client() as client:
        x = build(value)
        return tuple(float(f.result()) for f in (client.compute(x.sum()), client.compute(x.mean())))


def seceded(value):
    client = get_client()
    x = build(value)
    futures = client.compute([x.sum(), x.mean()])
    secede()
    got = tuple(float(v) for v in client.gather(futures))
    rejoin()
    return got


def persisted(value):
    with worker_client() as client:
        x = client.persist(build(value))
        return float(x.sum().compute()), float(x.mean().compute())


WAYS = [nested, with_worker_client, seceded, persisted]


@pytest.fixture(params=["threads", "processes"])
def clients(request):
    """A caching client, with workers of either kind."""
    how = {**INPROC, "processes": request.param == "processes"}
    with dask.config.set(KEEN), Client(**how) as client:
        yield client
        helpers.validate(client)


@pytest.fixture
def inproc():
    """A client on workers of this process: what they run is counted."""
    with dask.config.set(KEEN), Client(**INPROC) as client:
        yield client
        helpers.validate(client)


@pytest.mark.parametrize("way", WAYS, ids=helpers.name_of)
def test_answers(clients, way):
    values = [float(n % 3) for n in range(6)]
    futures = clients.map(way, values, pure=False)
    assert clients.gather(futures, errors="raise") == [(40 * (v + 1), v + 1) for v in values]
    x = build(1.0)
    assert clients.compute(x.max()).result(PATIENCE) == 2


@pytest.mark.parametrize("way", WAYS, ids=helpers.name_of)
def test_a_task_is_answered_by_what_is_kept(inproc, way):
    x = build()
    assert x.max().compute() == 2
    assert x.min().compute() == 2
    assert ran() == 4
    assert inproc.submit(way, 1.0, pure=False).result(PATIENCE) == (80, 2)
    assert ran() == 0


@pytest.mark.parametrize("way", WAYS, ids=helpers.name_of)
def test_what_a_task_asks_for_is_kept(inproc, way):
    assert inproc.submit(way, 2.0, pure=False).result(PATIENCE) == (120, 3)
    forgotten(inproc)
    first = ran()
    assert 4 <= first <= 8  # sum and mean may have been asked for at once
    assert build(2.0).std().compute() == 0
    assert build(2.0).max().compute() == 3
    assert ran() <= 4


def nested_in_nested(depth):
    if not depth:
        return 1
    child = dask.delayed(nested_in_nested, pure=False)(depth - 1)
    return child.compute() + 1


def test_deeper_than_there_are_threads(clients):
    assert clients.submit(nested_in_nested, 4, pure=False).result(PATIENCE) == 5


def draws(n):
    count("draws")
    return [get_client().submit(draw, n).result(), get_client().submit(draw, n).result()]


def draw(n):
    count("draw")
    return random.random()


def submits(value):
    with worker_client() as client:
        return client.submit(draw, value).result()


def test_purity_of_the_outer_task_is_not_that_of_the_inner(inproc):
    """Nobody called what is drawn inside pure."""
    for value in (1, 2):
        inproc.submit(submits, 0, key=f"outer{value}", pure=True).result(PATIENCE)
        forgotten(inproc)
        helpers.wait_until(lambda: not any("draw" in k for k in helpers.look(inproc)["tasks"]))
    assert ran() == 2
    assert not any("draw" in key for key in helpers.held(inproc))


def whose():
    worker = get_worker()
    return type(worker._get_client()).__name__, get_client().scheduler.address


def test_client_of_a_task_is_as_in_plain_dask():
    for processes in (False, True):
        found = []
        for make in (distributed.Client, Client):
            with LocalCluster(**INPROC | {"processes": processes}) as cluster:
                with make(cluster) as client:
                    name, address = client.submit(whose).result(PATIENCE)
                    assert address == cluster.scheduler_address
                    found.append(name)
        # in this process it is the one that is there, elsewhere the worker makes one
        assert found == ["Client", "Client" if processes else "CachingClient"]


def test_tasks_of_a_client_inside_caching():
    with dask.config.set(KEEN), distributed.Client(**INPROC) as client:
        with caching(client):
            x = build()
            assert x.sum().compute() == 80 and x.max().compute() == 2
            assert ran() == 4
            for way in WAYS:
                assert client.submit(way, 1.0, pure=False).result(PATIENCE) == (80, 2)
            assert ran() == 0
        assert client.submit(nested, 1.0, pure=False).result(PATIENCE) == (80, 2)
        helpers.validate(client)


def uses(total):
    """Is handed a future that is kept, and asks for more of the same."""
    with worker_client():
        return float(total + build().mean().compute())


def test_a_task_is_handed_what_is_kept_and_asks_for_more(clients):
    x = build()
    total = clients.compute(x.sum())
    assert clients.submit(uses, total, pure=False).result(PATIENCE) == 82


def collection_inside(x):
    return float(x.sum().compute())


def test_a_collection_of_futures_travels_into_a_task(clients):
    """Futures inside of it are those of the client that the task has."""
    held = clients.persist(build())
    future = clients.submit(collection_inside, held, pure=False)
    assert future.result(PATIENCE) == 80
