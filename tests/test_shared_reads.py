"""Frames that are read for several questions: who is served, from what, and until when."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import utils_frames
from distributed import LocalCluster
from helpers import INPROC, KEEN, count, forgotten, ran, started, wait_until, watch
from utils_frames import FILES, read_since, same, table

import cachingclient
from cachingclient import internals
from cachingclient.frames import serving

#: dask's own code for parquet
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

PDF = table()


@pytest.fixture
def files(tmp_path, monkeypatch):
    utils_frames.write(tmp_path, PDF)
    utils_frames.counting(monkeypatch)
    time.sleep(0.05)  # files of the last moment are read each time
    read_since()
    return tmp_path


def rewrite(top, pdf):
    utils_frames.write(top, pdf)
    time.sleep(0.05)


def entries(client, prefix):
    return [entry for entry in client.cache.entries() if entry.name.startswith(prefix)]


# -- freshness ---------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["read_csv", "read_parquet", "read_arrow", "from_map"])
def test_other_columns_of_a_file_that_changed(keen, files, reader):
    """The first to notice may be a leaf that nothing was read for before."""
    f = getattr(utils_frames, reader)(files)
    assert f.a.sum().compute() == PDF.a.sum()
    assert f.x.sum().compute() == pytest.approx(PDF.x.sum())
    forgotten(keen)
    new = table(seed=1)
    rewrite(files, new)
    if reader.startswith("read_"):
        # dask looks at some of these files when it makes a frame
        fresh = getattr(utils_frames, reader)(files)
        assert fresh.y.sum().compute() == pytest.approx(new.y.sum())
    else:
        assert f.y.sum().compute() == pytest.approx(new.y.sum())
        assert f.x.sum().compute() == pytest.approx(new.x.sum())


@pytest.mark.parametrize("reader", ["read_csv", "from_map"])
def test_the_same_frame_when_a_file_has_changed(keen, files, reader):
    f = getattr(utils_frames, reader)(files)
    f.a.sum().compute()
    f.b.mean().compute()
    forgotten(keen)
    # of the same size: the frame knows where its partitions begin
    new = PDF.assign(k=(PDF.k + 1) % 5, j=2 - PDF.j)
    rewrite(files, new)
    assert f.k.sum().compute() == new.k.sum() != PDF.k.sum()
    assert f.j.sum().compute() == new.j.sum()
    assert len(f[f.k > 2]) == sum(new.k > 2)
    assert f.a.sum().compute() == PDF.a.sum()
    rewrite(files, PDF)
    assert f.k.sum().compute() == PDF.k.sum()
    assert f.j.max().compute() == PDF.j.max()


def test_a_column_that_is_called_as_a_file(keen, files, monkeypatch):
    """It is no source: what was read for other columns would be let go of each time."""
    (files / "x").mkdir()
    monkeypatch.chdir(files)
    f = utils_frames.from_map(files)
    for columns in (["a"], ["a", "x"], ["x"], ["a"], ["x", "y"]):
        same(f[columns].sum().compute(), PDF[columns].sum())
    assert read_since() == 3 * FILES


def test_one_file_changes(keen, files):
    f = utils_frames.read_csv(files)
    f.a.sum().compute()
    assert read_since() == FILES
    forgotten(keen)
    part = pd.read_csv(files / "csv" / "1.csv")
    part.assign(x=0.0).to_csv(files / "csv" / "1.csv", index=False)
    time.sleep(0.05)
    want = PDF.x.sum() - part.x.sum()
    assert f.x.sum().compute() == pytest.approx(want)


def test_what_is_persisted_stays_as_it_was(keen, files):
    """As in plain dask: and what is read anew does not take its place."""
    f = utils_frames.read_csv(files)
    p = f.persist()
    assert p.k.sum().compute() == PDF.k.sum()
    new = PDF.assign(k=(PDF.k + 1) % 5)
    rewrite(files, new)
    assert f.y.sum().compute() == pytest.approx(PDF.y.sum())
    same(p.k.value_counts().compute(), PDF.k.value_counts())
    same(utils_frames.read_csv(files).k.value_counts().compute(), new.k.value_counts())
    same(p.groupby("k").a.sum().compute(), PDF.groupby("k").a.sum())
    del p
    forgotten(keen)
    same(f.groupby("k").a.sum().compute(), new.groupby("k").a.sum())


# -- what counts as a wish ---------------------------------------------------------


def test_first_rows_and_length_are_served(keen, files):
    f = utils_frames.read_csv(files)
    assert f.a.sum().compute() == PDF.a.sum()
    assert read_since() == FILES
    assert len(f.head(3)) == 3
    assert len(f) == len(PDF)
    assert len(f.tail(3)) == 3
    assert f.partitions[2].a.min().compute() == 100
    assert read_since() == 0


def test_first_rows_first(keen, files):
    f = utils_frames.read_csv(files)
    assert len(f.head(3)) == 3
    assert read_since() == 1
    assert f.a.sum().compute() == PDF.a.sum()
    assert read_since() == FILES - 1


def test_first_rows_and_length_are_no_wish_for_columns(keen, files):
    f = utils_frames.from_map(files)
    utils_frames.asked.clear()
    assert len(f.head(3)) == 3
    assert f.a.sum().compute() == PDF.a.sum()
    assert len(f) == len(PDF)
    f.x.sum().compute()
    # the first file is there with all its columns
    assert utils_frames.asked == [None, *[["a"]] * (FILES - 1), *[["a", "x"]] * (FILES - 1)]


def test_two_questions_at_once_read_once(keen, files):
    f = utils_frames.from_map(files)
    read_since()
    a, x = dask.compute(f.a.sum(), f.x.sum())
    assert (a, x) == (PDF.a.sum(), pytest.approx(PDF.x.sum()))
    assert read_since() == FILES


# -- room --------------------------------------------------------------------------


def test_what_does_not_fit_is_read_as_it_was_asked_for(files):
    with dask.config.set(KEEN):
        with cachingclient.Client(**{**INPROC, "n_workers": 1}, cache_limit="45 kB") as client:
            f = utils_frames.read_csv(files)
            for column in ("a", "x", "y", "k", "a", "x"):
                assert f[column].sum().compute() == pytest.approx(PDF[column].sum())
                info = client.cache.info()
                assert info.currsize <= info.maxsize
            # Nothing goes back and forth: what had room was not thrown out for the rest.
            forgotten(client)
            kept = {e.name: e.keys for e in entries(client, "read-csv")}
            assert len(kept) == 1 and 0 < sum(kept.values()) < FILES
            read_since()
            for column in ("j", "b"):
                assert f[column].count().compute() == PDF[column].count()
            assert read_since() <= 2 * (FILES - sum(kept.values()))
            assert kept.keys() == {e.name for e in entries(client, "read-csv")}


def test_a_selection_is_not_kept_beside_what_it_was_taken_from(keen, files):
    f = utils_frames.read_csv(files)
    g = f[["a", "x", "y"]]
    # several need it, so that it is not done again for each
    dask.compute(g.sum(), g.max(), g.min(), g.count())
    assert {e.keys for e in entries(keen, "read-csv")} == {FILES}
    assert len(entries(keen, "read-csv")) == 1


# -- the same keys whichever way ---------------------------------------------------


def ways():
    yield "compute", lambda client, lazy: lazy.compute()
    yield "client.compute", lambda client, lazy: client.compute(lazy).result()
    yield "persist", lambda client, lazy: lazy.persist().compute()
    yield "client.persist", lambda client, lazy: client.persist(lazy).compute()
    yield "several", lambda client, lazy: dask.compute(lazy, lazy.sum())[0]
    yield "optimize", lambda client, lazy: lazy.optimize().compute()
    yield "unfused", lambda client, lazy: lazy.optimize(fuse=False).compute()


def clean(df):
    count()
    return df.assign(b=df.b.fillna(0) + 1)[["a", "b"]]


@pytest.mark.parametrize("second", [w for _, w in ways()], ids=[n for n, _ in ways()])
@pytest.mark.parametrize("first", [w for _, w in ways()], ids=[n for n, _ in ways()])
def test_the_same_keys_whichever_way(keen, files, first, second):
    f = utils_frames.read_csv(files)
    f = f.map_partitions(clean, meta=clean(f._meta))
    ran()
    same(first(keen, f), clean(PDF))
    forgotten(keen)
    assert ran() == FILES + 1
    same(second(keen, f), clean(PDF))
    assert ran() == 1


# -- another kernel ----------------------------------------------------------------

KERNEL = """
import sys
import dask
import dask.dataframe as dd
import cachingclient

