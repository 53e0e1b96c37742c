"""Tasks and users may change what they are given; what is kept stays as it was computed.

Results are kept by futures that the tests hold, on plain clients.
"""

from __future__ import annotations

import functools
import operator
import pickle
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Task, TaskRef
from distributed import Client, get_worker, secede, worker_client
from helpers import INPROC, PROCESS, calls, count, logged, name_of, wait_until

from cachingclient.worker import copies, look, names
from cachingclient.worker.copies import copied
from cachingclient.worker.look import CLEAR, function_verdict, task_verdict
from cachingclient.worker.plugin import Guarded, MutationGuard
from cachingclient.worker.reading import changes_when_read
from cachingclient.worker.signatures import reach

Point = namedtuple("Point", "x y")
pdf = pd.DataFrame({"a": np.arange(8), "b": 1.0})


@pytest.fixture
def guarded():
    with Client(**{**INPROC, "n_workers": 1, "threads_per_worker": 2}) as client:
        client.register_plugin(MutationGuard())
        yield client


# -- copying ----------------------------------------------------------------------------------


def masked():
    return np.ma.array([1, 2, 3], mask=[False, True, False])


def objects():
    values = np.empty(2, object)
    values[:] = [[1], {"k": np.zeros(2)}]
    return values


def structured():
    return np.array([(1, 2.0), (3, 4.0)], dtype=[("i", "i8"), ("f", "f8")])


def structured_objects():
    values = np.empty(2, dtype=[("i", "i8"), ("o", object)])
    values["o"][0] = [1]
    return values


def zero_object():
    value = np.empty((), object)
    value[()] = [1]
    return value


def strings():
    return pd.DataFrame({"s": pd.array(["x", None], dtype="string[pyarrow]"), "t": ["u", "v"]})


def arrow():
    return pd.Series([1, 2, None], dtype="int64[pyarrow]")


def object_frame():
    return pd.DataFrame({"o": pd.Series([[1], {"k": 2}], dtype=object), "x": [1, 2]})


def change_index(index):
    index.name = "changed"


def change_attrs(frame):
    frame.attrs["k"] = 1


#: What is made, how it is changed, and what tells of a change
CHANGES = {
    "array": (lambda: np.arange(4.0), lambda v: v.__imul__(2)),
    "fortran array": (lambda: np.asfortranarray(np.ones((2, 3))), lambda v: v.fill(0)),
    "0-d array": (lambda: np.array(1.0), lambda v: v.__setitem__((), 5)),
    "structured array": (structured, lambda v: v["f"].fill(0)),
    "structured objects": (structured_objects, lambda v: v["o"][0].append(2)),
    "record array": (lambda: structured().view(np.recarray), lambda v: v.i.fill(0)),
    "object array": (objects, lambda v: (v[0].append(2), v[1]["k"].fill(9))),
    "0-d object array": (zero_object, lambda v: v[()].append(2)),
    "masked array": (masked, lambda v: v.__setitem__(1, 7)),
    "mask": (masked, lambda v: v.mask.__setitem__(0, True)),
    "frame": (pdf.copy, lambda v: v.__setitem__("b", 0)),
    "cells": (pdf.copy, lambda v: v.loc.__setitem__((0, "a"), -1)),
    "sorted frame": (pdf.copy, lambda v: v.insert(0, "c", 1)),
    "columns": (pdf.copy, lambda v: setattr(v, "columns", ["x", "y"])),
    "name of an index": (pdf.copy, lambda v: change_index(v.index)),
    "attrs": (pdf.copy, change_attrs),
    "strings": (strings, lambda v: v.iloc.__setitem__((0, slice(None)), "changed")),
    "frame of objects": (object_frame, lambda v: v["o"][0].append(2)),
    "series of objects": (lambda: object_frame()["o"], lambda v: v[1].clear()),
    "arrow series": (arrow, lambda v: v.iloc.__setitem__(0, 9)),
    "series": (lambda: pdf["a"].copy(), lambda v: v.update(pd.Series([9]))),
    "index": (lambda: pd.Index([1, 2], name="n"), change_index),
    "multi-index": (
        lambda: pdf.set_index(["a", "b"]).index,
        lambda v: v.set_names(["x", "y"], inplace=True),
    ),
    "extension array": (lambda: pd.array([1, None]), lambda v: v.__setitem__(0, 5)),
    "list": (lambda: [3, 1], lambda v: v.sort()),
    "nested list": (lambda: [[1], (2, [3])], lambda v: v[1][1].append(4)),
    "dict": (lambda: {"a": 1}, lambda v: v.update(b=2)),
    "nested dict": (lambda: {"x": np.ones(2), "y": {"z": {1}}}, lambda v: v["y"]["z"].add(2)),
    "defaultdict": (lambda: defaultdict(list, a=[1]), lambda v: v["b"]),
    "ordered dict": (lambda: OrderedDict(a=[1]), lambda v: v["a"].append(2)),
    "counter": (lambda: Counter("ab"), lambda v: v.update("c")),
    "deque": (lambda: deque([[1]], maxlen=3), lambda v: v[0].append(2)),
    "set": (lambda: {1}, lambda v: v.add(2)),
    "bytearray": (lambda: bytearray(b"ab"), lambda v: v.extend(b"c")),
    "named tuple": (lambda: Point([1], 2), lambda v: v.x.append(2)),
}
CASES = pytest.mark.parametrize("make, change", CHANGES.values(), ids=CHANGES)


