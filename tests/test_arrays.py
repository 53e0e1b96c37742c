"""What arrays share is computed once, whatever holds them, and repeats cost nothing."""

from __future__ import annotations

import time
from types import SimpleNamespace

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import xarray as xr
from helpers import calls, count, forgotten, held, ran, started, watch

from cachingclient.graph.envelope import Envelope

#: So that map_blocks does not call the function to learn its type.
META = np.empty((0,))


def slow(block):
    count()
    time.sleep(0.02)
    return block + 1


def slow_arange(block, block_info=None):
    count()
    time.sleep(0.02)
    start = block_info[0]["array-location"][0][0]
    return block + np.arange(start, start + len(block))


def build(value=1.0, blocks=16):
    return da.full(10 * blocks, value, chunks=10, dtype="f8").map_blocks(
        slow, dtype="f8", meta=META
    )


@pytest.fixture
def sent(monkeypatch):
    """Of each expression that leaves the client, whether it is an envelope without a graph."""
    seen = []
    plain = distributed.Client._graph_to_futures

    def spy(self, expr, *args, **kwargs):
        # Not the expression itself: it may hold futures.
        seen.append(type(expr) is Envelope and expr.expr is None)
        return plain(self, expr, *args, **kwargs)

    monkeypatch.setattr(distributed.Client, "_graph_to_futures", spy)
    return seen


def test_sum_mean_std_and_sum_again(client):
    x = build()
    assert x.sum().compute() == 320
    assert x.mean().compute() == 2
    assert x.std().compute() == 0
    assert x.sum().compute() == 320
    assert ran() == 16


def test_further_questions(client):
    x = build()
    assert x.sum().compute() == 320
    assert ran() == 16
    assert (x * 2 + 1).sum().compute() == 800
    assert (x - x.mean()).std().compute() == 0
    assert np.array_equal(x.compute(), np.full(160, 2.0))
    assert x.reshape(16, 10).T.max(axis=1).compute().tolist() == [2.0] * 10
    assert ran() == 0


def test_local_of_a_function(client):
    def study():
        y = build(2.0)
        return float(y.sum().compute()), float(y.mean().compute()), float(y.std().compute())

    assert study() == (480, 3, 0)
    assert ran() == 16
    assert study() == (480, 3, 0)
    assert ran() == 0


def test_built_anew(client):
    assert build().sum().compute() == 320
    assert build().sum().compute() == 320
    assert ran() == 16


def test_built_anew_new_question(client):
    x = build()
    assert x.sum().compute() == 320
    del x
    assert build().mean().compute() == 2
    assert build().std().compute() == 0
    assert ran() == 16


def test_attribute(client):
    box = SimpleNamespace(x=build())
    assert box.x.sum().compute() == 320
    assert box.x.mean().compute() == 2
    assert ran() == 16


def test_list(client):
    several = [build(1.0), build(2.0)]
    assert [float(v.sum().compute()) for v in several] == [320, 480]
    assert [float(v.mean().compute()) for v in several] == [2, 3]
    assert ran() == 32


def test_several_at_once(client):
    x = build()
    assert dask.compute(x.sum(), x.mean(), x.max()) == (320, 2, 2)
    assert ran() == 16
    assert dask.compute(x.std(), x.sum(), x.min()) == (0, 320, 2)
    assert x.prod().compute() == 2.0**160
    assert ran() == 0


def test_client_compute(client):
    x = build()
    assert client.compute(x.sum()).result() == 320
    assert client.compute(x.mean(), sync=True) == 2
    assert [f.result() for f in client.compute([x.sum(), x.std()])] == [320, 0]
    assert ran() == 16


def test_disabled_runs_all(client):
    x = build()
    assert x.sum().compute() == 320
    assert x.mean().compute() == 2
    forgotten(client)
    assert ran() == 16
    with client.cache.disabled():
        assert x.sum().compute() == 320
    assert ran() == 16


def test_disabled_adds_nothing(client):
    with client.cache.disabled():
        assert build().sum().compute() == 320
    forgotten(client)
    info = client.cache.info()
    assert (info.keys, info.currsize) == (0, 0)
    assert held(client) == []
    assert build().sum().compute() == 320
    assert ran() == 32


def test_disabled_leaves_others_alone(client):
    x, y = build(1.0), build(2.0)
    assert (x.sum().compute(), y.sum().compute()) == (320, 480)
    forgotten(client)
    before = set(held(client))
    with client.cache.disabled():
        assert x.sum().compute() == 320
    forgotten(client)
    assert set(held(client)) <= before
    assert ran() == 48
    assert y.mean().compute() == 3
    assert ran() == 0


def test_disabled_uses_what_the_user_holds(client):
    """As a plain client does."""
    p = build().persist()
    assert p.sum().compute() == 320
    with client.cache.disabled():
        assert p.mean().compute() == 2
    assert ran() == 16


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client, x: x.sum().compute(), id="compute"),
        pytest.param(lambda client, x: client.compute(x.sum()).result(), id="client.compute"),
        pytest.param(lambda client, x: dask.compute(x.sum(), x.mean())[0], id="dask.compute"),
        pytest.param(lambda client, x: dask.persist(x.sum())[0].compute(), id="persist"),
    ],
)
def test_repeat_runs_nothing_and_sends_no_graph(client, sent, ask):
    x = build()
    assert ask(client, x) == 320
    forgotten(client)
    watch(client)
    sent.clear()
    before = client.cache.info()
    assert ask(client, x) == 320
    forgotten(client)
    assert started == []
    assert sent and all(sent)
    assert (client.cache.info() - before).hits >= 1
    assert ran() == 16


def test_repeat_with_the_array_itself(client, sent):
    x = build()
    assert x.compute().sum() == 320
    forgotten(client)
    watch(client)
    sent.clear()
    assert x.compute().sum() == 320
    assert started == []
    assert sent == [True]


