"""What nobody called pure is computed each time, what was called pure once."""

from __future__ import annotations

import gc
import time

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from helpers import calls, count, forgotten, held, ran, wait_until

META = np.empty((0,))


def slow(v):
    count()
    time.sleep(0.02)
    return v + 1


def later(v):
    count("later")
    time.sleep(0.02)
    return v * 10


def numbers(n):
    count("numbers")
    time.sleep(0.02)
    return (i for i in range(n))


def total(values):
    time.sleep(0.02)
    return sum(values)


def as_list(values):
    time.sleep(0.02)
    return list(values)


@pytest.fixture(autouse=True)
def nothing_is_too_cheap():
    """What is quick would not be kept anyhow, and a test would say nothing of it."""
    with dask.config.set({"cachingclient.min-cost": 0, "cachingclient.task-overhead": 0}):
        yield


class Counting:
    """Iterates once, and does not say so by the name of its type."""

    def __init__(self, n):
        self.left = iter(range(n))

    def __iter__(self):
        return self.left


@pytest.fixture
def once(client):
    """Submit, get the value, and let go of it."""

    def submit(*args, **kwargs):
        value = client.submit(*args, **kwargs).result()
        forgotten(client)
        return value

    return submit


@pytest.fixture
def compute(client):
    """Compute, and let go of the value."""

    def compute(lazy, **kwargs):
        value = lazy.compute(**kwargs)
        forgotten(client)
        return value

    return compute


# -- submit and map ---------------------------------------------------------------


def test_submit_time(once):
    assert once(time.time) != once(time.time)


def test_submit_without_a_word(once):
    assert [once(slow, 1) for _ in range(3)] == [2, 2, 2]
    assert ran() == 3


def test_submit_pure(once):
    assert [once(slow, 1, pure=True) for _ in range(3)] == [2, 2, 2]
    assert ran() == 1


def test_submit_not_pure(once):
    assert [once(slow, 1, pure=False) for _ in range(3)] == [2, 2, 2]
    assert ran() == 3


def test_pure_once_does_not_hold_for_others(once):
    """Who did not call it pure gets it computed, though the key is the same."""
    assert once(slow, 1, pure=True) == 2
    assert once(slow, 1) == 2
    assert ran() == 2


def test_unsaid_after_unsaid_after_pure(once):
    assert [once(slow, 1, pure=True), once(slow, 1), once(slow, 1)] == [2, 2, 2]
    assert ran() == 3
    assert [once(slow, 1, pure=True), once(slow, 1, pure=True)] == [2, 2]
    assert ran() == 1


def test_two_living_futures_run_once(client):
    """As in plain dask."""
    f, g = client.submit(slow, 3), client.submit(slow, 3)
    assert (f.result(), g.result()) == (4, 4)
    assert ran() == 1


@pytest.mark.parametrize("how", [{}, {"batch_size": 2}])
@pytest.mark.parametrize("pure, times", [(None, 2), (False, 2), (True, 1)])
def test_map(client, how, pure, times):
    said = {} if pure is None else {"pure": pure}
    for _ in range(2):
        assert client.gather(client.map(slow, range(4), **said, **how)) == [1, 2, 3, 4]
        forgotten(client)
    assert ran() == 4 * times


def test_map_then_submit(client, once):
    assert client.gather(client.map(slow, [1, 2], pure=True)) == [2, 3]
    forgotten(client)
    assert once(slow, 3, pure=True) == 4
    assert client.gather(client.map(slow, [2, 1, 5], pure=True)) == [3, 2, 6]
    assert ran() == 4


def test_submit_inside_disabled(client, once):
    assert once(slow, 1, pure=True) == 2
    with client.cache.disabled():
        assert once(slow, 1, pure=True) == 2
        assert once(slow, 1, pure=True) == 2
    assert ran() == 3


# -- names without a token ---------------------------------------------------------


def test_dask_key_name(compute):
    assert compute(dask.delayed(slow)(1, dask_key_name="v")) == 2
    assert compute(dask.delayed(slow)(5, dask_key_name="v")) == 6


def test_what_depends_on_dask_key_name(compute):
    pure = dask.delayed(later, pure=True)
    assert compute(pure(dask.delayed(slow)(1, dask_key_name="w"))) == 20
    assert compute(pure(dask.delayed(slow)(5, dask_key_name="w"))) == 60
    assert compute(pure(pure(dask.delayed(slow)(1, dask_key_name="w")))) == 200
    assert compute(pure(pure(dask.delayed(slow)(5, dask_key_name="w")))) == 600