def state(value):
    """All of a value, as bytes."""
    if isinstance(value, pd.Index):
        return pickle.dumps((list(value), list(value.names)))
    if isinstance(value, (pd.DataFrame, pd.Series)):
        labels = [(list(axis), list(axis.names)) for axis in value.axes]
        cells = value.astype(object).where(value.notna(), None).to_numpy().tolist()
        return pickle.dumps((cells, labels, dict(value.attrs)))
    return repr(value)


@CASES
def test_copies_are_equal_and_apart(make, change):
    value = make()
    before = state(value)
    copy = copied(value)
    assert type(copy) is type(value)
    assert state(copy) == before
    change(copy)
    assert state(value) == before


@CASES
def test_in_place_tasks(guarded, make, change):
    def altered(value):
        change(value)
        return state(value)

    want = altered(make())
    kept = guarded.submit(make)
    before = state(kept.result())
    for n in range(2):
        assert guarded.submit(altered, kept, key=f"altered-{n}").result() == want
        assert guarded.submit(state, kept, key=f"state-{n}").result() == before


def test_layout_and_flags_survive():
    fortran = np.asfortranarray(np.ones((2, 3)))
    assert copied(fortran).flags.f_contiguous
    assert copied(deque([1], maxlen=3)).maxlen == 3
    assert copied(defaultdict(list, a=[1])).default_factory is list


def test_frames_are_copied_on_write(monkeypatch):
    monkeypatch.setattr(copies, "copies_on_write", lambda: True)  # before pandas 3 it is an option
    frame = pd.DataFrame({"x": np.zeros(1000)})
    assert np.shares_memory(copied(frame)["x"], frame["x"])
    deep = copies.Copier(deep=True)(frame)
    assert not np.shares_memory(deep["x"], frame["x"])


def test_frames_without_copy_on_write(monkeypatch):
    monkeypatch.setattr(copies, "copies_on_write", lambda: False)
    frame = pd.DataFrame({"x": np.zeros(1000)})
    assert not np.shares_memory(copied(frame)["x"], frame["x"])


def test_what_is_shared_stays_shared():
    inner = [1]
    one, two = copied([inner, inner])
    assert one is two and one is not inner
    endless = [1]
    endless.append(endless)
    copy = copied(endless)
    assert copy[1] is copy and copy is not endless


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:],
        lambda x: x[1:],
        lambda x: x[::-1],
        lambda x: x.T,
        lambda x: x.reshape(-1)[2:],
        lambda x: x.view(np.int64),
        lambda x: x.view("V8"),
    ],
    ids="all part reversed transposed flat ints bytes".split(),
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("first", [True, False])
def test_views_of_one_array_stay_views_of_one(part, order, first):
    whole = np.arange(12.0).reshape(4, 3).copy(order=order)
    values = {"view": part(whole), "whole": whole}
    before = pickle.dumps(values)
    copy = copied(values if first else {"whole": whole, "view": values["view"]})
    assert type(copy["view"]) is np.ndarray
    assert copy["view"].dtype == values["view"].dtype
    assert copy["view"].tobytes() == values["view"].tobytes()
    if part(whole).base is whole:
        assert np.shares_memory(copy["view"], copy["whole"])
        copy["whole"][:] = 7
        assert copy["view"].tobytes() == part(copy["whole"]).tobytes()
    assert pickle.dumps(values) == before


def test_small_views_are_copied_alone():
    whole = np.arange(1000.0)
    assert copied(whole[:10]).base is None
    parts = copied([whole, whole[:10]])
    parts[0][:] = 0
    assert parts[1].sum() == 0


def test_views_that_are_not_safe_to_rebuild():
    read_only, records = np.arange(4.0), structured_objects()
    view = read_only[:]
    read_only.flags.writeable = False
    reaching = np.lib.stride_tricks.as_strided(np.ones(4)[:3], (5,), (0,), writeable=True)
    for value in (view, records["i"], reaching, structured().view(np.recarray)[:]):
        before = value.tobytes()
        copy = copied(value)
        copy.view(np.ndarray)[...] = np.zeros((), value.dtype)
        assert value.tobytes() == before and type(copy) is type(value)


class Loads:
    """What it loads when it is asked is there from then on."""

    def __init__(self):
        self._net, self._seen = None, {}

    @property
    def net(self):
        if self._net is None:
            self._net = object()
        return self._net

    def __getitem__(self, key):
        if key not in self._seen:
            self._seen[key] = key
        return self._seen[key]


def test_what_saves_time_changes_nothing():
    assert not changes_when_read(Loads)


class Model:
    def __init__(self):
        self.steps = 0


class Table(dict):
    pass


def test_xarray():
    xr = pytest.importorskip("xarray")
    dataset = xr.Dataset({"x": ("t", np.ones(3))})
    copied(dataset)["x"][:] = 0
    assert dataset["x"].sum() == 3


def closer():
    return "closed"


@pytest.mark.parametrize("part", [lambda dataset: dataset, lambda dataset: dataset["x"]])
def test_what_closes_a_file_survives(guarded, part):
    """A task may hand it out, as `xarray.open_mfdataset` has it with ``parallel=True``."""
    xr = pytest.importorskip("xarray")

    def opened():
        found = part(xr.Dataset({"x": ("t", np.ones(3))}))
        found.set_close(closer)
        return found

    found = dask.delayed(opened)()
    again, close = dask.compute(found, dask.delayed(getattr)(found, "_close"))
    assert again.sum() == 3
    assert close() == "closed"
    # What is kept must not be closed by a task that gets a copy.
    assert copied(opened())._close is None


