"""A kept key may be gone when the graph that counts on it arrives: nobody may notice."""

from __future__ import annotations

import dask
import dask.array as da
import dask.bag as db
import helpers
import numpy as np
import pytest

from cachingclient.scheduler.submissions import Submission

META = np.empty((0,))


def slow(block):
    helpers.count()
    return block + 1


def build():
    return da.zeros(8, chunks=2).map_blocks(slow, dtype="f8", meta=META)


def plugin_of(client):
    return client.cluster.scheduler.plugins["cachingclient"]


@pytest.fixture
def evicted_on_the_way(monkeypatch, keen):
    """Everything is evicted between the decision what to leave out and the graph's arrival."""
    plugin = plugin_of(keen)
    planned = Submission.planned
    times = []

    def evict(self, used, *args, **kwargs):
        planned(self, used, *args, **kwargs)
        if used:
            times.append(len(used))
            # Comes before the event loop hears that the graph is ready.
            plugin.loop.call_soon_threadsafe(plugin.clear)

    monkeypatch.setattr(Submission, "planned", evict)
    return times


def first_question(x):
    assert x.sum().compute() == 8
    assert helpers.ran() == 4


def test_get(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    assert x.mean().compute() == 1
    assert evicted_on_the_way == [4]
    assert helpers.ran() == 4


def test_compute(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    future = keen.compute(x.mean())
    assert future.result() == 1
    assert future.status == "finished"
    assert evicted_on_the_way == [4]


def test_several_at_once(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    assert dask.compute(x.mean(), x.max(), x.min()) == (1, 1, 1)
    assert evicted_on_the_way == [4]


def test_persist(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    y = (x + 1).persist()
    assert y.sum().compute() == 16
    assert evicted_on_the_way


def test_persist_of_what_is_kept_in_part(keen, evicted_on_the_way):
    x = build()
    assert x[:4].sum().compute() == 4
    helpers.ran()
    assert x.persist().sum().compute() == 8
    assert evicted_on_the_way


def test_bag(keen, evicted_on_the_way):
    b = db.from_sequence(range(4), npartitions=2).map(slow)
    assert b.sum().compute() == 10
    assert b.max().compute() == 4
    assert evicted_on_the_way


def test_final_result_that_the_client_believes_in(keen):
    x = build()
    first_question(x)
    total = x.sum()
    assert total.compute() == 8
    assert helpers.ran() == 0
    (key,) = keen._session.recent._keys
    helpers.forgotten(keen)
    keen.cache.clear()
    helpers.wait_until(lambda: not plugin_of(keen).scheduler.tasks)
    helpers.wait_until(lambda: not keen._session.recent.knows([key]))
    keen._session.recent.kept([key])
    assert total.compute() == 8
    assert helpers.ran() == 4


def test_released_before_it_is_sent_again(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    future = keen.compute(x.mean())
    future.release()
    del future
    helpers.forgotten(keen)
    helpers.wait_until(lambda: not len(keen._session.pending) or x.mean().compute() == 1)
    assert x.mean().compute() == 1


def test_nothing_is_held_on_to_afterwards(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    assert x.mean().compute() == 1
    helpers.wait_until(lambda: not len(keen._session.pending))


def test_error_is_the_users_own(keen, evicted_on_the_way):
    x = build()
    first_question(x)
    with pytest.raises(ZeroDivisionError):
        x.map_blocks(lambda block: 1 / 0, dtype="f8", meta=META).sum().compute()
    assert x.max().compute() == 1


def add_one(value):
    return value + 1


@pytest.mark.parametrize("hold", [True, False], ids=["held", "dropped"])
@pytest.mark.parametrize("way", ["submit", "pure", "map", "chain"])
def test_submitted_with_what_is_lost_on_the_way(keen, way, hold):
    """It was sent when nobody knew yet: it is sent again after what it depends on."""
    total = build().sum()
    first_question(build())
    assert total.compute() == 8
    (key,) = [k for k in keen._session.recent._keys if keen._session.recent.knows([k])][-1:]
    helpers.forgotten(keen)
    keen.cache.clear()
    helpers.wait_until(lambda: not plugin_of(keen).scheduler.tasks)
    helpers.wait_until(lambda: not keen._session.recent.knows([key]))
    keen._session.recent.kept([key])
    helpers.ran()
    first = keen.compute(total)
    assert first.key == key
    if way == "map":
        (second,) = keen.map(add_one, [first])
    else:
        second = keen.submit(add_one, first, **({"pure": True} if way == "pure" else {}))
    if way == "chain":
        second = keen.submit(add_one, second, pure=True)
    if not hold:
        del first
    assert second.result(timeout=20) == (10 if way == "chain" else 9)
    assert not hold or first.result(timeout=20) == 8
    assert helpers.ran() == 4
    first = second = None
    helpers.forgotten(keen)
    keen.cache.clear()
    helpers.wait_until(lambda: not plugin_of(keen).scheduler.tasks)