def test_submit_key(once):
    assert once(slow, 1, key="k") == 2
    assert once(slow, 5, key="k") == 6
    assert once(slow, 1, key="k", pure=True) == 2
    assert once(slow, 5, key="k", pure=True) == 6


def test_map_key(client):
    for first in (1, 5):
        got = client.gather(client.map(slow, [first, 2], key=["k1", "k2"]))
        assert got == [first + 1, 3]
        forgotten(client)


def test_what_depends_on_submit_key(client):
    for value in (1, 5):
        f = client.submit(slow, value, key="k")
        g = client.submit(later, f, pure=True)
        assert g.result() == 10 * (value + 1)
        del f, g
        forgotten(client)


def test_from_array_name(compute):
    for numbers_, want in (([1, 2], 5), ([5, 6], 13)):
        x = da.from_array(numbers_, name="arr").map_blocks(slow, dtype="i8", meta=META)
        assert compute(x.sum()) == want
        assert compute(x).tolist() == [n + 1 for n in numbers_]


def test_array_of_a_named_delayed(compute):
    for value in (1.0, 5.0):
        block = dask.delayed(slow)(value, dask_key_name="b")
        x = da.from_delayed(block, (), "f8")
        assert compute(x) == value + 1
        assert compute(x + 1) == value + 2


def test_blocks_of_named_delayed_values(compute):
    """Fusion makes one task of a named one and of what follows, under a key with a token."""
    for value in (1.0, 5.0):
        parts = [dask.delayed(slow)(np.full(4, value), dask_key_name=f"b{i}") for i in range(4)]
        x = da.concatenate([da.from_delayed(part, (4,), "f8") for part in parts])
        y = x.map_blocks(later, dtype="f8", meta=META)
        assert compute(x.sum()) == 16 * (value + 1)
        assert compute(y.sum()) == 160 * (value + 1)
        assert compute(y.max()) == 10 * (value + 1)
        assert compute(x)[3] == value + 1
        assert compute(y[5:7]).tolist() == [10 * (value + 1)] * 2


def test_blocks_of_delayed_values_without_a_word(compute):
    parts = [dask.delayed(slow)(np.ones(4)) for _ in range(4)]
    x = da.concatenate([da.from_delayed(part, (4,), "f8") for part in parts])
    for _ in range(2):
        assert compute(x.sum()) == 32
    assert ran() == 8
    for _ in range(2):
        assert compute(x.map_blocks(later, dtype="f8", meta=META).max()) == 20
    assert ran() == 16


def test_bag_of_named_delayed_values(compute):
    for value in (1, 5):
        parts = [dask.delayed(slow)(value, dask_key_name=f"b{i}") for i in range(2)]
        b = db.from_delayed([dask.delayed(lambda v: [v])(part) for part in parts])
        assert compute(b.map(later).sum()) == 20 * (value + 1)
        assert compute(b.sum()) == 2 * (value + 1)
        assert compute(b.map(later)) == [10 * (value + 1)] * 2


def test_frame_of_named_delayed_values(compute):
    for value in (1, 5):
        pdf = pd.DataFrame({"a": [value] * 3})
        parts = [dask.delayed(slow)(pdf, dask_key_name=f"b{i}") for i in range(2)]
        f = dd.from_delayed(parts, meta=pdf.iloc[:0])
        assert compute(f.a.sum()) == 6 * (value + 1)
        assert compute(f.map_partitions(later, meta=pdf.iloc[:0]).a.max()) == 10 * (value + 1)
        assert len(compute(f)) == 6
        assert compute(f).a.max() == value + 1
        # Equal names give the same expression, while it is alive.
        del f
        gc.collect()


# -- annotations --------------------------------------------------------------------