def test_what_is_left_alone(tmp_path):
    read_only = np.broadcast_to(np.ones(1), (4,))
    on_file = np.memmap(tmp_path / "x", dtype="f8", mode="w+", shape=3)
    for value in (1, "a", (1, "b"), read_only, on_file, range(3), None):
        assert copied(value) is value


def test_objects_of_the_standard_library():
    space = SimpleNamespace(a=[1])
    bound = functools.partial(list.append, [1])
    copied(space).a.append(2)
    copied(bound)(2)
    assert space.a == [1] and bound.args == ([1],)


def test_what_objects_share_stays_shared():
    model, values = Model(), np.zeros(2)
    model.values = values
    copies_of = copied([values, model])
    assert copies_of[1].values is copies_of[0] is not values


def test_objects_that_cannot_be_copied_leave_no_halves():
    model = Model()
    model.parts = [1]
    model.handle = Handle()
    whole = copied([model, model.parts])
    assert whole[0] is model and whole[1] == [1] and whole[1] is not model.parts


def test_instances_of_other_classes():
    model, table = Model(), Table(a=[1])
    copied(model).steps = 5
    copied(table)["a"].append(2)
    assert (model.steps, table) == (0, {"a": [1]})


# -- the look ---------------------------------------------------------------------------------


def double(x):
    return x * 2


def zero(x):
    x[0] = 0


def through(f):
    def call(x):
        return f(x)

    return call


def with_positional_output(x):
    return np.negative(x, x)


def with_local_numpy(x):
    import numpy

    return numpy.negative(x, x)


def with_inner(x):
    def inner():
        x[0] = 1

    inner()


def with_alias(x):
    sort = x.sort
    sort()


def with_global(x):
    global _left
    _left = x


def with_loop(x):
    for x[0] in range(3):
        pass


def by_default(x, f=zero):
    f(x)


CLEARED = [
    double,
    through(double),
    lambda x: np.sqrt(x).sum(axis=0, keepdims=True) + np.linalg.norm(x),
    lambda x: np.where(x > 0, np.log(x), 0.0),
    lambda x: x.astype("f4").clip(0, 1) if x.ndim else x,
    lambda df: df[df.a > 0].groupby("b").mean().reset_index(),
    lambda df: pd.DataFrame({"a": df.a.astype(str).str.upper(), "b": df["b"]}),
    lambda xs: [i * 2 for i in xs if i] + sorted(xs, key=lambda i: -i)[:3],
    lambda d: {k: double(v) for k, v in d.items()},
    lambda xs: functools.reduce(operator.add, xs, 0),
    functools.partial(double),
    np.sort,
    np.add,
    operator.methodcaller("sum"),
]
CAUGHT = [
    zero,
    through(zero),
    with_positional_output,
    with_local_numpy,
    with_inner,
    with_alias,
    with_global,
    with_loop,
    by_default,
    lambda x: x.sort(),
    lambda x: x.clip(0, 1, x),
    lambda x: np.add(x, 1, out=x),
    lambda x: np.add.at(x, [0], 1),
    lambda x: np.nan_to_num(x, copy=False),
    lambda x: np.random.shuffle(x),
    lambda x: list(map(zero, x)),
    lambda x: [i.append(1) for i in x],
    lambda x: list(map(x.append, [1])),
    lambda x: operator.setitem(x, 0, 1),
    lambda df: df.sort_values("a", inplace=True),
    lambda df: df.insert(0, "c", 1),
    lambda *x: zero(*x),
    lambda x: functools.partial(zero)(x),
    lambda x: unknown(x),  # noqa: F821
    functools.partial(zero),
    functools.lru_cache(zero),
    np.vectorize(zero),
    np.random.shuffle,
    np.copyto,
    operator.setitem,
    operator.methodcaller("sort"),
    list.append,
]


@pytest.mark.parametrize("function", CLEARED, ids=name_of)
def test_cleared(function):
    assert function_verdict(function) == CLEAR


@pytest.mark.parametrize("function", CAUGHT, ids=name_of)
def test_caught(function):
    assert function_verdict(function) != CLEAR


def draws_from_its_own(x):
    own = np.random.default_rng(0)
    return x + own.random(x.shape)


def draws_with_numpy_of_its_own(x):
    import numpy

    return x + numpy.random.random(x.shape)


@pytest.mark.parametrize(
    "function",
    [
        lambda g: g.random(),
        lambda g: g.sample(range(9), 2),
        lambda g: g.normal(),
        random.Random.random,
        np.random.Generator.normal,
        np.random.Generator.random,
        operator.methodcaller("random"),
        dask.utils.methodcaller("sample"),
        dask.utils.methodcaller("partial_fit"),
    ],
)
def test_what_changes_a_random_generator(function):
    assert function_verdict(function) != CLEAR


@pytest.mark.parametrize(
    "function",
    [
        draws_from_its_own,
        draws_with_numpy_of_its_own,
        lambda x: x + np.random.random(x.shape),
        lambda x: x + np.random.default_rng(0).random(x.shape),
        lambda x: np.power(x, 2),
        lambda df: df.sample(3),
        lambda df: df.sample(frac=0.5),
        np.random.normal,
        operator.methodcaller("upper"),
        dask.utils.methodcaller("groupby"),
        dask.utils.methodcaller("apply"),
    ],
)
def test_what_changes_no_random_generator_that_is_given(function):
    assert function_verdict(function) == CLEAR


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, np.random.RandomState])
def test_random_generators(guarded, make):
    kept = guarded.submit(make, 5)
    for n in range(2):
        got = guarded.submit(lambda g: g.random(), kept, key=f"drawn-{n}").result()
        assert got == make(5).random()