def test_first_time_sends_the_graph(client, sent):
    """The counterpart of the tests above: there would be something to see."""
    watch(client)
    assert build().sum().compute() == 320
    assert sent == [False]
    assert len(started) > 16


def test_repeat_is_sent_again_after_clear(client, sent):
    x = build()
    assert x.sum().compute() == 320
    client.cache.clear()
    forgotten(client)
    sent.clear()
    assert x.sum().compute() == 320
    assert ran() == 32
    assert sent == [False]


def test_pan(client):
    x = da.zeros(160, chunks=10).map_blocks(slow_arange, dtype="f8", meta=META)
    want = np.arange(160.0)
    windows = [(i, i + 25) for i in range(0, 120, 15)]
    for a, b in windows + windows[::-1]:
        assert np.array_equal(x[a:b].compute(), want[a:b])
    assert ran() == 13
    assert x[30:90:7].mean().compute() == want[30:90:7].mean()
    assert ran() == 0
    assert x.sum().compute() == want.sum()
    assert ran() == 3


def test_partly_kept_layer(client):
    x = build()
    assert x[:40].sum().compute() == 80
    assert ran() == 4
    assert x.sum().compute() == 320
    assert ran() == 12
    assert x[20:60].max().compute() == 2
    assert ran() == 0


def test_partly_kept_layer_many_times(client):
    x = build()
    for blocks in (2, 5, 11, 16):
        assert x[: 10 * blocks].sum().compute() == 20 * blocks
    assert ran() == 16


def test_two_dimensions(client):
    y = da.zeros((40, 40), chunks=10).map_blocks(slow, dtype="f8", meta=np.empty((0, 0)))
    assert y[:15, :15].sum().compute() == 225
    assert ran() == 4
    assert y.sum(axis=0).compute().tolist() == [40.0] * 40
    assert y.mean(axis=1).compute().tolist() == [1.0] * 40
    assert (y @ y).max().compute() == 40
    assert ran() == 12


def test_unoptimized(client):
    x = build()
    assert x.sum().compute(optimize_graph=False) == 320
    assert x.mean().compute(optimize_graph=False) == 2
    assert x.sum().compute(optimize_graph=False) == 320
    assert ran() == 16


def test_unoptimized_after_optimized(client):
    x = build()
    assert x.sum().compute() == 320
    assert x.mean().compute(optimize_graph=False) == 2
    assert x.std().compute() == 0
    assert ran() == 16


def test_persist(client):
    x = build()
    p = x.persist()
    assert p.sum().compute() == 320
    assert ran() == 16
    del p
    forgotten(client)
    assert x.mean().compute() == 2
    assert build().persist().std().compute() == 0
    assert ran() == 0


def test_persist_of_what_is_kept(client):
    x = build()
    assert x.sum().compute() == 320
    p = x.persist()
    distributed.wait(p)
    assert ran() == 16
    assert p.mean().compute() == 2
    client.cache.clear()
    # The user holds it, not the cache.
    assert p.std().compute() == 0
    assert p.compute().sum() == 320
    assert ran() == 0


def test_one_block(client):
    """Its only key is needed by what puts the result together, and by nothing else."""
    x = build(blocks=1)
    assert x.compute().sum() == 20
    assert x[2].compute() == 2
    assert x.sum().compute() == 20
    assert ran() == 1


def test_one_block_asked_for_a_part_first(client):
    x = build(blocks=1)
    assert x.sum().compute() == 20
    assert x.compute().sum() == 20
    assert (x + 1).max().compute() == 3
    assert ran() == 1


def test_stack_of_images(client):
    load = dask.delayed(slow, pure=True)
    images = [da.from_delayed(load(np.full((4, 5), float(i))), (4, 5), "f8") for i in range(3)]
    stack = da.stack(images)
    assert stack[0].compute().sum() == 20
    assert stack[0, 2].compute().sum() == 5
    assert stack[0, 2, 3].compute() == 1
    assert ran() == 1
    assert stack.max(axis=0).compute().sum() == 60
    assert ran() == 2


def test_layers_below_are_shared_too(client):
    def twice(block):
        count("twice")
        time.sleep(0.02)
        return block * 2

    x = build()
    y = x.map_blocks(twice, dtype="f8", meta=META)
    z = x.map_blocks(np.negative, dtype="f8", meta=META)
    assert (y.sum().compute(), z.sum().compute()) == (640, -320)
    assert (y.mean().compute(), x.max().compute()) == (4, 2)
    assert calls("twice") == 16
    # On first sight only the last living layer of a chain stays visible: x may run for y and for z.
    assert calls("slow") <= 32
    ran()
    assert x.min().compute() == 2
    assert ran() == 0


def test_xarray_dataset(client):
    def lazy(value):
        block = da.full((4, 30), value, chunks=(1, 30), dtype="f8")
        return block.map_blocks(slow, dtype="f8", meta=np.empty((0, 0)))

    coords = {"t": range(4), "x": np.arange(30.0)}
    u, v = (xr.DataArray(lazy(n), dims=("t", "x"), coords=coords) for n in (3.0, 4.0))
    ds = xr.Dataset({"u": u, "v": v})
    assert float(ds.u.mean()) == 4
    assert ran() == 4
    assert float(ds.sum().compute().v) == 600
    assert ran() == 4
    assert float(ds.isel(t=0).compute().u.sum()) == 120
    assert float((ds.u + ds.v).max()) == 9
    assert ds.u.mean("t").values.tolist() == [4.0] * 30
    assert float(ds.assign(w=ds.u * 2).w.groupby("t").mean(...).values[1]) == 8
    assert float(ds.load().v.values.sum()) == 600
    assert ran() == 0
