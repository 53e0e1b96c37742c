"""Futures that are cancelled or released do no harm to others, nor to what is kept."""

from __future__ import annotations

import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import CancelledError, Future, Queue, Variable, wait
from helpers import INPROC, calls, count, forgotten, ran, validate, wait_until

from cachingclient import Client

META = np.empty((0,))


def slow(v):
    count()
    time.sleep(0.05)
    return v + 1


def build(value=1.0, blocks=8):
    return da.full(blocks, value, chunks=1, dtype="f8").map_blocks(slow, dtype="f8", meta=META)


def test_one_of_two_is_cancelled(client):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    f.cancel()
    assert g.result() == 16
    assert f.cancelled()
    assert not g.cancelled()
    with pytest.raises(CancelledError):
        f.result()
    assert ran() == 8


def test_the_other_of_two_is_cancelled(client):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    client.cancel([g])
    assert f.result() == 16
    assert g.cancelled()


def test_one_of_two_is_cancelled_when_done(client):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    wait([f, g])
    f.cancel()
    assert f.cancelled()
    assert g.result() == 16


def handle(client, future, how):
    """Another future of the same computation, as plain dask makes it."""
    if how == "key":
        return Future(future.key, client)
    if how == "dataset":
        client.publish_dataset(cancelled=future)
        return client.get_dataset("cancelled")
    place = (Variable if how == "variable" else Queue)("cancelled", client=client)
    (place.set if how == "variable" else place.put)(future)
    return place.get()


@pytest.mark.parametrize("how", ["key", "variable", "queue", "dataset"])
def test_a_handle_is_the_same_computation(client, how):
    f = client.compute(build(blocks=40).sum())
    wait_until(lambda: calls() >= 1)
    client.cancel(handle(client, f, how))
    with pytest.raises(CancelledError):
        f.result()


@pytest.mark.parametrize("how", ["key", "variable"])
def test_a_handle_of_one_of_two(client, how):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    client.cancel(handle(client, f, how))
    assert f.result() == g.result() == 16


def test_one_whose_other_was_released(client):
    x = build(blocks=40)
    f, g = client.compute(x.sum()), client.compute(x.sum())
    g.release()
    wait_until(lambda: calls() >= 1)
    client.cancel(Future(f.key, client))
    with pytest.raises(CancelledError):
        f.result()


@pytest.mark.parametrize("done", [False, True])
def test_forced_leaves_equal_computations_of_others_alone(client, done):
    with Client(client.scheduler.address, set_as_default=False) as other:
        x = build()
        f, g = client.compute(x.sum()), other.compute(x.sum())
        if done:
            wait([f, g])
        client.cancel(f, force=True)
        assert g.result(timeout=30) == 16
        assert f.cancelled() and not g.cancelled()


def test_both_are_cancelled(client):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    client.cancel([f, g])
    assert f.cancelled() and g.cancelled()
    del f, g
    forgotten(client)
    assert x.sum().compute() == 16


def test_one_after_the_other_is_cancelled(client):
    x = build()
    f, g = client.compute(x.sum()), client.compute(x.sum())
    f.cancel()
    g.cancel()
    assert f.cancelled() and g.cancelled()
    assert client.compute(x.sum()).result() == 16


def test_one_of_two_is_released(client):
    x = build()
    f, g = client.compute(x.max()), client.compute(x.max())
    f.release()
    assert g.result() == 2
    assert ran() == 8


def test_one_of_two_is_deleted(client):
    x = build()
    f, g = client.compute(x.max()), client.compute(x.max())
    del f
    assert g.result() == 2


def test_two_in_one_call(client):
    """Plain dask gives both a future of their own."""
    x = build()
    f, g = client.compute([x.sum(), x.sum()])
    f.cancel()
    assert g.result() == 16


def test_half_way_then_computed(client):
    x = build()
    f = client.compute(x.sum())
    wait_until(lambda: calls() >= 2)
    f.cancel()
    assert x.sum().compute() == 16
    assert x.mean().compute() == 2


def test_done_then_computed(client):
    x = build()
    f = client.compute(x.mean())
    assert f.result() == 2
    f.cancel()
    assert x.mean().compute() == 2
    assert x.std().compute() == 0
    assert ran() <= 16


def test_persisted_and_cancelled(client):
    x = build()
    p = x.persist()
    client.cancel(p)
    assert x.min().compute() == 2
    assert x.sum().compute() == 16


def test_persisted_and_cancelled_half_way(client):
    x = build()
    p = x.persist()
    wait_until(lambda: calls() >= 2)
    client.cancel(p)
    assert x.min().compute() == 2


def test_persisted_and_cancelled_when_kept(client):
    x = build()
    assert x.sum().compute() == 16
    p = x.persist()
    wait(p)
    client.cancel(p)
    del p
    assert x.min().compute() == 2
    assert x.sum().compute() == 16


def test_upstream_of_what_is_kept(client):
    one = dask.delayed(slow, pure=True)(1)
    two = dask.delayed(slow, pure=True)(one)
    f = client.compute(one)
    assert f.result() == 2
    assert two.compute() == 3
    f.cancel()
    # The client's connection has outlived it:
    assert client.submit(slow, 6).result() == 7
    assert two.compute() == 3
    assert one.compute() == 2
    assert dask.delayed(slow, pure=True)(two).compute() == 4


def quick(v):
    return v + 1


def test_far_upstream_of_what_is_kept():
    """Between the cancelled key and the kept one is one that nobody wants."""
    with dask.config.set({"cachingclient.min-cost": "30ms"}), Client(**INPROC) as client:
        first = dask.delayed(quick, pure=True)(1)
        last = dask.delayed(slow, pure=True)(dask.delayed(quick, pure=True)(first))
        f = client.compute(first)
        assert f.result() == 2
        assert last.compute() == 4
        assert [entry.keys for entry in client.cache.entries()] == [1]
        g = client.compute(dask.delayed(slow, pure=True)(5))
        f.cancel()
        # As the scheduler's handler goes from key to key it would stumble over that one, and
        # the connection would end, with all futures of the client.
        assert g.result() == 6
        assert client.submit(slow, 7).result() == 8
        assert not g.cancelled()
        assert last.compute() == 4
        assert first.compute() == 2
        validate(client)


def test_upstream_of_what_is_kept_persisted(client):
    x = build()
    p = x.persist()
    assert p.sum().compute() == 16
    assert p.mean().compute() == 2
    client.cancel(p)
    del p
    assert client.submit(slow, 6).result() == 7
    assert x.sum().compute() == 16
    assert x.std().compute() == 0


def test_upstream_submitted(client):
    f = client.submit(slow, 1, pure=True)
    g = client.submit(slow, f, pure=True)
    assert g.result() == 3
    f.cancel()
    del f, g
    forgotten(client)
    f = client.submit(slow, 1, pure=True)
    assert client.submit(slow, f, pure=True).result() == 3


def test_upstream_forced(client):
    x = build()
    p = x.persist()
    assert p.sum().compute() == 16
    client.cancel(p, force=True)
    del p
    assert client.submit(slow, 6).result() == 7
    assert x.sum().compute() == 16


def test_upstream_while_running(client):
    x = build()
    p = x.persist()
    f = client.compute(p.map_blocks(slow, dtype="f8", meta=META).sum())
    wait_until(lambda: calls() >= 2)
    client.cancel(p)
    del p, f
    assert client.submit(slow, 6).result() == 7
    assert x.map_blocks(slow, dtype="f8", meta=META).sum().compute() == 24
    assert x.sum().compute() == 16