rng = np.random.default_rng(0)
#: What writes into an argument that has no name in the call, and what only reads
BY_POSITION = {
    "median": (lambda x: np.median(x, None, None, True), lambda x: np.median(x, 0)),
    "percentile": (
        lambda x: np.percentile(x, 50, None, None, True),
        lambda x: np.percentile(x, 50, 0),
    ),
    "nanquantile": (
        lambda x: np.nanquantile(x, 0.5, None, None, True),
        lambda x: np.nanquantile(x, 0.5, 0),
    ),
    "ptp": (lambda x: np.ptp(x, 0, x[0]), lambda x: np.ptp(x, 0)),
    "stack": (lambda x: np.stack([x[0]], 0, x[:1]), lambda x: np.stack([x, x], 1)),
    "concatenate": (lambda x: np.concatenate([x], 0, x), lambda x: np.concatenate([x, x], 1)),
    "fft": (lambda x: np.fft.fft(x, None, -1, None, x), lambda x: np.fft.fft(x, 8, -1, None)),
    "reduce": (
        lambda x: np.maximum.reduce(x, 0, None, x[0]),
        lambda x: np.maximum.reduce(x, 0, None),
    ),
    "accumulate": (lambda x: np.add.accumulate(x, 0, None, x), lambda x: np.add.accumulate(x, 0)),
    "reduceat": (
        lambda x: np.add.reduceat(x, [0], 0, None, x),
        lambda x: np.add.reduceat(x, [0, 2], 0, None),
    ),
    "method": (lambda x: np.ndarray.cumsum(x, 0, None, x), lambda x: np.ndarray.cumsum(x, 0)),
    "choose": (lambda x: x.choose([x, x], x), lambda x: x.choose([x, x])),
    "random": (lambda x: rng.random(3, np.float64, x), lambda x: x + rng.random(3, np.float64)),
    "masked": (
        lambda x: np.ma.masked_where(x > 1, x, False).fill(0),
        lambda x: np.ma.masked_where(x > 1, x).sum(),
    ),
}


def with_numpy_of_its_own(x):
    import numpy

    return numpy.median(x, None, None, True)


def reads_with_numpy_of_its_own(x):
    import numpy

    return numpy.median(x, 0) + numpy.maximum(x, 0)


BY_POSITION["local"] = (with_numpy_of_its_own, reads_with_numpy_of_its_own)


@pytest.mark.parametrize("writes, reads", BY_POSITION.values(), ids=BY_POSITION)
def test_arguments_by_position(writes, reads):
    assert function_verdict(writes) != CLEAR
    assert function_verdict(reads) == CLEAR


@pytest.mark.parametrize("name", sorted(BY_POSITION.keys() & names.OUT_AT.keys()))
def test_arguments_by_position_without_signatures(monkeypatch, name):
    """Functions of numpy that are compiled have none before numpy 2.4."""
    monkeypatch.setattr("cachingclient.worker.signatures._remembered", {})
    monkeypatch.setattr("inspect.signature", broken)
    test_arguments_by_position(*BY_POSITION[name])


def test_tables_say_what_signatures_say():
    for owner in (np.ndarray, np.ufunc, np.random.Generator):
        for name in names.OUT_AT.keys() & vars(owner).keys():
            if callable(method := getattr(owner, name)):  # ndarray.ptp is gone
                assert reach(method).asked == names.OUT_AT[name] + 1


def test_arguments_by_position_of_scipy():
    linalg = pytest.importorskip("scipy.linalg")
    ndimage = pytest.importorskip("scipy.ndimage")
    signal = pytest.importorskip("scipy.signal")
    for writes, reads in (
        (lambda x: linalg.inv(x, True), lambda x: linalg.inv(x)),
        (lambda x: linalg.svd(x, True, True, True), lambda x: linalg.svd(x, True, True)),
        (lambda x: linalg.solve(x, x, False, True), lambda x: linalg.solve(x, x, False)),
        (lambda x: ndimage.gaussian_filter(x, 1, 0, x), lambda x: ndimage.gaussian_filter(x, 1, 0)),
        (lambda x: ndimage.uniform_filter(x, 3, x), lambda x: ndimage.uniform_filter(x, 3)),
        (
            lambda x: signal.detrend(x, -1, "linear", 0, True),
            lambda x: signal.detrend(x, -1, "linear"),
        ),
    ):
        assert function_verdict(writes) != CLEAR
        assert function_verdict(reads) == CLEAR
    x = TaskRef("x")
    assert task_verdict(Task("y", ndimage.uniform_filter, x, 3, x))
    assert not task_verdict(Task("y", ndimage.uniform_filter, x, 3, None, "nearest"))


def test_fortran_routines():
    """They look like builtins, and many of them write into what they get."""
    blas = pytest.importorskip("scipy.linalg.blas")
    assert function_verdict(blas.dscal) != CLEAR
    assert function_verdict(lambda x: blas.dscal(2.0, x)) != CLEAR
    assert function_verdict(lambda x: len(abs(x)) + [].count(x)) == CLEAR


def test_the_same_code_with_other_functions():
    assert through(double).__code__ is through(zero).__code__
    assert function_verdict(through(double)) == CLEAR
    assert function_verdict(through(zero)) != CLEAR


