"""Files that change are read again, and nobody else is misled by what was kept of them."""

from __future__ import annotations

import os
import time

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from helpers import ran

from cachingclient import Client
from cachingclient.internals import as_computed
from cachingclient.scheduler.freshness import CODE, Freshness
from cachingclient.watching import Watch


def load(path):
    time.sleep(0.01)
    helpers.count()
    return np.load(path)


def write(path, value):
    if path.endswith(".npy"):
        np.save(path, np.full(100, value))
    elif path.endswith(".csv"):
        pd.DataFrame({"a": np.full(100, value)}).to_csv(path, index=False)
    elif path.endswith(".parquet"):
        pd.DataFrame({"a": np.full(100, value)}).to_parquet(path)
    else:
        with open(path, "w") as f:
            f.write(f"{value}\n" * 100)


#: {name: (how the file ends, what is made of it, what is asked)}
READERS = {
    "read_csv": (".csv", lambda path: dd.read_csv(path).a, lambda a: a.sum()),
    "read_parquet": (".parquet", lambda path: dd.read_parquet(path).a, lambda a: a.sum()),
    "from_map": (
        ".parquet",
        lambda path: dd.from_map(pd.read_parquet, [path]).a,
        lambda a: a.sum(),
    ),
    "read_text": (".txt", lambda path: db.read_text(path).map(int), lambda b: b.sum()),
    "from_delayed": (
        ".npy",
        lambda path: da.from_delayed(dask.delayed(load, pure=True)(path), (100,), "i8"),
        lambda x: x.sum(),
    ),
    "delayed": (
        ".npy",
        lambda path: dask.delayed(load, pure=True)(path),
        lambda d: dask.delayed(np.sum, pure=True)(d),
    ),
    "map_blocks": (
        ".npy",
        lambda path: da.zeros(100, chunks=50, dtype="i8").map_blocks(
            lambda block, path: block + np.load(path)[: len(block)], path, dtype="i8"
        ),
        lambda x: x.sum(),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_rewritten_file_is_read_again(keen, tmp_path, reader):
    ending, make, ask = READERS[reader]
    path = str(tmp_path / f"x{ending}")

    def answer(lazy):
        value = int(ask(lazy).compute())
        helpers.forgotten(keen)
        return value

    write(path, 1)
    lazy = make(path)
    assert answer(lazy) == 100
    before = keen.cache.info()
    assert answer(lazy) == 100
    assert (keen.cache.info() - before).hits >= 1
    write(path, 2)
    assert answer(lazy) == 200
    write(path, 3)
    assert answer(make(path)) == 300
    write(path, 4)
    assert answer(lazy) == 400


def test_what_else_was_made_of_it_is_stale_too(keen, tmp_path):
    path, other = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    write(path, 1)
    write(other, 5)
    x, y = (dask.delayed(load, pure=True)(p) for p in (path, other))
    both = dask.delayed(np.add, pure=True)(x, y)
    questions = [dask.delayed(f, pure=True)(both) for f in (np.sum, np.max)]
    assert [int(q.compute()) for q in questions] == [600, 6]
    helpers.forgotten(keen)
    assert ran() == 2
    write(path, 2)
    assert [int(q.compute()) for q in questions] == [700, 7]
    assert ran() == 1, "the other file has not changed"


def load_slowly(path):
    value = load(path)
    helpers.note(f"{path}.read")
    time.sleep(0.3)
    return value


def test_what_is_being_read_when_it_changes_is_not_kept(keen, tmp_path):
    path = str(tmp_path / "x.npy")
    write(path, 1)
    x = dask.delayed(load_slowly, pure=True)(path)
    total, largest = (dask.delayed(f, pure=True)(x) for f in (np.sum, np.max))
    early = keen.compute(total)
    helpers.wait_until(lambda: helpers.noted(f"{path}.read"))
    write(path, 2)
    late = keen.compute(largest)  # joins what runs, as with a plain client
    distributed.wait([early, late])
    del early, late
    helpers.forgotten(keen)
    assert (total.compute(), largest.compute()) == (200, 2)


def test_same_size_and_time_of_modification(keen, tmp_path):
    path = str(tmp_path / "x.npy")
    write(path, 1)
    total = dask.delayed(np.sum, pure=True)(dask.delayed(load, pure=True)(path))
    assert total.compute() == 100
    helpers.forgotten(keen)
    stat = os.stat(path)
    write(path, 2)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert total.compute() == 200


def test_submit_and_what_follows_its_future(keen, tmp_path):
    path = str(tmp_path / "x.npy")

    def ask():
        future = keen.submit(load, path, pure=True)
        total = keen.submit(np.sum, future, pure=True)
        value = int(total.result())
        del future, total
        helpers.forgotten(keen)
        return value

    write(path, 1)
    assert (ask(), ask(), ran()) == (100, 100, 1)
    write(path, 2)
    assert (ask(), ask(), ran()) == (200, 200, 1)


def test_map(keen, tmp_path):
    paths = [str(tmp_path / f"{i}.npy") for i in range(3)]
    for path in paths:
        write(path, 1)

    def ask():
        values = [int(v[0]) for v in keen.gather(keen.map(load, paths, pure=True))]
        helpers.forgotten(keen)
        return values

    assert (ask(), ask(), ran()) == ([1, 1, 1], [1, 1, 1], 3)
    write(paths[1], 2)
    assert (ask(), ran()) == ([1, 2, 1], 1)


def test_second_client_notices_too(tmp_path):
    path = str(tmp_path / "x.npy")
    write(path, 1)
    with dask.config.set(helpers.KEEN), LocalCluster(**helpers.INPROC) as cluster:
        total = dask.delayed(np.sum, pure=True)(dask.delayed(load, pure=True)(path))
        with Client(cluster, set_as_default=False) as one:
            assert one.compute(total).result() == 100
        with Client(cluster, set_as_default=False) as two:
            assert two.compute(total).result() == 100
            assert ran() == 1
            write(path, 2)
            assert two.compute(total).result() == 200


def test_plain_client_is_not_misled(tmp_path):
    """It does not look at files: what was read from them is not kept while it is there."""
    path = str(tmp_path / "x.npy")
    write(path, 1)
    lazy = dask.delayed(load, pure=True)(path)
    total = dask.delayed(np.sum, pure=True)(lazy)
    other = dask.delayed(sum, pure=True)([1, 2])
    with dask.config.set(helpers.KEEN), LocalCluster(**helpers.INPROC) as cluster:
        with Client(cluster, set_as_default=False) as ours:
            assert ours.compute(total).result() == 100
            helpers.forgotten(ours)
            assert ours.cache.entries("load")
            with distributed.Client(cluster, set_as_default=False) as plain:
                helpers.wait_until(lambda: not ours.cache.entries("load"))
                write(path, 2)
                assert plain.compute(total).result() == 200
                # What the plain client still holds would not be computed for the other one.
                helpers.wait_until(lambda: total.key not in cluster.scheduler.tasks)
                assert ours.compute(total).result() == 200
                assert ours.compute(other).result() == 3
                helpers.forgotten(ours)
                assert not ours.cache.entries("load")
                assert ours.cache.entries("sum"), "what reads no file is kept"
                assert "would not notice" in str(ours.cache.explain(lazy))
            ran()
            assert ours.compute(total).result() == 200
            helpers.forgotten(ours)
            assert ours.compute(total).result() == 200
            assert ran() == 1


def test_a_setting_shares_sources(tmp_path):
    path = str(tmp_path / "x.npy")
    write(path, 1)
    lazy = dask.delayed(load, pure=True)(path)
    settings = {**helpers.KEEN, "cachingclient.share-sources": True}
    with dask.config.set(settings), LocalCluster(**helpers.INPROC) as cluster:
        with Client(cluster, set_as_default=False) as ours:
            with distributed.Client(cluster, set_as_default=False):
                assert ours.compute(lazy).result().sum() == 100
                helpers.forgotten(ours)
                assert ours.cache.entries("load")


def test_asked_again_at_once(keen, tmp_path):
    """Late answers of the scheduler to one question are not taken for answers to the next.

    The first may be answered by what the question before still holds, as in dask.
    """
    path, link = str(tmp_path / "x{}.npy"), str(tmp_path / "link.npy")
    for i in range(2):
        write(path.format(i), i)
    os.utime(path.format(0), (0, 0))
    time_of_writing = time.time()
    helpers.wait_until(lambda: time.time() > time_of_writing + 0.05)
    lazy = dask.delayed(np.load, pure=True)(link)
    for turn in range(60):
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(path.format(turn % 2), link)
        values = [int(lazy.compute()[0]) for _ in range(3)]
        assert set(values) <= {0, 1}
        helpers.forgotten(keen)
        assert lazy.compute()[0] == turn % 2


def test_what_a_user_holds_is_not_kept_as_the_new_state(keen, tmp_path):
    path = str(tmp_path / "x.npy")
    write(path, 1)
    lazy = dask.delayed(load, pure=True)(path)
    held = keen.compute(lazy)
    assert held.result().sum() == 100
    write(path, 2)
    keen.compute(lazy).result()  # answered by what is held, as in dask
    del held
    helpers.forgotten(keen)
    assert lazy.compute().sum() == 200
    helpers.forgotten(keen)
    write(path, 3)
    assert lazy.compute().sum() == 300


def test_persisted_collection_does_not_answer_for_one_that_is_read_again(keen, tmp_path):
    """Plain dask fuses the load into the sum, and reads again."""
    path = str(tmp_path / "x.npy")
    write(path, 1)
    x = da.from_delayed(dask.delayed(load, pure=True)(path), (100,), "i8")
    held = x.persist()
    assert (held.sum().compute(), x.mean().compute()) == (100, 1)
    write(path, 2)
    assert (x.sum().compute(), x.max().compute()) == (200, 2)
    assert held.sum().compute() in (100, 200)


def test_files_that_only_the_workers_see_have_a_time_to_live(tmp_path):
    lazy = dask.delayed(load, pure=True)(str(tmp_path / "not-here.npy"))
    watch = Watch(())
    expr = as_computed(lazy)
    assert watch.look(expr).unsure == frozenset()
    watch.elsewhere = True
    assert watch.look(expr).unsure == {lazy.key}
    assert watch.look(expr).changed


# -- the books -----------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_books_forget_what_is_stale():
    fresh = Freshness(60, Clock())
    assert fresh.submitted({"a": "1", "b": "1"}) == set()
    fresh.made({"a": {"a", "both"}, "b": {"b", "both"}})
    assert fresh.submitted({"a": "1"}) == set()
    assert fresh.submitted({"a": "2"}) == {"a", "both"}
    assert fresh.submitted({"b": "2"}) == {"b", "both"}
    assert fresh.submitted({"b": "3"}) == set()


def test_books_of_what_cannot_be_looked_at():
    clock = Clock()
    fresh = Freshness(60, clock)
    fresh.submitted({"sql": ""}, unsure={"sql"})
    fresh.made({"sql": {"sql", "sum"}})
    clock.now = 59
    assert fresh.submitted({"sql": ""}, unsure={"sql"}) == set()
    clock.now = 61
    assert fresh.submitted({"sql": ""}, unsure={"sql"}) == {"sql", "sum"}


def test_books_are_bounded(monkeypatch):
    monkeypatch.setattr("cachingclient.scheduler.freshness.REMEMBERED", 3)
    fresh = Freshness(60, Clock())
    stale = set()
    for i in range(10):
        fresh.submitted({f"s{i}": "1"})
        stale |= fresh.made({f"s{i}": {f"r{i}"}})
    assert stale == {f"r{i}" for i in range(7)}
    assert len(fresh.readers()) == 3


def test_books_tell_files_from_code():
    fresh = Freshness(60, Clock())
    fresh.submitted({CODE + "f": "1", "file": "1"})
    fresh.made({CODE + "f": {"f"}, "file": {"file"}})
    assert fresh.readers() == {"file"}
    assert not fresh.reads("f") and fresh.reads("file") and not fresh.reads("other")
    assert fresh.sources("f") == {CODE + "f"}