dask.config.set({"cachingclient.min-cost": "0s", "cachingclient.task-overhead": "0s"})
with cachingclient.Client(sys.argv[1]) as client:
    before = client.cache.info()
    f = dd.read_parquet(sys.argv[2])
    print(f.a.sum().compute(), round(f[f.k > 1].x.sum().compute(), 6))
    print((client.cache.info() - before).hits)
"""


def test_another_kernel_is_served(tmp_path):
    """A token of read_parquet has the numbers of its process and thread."""
    utils_frames.write(tmp_path, PDF)
    time.sleep(0.05)
    script = tmp_path / "kernel.py"
    script.write_text(textwrap.dedent(KERNEL))
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:

        def kernel():
            command = [sys.executable, script, cluster.scheduler_address, tmp_path / "parquet"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            return done.stdout.split()

        a, x, hits = kernel()
        assert (int(a), float(x)) == (PDF.a.sum(), pytest.approx(PDF.x[PDF.k > 1].sum()))
        first = [ts.group_key for ts in cluster.scheduler.tasks.values()]
        assert first
        seen = watch_reads(cluster.scheduler)
        assert kernel()[:2] == [a, x]
        assert seen == [], "nothing was read for the second"


def watch_reads(scheduler):
    """Keys that read files, from now on."""
    from distributed import SchedulerPlugin

    seen = []

    class Reads(SchedulerPlugin):
        name = "reads"

        def transition(self, key, start, finish, *args, **kwargs):
            if finish == "processing" and "read_parquet" in str(key):
                seen.append(key)

    scheduler.loop.add_callback(scheduler.add_plugin, Reads())
    wait_until(lambda: "reads" in scheduler.plugins)
    return seen


# -- kinds of data -----------------------------------------------------------------


def halves(pdf):
    """A reader of parts that are in memory, under columns of any kind."""
    middle = len(pdf) // 2

    def load(n, columns=None):
        count()
        part = pdf.iloc[:middle] if n == 0 else pdf.iloc[middle:]
        return part if columns is None else part[columns]

    return dd.from_map(load, [0, 1], meta=pdf.iloc[:0])


def kinds_of_data():
    n = np.arange(20.0)
    yield "category", pd.DataFrame({"a": n, "c": pd.Categorical(["x", "y"] * 10), "d": n})
    yield "pyarrow", pd.DataFrame({"a": n, "d": n}).convert_dtypes(dtype_backend="pyarrow")
    yield "strings", pd.DataFrame({"a": n, "d": [f"s{x}" for x in n]})
    yield "two columns of a name", pd.DataFrame(np.c_[n, n + 1, n + 2], columns=["a", "a", "d"])
    yield (
        "levels of columns",
        pd.DataFrame(
            np.c_[n, n + 1, n + 2],
            columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("d", "z")]),
        ),
    )
    yield "numbers as names", pd.DataFrame({0: n, 1: n * 2, "d": n})
    yield "an index", pd.DataFrame({"a": n, "d": n}, index=pd.Index(n * 10, name="i"))


@pytest.mark.parametrize(
    "pdf", [p for _, p in kinds_of_data()], ids=[n for n, _ in kinds_of_data()]
)
def test_kinds_of_data(keen, pdf):
    f = halves(pdf)
    labels = list(pdf.columns)
    if pdf.columns.is_unique and pdf.columns.nlevels == 1:
        questions = [lambda f, c=c: f[c] for c in [*labels, labels[:1], labels, labels[::-1]]]
    else:
        # dask does not select such columns as pandas does
        questions = [lambda f: f.map_partitions(lambda df: df.iloc[:, :2]), lambda f: f.count()]
    for ask in [*questions, lambda f: f, lambda f: f.tail(3, compute=False), *questions]:
        # in this thread: plain dask
        got, want = ask(f).compute(), ask(f).compute(scheduler="sync")
        assert type(got) is type(want)
        assert got.equals(want)
        assert str(getattr(got, "dtypes", "")) == str(getattr(want, "dtypes", ""))


def test_empty_partitions(keen, tmp_path):
    for n, rows in enumerate([10, 0, 5]):
        table(rows).astype({"s": "string[pyarrow]"}).to_parquet(
            tmp_path / f"{n}.parquet", index=False
        )
    want = pd.concat([table(10), table(5)])
    for filesystem in ("fsspec", "arrow"):
        f = dd.read_parquet(tmp_path, filesystem=filesystem)
        assert f.a.sum().compute() == want.a.sum()
        same(f.groupby("k").x.sum().compute(), want.groupby("k").x.sum())
        same(f.compute(), want)
        same(f[f.a > 7].compute(), want[want.a > 7])
        forgotten(keen)


def test_other_backends_are_left_alone(monkeypatch, files):
    """What is no pandas frame keeps its name and its tasks."""
    from cachingclient.frames import leaves

    class Other(pd.DataFrame):
        pass

    Other.__module__ = "cudf.core"
    f = utils_frames.read_csv(files)
    kinds = internals.frame_kinds()
    (reader,) = f.expr.find_operations(kinds.FromMapProjectable)
    assert leaves.kind_of(reader, kinds) == leaves.CSV
    monkeypatch.setattr(leaves, "meta_of", lambda node: Other())
    assert leaves.kind_of(reader, kinds) is None


# -- shuffles ----------------------------------------------------------------------


def test_what_was_made_before_a_shuffle_is_used_for_another(keen, files):
    f = utils_frames.read_csv(files)
    f = f.map_partitions(clean, meta=clean(f._meta))
    want = clean(PDF)
    ran()
    same(f.merge(f, on="a").b_x.sum().compute(), want.b.sum())
    assert ran() == FILES
    other = pd.DataFrame({"a": range(200), "w": 1.0})
    big = dd.from_pandas(other, npartitions=3)
    assert f.merge(big, on="a").w.sum().compute() == 200
    same(f.shuffle("a").b.max().compute(), want.b.max())
    same(f.sort_values("b").b.min().compute(), want.b.min())
    same(f.groupby("a").b.sum(split_out=3).compute(), want.groupby("a").b.sum())
    assert ran() == 0


def test_divisions_are_computed_once(keen, files):
    f = utils_frames.read_csv(files)
    first = f.set_index("x")
    assert first.y.sum().compute() == pytest.approx(PDF.y.sum())
    read_since()
    # in another kernel, dask would not remember them
    from dask.dataframe.dask_expr import _shuffle

    _shuffle.divisions_lru.clear()
    forgotten(keen)
    watch(keen)
    again = f.set_index("x")
    assert again.divisions == first.divisions
    assert started == []
    assert again.a.sum().compute() == PDF.a.sum()
    assert read_since() == 0


# -- errors ------------------------------------------------------------------------


def test_an_error_of_ours_ends_in_the_plain_graph(keen, files, monkeypatch, errors_of_ours):
    from cachingclient.graph import envelope

    def fail(*args):
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(envelope, "rewrite", fail)
    f = utils_frames.read_csv(files)
    assert f.a.sum().compute() == PDF.a.sum()
    assert f.x.sum().compute() == pytest.approx(PDF.x.sum())
    (message,) = errors_of_ours
    assert "of ours" in message
    errors_of_ours.clear()
    assert keen.cache.info().keys > 0, "kept as ever"


def test_what_travels_is_small(files):
    """The client says of a leaf what it reads, and does not send it twice."""
    from cachingclient.watching import Watch

    f = utils_frames.read_csv(files)
    seen = Watch(()).look(internals.as_computed(f.a.sum()))
    (reader,) = seen.readers.values()
    assert len(cloudpickle.dumps(dict(seen.readers))) < 1000
    # with the folder, which is looked at too
    size = sum(p.stat().st_size for p in Path(files / "csv").iterdir())
    assert size <= reader.nbytes <= size + 10_000


# -- data of the client ------------------------------------------------------------


def sent(client, monkeypatch):
    """Sizes of what the client sends, in a list that grows."""
    sizes = []
    inner = client._send_to_scheduler

    def send(message):
        if message.get("op") == "update-graph":
            sizes.append(sum(memoryview(f).nbytes for f in message["expr_ser"].frames))
        inner(message)

    monkeypatch.setattr(client, "_send_to_scheduler", send)
    return sizes


BIG = pd.DataFrame({"a": np.arange(50_000.0), "b": np.arange(50_000.0) % 7, "s": "word"})


def asked_of_big(f):
    assert f.b.sum().compute() == BIG.b.sum()
    assert f[f.a > 100].b.max().compute() == 6
    same(f.groupby("b").a.sum().compute(), BIG.groupby("b").a.sum())
    assert len(f.head(3)) == 3
    assert len(f.map_partitions(len).compute()) == 4


@pytest.mark.parametrize("processes", [False, True])
def test_data_is_not_sent_twice(monkeypatch, processes):
    with dask.config.set(KEEN):
        with cachingclient.Client(**{**INPROC, "processes": processes, "n_workers": 1}) as client:
            sizes = sent(client, monkeypatch)
            f = dd.from_pandas(BIG, npartitions=4)
            assert f.a.sum().compute() == BIG.a.sum()
            assert sizes[0] > 800_000
            asked_of_big(f)
            # A frame that is made anew of the same data is the same.
            assert dd.from_pandas(BIG.copy(), npartitions=4).a.max().compute() == 49_999
            assert max(sizes[1:]) < 50_000


def test_data_that_the_scheduler_has_forgotten_is_sent_again(keen, monkeypatch):
    sizes = sent(keen, monkeypatch)
    f = dd.from_pandas(BIG, npartitions=4)
    assert f.a.sum().compute() == BIG.a.sum()
    asked_of_big(f)
    forgotten(keen)
    keen.cache.clear()
    del sizes[:]
    asked_of_big(f)
    assert sum(size > 800_000 for size in sizes) == 1
    # futures and persisted frames, too
    keen.cache.clear()
    future = keen.compute(f.b.max())
    assert future.result() == 6
    keen.cache.clear()
    p = f.persist()
    assert p.a.max().compute() == 49_999


def test_the_scheduler_remembers_no_more_than_it_may(monkeypatch):
    settings = {**KEEN, "cachingclient.scheduler-memory": "2 MB"}
    with dask.config.set(settings), cachingclient.Client(**INPROC) as client:
        for n in range(4):
            f = dd.from_pandas(BIG.assign(a=BIG.a + n), npartitions=2)
            assert f.a.min().compute() == n
            assert f.b.max().compute() == 6
        data = client.cluster.scheduler.plugins["cachingclient"].data
        assert 0 < len(data) < 4 and data.nbytes <= 2_000_000


# -- loss --------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["read_csv", "read_parquet", "from_map"])
def test_frames_that_were_lost_with_a_worker_are_read_again(keen, files, reader):
    f = getattr(utils_frames, reader)(files)
    assert f.a.sum().compute() == PDF.a.sum()
    forgotten(keen)
    before = keen.cache.info().keys
    keen.sync(keen.cluster.workers[0].close)
    wait_until(lambda: keen.cache.info().keys < before)
    assert f.x.sum().compute() == pytest.approx(PDF.x.sum())
    same(f.groupby("k").a.max().compute(), PDF.groupby("k").a.max())
    same(f[["a", "x"]].max().compute(), PDF[["a", "x"]].max())


@pytest.mark.parametrize("reader", ["read_parquet", "read_arrow"])
@pytest.mark.parametrize("fast", [False, True])
def test_what_is_read_faster_than_copied_is_read_again(keen, files, monkeypatch, reader, fast):
    """Frames side by side have to be copied into one: a fast disk is faster."""
    monkeypatch.setattr(serving, "ASSEMBLING", float("inf") if fast else 0.0)
    f = getattr(utils_frames, reader)(files)
    for columns in (["a", "b"], ["x", "y"]):
        same(f[columns].sum().compute(), PDF[columns].sum())
    utils_frames.read_since()
    forgotten(keen)
    # Of both frames; then of one, which takes no copy of what is not wanted.
    same(f[["a", "x"]].max().compute(), PDF[["a", "x"]].max())
    assert (utils_frames.read_since() > 0) is fast
    same(f[["x"]].min().compute(), PDF[["x"]].min())
    assert utils_frames.read_since() == 0


# -- settings that names do not tell -------------------------------------------------


def test_other_number_of_files_read_at_once(keen, tmp_path):
    """dask calls what reads two files a partition by the name of what reads four."""
    utils_frames.write(tmp_path, PDF, files=16)
    time.sleep(0.05)

    def rows():
        f = utils_frames.read_arrow(tmp_path)[["a", "b", "s", "k", "j"]]
        node = weakref.ref(f.expr)
        found = f.map_partitions(len).compute().tolist()
        del f
        # dask finds expressions that are in memory again, whatever they were told of partitions.
        wait_until(lambda: gc.collect() >= 0 and node() is None)
        return found

    seen = []
    setting = "dataframe.parquet.minimum-partition-size"
    for minimum in (1, 1500, 6000, 1):
        with dask.config.set({setting: minimum}):
            got = rows()
            with keen.cache.disabled():
                assert got == rows()
            seen.append(len(got))
    assert sum(got) == len(PDF)
    assert len(set(seen)) > 2


@pytest.mark.parametrize("reader", ["read_parquet", "read_arrow"])
def test_strings_under_another_setting(keen, tmp_path, reader):
    pdf = PDF.assign(s=PDF.s.astype(object))
    utils_frames.write(tmp_path, pdf)
    time.sleep(0.05)
    for convert in (False, True, True, False):
        with dask.config.set({"dataframe.convert-string": convert}):
            f = getattr(utils_frames, reader)(tmp_path)
            got = f[["s"]].compute().s.dtype, f[["a", "s"]].compute().s.dtype
            with keen.cache.disabled():
                assert got == (f[["s"]].compute().s.dtype,) * 2


def test_rewriting_keeps_no_expression(keen, files):
    """dask finds those that are in memory again, and what they knew of their partitions."""
    f = utils_frames.read_parquet(files)
    gc.collect()
    gc.disable()
    try:
        x = f.x.sum()
        x.compute()
        node = weakref.ref(x.optimize(fuse=False).expr)
        del x
        assert node() is None
    finally:
        gc.enable()


# -- readers that fail -----------------------------------------------------------------


def test_a_column_that_a_file_lacks_fails_alone(keen, files):
    """What was asked for and failed is not read along with what works."""
    meta = pd.read_parquet(files / "parquet" / "0.parquet").iloc[:0].assign(z=1.0)
    paths = [str(files / "parquet" / f"{n}.parquet") for n in range(FILES)]
    pd.read_parquet(paths[0]).assign(z=1.0).to_parquet(paths[0], index=False)
    time.sleep(0.05)
    f = dd.from_map(utils_frames.load, paths, meta=meta)
    for column in ("a", "x", "y"):
        with pytest.raises(Exception, match="z"):
            f.z.sum().compute()
        assert f[column].sum().compute() == pytest.approx(PDF[column].sum())
    assert f[["a", "x", "y"]].max().compute().tolist() == PDF[["a", "x", "y"]].max().tolist()