def test_functions_and_arguments_in_tasks():
    x = TaskRef("x")
    assert not task_verdict(Task("y", map, double, x))
    assert task_verdict(Task("y", map, zero, x))
    assert task_verdict(Task("y", np.add, x, 1, out=x))
    assert task_verdict(Task("y", np.add, x, 1, x))
    assert task_verdict(Task("y", double, Task(None, zero, x)))


@pytest.mark.parametrize(
    "function, reads, writes",
    [
        (np.median, (None,), (None, None, True)),
        (np.ptp, (0,), (0, TaskRef("out"))),
        (np.stack, (0, None), (0, TaskRef("out"))),
        (np.add.accumulate, (0, None), (0, None, TaskRef("out"))),
        (np.ndarray.clip, (0, 1), (0, 1, TaskRef("out"))),
        (dask.utils.methodcaller("clip"), (0, 1), (0, 1, TaskRef("out"))),
        (functools.partial(np.clip, np.ones(2)), (), (1, TaskRef("out"))),
    ],
    ids=lambda value: name_of(value) if callable(value) else "",
)
def test_arguments_of_tasks_by_position(function, reads, writes):
    x = TaskRef("x")
    for twice in range(2):
        for more, caught in ((reads, False), (writes, True)):
            asked = Task("y", function, x, *more)
            assert bool(task_verdict(asked)) is caught
            assert bool(task_verdict(Task("z", double, asked))) is caught
            assert bool(task_verdict(Task.fuse(asked, Task("z", double, TaskRef("y"))))) is caught


def test_arguments_by_position_of_partitions():
    base = dd.from_pandas(pdf, npartitions=1)
    for arguments, caught in (((None,), False), ((None, None, True), True)):
        asked = base.map_partitions(np.median, *arguments, meta=pdf).optimize(fuse=False)
        graph = dask._task_spec.convert_legacy_graph(dict(asked.__dask_graph__()))
        assert any(map(task_verdict, graph.values())) is caught


def test_stores_of_dask_are_cleared():
    """Its own function has an argument ``out``, which is where the user wants it written."""
    target = np.zeros(4)
    stored = da.store(da.ones(4, chunks=2), target, compute=False, lock=False)
    graph = dask._task_spec.convert_legacy_graph(dict(stored.__dask_graph__()))
    assert not any(map(task_verdict, graph.values()))


