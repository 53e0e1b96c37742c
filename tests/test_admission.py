"""What may ever be kept: names, side effects, types, and what depends on what."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import sqlite3
import tempfile
import threading
import uuid
from collections import OrderedDict, deque
from concurrent.futures import Future
from functools import partial
from operator import methodcaller

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import toolz
from dask.bag.core import map_chunk
from dask.utils import typename
from utils_graphs import judged

from cachingclient.admission import (
    NO_TOKEN,
    NOT_KEPT,
    P2P,
    UNKNOWN_INPUT,
    UPSTREAM,
    WRITES,
    WRITTEN,
    effect_of,
    has_token,
    key_name,
    readable_again,
)
from cachingclient.internals import Alias, Task, TaskList, TaskRef, as_graph
from cachingclient.judging import judge
from cachingclient.tasks import function_name, is_p2p, task_functions

TOKEN = "0123456789abcdef" * 2


def named(name: str) -> str:
    return f"{name}-{TOKEN}"


A, B, C, D, E = (named(letter) for letter in "abcde")


def clean(x, *args, **kwargs):
    return x


def write_rows(x, *args, **kwargs):
    return x


# -- names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("x", "x"),
        (("x", 0), "x"),
        (("x", 0, 1, 2), "x"),
        ((("x", 1), 0), ("x", 1)),
        ((), ()),
        (3, 3),
    ],
)
def test_key_name(key, name):
    assert key_name(key) == name


@pytest.mark.parametrize("name", [TOKEN, A, f"sum-aggregate-{TOKEN}", f"my_function-{TOKEN}"])
def test_names_with_a_token(name):
    assert has_token(name)


# Not made anew: names of tests have to be the same in every process of pytest-xdist.
UUID1 = "a6d8f3de-ec48-11f1-880c-325096b39f47"
UUID4 = "1f7c5f0e-9d2a-4f0b-8a57-6f6f3f1c2b9d"


@pytest.mark.parametrize(
    "name",
    ["", "x", "x-1", "sum-0123456789abcdef", f"{A}-chunk", f"{A}-0", f"x{TOKEN}", f"x-{TOKEN}0"]
    + [A.upper(), f"x-{UUID4}", f"x-{UUID1}", UUID4, f"x-{'g' * 32}"]
    + [("x", 0), (A, 0), 5, None, A.encode(), 3.5, frozenset()],
)
def test_names_without_a_token(name):
    assert not has_token(name)


# -- effects -----------------------------------------------------------------------

WRITERS = """
    to_parquet to-parquet toparquetdata toparquetbarrier ToParquetData to_parquet_partition
    to-parquet-complete to_csv to-csv _to_csv_chunk write_csv _write_csv to_json write_json
    write_json_partition to_hdf to-hdf _pd_to_hdf to_sql to-sql _to_sql_chunk to_zarr to-zarr
    store store-map load-store load-store-map store_chunk load_store_chunk to_textfiles
    to-textfiles to_npy_stack to-npy-stack to_avro _write_avro_part to_orc to_excel to_pickle
    to_feather to_stata to_gbq to_netcdf to_disk to_file to_mongo to_s3 to_cloud save
    save_results save_fig savefig savez savetxt np.save dump dumps json.dump dump-to-disk
    export export_csv publish publish_dataset upload upload_file send send_mail write write_rows
    write-dataframe writelines pd.DataFrame.to_csv my_module:to_csv tofile write_block
    reset_index-operation-toparquetdata clean-write_rows-sum toparquetdata-fused
""".split()

NO_WRITERS = """
    to_datetime to-datetime to_frame toframe to_timestamp totimestamp to_numeric tonumeric
    to_delayed to_dataframe to-dataframe to_bag to_numpy to_pandas to_records to_dask_array
    to_dask_dataframe to_backend to_pydatetime to_series to_dict to_list tolist to_period
    topandas to_timedelta totimedelta to_array to_string to_xarray to_index to_legacy_dataframe
    restore restored restore_index storage storage_options savings total tone together toffee
    read_parquet read-parquet read_csv read_sql from_zarr from-zarr open_dataset load loads
    load_chunk fromparquet getitem sum mean-aggregate inner map_blocks clean rewind underwrite
    getter array from-value concatenate finalize rechunk-merge chunk-tree histogram
    stone custom