def array():
    return da.ones(40, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def test_annotated_while_building(compute):
    with dask.annotate(cache=False):
        x = array()
    assert compute(x).sum() == compute(x).sum() == 80
    assert ran() == 8
    assert (compute(x.sum()), compute(x.mean()), compute(x.sum())) == (80, 2, 80)
    assert ran() == 12


def test_annotated_while_building_what_follows(compute):
    x = array()
    with dask.annotate(cache=False):
        y = x.map_blocks(later, dtype="f8", meta=META)
    for _ in range(2):
        assert compute((y + 1).sum()) == 840
    assert calls("later") == 8


def test_annotated_delayed(compute):
    with dask.annotate(cache=False):
        value = dask.delayed(slow, pure=True)(1)
    for _ in range(3):
        assert compute(value) == 2
    assert ran() == 3
    for _ in range(3):
        assert compute(dask.delayed(later, pure=True)(value)) == 20
    assert (calls("slow"), calls("later")) == (3, 3)


def test_annotated_around_compute(client, compute):
    x = array()
    for _ in range(2):
        with dask.annotate(cache=False):
            assert compute(x.sum()) == 80
    assert ran() == 8
    assert held(client) == []


def test_annotated_around_compute_of_what_is_kept(compute):
    x = array()
    assert (compute(x.sum()), compute(x.mean())) == (80, 2)
    assert ran() == 4
    with dask.annotate(cache=False):
        assert compute(x.sum()) == 80
        assert ran() == 4
        assert compute(x.std()) == 0
        assert ran() == 4


@pytest.mark.filterwarnings("ignore:Dask annotations")  # they are not ignored by us
def test_annotated_around_compute_of_a_frame(compute):
    pdf = pd.DataFrame({"a": np.arange(40.0)})
    f = dd.from_pandas(pdf, npartitions=4).map_partitions(slow, meta=pdf.iloc[:0])
    assert compute(f.a.sum()) == 820
    assert ran() == 4
    for _ in range(2):
        with dask.annotate(cache=False):
            assert compute(f.a.sum()) == 820
    assert ran() == 8


def test_annotated_around_submit(once):
    with dask.annotate(cache=False):
        assert [once(slow, 4, pure=True), once(slow, 4, pure=True)] == [5, 5]
    assert ran() == 2
    assert [once(slow, 4, pure=True), once(slow, 4, pure=True)] == [5, 5]
    assert ran() == 1
    with dask.annotate(cache=False):
        assert once(slow, 4, pure=True) == 5
    assert ran() == 1


def test_wanted_by_annotation(once):
    with dask.annotate(cache=True):
        assert [once(slow, 5), once(slow, 5)] == [6, 6]
    assert ran() == 1
    assert [once(slow, 5), once(slow, 5)] == [6, 6]
    assert ran() == 2


def test_wanted_by_annotation_while_building(compute):
    """Its key is random, so that only this one object finds it again."""
    with dask.annotate(cache=True):
        value = dask.delayed(slow)(5)
    assert [compute(value), compute(value)] == [6, 6]
    assert ran() == 1


def test_wanted_by_annotation_around_map(client):
    for _ in range(2):
        with dask.annotate(cache=True):
            assert client.gather(client.map(slow, range(3))) == [1, 2, 3]
        forgotten(client)
    assert ran() == 3


def test_other_annotations_are_left_alone(client, compute):
    x = array()
    with dask.annotate(priority=5, retries=2):
        assert compute(x.sum()) == 80
    assert compute(x.mean()) == 2
    assert ran() == 4


# -- values that can be read once ----------------------------------------------------


def test_generator(compute):
    stream = dask.delayed(numbers, pure=True)(3)
    assert compute(dask.delayed(total, pure=True)(stream)) == 3
    assert compute(dask.delayed(as_list, pure=True)(stream)) == [0, 1, 2]
    assert calls("numbers") == 2


def test_generator_submitted(client):
    for read, want in ((total, 3), (as_list, [0, 1, 2])):
        stream = client.submit(numbers, 3, pure=True)
        assert client.submit(read, stream, pure=True).result() == want
        del stream
        forgotten(client)


def test_bag_of_iterators(compute):
    b = db.from_sequence(range(8), npartitions=2).map_partitions(lambda part: map(slow, part))
    assert compute(b.sum()) == 36
    assert compute(b.max()) == 8
    assert compute(b) == list(range(1, 9))
    assert compute(b) == list(range(1, 9))


# -- futures as inputs ----------------------------------------------------------------


def wait_for_one(client, key):
    """Wait until only one future is left."""
    wait_until(lambda: set(client.futures) == {key})


def test_future_nobody_called_pure(client, compute):
    f = client.submit(slow, 1)
    for _ in range(2):
        g = client.submit(later, f, pure=True)
        assert g.result() == 20
        del g
        wait_for_one(client, f.key)
    assert calls("later") == 2


def test_pure_future(client):
    f = client.submit(slow, 1, pure=True)
    for _ in range(2):
        g = client.submit(later, f, pure=True)
        assert g.result() == 20
        del g
        wait_for_one(client, f.key)
    assert calls("later") == 1


@pytest.mark.parametrize("said, times", [({}, 2), ({"pure": True}, 1)])
def test_delayed_of_a_future(client, said, times):
    f = client.submit(slow, 1, **said)
    for _ in range(2):
        assert dask.delayed(later, pure=True)(f).compute() == 20
        wait_for_one(client, f.key)
    assert calls("later") == times


@pytest.mark.parametrize("said, times", [({}, 2), ({"pure": True}, 1)])
def test_array_of_a_future(client, said, times):
    f = client.submit(slow, np.ones(2), **said)
    x = da.from_delayed(f, (2,), "f8")
    y = x.map_blocks(later, dtype="f8", meta=META)
    for _ in range(2):
        assert y.sum().compute() == 40
        assert x.sum().compute() == 4
        wait_for_one(client, f.key)
    assert calls("later") == times


def test_results_made_of_a_reused_key(client):
    """The names of the arrays are the same, and those of what puts their result together."""
    for value in (1.0, 5.0):
        f = client.submit(slow, np.full(2, value), key="fixed")
        x = da.from_delayed(f, (2,), "f8")
        y = da.concatenate([x, x])
        assert x.compute().tolist() == [value + 1] * 2
        assert y.compute().tolist() == [value + 1] * 4
        assert y.sum().compute() == 4 * value + 4
        assert y.map_blocks(later, dtype="f8", meta=META).mean().compute() == 10 * value + 10
        assert dask.compute(x.max(), y.min()) == (value + 1, value + 1)
        assert dask.delayed(total, pure=True)([f, f]).compute().tolist() == [2 * value + 2] * 2
        del f, x, y
        forgotten(client)


def test_scattered_data(client):
    """Its key is a hash of the content, or random: what was computed from it is right."""
    for value in (1, 5):
        f = client.scatter(value)
        assert client.submit(later, f, pure=True).result() == 10 * value
        assert dask.delayed(later, pure=True)(f).compute() == 10 * value
        del f
        forgotten(client)


def test_published_collection(client):
    x = array()
    client.publish_dataset(x=x.persist())
    y = client.get_dataset("x")
    assert y.sum().compute() == 80
    assert y.mean().compute() == 2
    client.unpublish_dataset("x")
    assert ran() == 4


# -- tasks of one layer that call different functions --------------------------------


def called(function):
    count()
    return pd.DataFrame({"a": [function()]})


def one():
    return 1


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("functions", [[one, time.time_ns], [one, one, one, time.time_ns]])
def test_all_functions_of_a_frame_of_functions(compute, functions, optimize):
    """The first of its tasks tells nothing of the others."""

    def ask():
        frame = dd.from_map(called, functions, meta=pd.DataFrame({"a": [1]}))
        return compute(frame.a.sum(), optimize_graph=optimize)

    assert ask() != ask()
    assert ran() == 2 * len(functions)


def test_a_frame_of_functions(compute):
    def ask():
        frame = dd.from_map(called, [one, one], meta=pd.DataFrame({"a": [1]}))
        return compute(frame.a.sum())

    assert (ask(), ask()) == (2, 2)
    assert ran() == 2


def fed(function):
    count()
    return np.array([function()])


@pytest.mark.parametrize("wrap", [lambda task, key: task, lambda task, key: Task(key, abs, task)])
def test_all_functions_of_a_layer_that_somebody_made(compute, wrap):
    name = "fed-" + 32 * "0"

    def ask():
        keys = [(name, i) for i in range(3)]
        layer = {
            key: wrap(Task(key, fed, f), key) for key, f in zip(keys, (one, one, time.time_ns))
        }
        graph = HighLevelGraph.from_collections(name, layer)
        return compute(da.Array(graph, name, ((1, 1, 1),), dtype="i8").sum())

    assert ask() != ask()
    assert ran() == 6


# -- functions in dicts of arguments ---------------------------------------------------


def clock(value):
    count()
    return time.time()


def still(value):
    count()
    return float(value)


def converted(function, folder):
    pd.DataFrame({"a": [1.0]}).to_csv(folder / "x.csv", index=False)
    time.sleep(0.1)
    return dd.read_csv(str(folder / "x.csv"), converters={"a": function}).a.sum()


def mapped(function, folder):
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0]}), npartitions=1)
    steps = {"first": {"a": [function]}}
    return frame.map_partitions(lambda p, s: p * s["first"]["a"][0](1), steps, meta=frame).a.sum()


def blocks(function, folder):
    x = da.ones(1, chunks=1)
    return x.map_blocks(lambda b, s=None: b * s["a"](1), s={"a": function}, meta=META).sum()


def put_off(function, folder):
    return dask.delayed(lambda s: s["a"](1), pure=True)({"a": function})


@pytest.mark.parametrize("make", [converted, mapped, blocks, put_off])
@pytest.mark.parametrize("function, times", [(clock, 3), (still, 1)])
def test_functions_in_dicts_of_arguments(compute, tmp_path, make, function, times):
    asked = make(function, tmp_path)
    ran()
    assert len({float(compute(asked)) for _ in range(3)}) == times
    assert ran() == times