METHODS = {
    "pandas.DataFrame.pop": (pd.DataFrame.pop, pd.DataFrame({"a": [1], "b": [2]}), "b"),
    "pandas.DataFrame.insert": (pd.DataFrame.insert, pd.DataFrame({"a": [1]}), 0, "z", 1),
    "pandas.Series.update": (pd.Series.update, pd.Series([1, 2]), pd.Series([9, 9])),
    "list.__iadd__": (list.__iadd__, [1], [2]),
    "list.__setitem__": (list.__setitem__, [1], 0, 2),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_as_functions(guarded, name):
    function, value, *arguments = METHODS[name]
    held = dask.delayed(copied, pure=True)(value).persist()
    before = repr(held.compute())
    dask.delayed(function, pure=True)(held, *arguments).compute()
    assert repr(held.compute()) == before == repr(value)
    assert function_verdict(lambda value: function(value, *arguments)) != CLEAR


def test_values_without_a_copy(guarded):
    held = dask.delayed(np.array, pure=True)([1, np.nan]).persist()
    assert np.isnan(held.sum().compute())
    assert dask.delayed(np.nan_to_num, pure=True)(held, copy=False).sum().compute() == 1
    assert np.isnan(held.sum().compute())


class Beneath:
    def __call__(self, df):
        df["a"].array[0] = 99
        return int(df["a"].sum())


def test_what_cannot_be_read_gets_whole_copies(guarded):
    held = dask.delayed(pd.DataFrame, pure=True)({"a": [1, 2]}).persist()
    assert held.a.sum().compute() == 3
    hidden = lambda df: [f for f in (Beneath(),)][0](df)  # noqa: E731
    for function in (Beneath(), hidden):
        assert dask.delayed(function, pure=True)(held).compute() == 101
        assert held.a.sum().compute() == 3


class Handle:
    """Can be opened once."""

    closed = False

    def __reduce__(self):
        raise TypeError("a handle")

    def close(self):
        self.closed = True


handle = Handle()


def opened():
    import xarray

    count("opened")
    found = xarray.Dataset({"x": ("t", np.ones(3))})
    found.set_close(handle.close)
    return found


def read(dataset, n):
    with dataset:
        assert not handle.closed
        return n + float(dataset.x.sum())


def test_a_task_that_closes_its_dataset_closes_its_own(guarded):
    pytest.importorskip("xarray")
    found = dask.delayed(opened, pure=True)().persist()
    for n in range(2):
        assert dask.delayed(read, pure=True)(found, n).compute() == n + 3
        assert not handle.closed
    assert calls("opened") == 1


def test_classes_that_are_called_like_ones_of_toolz(guarded, caplog):
    class Compose:
        def __call__(self, value):
            return value + 1

    assert dask.delayed(Compose(), pure=True)(dask.delayed(abs, pure=True)(-1)).compute() == 2
    assert not caplog.records


def test_arguments_of_fused_tasks():
    asked, x = Task("y", np.sqrt, TaskRef("m")), TaskRef("x")
    assert task_verdict(Task.fuse(Task("m", np.add, x, 1, x), asked))
    assert task_verdict(Task.fuse(Task("m", np.add, x, 1, out=x), asked))
    for twice in range(2):  # what was cleared before is told in another way
        assert not task_verdict(Task.fuse(Task("m", np.add, x, 1), asked))
        assert task_verdict(Task.fuse(Task("m", np.add, x, 1, x), asked))


def test_cleared_tasks_are_not_looked_at_again(monkeypatch):
    def tasks():
        x = da.ones(100, chunks=10)
        y = np.sqrt(x.persist(scheduler="sync") * 2 - 1).sum(split_every=4)
        graph = dask.base.collections_to_expr([y]).optimize().__dask_graph__()
        found = dask._task_spec.convert_legacy_graph(dict(graph)).values()
        return [pickle.loads(pickle.dumps(task)) for task in found if task.dependencies]

    for task in tasks():
        assert not task_verdict(task)
    monkeypatch.delattr(look, "task_functions")
    for task in tasks():
        assert not task_verdict(task)
    with pytest.raises(NameError):
        task_verdict(Task("y", double, Task(None, zero, TaskRef("x"))))


def test_tasks_of_one_name_with_other_tasks_in_them(guarded):
    """What is fused into a task differs with what is kept and shown."""
    key, x = ("y-" + 32 * "0", 0), TaskRef("x")
    asked = Task(key, double, TaskRef("m"))
    (hooks,) = guarded.cluster.workers[0].plugins["cachingclient-guard"].hooks.values()
    harmless = Task.fuse(Task("m", double, x), asked)
    harmful = Task.fuse(Task("m", zero, x), asked)
    assert harmless.key == harmful.key == key
    ts = SimpleNamespace(dependencies={"x"}, run_spec=harmless, annotations={})
    hooks.worker.state.tasks[key] = ts
    try:
        assert hooks.guarded(key) is None
        ts.run_spec = harmful
        assert hooks.guarded(key) is not None
    finally:
        del hooks.worker.state.tasks[key]


def test_tasks_of_dask_are_cleared():
    x = da.ones((8, 8), chunks=4)
    for collection in (
        (x + x.T).sum(axis=0),
        da.where(x > 1, x, 0).cumsum(axis=0).std(),
        da.linalg.qr(x.rechunk((4, 8)))[0],
        db.from_sequence(range(8), npartitions=2).map(double).filter(double).sum(),
    ):
        graph = dask.base.collections_to_expr([collection]).optimize().__dask_graph__()
        for key, task in dask._task_spec.convert_legacy_graph(dict(graph)).items():
            assert not task_verdict(task), key


# -- what changes when it is read -------------------------------------------------------------


class Lazy:
    """Counts how often it was asked."""

    def __init__(self, n):
        self.n, self.seen = n, []

    def get(self):
        self.seen.append(1)
        return len(self.seen)

    def __len__(self):
        self.n += 1
        return self.n

    def __getitem__(self, key):
        return self._note()

    def __add__(self, other):
        seen = self.seen
        seen.append(other)
        return len(seen)

    def __iter__(self):
        return iter([self.seen.append(i) or len(self.seen) for i in range(2)])

    def __bool__(self):
        self.seen[:] = [*self.seen, 1]
        return len(self.seen) < 2

    @property
    def p(self):
        del self.seen[1:]
        self.n -= 1
        return self.n

    def _note(self):
        self.seen.append(1)
        return len(self.seen)


class Quiet:
    """Only what is not called reading changes it."""

    def __init__(self, n):
        self.n = n
        self.items = [n]

    def fit(self):
        self.n += 1
        return self.n

    def get(self):
        found = {}
        found["n"] = self.n
        found["n"] += 1
        items = []
        items.append(found)
        items[0]["m"] = [0] * 3
        return items

    def __len__(self):
        total = 0
        for item in self.items:
            total += item
        return total

    def __add__(self, other):
        new = type(self)(0)
        new.n = self.n + other
        new.items.append(other)
        return new

    @functools.cached_property
    def p(self):
        return [item * 2 for item in self.items]


READ = {
    "get": lambda v: v.get(),
    "len": lambda v: len(v),
    "item": lambda v: v[0],
    "add": lambda v: v + 1,
    "property": lambda v: v.p,
    "list": lambda v: list(v),
    "condition": lambda v: 1 if v else 0,
}


@pytest.mark.parametrize("f", READ.values(), ids=READ)
@pytest.mark.parametrize("inside", [False, True])
def test_objects_that_change_when_they_are_read(guarded, f, inside):
    read = (lambda v: f(v[0])) if inside else f
    make = (lambda n: [Lazy(n)]) if inside else Lazy
    assert function_verdict(f) == CLEAR
    kept = guarded.submit(make, 3)
    for n in range(3):
        assert guarded.submit(read, kept, key=f"read-{n}").result() == f(Lazy(3))


@pytest.mark.parametrize("name", READ)
def test_each_way_of_reading_is_seen(name):
    method = {"item": "_note", "property": "p", "list": "__iter__", "condition": "__bool__"}
    member = vars(Lazy)[method.get(name, name if name == "get" else f"__{name}__")]
    assert changes_when_read(type("Alone", (), {"__len__": getattr(member, "fget", member)}))


def test_objects_that_only_others_change_are_shared(guarded):
    assert changes_when_read(Lazy) and not changes_when_read(Quiet)
    for kind in (list, dict, np.ndarray, pd.DataFrame, Point, SimpleNamespace, Model, Table):
        assert not changes_when_read(kind)
    kept = guarded.submit(lambda n: [Quiet(n)], 3)
    one, two = (guarded.submit(lambda v: id(v[0]), kept, key=f"id-{n}").result() for n in "ab")
    assert one == two


ITERATORS = {
    "list": (lambda: [iter([1, 2])], lambda v: sum(v[0])),
    "dict": (lambda: {"i": map(abs, [1, -2])}, lambda v: sum(v["i"])),
    "deep": (lambda: ([{"i": zip([1], [2])}],), lambda v: list(v[0][0]["i"])),
}


@pytest.mark.parametrize("make, read", ITERATORS.values(), ids=ITERATORS)
def test_iterators_in_containers(guarded, make, read):
    assert function_verdict(read) == CLEAR
    kept = guarded.submit(make)
    for n in range(3):
        assert guarded.submit(read, kept, key=f"read-{n}").result() == read(make())


def test_only_what_changes_is_copied(guarded):
    lazy, array = guarded.submit(Lazy, 3), guarded.submit(np.ones, 3)
    found = {guarded.submit(lambda v, x: id(x), lazy, array, key=k).result() for k in "ab"}
    assert len(found) == 1


def test_what_changes_when_it_is_read_on_another_worker():
    with Client(**INPROC) as client:
        client.register_plugin(MutationGuard())
        one, two = client.scheduler_info()["workers"]
        kept = client.submit(Lazy, 3, workers=[one])
        for n in range(2):
            asked = client.submit(len, kept, workers=[two], key=f"len-{n}")
            assert asked.result() == 4


# -- collections ------------------------------------------------------------------------------


def tenfold(df):
    df["b"] = df["b"] * 10
    return df


def overwrite(df):
    df.insert(0, "c", 1)
    df.loc[:, "a"] = -1
    return df[["a"]].copy()


def scale(block):
    block *= 10
    return block


def beneath(df):
    df["b"].array[:] = 0.0
    return df


def test_frames(guarded):
    base = dd.from_pandas(pdf, npartitions=2).map_partitions(pd.DataFrame.copy).persist()
    for _ in range(2):
        assert base.map_partitions(tenfold, meta=pdf).b.sum().compute() == 80
        assert base.map_partitions(overwrite, meta=pdf[["a"]]).a.sum().compute() == -8
        assert base.map_partitions(beneath, meta=pdf).b.sum().compute() == 0
        pd.testing.assert_frame_equal(base.compute(), pdf)


def test_arrays(guarded):
    meta = np.empty((0,))
    x = da.ones(8, chunks=4).map_blocks(np.array, dtype="f8", meta=meta).persist()
    for _ in range(2):
        assert x.map_blocks(scale, dtype="f8", meta=meta).sum().compute() == 80
        assert x.map_overlap(scale, depth=1, boundary="none", meta=meta).max().compute() == 10
        assert x.sum().compute() == 8


def test_bags(guarded):
    def tag(item):
        item["seen"] = True
        return item

    bag = db.from_sequence([{"n": i} for i in range(4)], npartitions=2).persist()
    for _ in range(2):
        assert all(item["seen"] for item in bag.map(tag).compute())
        assert bag.compute() == [{"n": i} for i in range(4)]


def test_views_of_inputs(guarded):
    """A result that is a part of an input is kept with it, and is as safe."""

    def part(x):
        return x[1:3]

    def changed_part(x):
        x[0] = -1
        return x[:2]

    kept = guarded.submit(np.arange, 4.0)
    view, own = guarded.submit(part, kept), guarded.submit(changed_part, kept)
    for f in (view, own, kept):
        assert guarded.submit(scale, f).result().flags.writeable
    assert list(view.result()) == [1, 2] and list(own.result()) == [-1, 1]
    assert list(kept.result()) == [0, 1, 2, 3]


# -- how tasks run ----------------------------------------------------------------------------


def test_nothing_runs_twice(guarded):
    def work(x):
        count()
        x[0] = 5
        return x

    kept = guarded.submit(np.arange, 3)
    assert guarded.submit(work, kept).result()[0] == 5
    assert calls() == 1


def test_read_only_inputs_fail_as_with_a_plain_client(guarded):
    kept = guarded.submit(np.broadcast_to, 1.0, 4)
    with pytest.raises(ValueError, match="read-only"):
        guarded.submit(scale, kept).result()


def test_async_and_seceding_tasks(guarded):
    async def coroutine(values):
        values.append(1)
        return len(values)

    def seceded(values):
        secede()
        values.append(1)
        return len(values)

    def nested(values):
        with worker_client() as client:
            values.append(client.submit(double, 2).result())
        return values

    kept = guarded.submit(list, "ab")
    assert guarded.submit(coroutine, kept).result() == 3
    assert guarded.submit(seceded, kept).result() == 3
    assert guarded.submit(nested, kept).result() == ["a", "b", 4]
    assert kept.result() == ["a", "b"]


class Stack:
    def __init__(self, values):
        self.values = values

    def push(self, value):
        self.values.append(value)
        return len(self.values)


def test_actors(guarded):
    kept = guarded.submit(list, "ab")
    actor = guarded.submit(Stack, kept, actor=True).result()
    assert [actor.push(1).result(), actor.push(2).result()] == [3, 4]
    assert kept.result() == ["a", "b"]

    def through_actor(stack):
        return stack.push(1).result()

    stack = guarded.submit(Stack, [], actor=True)
    assert guarded.submit(through_actor, stack).result() == 1
    assert guarded.submit(through_actor, stack, pure=False).result() == 2


def test_other_executors(guarded):
    from concurrent.futures import ProcessPoolExecutor

    async def add(dask_worker):
        dask_worker.executors["processes"] = ProcessPoolExecutor(1)

    guarded.run(add)
    kept = guarded.submit(list, "ab")
    with dask.annotate(executor="processes"):
        out = guarded.submit(operator.methodcaller("append", 1), kept)
    assert out.result() is None and kept.result() == ["a", "b"]


def test_errors_look_as_with_a_plain_client(guarded):
    def fail(values):
        values.append(1)
        raise KeyError("mine")

    future = guarded.submit(fail, guarded.submit(list, "ab"))
    with pytest.raises(KeyError, match="mine"):
        future.result()
    assert future.traceback().tb_frame.f_code.co_name == "fail"


def test_worker_processes():
    with Client(**PROCESS) as client:
        client.register_plugin(MutationGuard())
        kept = client.submit(np.ones, 4)
        frame = client.submit(pdf.copy)
        for n in range(2):
            assert client.submit(scale, kept, key=f"scale-{n}").result().sum() == 40
            assert client.submit(tenfold, frame, key=f"tenfold-{n}").result().b.sum() == 80
        assert kept.result().sum() == 4 and frame.result().b.sum() == 8


# -- results ----------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
def test_users_may_change_what_they_get(guarded, direct):
    array, values = guarded.submit(np.ones, 1_000_000), guarded.submit(list, "ab")
    frame = guarded.submit(pdf.copy)
    got = guarded.gather([array, values, frame], direct=direct)
    got[0][:] = 0
    got[1].append("c")
    got[2]["b"] = 0
    again = guarded.gather([array, values, frame], direct=direct)
    assert again[0].sum() == 1_000_000 and again[1] == ["a", "b"] and again[2].b.sum() == 8


def test_workers_share_what_they_hand_each_other():
    """Tasks that change it get copies anyway."""
    with Client(**INPROC) as client:
        client.register_plugin(MutationGuard())
        one, two = client.scheduler_info()["workers"]
        kept = client.submit(np.ones, 4, workers=[one])
        assert client.submit(scale, kept, workers=[two]).result().sum() == 40
        client.replicate(kept)
        data = client.run(lambda dask_worker: id(dask_worker.data[kept.key]))
        assert len(set(data.values())) == 1 and kept.result().sum() == 4


# -- life -------------------------------------------------------------------------------------


def look_at(dask_worker):
    return {k: v for k, v in vars(dask_worker).items() if k == "execute"}, dict(
        dask_worker.handlers
    )


def test_teardown_restores_everything(guarded):
    plain = Client(**{**INPROC, "n_workers": 1})
    with plain:
        before = list(plain.run(look_at).values())
        plain.register_plugin(MutationGuard())
        during = list(plain.run(look_at).values())
        assert during != before
        plain.register_plugin(MutationGuard())  # replaces the first
        plain.unregister_worker_plugin(MutationGuard.name)
        assert list(plain.run(look_at).values()) == before
        # The other cluster in this process has its own.
        kept = guarded.submit(list, "ab")
        guarded.submit(operator.methodcaller("append", 1), kept).result()
        assert kept.result() == ["a", "b"]
        mine = plain.submit(list, "ab")
        plain.submit(operator.methodcaller("append", 1), mine).result()
        assert mine.result() == ["a", "b", 1]


def test_teardown_while_somebody_else_wraps_the_worker():
    with Client(**{**INPROC, "n_workers": 1}) as client:
        client.register_plugin(MutationGuard())
        worker = next(iter(client.cluster.workers.values()))
        ours = worker.execute

        def wrapper(*args, **kwargs):
            return ours(*args, **kwargs)

        worker.execute = wrapper
        client.unregister_worker_plugin(MutationGuard.name)
        assert worker.execute is wrapper
        kept = client.submit(list, "ab")
        client.submit(operator.methodcaller("append", 1), kept).result()
        assert kept.result() == ["a", "b", 1]  # off


def test_tasks_keep_their_own_spec(guarded):
    def spec(values):
        values.append(1)
        return type(get_worker().state.tasks[get_worker().get_current_task()].run_spec)

    kept = guarded.submit(list, "ab")
    future = guarded.submit(spec, kept)
    assert future.result() is Guarded
    worker = next(iter(guarded.cluster.workers.values()))
    wait_until(lambda: type(worker.state.tasks[future.key].run_spec) is Task)


def test_new_workers_and_pickle(guarded):
    assert type(pickle.loads(pickle.dumps(MutationGuard()))) is MutationGuard
    guarded.cluster.scale(2)
    guarded.wait_for_workers(2)
    assert all(found for found, _ in guarded.run(look_at).values())


def broken(*args, **kwargs):
    raise RuntimeError("broken guard")


def append_to(client, kept):
    """Append in place three times; what was logged meanwhile."""
    with logged("distributed.worker.cachingclient") as messages:
        for n in range(3):
            assert client.submit(operator.methodcaller("append", n), kept).result() is None
    assert len(messages) == 1 and "broken guard" in messages[0]
    return kept.result()


def test_errors_in_copying_fail_no_task(guarded, monkeypatch):
    monkeypatch.setattr("cachingclient.worker.copies.Copier.__call__", broken)
    assert append_to(guarded, guarded.submit(list, "ab")) == ["a", "b", 0, 1, 2]


def test_what_cannot_be_looked_at_gets_copies(guarded, monkeypatch):
    monkeypatch.setattr("cachingclient.worker.plugin.task_verdict", broken)
    assert append_to(guarded, guarded.submit(list, "ab")) == ["a", "b"]
    monkeypatch.setattr("cachingclient.worker.bytecode._find", broken)
    assert function_verdict(lambda x: x + 17) != CLEAR