""".split()


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("end", ["", f"-{TOKEN}"], ids=["function", "layer"])
def test_writers(name, end):
    assert effect_of(name + end) is not None


@pytest.mark.parametrize("name", NO_WRITERS)
@pytest.mark.parametrize("end", ["", f"-{TOKEN}"], ids=["function", "layer"])
def test_no_writers(name, end):
    assert effect_of(name + end) is None


def test_no_token_looks_like_a_writer():
    tokens = [uuid.uuid5(uuid.NAMESPACE_DNS, str(i)).hex for i in range(2000)]
    assert not [t for t in tokens if effect_of(f"x-{t}")]


@pytest.mark.parametrize("name", ["to_parquet", "toparquetdata", "to_csv", "write_rows", "save"])
def test_writers_that_may_change_what_they_get(name):
    assert effect_of(name).mutates


@pytest.mark.parametrize("name", ["store-map", "store", "to_zarr", "to_textfiles", "to_npy_stack"])
def test_writers_that_only_read_what_they_get(name):
    # What they write may be kept for other computations.
    assert not effect_of(name).mutates


# -- types -------------------------------------------------------------------------


def generator():
    yield 1


ONCE = {
    "generator": generator(),
    "generator expression": (i for i in ()),
    "map": map(int, ()),
    "filter": filter(None, ()),
    "zip": zip(),
    "enumerate": enumerate(()),
    "reversed": reversed([]),
    "reversed tuple": reversed(()),
    "iter([])": iter([]),
    "iter(())": iter(()),
    "iter(set())": iter(set()),
    "iter(dict)": iter({}),
    "iter(values)": iter({}.values()),
    "iter(items)": iter({}.items()),
    "iter(text)": iter(""),
    "iter(bytes)": iter(b""),
    "iter(range)": iter(range(3)),
    "iter(huge range)": iter(range(10**30)),
    "iter(deque)": iter(deque()),
    "iter(OrderedDict)": iter(OrderedDict()),
    "iter(callable)": iter(int, 1),
    "chain": itertools.chain(),
    "islice": itertools.islice((), 1),
    "tee": itertools.tee(())[0],
    "groupby": itertools.groupby(()),
    "iterrows": pd.DataFrame({"a": [1]}).iterrows(),
    "itertuples": pd.DataFrame({"a": [1]}).itertuples(),
    "csv reader": csv.reader([]),
    "csv DictReader": csv.DictReader([]),
    "pandas in pieces": pd.read_csv(io.StringIO("a\n1"), iterator=True),
    "flat": np.ones(3).flat,
    "partition of a bag": map_chunk(clean, [iter([1])], None, {}),
    "bytes buffer": io.BytesIO(),
    "text buffer": io.StringIO(),
    "wrapped buffer": io.TextIOWrapper(io.BytesIO()),
    "buffered reader": io.BufferedReader(io.BytesIO()),
    "gzip file": gzip.GzipFile(fileobj=io.BytesIO(), mode="wb"),
    "bz2 file": bz2.BZ2File(io.BytesIO(), "wb"),
    "temporary file": tempfile.SpooledTemporaryFile(),
    "cursor": sqlite3.connect(":memory:").execute("select 1"),
    "lock": threading.Lock(),
    "recursive lock": threading.RLock(),
    "semaphore": threading.Semaphore(),
    "condition": threading.Condition(),
    "future": Future(),
    "None": None,
}

AGAIN = {
    "list": [],
    "tuple": (),
    "dict": {},
    "set": set(),
    "text": "",
    "bytes": b"",
    "int": 1,
    "float": 1.0,
    "bool": True,
    "complex": 1j,
    "range": range(3),
    "dict_keys": {}.keys(),
    "dict_values": {}.values(),
    "dict_items": {}.items(),
    "deque": deque(),
    "ndarray": np.ones(1),
    "masked array": np.ma.ones(1),
    "numpy number": np.int64(1),
    "DataFrame": pd.DataFrame(),
    "Series": pd.Series(dtype=float),
    "Index": pd.Index([]),
    "Timestamp": pd.Timestamp(0),
    "function": clean,
    "class": int,
    "partial": partial(clean),
    "OrderedDict": OrderedDict(),
}


@pytest.mark.parametrize("value", ONCE.values(), ids=ONCE)
def test_types_that_can_be_read_once(value):
    assert not readable_again(typename(type(value)))


@pytest.mark.parametrize("value", AGAIN.values(), ids=AGAIN)
def test_types_that_can_be_read_again(value):
    assert readable_again(typename(type(value)))


def test_an_open_file_can_be_read_once(tmp_path):
    path = tmp_path / "file"
    for mode, buffering in [("w", -1), ("r", -1), ("rb", -1), ("r+b", -1), ("rb", 0)]:
        with open(path, mode, buffering=buffering) as f:
            assert not readable_again(typename(type(f)))


def test_a_type_that_nobody_told_is_no_reason():
    assert readable_again(None)


# -- functions of tasks ------------------------------------------------------------


class Writing:
    def write_block(self, x):
        return x


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (write_rows, "write_rows"),
        (Writing().write_block, "write_block"),
        (methodcaller("to_csv", "path"), "to_csv"),
        (dask.utils.methodcaller("to_csv"), "to_csv"),
        (toolz.curry(write_rows), "write_rows"),
        (np.vectorize(write_rows), "write_rows"),
        (np.add, "add"),
        (Writing(), "Writing"),
    ],
)
def test_function_name(function, name):
    assert function_name(function) == name


def writes(task) -> bool:
    return any(effect_of(function_name(function)) for function in task_functions(task))


def fused(times: int):
    """A writer, fused with what follows, and that again, so many times."""
    task = Task("t0", write_rows, 1)
    for i in range(1, times + 1):
        task = Task.fuse(task, Task(f"t{i}", clean, TaskRef(f"t{i - 1}")))
    return task


def chain(length: int, last):
    first = [Task("t0", clean, 1)]
    middle = [Task(f"t{i}", clean, TaskRef(f"t{i - 1}")) for i in range(1, length)]
    return Task.fuse(*first, *middle, Task("end", last, TaskRef(f"t{length - 1}")))


HIDDEN = {
    "plain": Task("k", write_rows, 1),
    "partial": Task("k", partial(write_rows, path="x"), 1),
    "partial of a partial": Task("k", partial(partial(write_rows, 1), 2), 1),
    "argument of a partial": Task("k", partial(map, write_rows), [1]),
    "keyword of a partial": Task("k", partial(clean, function=write_rows), 1),
    "partial in a partial": Task("k", partial(map, partial(write_rows, 1)), [1]),
    "argument": Task("k", map, write_rows, [1]),
    "keyword": Task("k", clean, 1, function=write_rows),
    "partial as argument": Task("k", map, partial(write_rows, 1), [1]),
    "in a list": Task("k", clean, [1, write_rows]),
    "in a dict": Task("k", clean, {"function": write_rows}),
    "compose, last": Task("k", toolz.compose(write_rows, clean), 1),
    "compose, first": Task("k", toolz.compose(clean, write_rows), 1),
    "compose, a partial last": Task("k", toolz.compose(partial(write_rows, 1), clean), 1),
    "compose, a partial first": Task("k", toolz.compose(clean, partial(write_rows, 1)), 1),
    "compose, a partial in the middle": Task(
        "k", toolz.compose(clean, partial(write_rows, 1), clean), 1
    ),
    "partial of compose": Task("k", partial(toolz.compose(clean, write_rows), 1)),
    "juxt": Task("k", toolz.juxt(clean, write_rows), 1),
    "curry": Task("k", toolz.curry(clean)(y=1), 1, function=write_rows),
    "curried": Task("k", toolz.curry(np.add, write_rows), 1),
    "curried keyword": Task("k", toolz.curry(clean, function=write_rows), 1),
    "vectorize": Task("k", np.vectorize(write_rows), 1),
    "bound method": Task("k", Writing().write_block, 1),
    "method called": Task("k", dask.utils.methodcaller("to_csv"), 1),
    "apply": Task("k", dask.utils.apply, write_rows, [1], {}),
    "task in a task": Task("k", clean, Task(None, write_rows, 1)),
    "task in a list of a task": Task("k", clean, TaskList(1, Task(None, write_rows, 1))),
    "fused once": fused(1),
    "fused twice": fused(2),
    "fused three times": fused(3),
    "fused four times": fused(4),
    "end of a chain": chain(10, write_rows),
    "end of a long chain": chain(150, write_rows),
    "legacy": (write_rows, 1),
    "legacy, nested": (clean, (write_rows, 1)),
    "legacy, in a list": (clean, [(write_rows, 1), (clean, 1)]),
    "legacy, argument": (map, write_rows, [1]),
    "legacy, partial": (clean, (partial(map, write_rows), [1])),
    "legacy, list": [(write_rows, 1)],
}


@pytest.mark.parametrize("task", HIDDEN.values(), ids=HIDDEN)
def test_a_writer_is_found(task):
    assert writes(task)


OPEN = {
    "plain": Task("k", clean, 1),
    "text": Task("k", clean, "write_rows"),
    "data": Task("k", clean, {"to_csv": ["write_rows"]}),
    "conversion": Task("k", dask.utils.methodcaller("to_datetime"), 1),
    "partial": Task("k", partial(clean, "to_csv"), 1),
    "fused": chain(10, clean),
    # the function by which dask nests them is called `to_container`
    "nested": Task("k", clean, TaskList(Task(None, clean, 1), TaskRef("x"))),
    "legacy": (clean, ["write_rows", (clean, 1)]),
    "alias": Alias("k", "write_rows"),
    "number": 5,
    "reference": TaskRef("write_rows"),
}


@pytest.mark.parametrize("task", OPEN.values(), ids=OPEN)
def test_no_writer_is_found_where_there_is_none(task):
    assert not writes(task)


def test_all_functions_of_a_fused_task_are_found():
    task = Task.fuse(
        Task("x", partial(clean, function=sorted), 1), Task("y", np.add, TaskRef("x"), 1)
    )
    assert {clean, sorted, np.add} <= set(task_functions(task))


def test_a_long_list_of_data_is_not_searched_to_its_end():
    class Counting(list):
        read = 0

        def __iter__(self):
            for item in super().__iter__():
                self.read += 1
                yield item

    data = list(range(100_000))
    assert list(task_functions(Task("k", clean, data))) == [clean]


# -- verdicts on graphs ------------------------------------------------------------


def reasons(verdict) -> dict:
    """Why names are denied, without what is said in brackets."""
    return {name: reason.partition(" (")[0] for name, reason in verdict.denied.items()}


def graph_of(*tasks) -> dict:
    return {task.key: task for task in tasks}


def test_pure_names_are_allowed():
    verdict = judge(graph_of(Task(A, clean, 1), Task(B, clean, TaskRef(A))))
    assert verdict.allowed == {A, B} and not verdict.denied


def test_what_depends_on_a_name_without_token_is_denied():
    graph = graph_of(
        Task("mine", clean, 1),
        Task(A, clean, TaskRef("mine")),
        Task((B, 0), clean, TaskRef(A)),
        Task((B, 1), clean, 1),
        Task(C, clean, TaskRef((B, 1))),
        Task(D, clean, 1),
    )
    verdict = judge(graph)
    assert reasons(verdict) == {"mine": NO_TOKEN, A: UPSTREAM, B: UPSTREAM, C: UPSTREAM}
    assert verdict.allowed == {D}


def test_the_order_of_a_graph_does_not_matter():
    tasks = [
        Task("mine", clean, 1),
        Task(A, clean, TaskRef("mine")),
        Task(B, clean, TaskRef(A)),
        Task(C, write_rows, TaskRef(D)),
        Task(D, clean, 1),
    ]
    verdicts = [judge(graph_of(*order)) for order in itertools.permutations(tasks)]
    assert all(v == verdicts[0] for v in verdicts)
    assert reasons(verdicts[0]) == {
        "mine": NO_TOKEN,
        A: UPSTREAM,
        B: UPSTREAM,
        C: WRITES,
        D: WRITTEN,
    }


def test_keys_outside_the_graph_must_be_trusted():
    graph = graph_of(Task(A, clean, TaskRef("f")), Task(B, clean, TaskRef(A)), Task(C, clean, 1))
    assert reasons(judge(graph)) == {A: UNKNOWN_INPUT, B: UPSTREAM}
    assert judge(graph, trusted={"f"}).allowed == {A, B, C}
    # A token alone says nothing of a future: what it was made of is not in this graph.
    graph = graph_of(Task(A, clean, TaskRef((B, 0))))
    assert reasons(judge(graph)) == {A: UNKNOWN_INPUT}
    assert judge(graph, trusted={B}).allowed == {A}


def test_lifted_names_are_allowed_although_they_are_not_pure():
    graph = graph_of(Task("mine", clean, 1), Task(A, clean, TaskRef("mine")))
    verdict = judge(graph, lifted={"mine"})
    assert verdict.allowed == {"mine", A} and not verdict.denied


def test_a_lifted_name_lifts_nothing_else():
    graph = graph_of(
        Task("mine", clean, 1), Task(A, clean, TaskRef("mine")), Task("other", clean, TaskRef(A))
    )
    assert {"mine", A} <= judge(graph, lifted={"other"}).denied.keys()
    assert reasons(judge(graph, lifted={"mine"})) == {"other": NO_TOKEN}


def test_what_was_denied_before_stays_denied_and_spreads():
    graph = graph_of(Task(A, clean, 1), Task(B, clean, TaskRef(A)), Task(C, clean, 1))
    before = {A: NOT_KEPT, "elsewhere": NO_TOKEN}
    verdict = judge(graph, denied=before)
    assert reasons(verdict) == {A: NOT_KEPT, B: UPSTREAM} and verdict.allowed == {C}
    assert before == {A: NOT_KEPT, "elsewhere": NO_TOKEN}


@pytest.mark.parametrize("function", [write_rows, partial(clean, write_rows)])
def test_a_writer_is_denied_with_what_follows_and_what_it_gets(function):
    graph = graph_of(
        Task(A, clean, 1),
        Task(B, clean, TaskRef(A)),
        Task(C, function, TaskRef(B)),
        Task(D, clean, TaskRef(C)),
        Task(E, clean, TaskRef(B)),
    )
    verdict = judge(graph)
    assert reasons(verdict) == {B: WRITTEN, C: WRITES, D: UPSTREAM}
    # What it was made of, and what else was made of it, is as pure as it was.
    assert verdict.allowed == {A, E}


def test_a_writer_is_found_by_the_name_of_its_layer():
    name = named("to-parquet")
    graph = graph_of(Task((name, 0), clean, TaskRef(A)), Task(A, clean, 1))
    assert reasons(judge(graph)) == {name: WRITES, A: WRITTEN}


def test_what_only_reads_leaves_its_input_allowed():
    name = named("store-map")
    graph = graph_of(Task((name, 0), clean, TaskRef(A)), Task(A, clean, 1))
    verdict = judge(graph)
    assert reasons(verdict) == {name: WRITES} and verdict.allowed == {A}


def test_all_keys_of_a_writer_hand_over():
    name = named("to-parquet")
    graph = graph_of(
        Task((name, 0), write_rows, TaskRef((A, 0))),
        Task((name, 1), write_rows, TaskRef((B, 0))),
        Task((A, 0), clean, 1),
        Task((B, 0), clean, 1),
    )
    assert reasons(judge(graph)) == {name: WRITES, A: WRITTEN, B: WRITTEN}


def test_a_writer_gets_the_object_behind_an_alias():
    graph = graph_of(
        Task((A, 0), clean, 1),
        Alias((B, 0), (A, 0)),
        Alias((C, 0), (B, 0)),
        Task(D, write_rows, TaskRef((C, 0))),
    )
    assert reasons(judge(graph)) == {A: WRITTEN, B: WRITTEN, C: WRITTEN, D: WRITES}


def test_deep_graphs_are_no_trouble():
    tasks = [Task((A, 0), clean, 1), Task("mine", clean, 1)]
    names = [named(f"x{i}") for i in range(3000)]
    for before, name in zip(["mine", *names], names):
        tasks.append(Task(name, clean, TaskRef(before)))
    verdict = judge(graph_of(*tasks))
    assert verdict.allowed == {A} and len(verdict.denied) == 3001


def test_an_empty_graph():
    assert judge({}) == (set(), {}, {}, {})


# -- P2P ---------------------------------------------------------------------------


def p2p_names(graph) -> tuple[set, set]:
    """Names of the barriers of a graph, and of what they wait for."""
    barriers = [t for t in graph.values() if type(t).__name__ == "P2PBarrierTask"]
    assert barriers
    transfers = {key_name(d) for t in barriers for d in t.dependencies}
    return {key_name(t.key) for t in barriers}, transfers


def check_p2p(graph, verdict):
    barriers, transfers = p2p_names(graph)
    assert transfers
    wrong = (barriers | transfers) - verdict.denied.keys()
    # Behind an alias is the fused task that does the transfer.
    wrong |= {
        key_name(t.target)
        for t in graph.values()
        if isinstance(t, Alias) and key_name(t.key) in transfers
    } - verdict.denied.keys()
    assert not wrong
    assert {reasons(verdict)[name] for name in barriers} == {P2P}


def rechunked():
    x = da.ones((8, 8), chunks=(2, 8)).map_blocks(clean)
    with dask.config.set({"array.rechunk.method": "p2p"}):
        return x.rechunk((8, 2))


def shuffled():
    df = dd.from_pandas(pd.DataFrame({"a": [1, 2, 3, 4], "b": 1.0}), npartitions=2)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        return df.shuffle("a").optimize(fuse=False)


def merged():
    df = dd.from_pandas(pd.DataFrame({"a": [1, 2, 3, 4], "b": 1.0}), npartitions=2)
    other = dd.from_pandas(pd.DataFrame({"a": [1, 2, 3, 4], "c": 2.0}), npartitions=2)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        return df.merge(other, on="a", shuffle_method="p2p").optimize(fuse=False)


@pytest.mark.parametrize("make", [rechunked, shuffled, merged])
def test_barriers_and_transfers_of_p2p_are_denied(make):
    graph = as_graph(dict(make().__dask_graph__()))
    check_p2p(graph, judge(graph))


def test_fused_transfers_of_p2p_are_denied():
    (x,) = dask.optimize(rechunked() + 1)
    graph = as_graph(dict(x.__dask_graph__()))
    check_p2p(graph, judge(graph))


def test_what_follows_p2p_is_allowed():
    x = rechunked().sum()
    graph = as_graph(dict(x.__dask_graph__()))
    assert x.name in judge(graph).allowed


def test_a_task_that_shuffles_otherwise_is_no_p2p():
    df = dd.from_pandas(pd.DataFrame({"a": [1, 2, 3, 4], "b": 1.0}), npartitions=2)
    df = df.shuffle("a", shuffle_method="tasks").optimize(fuse=False)
    graph = as_graph(dict(df.__dask_graph__()))
    assert not any(is_p2p(task) for task in graph.values())
    assert not judge(graph).denied


# -- whole computations, from the client's plan to the scheduler's verdict ---------


def pandas_frame():
    return pd.DataFrame({"a": [1, 2, 3, 4], "b": [1.0, 2, 3, 4]})


def frame():
    return dd.from_pandas(pandas_frame(), npartitions=2)


def array():
    return da.arange(6, chunks=2).map_blocks(clean, dtype=int)


def bag():
    return db.from_sequence([1, 2, 3, 4], npartitions=2)


class Target:
    def __setitem__(self, index, value):
        pass


PURE = {
    "array": lambda: array().sum(),
    "elementwise": lambda: (array() + 1) * 2,
    "overlap": lambda: array().map_overlap(clean, depth=1).sum(),
    "random array": lambda: da.random.default_rng(1).random(6, chunks=2).sum(),
    "bag": lambda: bag().map(clean).sum(),
    "bag of functions": lambda: bag().map(clean, 1).filter(clean).fold(max),
    "frame": lambda: frame().map_partitions(clean).b.sum(),
    "groupby": lambda: frame().map_partitions(clean).groupby("a").b.mean(),
    "conversions": lambda: dd.to_datetime(frame().a).to_frame().count(),
    "delayed": lambda: dask.delayed(clean, pure=True)(dask.delayed(clean, pure=True)(1)),
    "array of delayed": lambda: da.from_delayed(
        dask.delayed(clean, pure=True)(np.ones(3)), shape=(3,), dtype=float
    ).sum(),
    "several": lambda: [array().sum(), array().max()],
}


def collections(made) -> list:
    return made if isinstance(made, list) else [made]


@pytest.mark.parametrize("make", PURE.values(), ids=PURE)
def test_pure_collections_may_be_kept(make):
    graph, verdict = judged(*collections(make()))
    assert verdict.allowed == {key_name(k) for k in graph} and not verdict.denied


def marked(make, **annotations):
    with dask.annotate(**annotations):
        return make()


def own_name():
    return da.from_array(np.arange(4), chunks=2, name="mine")


def delayed_key():
    return dask.delayed(clean, pure=True)(np.ones(2), dask_key_name="mine")


IMPURE = {
    "array with a name of its own": lambda: own_name() + 1,
    "and a function": lambda: own_name().map_blocks(clean, dtype=int).sum(),
    "and a reduction": lambda: own_name().sum(),
    "and a name at random": lambda: da.from_array(np.arange(4), chunks=2, name=False).sum(),
    "delayed": lambda: dask.delayed(clean)(1),
    "delayed, pure=False": lambda: dask.delayed(clean, pure=False)(1),
    "delayed on it": lambda: dask.delayed(clean, pure=True)(dask.delayed(clean)(1)),
    "delayed with a key of its own": delayed_key,
    "delayed on that": lambda: dask.delayed(clean, pure=True)(delayed_key()),
    "array of it": lambda: da.from_delayed(delayed_key(), shape=(2,), dtype=float) + 1,
    "bag of it": lambda: db.from_delayed([delayed_key()]).map(clean).sum(),
    "frame of it": lambda: dd.from_delayed(
        [dask.delayed(pandas_frame)(dask_key_name="mine")], meta=pandas_frame()
    ).b.sum(),
    "annotated array": lambda: marked(array, cache=False).sum(),
    "annotated bag": lambda: marked(lambda: bag().map(clean), cache=False).sum(),
    "array handed to a writer": lambda: array().map_blocks(write_rows, dtype=int).sum(),
    "by name of a block": lambda: array().map_blocks(partial(clean, function=write_rows)).sum(),
    "with block_info": lambda: da.ones(4, chunks=2).map_blocks(write_block_info, dtype=float).sum(),
    "bag of a range": lambda: db.range(4, npartitions=2).map(clean).sum(),  # has no token
    "bag handed to a writer": lambda: bag().map(write_rows).sum(),
    "bag partitions": lambda: bag().map_partitions(write_rows).sum(),
    "frame handed to a writer": lambda: frame().map_partitions(write_rows).b.sum(),
    "delayed writer": lambda: dask.delayed(write_rows, pure=True)(1),
    "what follows it": lambda: dask.delayed(clean, pure=True)(
        dask.delayed(write_rows, pure=True)(1)
    ),
    "its method": lambda: dask.delayed(pandas_frame(), pure=True).to_csv(pure=True),
    "store": lambda: da.store(array(), Target(), compute=False),
    "to_textfiles": lambda: db.from_sequence("ab", npartitions=2).to_textfiles(
        "memory://cachingclient/*", compute=False
    ),
}


def write_block_info(x, block_info=None):
    return x


@pytest.mark.parametrize("make", IMPURE.values(), ids=IMPURE)
def test_no_result_is_kept_that_may_be_another_next_time(make):
    made = collections(make())
    graph, verdict = judged(*made)
    outputs = [name for name in verdict.allowed if depends_on_own(graph, name)]
    assert not outputs


def depends_on_own(graph, name) -> bool:
    """Whether keys of a name contain more than the sources of a computation.

    Each computation above has one source at most that is pure; nothing depends on
    anything else there, so what is allowed has no dependencies and calls nothing of ours.
    """
    tasks = [t for k, t in graph.items() if key_name(k) == name]
    return any(t.dependencies or {clean, write_rows} & set(task_functions(t)) for t in tasks)


def test_the_source_of_a_writer_of_arrays_may_be_kept():
    x = array()
    graph, verdict = judged(da.store(x, Target(), compute=False))
    assert not any(effect_of(name) for name in verdict.allowed)


@pytest.mark.parametrize("method", ["to_parquet", "to_csv", "to_json", "to_hdf"])
def test_writers_of_frames_are_denied_with_what_they_get(method, tmp_path):
    kwargs = {"key": "x"} if method == "to_hdf" else {}
    path = tmp_path / ("out" if method == "to_parquet" else "out-*")
    made = getattr(frame(), method)(str(path), compute=False, **kwargs)
    made = made if isinstance(made, list) else [made]
    for part in made:
        part = part.optimize() if hasattr(part, "expr") else part
        verdict = judge(as_graph(dict(part.__dask_graph__())))
        assert not verdict.allowed


def test_annotations_lift_what_is_not_pure():
    with dask.annotate(cache=True):
        x = own_name()
    graph, verdict = judged((x + 1).sum())
    assert verdict.allowed == {key_name(k) for k in graph} and not verdict.denied


def test_annotated_delayed():
    with dask.annotate(cache=False):
        d = dask.delayed(clean, pure=True)(1)
    e = dask.delayed(clean, pure=True)(d)
    graph, verdict = judged(e)
    assert reasons(verdict).get(d.key) == NOT_KEPT and e.key in verdict.denied
