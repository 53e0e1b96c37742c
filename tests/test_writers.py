"""What writes is written each time, with the right content, however often it was written before."""

from __future__ import annotations

import json
import os
import shutil
import time

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from helpers import count, forgotten, ran

#: dask's own code for parquet
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")
META = np.empty((0,))
PDF = pd.DataFrame({"a": np.arange(100) % 7, "b": np.arange(100.0)})
#: Sum of what `array` makes.
TOTAL = 3240.0


def slow(block):
    count()
    time.sleep(0.03)
    return block + 1


def clean(df):
    time.sleep(0.02)
    return df.assign(b=df.b + 1)


def array():
    return da.arange(80, chunks=20, dtype="f8").map_blocks(slow, dtype="f8", meta=META)


def frame():
    return dd.from_pandas(PDF, npartitions=4).map_partitions(clean, meta=PDF.iloc[:0])


def record(path, text):
    """A writer whose name does not tell; that it returns None does."""
    time.sleep(0.02)
    with open(path, "w") as f:
        f.write(text)


def write_rows(path, n):
    """A writer that returns something; its name tells."""
    time.sleep(0.02)
    with open(path, "w") as f:
        f.write("row\n" * n)
    return path


def shout(text):
    time.sleep(0.02)
    return text.upper()


def size(path):
    count("size")
    time.sleep(0.02)
    return os.path.getsize(path)


def lines(top, pattern="*"):
    return sorted(line for f in top.glob(pattern) for line in f.read_text().splitlines())


@pytest.fixture(autouse=True)
def nothing_is_too_cheap():
    """What is quick would not be kept anyhow, and a test would say nothing of it."""
    with dask.config.set({"cachingclient.min-cost": 0, "cachingclient.task-overhead": 0}):
        yield


class Target:
    """An array in a file: as with HDF5, its tasks write where the object came from."""

    def __init__(self, path):
        self.path = path
        np.save(path, np.zeros(80))

    def __setitem__(self, index, value):
        out = np.lib.format.open_memmap(self.path, mode="r+")
        out[index] = value
        out.flush()

    def sum(self):
        return float(np.load(self.path).sum())


def _json(top):
    rows = [json.loads(line) for line in lines(top)]
    return sum(row["b"] for row in rows), len(rows)


def _zarr(top):
    return float(da.from_zarr(str(top / "z")).sum().compute(scheduler="sync"))


#: {name: (write below a path, read what was written, what it must be)}
COLLECTIONS = {
    "to_parquet": (
        lambda top: frame().to_parquet(top),
        lambda top: float(pd.read_parquet(top).b.sum()),
        5050.0,
    ),
    "to_parquet partitioned": (
        lambda top: frame().to_parquet(top, partition_on="a"),
        lambda top: (len(list(top.glob("a=*"))), float(pd.read_parquet(top).b.sum())),
        (7, 5050.0),
    ),
    "to_csv": (
        lambda top: frame().to_csv(str(top / "*.csv")),
        lambda top: float(sum(pd.read_csv(f).b.sum() for f in top.glob("*.csv"))),
        5050.0,
    ),
    "to_csv single file": (
        lambda top: frame().to_csv(str(top / "all.csv"), single_file=True),
        lambda top: float(pd.read_csv(top / "all.csv").b.sum()),
        5050.0,
    ),
    "to_json": (lambda top: frame().to_json(str(top / "*.json")), _json, (5050.0, 100)),
    "to_textfiles": (
        lambda top: db.from_sequence("abcd", npartitions=2)
        .map(shout)
        .to_textfiles(str(top / "*.txt")),
        lines,
        list("ABCD"),
    ),
    "to_npy_stack": (
        lambda top: da.to_npy_stack(str(top / "s"), array()),
        lambda top: float(sum(np.load(f).sum() for f in (top / "s").glob("*.npy"))),
        TOTAL,
    ),
    "store": (
        lambda top: da.store(array(), Target(str(top / "1.npy"))),
        lambda top: float(np.load(top / "1.npy").sum()),
        TOTAL,
    ),
    "to_zarr": (lambda top: array().to_zarr(str(top / "z")), _zarr, TOTAL),
}


def empty(top):
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir()


@pytest.mark.parametrize("name", COLLECTIONS)
def test_collections(client, tmp_path, name):
    put, get, want = COLLECTIONS[name]
    top = tmp_path / "out"
    for _ in range(3):
        empty(top)
        put(top)
        assert get(top) == want
        forgotten(client)


@pytest.mark.parametrize("name", ["to_parquet", "to_csv", "to_zarr"])
def test_collections_after_their_input_was_computed(client, tmp_path, name):
    """What is read by a writer is kept then."""
    put, get, want = COLLECTIONS[name]
    top = tmp_path / "out"
    f, x = frame(), array()
    assert f.b.sum().compute() == 5050
    assert x.sum().compute() == TOTAL
    for _ in range(3):
        empty(top)
        put(top)
        assert get(top) == want
        assert f.b.max().compute() == 100
        assert len(f.compute().columns) == 2
        forgotten(client)


def test_lazy_writer(client, tmp_path):
    top = tmp_path / "out"
    writer = frame().to_csv(str(top / "*.csv"), compute=False)
    for _ in range(3):
        empty(top)
        dask.compute(*writer) if isinstance(writer, list) else writer.compute()
        assert sum(pd.read_csv(f).b.sum() for f in top.glob("*.csv")) == 5050
        forgotten(client)


DELAYED = {
    "returns None": (
        lambda path: dask.delayed(record, pure=True)(path, "x").compute(),
        "x",
    ),
    "returns a path": (
        lambda path: dask.delayed(write_rows, pure=True)(path, 3).compute(),
        "row\n" * 3,
    ),
    "of something pure": (
        lambda path: dask.delayed(record, pure=True)(
            path, dask.delayed(shout, pure=True)("abc")
        ).compute(),
        "ABC",
    ),
    "followed by something": (
        lambda path: dask.delayed(size, pure=True)(
            dask.delayed(write_rows, pure=True)(path, 4)
        ).compute(),
        "row\n" * 4,
    ),
    "followed by something, with None between": (
        lambda path: dask.delayed(lambda done: 1, pure=True)(
            dask.delayed(record, pure=True)(path, "y")
        ).compute(),
        "y",
    ),
    "one of several": (
        lambda path: dask.compute(
            dask.delayed(shout, pure=True)("abc"), dask.delayed(record, pure=True)(path, "z")
        ),
        "z",
    ),
}


@pytest.mark.parametrize("name", DELAYED)
def test_delayed(client, tmp_path, name):
    put, want = DELAYED[name]
    path = tmp_path / "f"
    for _ in range(3):
        path.unlink(missing_ok=True)
        put(str(path))
        assert path.read_text() == want
        forgotten(client)


def test_what_follows_a_writer_runs_each_time(client, tmp_path):
    path = str(tmp_path / "f")
    written = dask.delayed(size, pure=True)(dask.delayed(write_rows, pure=True)(path, 4))
    for _ in range(3):
        assert written.compute() == 16
        forgotten(client)
    assert ran() == 3


@pytest.mark.parametrize("writer, args", [(record, ("y",)), (write_rows, (3,))])
def test_submit(client, tmp_path, writer, args):
    path = tmp_path / "f"
    for _ in range(3):
        path.unlink(missing_ok=True)
        client.submit(writer, str(path), *args, pure=True).result()
        assert path.exists() and path.read_text()
        forgotten(client)


def test_map(client, tmp_path):
    paths = [tmp_path / str(i) for i in range(3)]
    for _ in range(3):
        for path in paths:
            path.unlink(missing_ok=True)
        client.gather(client.map(write_rows, [str(p) for p in paths], [1, 2, 3], pure=True))
        assert [p.read_text() for p in paths] == ["row\n", "row\n" * 2, "row\n" * 3]
        forgotten(client)


def test_store_keeps_what_it_reads(client, tmp_path):
    x = array()
    one, two = (Target(str(tmp_path / f"{i}.npy")) for i in (1, 2))
    da.store(x, one)
    assert one.sum() == TOTAL
    da.store(x, two)
    assert two.sum() == TOTAL
    one = Target(one.path)
    assert one.sum() == 0
    da.store(x, one)
    assert one.sum() == TOTAL
    assert x.sum().compute() == TOTAL
    assert ran() == 4


def test_store_after_the_array_was_computed(client, tmp_path):
    x = array()
    assert x.sum().compute() == TOTAL
    target = Target(str(tmp_path / "1.npy"))
    da.store(x, target)
    assert target.sum() == TOTAL
    assert ran() == 4


def test_store_returning_what_was_stored(client, tmp_path):
    path = str(tmp_path / "1.npy")

    class Readable(Target):
        shape, dtype, ndim = (80,), np.dtype("f8"), 1

        def __getitem__(self, index):
            return np.load(self.path)[index]

    x = array()
    for _ in range(2):
        target = Readable(path)
        stored = da.store(x, target, return_stored=True)
        assert stored.sum().compute() == TOTAL
        assert target.sum() == TOTAL
        del stored
        forgotten(client)
