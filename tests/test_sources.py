"""What computations read is found, and every change of it shows."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from dask.highlevelgraph import HighLevelGraph

from cachingclient.internals import Task
from cachingclient.sources import Source, Sources, finding, fingerprints, watch
from cachingclient.sources.source import ELSEWHERE

ZARR_3 = hasattr(zarr.storage, "LocalStore")
if ZARR_3:
    from zarr.storage import FsspecStore, LocalStore
else:  # Python 3.10 has no other
    from zarr.storage import DirectoryStore as LocalStore
    from zarr.storage import FSStore

#: After all that a test has written: nothing is too young to be trusted.
LATER = 10_000_000_000


def later() -> int:
    return time.time_ns() + LATER


@pytest.fixture
def sources():
    return Sources(clock=later)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def find(sources, lazy):
    if isinstance(lazy, xr.DataArray):
        lazy = lazy.data
    # Everything is an attribute of a delayed value.
    is_frame = hasattr(type(lazy), "expr")
    return sources.of_expr(lazy.expr) if is_frame else sources.of_graph(lazy.dask)


def paths(sources, lazy) -> set[str]:
    return {str(s) for found in find(sources, lazy).values() for s in found}


def digests(sources, lazy) -> dict[str, str]:
    return sources.check(find(sources, lazy)).digests


# -- readers --------------------------------------------------------------------


def write_parquet(path, value):
    pd.DataFrame({"a": np.full(100, value)}).to_parquet(path)


def write_csv(path, value):
    pd.DataFrame({"a": np.full(100, value)}).to_csv(path, index=False)


def write_text(path, value):
    Path(path).write_text(f"{value}\n" * 100)


def write_npy(path, value):
    with open(path, "wb") as f:  # else a suffix would be added to the name
        np.save(f, np.full(100, value))


def write_zarr(path, value):
    zarr.open_array(path, mode="w", shape=(100,), chunks=(25,), dtype="i8")[:] = value


def of_fsspec(url):
    return FsspecStore.from_url(url) if ZARR_3 else FSStore(url)


def write_zarr_in_place(path, value):
    """As dask writes to a path: the files keep their inodes, and directories their times."""
    if os.path.exists(path):
        zarr.open_array(of_fsspec(f"file://{path}"), mode="r+")[:] = value
    else:
        write_zarr(path, value)


def write_xarray(path, value):
    dataset = xr.Dataset({"a": ("x", np.full(100, value))})
    dataset.to_zarr(path, mode="w", consolidated=False)


def write_stack(path, value):
    da.to_npy_stack(path, da.full((4, 4), value, chunks=2))


def write_raw(path, value):
    np.full(100, value).tofile(path)


def mapped(path):
    return dask.delayed(np.sum, pure=True)(np.memmap(path, dtype="i8", mode="r", shape=(100,)))


def load_npy(path):
    return dask.delayed(np.load, pure=True)(path)


READERS = {
    "read_parquet": (write_parquet, lambda p: dd.read_parquet(p).a.sum()),
    "read_parquet by arrow": (write_parquet, lambda p: dd.read_parquet(p, filesystem="arrow").a),
    "read_parquet, fused": (write_parquet, lambda p: dd.read_parquet(p).a.sum().optimize()),
    "read_parquet by arrow, fused": (
        write_parquet,
        lambda p: dd.read_parquet(p, filesystem="arrow").a.sum().optimize(),
    ),
    "read_csv": (write_csv, lambda p: dd.read_csv(p).a.sum()),
    "read_csv, fused": (write_csv, lambda p: dd.read_csv(p).a.sum().optimize()),
    "read_text": (write_text, lambda p: db.read_text(p).map(int)),
    "from_map": (write_parquet, lambda p: dd.from_map(pd.read_parquet, [p]).a.sum()),
    "dataframe from_delayed": (
        write_parquet,
        lambda p: dd.from_delayed([dask.delayed(pd.read_parquet, pure=True)(p)]),
    ),
    "bag of paths": (write_text, lambda p: db.from_sequence([p]).map(open)),
    "delayed": (write_npy, load_npy),
    "array from_delayed": (write_npy, lambda p: da.from_delayed(load_npy(p), (100,), "i8")),
    "map_blocks": (write_npy, lambda p: da.ones(4).map_blocks(lambda b, f: np.load(f), p)),
    "from_zarr": (write_zarr, lambda p: da.from_zarr(p).sum()),
    "from_zarr, inline": (write_zarr, lambda p: da.from_zarr(p, inline_array=True).sum()),
    "from_zarr, array": (write_zarr, lambda p: da.from_zarr(zarr.open_array(p, mode="r"))),
    "from_zarr, in place": (write_zarr_in_place, lambda p: da.from_zarr(p)),
    "open_zarr": (write_xarray, lambda p: xr.open_zarr(p, consolidated=False).a),
    "from_npy_stack": (write_stack, da.from_npy_stack),
    "memmap": (write_raw, mapped),
}


@pytest.fixture(params=READERS, ids=lambda name: name.replace(" ", "-"))
def reader(request):
    return READERS[request.param]


def test_a_rewritten_source_shows(reader, sources, tmp_path):
    write, read = reader
    path = str(tmp_path / "a file.x")
    write(path, 1)
    lazy = read(path)
    first = digests(sources, lazy)
    assert len(first) >= 1
    assert digests(sources, lazy) == digests(Sources(clock=later), lazy) == first
    time.sleep(0.03)
    write(path, 2)  # of the same size
    second = digests(sources, lazy)
    assert second.keys() == first.keys()
    assert not first.items() & second.items()
    assert digests(sources, lazy) == second


def test_a_source_is_found_once(reader, sources, tmp_path, monkeypatch):
    write, read = reader
    path = str(tmp_path / "a file.x")
    write(path, 1)
    lazy = read(path)
    first = find(sources, lazy)
    looked = []
    monkeypatch.setattr(finding.Finder, "look", lambda *args: looked.append(args))
    monkeypatch.setattr(watch, "dataset_info", lambda *args: looked.append(args))
    assert find(sources, lazy) == first
    assert looked == []


def test_a_time_that_was_put_back_shows(sources, tmp_path):
    path = str(tmp_path / "x.npy")
    write_npy(path, 1)
    before = os.stat(path)
    lazy = load_npy(path)
    first = digests(sources, lazy)
    time.sleep(0.03)
    write_npy(path, 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert not first.items() & digests(sources, lazy).items()


# -- where sources are named ------------------------------------------------------


@pytest.fixture
def file(here):
    write_npy(here / "x.npy", 1)
    return "x.npy"


CONSTANT = "x.npy"


def constant():
    return np.load("x.npy")


def by_global():
    return np.load(CONSTANT)


def indirect():
    return constant()


def with_default(path="x.npy"):
    return np.load(path)


def documented():
    """x.npy"""
    return 1


class Loader:
    def __init__(self, path):
        self.path = path

    def __call__(self):
        return np.load(self.path)

    def load(self):
        return np.load(self.path)


@dataclass
class Settings:
    path: str


class Fixed:
    path = "x.npy"

    def load(self):
        return np.load(self.path)

    def __call__(self):
        return self.load()


class Constant:
    @property
    def data(self):
        return np.load("x.npy")

    @staticmethod
    def load():
        return np.load("x.npy")


class Derived(Constant):
    def __init__(self):
        self.loaded = self.data


class Place(Enum):
    HERE = "x.npy"


def make_constant():
    return Constant()


def closure(path):
    return lambda: np.load(path)


@pytest.mark.parametrize(
    "function",
    [
        constant,
        by_global,
        indirect,
        with_default,
        closure("x.npy"),
        partial(np.load, "x.npy"),
        partial(constant),
        Loader("x.npy"),
        Loader("x.npy").load,
        closure(Path("x.npy")),
        closure({"train": ["x.npy"]}),
        lambda: np.load(Fixed.path),
        lambda: np.load(Place.HERE.value),
        lambda: Constant().load(),
        lambda: make_constant().data,
        Fixed(),
        Fixed().load,
        Constant.load,
        Derived,
        partial(Derived),
        closure(Derived),
        closure([Fixed()]),
    ],
)
def test_paths_in_functions(function, sources, file):
    assert paths(sources, dask.delayed(function, pure=True)()) == {"x.npy"}


def test_a_docstring_is_no_path(sources, file):
    assert find(sources, dask.delayed(documented, pure=True)()) == {}


@pytest.mark.parametrize("argument", ["x.npy", Path("x.npy"), ["x.npy"], {"a": ("x.npy",)}])
def test_paths_in_arguments(argument, sources, file):
    assert paths(sources, dask.delayed(np.load, pure=True)(argument)) == {"x.npy"}
    assert paths(sources, dask.delayed(np.load, pure=True)(file=argument)) == {"x.npy"}


def test_objects_and_arrays_of_paths(sources, file):
    things = [Loader("x.npy"), Settings("x.npy"), SimpleNamespace(path="x.npy")]
    for argument in (*things, np.array(["x.npy"]), pd.Series(["x.npy"], dtype=object)):
        assert paths(sources, dask.delayed(np.load, pure=True)(argument)) == {"x.npy"}


def test_tasks(sources, file):
    graph = {
        "a": Task("a", np.load, "x.npy"),
        ("b", 0): Task(("b", 0), np.load, "y.npy"),
        ("b", 1): (np.load, "z.npy"),
        "c": Task("c", np.sum, 1),
    }
    found = sources.of_tasks(graph)
    assert {n: {str(s) for s in of_name} for n, of_name in found.items()} == {
        "a": {"x.npy"},
        "b": {"y.npy", "z.npy"},
    }


def test_layers_with_several_names(sources, here):
    write_csv("one.csv", 1)
    write_csv("two.csv", 2)
    frames = [dd.read_csv(name).a.sum() for name in ("one.csv", "two.csv")]
    graph = HighLevelGraph.from_collections("all", dict((frames[0] + frames[1]).dask), [])
    found = sources.of_graph(graph)
    assert len(found.pop("all")) == 2
    assert [len(of_name) for of_name in found.values()] == [1, 1]


def test_words_count_where_something_is(sources, here):
    lazy = dask.delayed(pd.read_parquet, pure=True)("data")
    assert find(Sources(), lazy) == {}
    (here / "data").mkdir()
    assert paths(sources, dask.delayed(pd.read_parquet, pure=True)("data")) == {"data"}


def test_sentences_count_where_something_is(sources, here):
    lazy = [dask.delayed(print, pure=True)(text) for text in ("one and/or two", "see b. c.npy")]
    assert [find(sources, x) for x in lazy] == [{}, {}]


def test_long_lists_of_paths(sources, here):
    names = [f"{n}.npy" for n in range(3000)]
    assert paths(sources, dask.delayed(sorted, pure=True)(names)) == set(names)


def test_more_than_can_be_looked_at(sources, monkeypatch):
    monkeypatch.setattr(finding, "MOST_SOURCES", 10)
    found = find(sources, dask.delayed(sorted, pure=True)([f"{n}.npy" for n in range(12)]))
    assert [len(of_layer) for of_layer in found.values()] == [11]
    assert sources.check(found).unknown.keys() == found.keys()


# -- changes ----------------------------------------------------------------------


def test_relative_paths_follow_the_directory(sources, here, monkeypatch):
    for name in ("one", "two"):
        (here / name).mkdir()
        write_npy(here / name / "x.npy", 1)
    lazy = load_npy("x.npy")
    monkeypatch.chdir("one")
    first = digests(sources, lazy)
    monkeypatch.chdir("../two")
    assert digests(sources, lazy) != first


def test_missing_then_created(sources, here):
    lazy = load_npy("x.npy")
    found = find(sources, lazy)
    missing = sources.check(found)
    assert missing.digests and not missing.unknown
    assert missing.missing == {Source("x.npy")}
    assert sources.check(found).digests == missing.digests
    write_npy("x.npy", 1)
    there = sources.check(found)
    assert there.digests != missing.digests
    assert there.changed == {Source("x.npy")} and not there.missing
    os.remove("x.npy")
    assert sources.check(found).digests == missing.digests


def test_directories(sources, here):
    (here / "data/inner").mkdir(parents=True)
    write_npy("data/inner/x.npy", 1)
    found = find(sources, load_npy("data/"))
    changes = [
        lambda: write_npy("data/inner/x.npy", 2),
        lambda: write_npy("data/inner/y.npy", 2),
        lambda: os.rename("data/inner/y.npy", "data/inner/z.npy"),
        lambda: os.mkdir("data/other"),
    ]
    states = {str(sources.check(found).digests)}
    for change in changes:
        assert str(sources.check(found).digests) in states
        time.sleep(0.03)
        change()
        states.add(str(sources.check(found).digests))
    assert len(states) == 5


def test_directories_are_bounded(sources, here, monkeypatch):
    monkeypatch.setattr(fingerprints, "MOST_FILES", 3)
    (here / "data").mkdir()
    for n in range(5):
        (here / f"data/{n}").touch()
    assert sources.fingerprint(Source("data")) is None
    assert sources.fingerprint(Source("data/*")) is None
    for n in range(3):
        os.remove(f"data/{n}")
    assert sources.fingerprint(Source("data")) is None
    monkeypatch.setattr(sources, "_clock", lambda: later() + fingerprints.AGAIN)
    assert len(sources.fingerprint(Source("data"))) == 3


def test_directories_that_link_in_circles(sources, here):
    (here / "data").mkdir()
    (here / "data/again").symlink_to(here / "data")
    assert len(sources.fingerprint(Source("data"))) == 1


def test_patterns(sources, here):
    found = find(sources, load_npy("*.npy"))
    states = [sources.check(found).digests]
    for name in ("x.npy", "y.npy"):
        write_npy(name, 1)
        states.append(sources.check(found).digests)
    assert len({str(s) for s in states}) == 3


def test_home(sources, here, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    write_npy("x.npy", 1)
    assert sources.fingerprint(Source("~/x.npy"))


def test_what_is_young_is_not_trusted(file):
    changed = os.stat(file).st_mtime_ns
    now = changed
    sources = Sources(clock=lambda: now)
    found = find(sources, load_npy(file))
    now = changed + 19_000_000
    assert sources.check(found).digests != sources.check(found).digests
    now = changed + 21_000_000
    first = sources.check(found).digests
    assert sources.check(found).digests == first
    # The clock of a file server may be ahead; of a file from next year nothing more can come.
    now = changed - 1_000_000_000
    assert sources.check(found).digests != sources.check(found).digests
    now = changed - LATER
    assert sources.check(found).digests == first


def test_what_is_young_and_says_it_is_old(file):
    now = time.time_ns()
    os.utime(file, ns=(0, 0))
    sources = Sources(clock=lambda: now)
    found = find(sources, load_npy(file))
    assert sources.check(found).digests != sources.check(found).digests


def test_young_directories_are_listed_again(here):
    (here / "data").mkdir()
    now = os.stat("data").st_mtime_ns
    sources = Sources(clock=lambda: now)
    sources.fingerprint(Source("data"))
    before = os.stat("data").st_mtime_ns
    (here / "data/x").touch()
    os.utime("data", ns=(before, before))
    assert len(sources.fingerprint(Source("data"))) == 2


# -- other file systems -------------------------------------------------------------


@pytest.fixture
def memory():
    import fsspec

    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def test_memory(sources, memory):
    memory.pipe("/top/x.csv", b"a\n1\n")
    lazy = dd.read_csv("memory://top/x.csv")
    assert paths(sources, lazy) == {"memory:///top/x.csv"}
    first = digests(sources, lazy)
    assert digests(sources, lazy) == first
    memory.pipe("/top/x.csv", b"a\n2\n")
    assert digests(sources, lazy) != first
    memory.rm("/top/x.csv")
    assert sources.check(find(sources, lazy)).missing


def test_directories_in_memory(sources, memory):
    write_zarr("memory://top/x.zarr", 1)
    lazy = da.from_zarr("memory://top/x.zarr")
    first = digests(sources, lazy)
    assert first and digests(sources, lazy) == first
    zarr.open_array("memory://top/x.zarr", mode="r+")[:] = 2
    assert digests(sources, lazy) != first


def test_urls_of_files(sources, file, here):
    for url in (f"file://{here}/x.npy", "memory://x.npy"):
        check = sources.check(find(sources, load_npy(url)))
        assert check.digests and not check.unknown


def read_sql_query(text, engine):
    """Stands for pandas' function of this name."""


def query():
    return pd.read_sql_query("select 1", None)


def test_what_has_no_fingerprint(sources):
    from urllib.request import urlopen

    def download():
        return urlopen("x").read()

    lazy = [
        load_npy("s3://bucket/x.npy"),
        dask.delayed(read_sql_query, pure=True)("select 1", "sqlite://"),
        dask.delayed(query, pure=True)(),
        dask.delayed(download, pure=True)(),
        load_npy(os.devnull),
        da.from_zarr(zarr.open_array(zarr.storage.MemoryStore(), mode="w", shape=4, dtype="f8")),
    ]
    for x in lazy:
        found = find(sources, x)
        check = sources.check(found)
        assert found and check.unknown.keys() == found.keys() == check.digests.keys()
        assert sources.check(found) == check


def test_passwords_are_not_told(sources):
    url = "postgresql://me:secret@host/db?password=secret"
    assert paths(sources, load_npy(url)) == {"postgresql://host/db"}


# -- other libraries: those that are not installed are stood for -----------------------


class LazyArray(xr.backends.BackendArray):
    """As xarray's backends make them of netCDF files."""

    shape, dtype = (100,), np.dtype("i8")

    def __init__(self, datastore):
        self.datastore = datastore

    def __getitem__(self, key):
        return np.load(self.datastore.ds)


class DataStore(xr.backends.common.AbstractDataStore):
    def __init__(self, path):
        self._manager = path and xr.backends.CachingFileManager(open, path)


def lazy_xarray(path):
    data = xr.core.indexing.LazilyIndexedArray(LazyArray(DataStore(path)))
    return xr.Variable("x", data)


def test_xarray_backends(sources, file):
    for lazy in (lazy_xarray(file), xr.DataArray(lazy_xarray(file)), {"a": lazy_xarray(file)}):
        assert paths(sources, dask.delayed(print, pure=True)([LazyHolder(lazy)])) == {file}
    assert paths(sources, da.from_array(lazy_xarray(file)._data, chunks=10)) == {file}
    found = find(sources, da.from_array(lazy_xarray(None)._data, chunks=10))
    assert sources.check(found).unknown.keys() == found.keys() != set()


class LazyHolder:
    def __init__(self, lazy):
        self.lazy = lazy


def stand_in(module, name, **attributes):
    return type(name, (), {"__module__": module, **attributes})()


def test_hdf5_and_netcdf(sources):
    file = stand_in("h5py._hl.files", "File", filename="x.h5")
    file.file = file
    dataset = stand_in("h5py._hl.dataset", "Dataset", file=file)
    group = stand_in("netCDF4", "Dataset", filepath=lambda self: "x.nc")
    things = {
        "x.h5": [file, dataset, stand_in("h5netcdf.core", "Variable", _root=file)],
        "x.nc": [group, stand_in("netCDF4", "Variable", group=lambda self: group)],
    }
    things["x.h5"][2]._root = stand_in("h5netcdf.core", "File", _h5file=file)
    for path, of_path in things.items():
        for thing in of_path:
            assert sources.of_tasks({"a": Task("a", print, thing)}) == {"a": {Source(path)}}


def test_zarr_stores(sources, here):
    write_xarray("x.zarr", 1)
    things = {
        "x.zarr": [zarr.open_group("x.zarr", mode="r"), LocalStore("x.zarr")],
        "x.zarr/a": [zarr.open_group("x.zarr", mode="r")["a"]],
        "x.zip": [zarr.storage.ZipStore("x.zip", mode="w")],
    }
    for path, of_path in things.items():
        for thing in of_path:
            (found,) = sources.of_tasks({"a": Task("a", print, thing)})["a"]
            assert Path(found.path).absolute() == here / path


def test_arrow_datasets(sources, here):
    import pyarrow.dataset

    write_parquet("x.parquet", 1)
    dataset = pyarrow.dataset.dataset("x.parquet")
    for thing in (dataset, *dataset.get_fragments()):
        (found,) = sources.of_tasks({"a": Task("a", print, thing)})["a"]
        assert os.path.samefile(found.path, "x.parquet")


# -- never in the way -----------------------------------------------------------------


def some_graphs():
    x = da.ones((100, 100), chunks=10)
    frame = dd.from_pandas(pd.DataFrame({"a": range(10), "b": list("xy") * 5}), npartitions=2)
    yield x.map_blocks(lambda b: b + 1).sum()
    yield (x.T @ x).rechunk(20)
    yield db.from_sequence(range(100)).map(str).frequencies()
    yield frame.assign(c=frame.a + 1).groupby("b").c.mean()
    named = frame.rename(columns={"a": "of/a", "b": "b.x"})
    yield named[["of/a", "b.x"]]["of/a"].sum()
    yield frame.map_partitions(lambda d: d[d.b == "x"]).merge(frame, on="a")
    yield dask.delayed(sum, pure=True)([dask.delayed(abs, pure=True)(-1), 2])


def test_no_io_where_nothing_is_read(sources, monkeypatch):
    def io(*args, **kwargs):
        raise AssertionError("there is nothing to look at")

    graphs = list(some_graphs())
    for name in ("stat", "scandir"):
        monkeypatch.setattr(os, name, io)
    for lazy in graphs:
        found = find(sources, lazy)
        assert found == {}
        assert sources.check(found).digests == {}


def test_layers_share_looks(sources, file, monkeypatch):
    stats = []
    real = os.stat
    lazy = dask.delayed(list, pure=True)([dask.delayed(f, pure=True)(file) for f in (abs, len)])
    found = find(sources, lazy)
    assert len(found) == 2
    monkeypatch.setattr(os, "stat", lambda *args: stats.append(args) or real(*args))
    sources.check(found)
    assert stats == [("x.npy",)]


def test_layers_are_forgotten_with_their_graphs(sources, file):
    lazy = load_npy(file)
    find(sources, lazy)
    assert len(sources._layers) == 1
    del lazy
    assert len(sources._layers) == 0


def test_lists_that_hold_themselves(sources, monkeypatch):
    monkeypatch.setattr(finding, "MOST_LOOKS", 1_000)
    endless = []
    endless.extend([endless] * 100)
    assert sources.of_tasks({"a": Task("a", print, endless)}) == {}
    found = sources.of_tasks({"a": Task("a", print, "x.npy", endless)})
    assert len(found["a"]) == 2
    assert sources.check(found).unknown.keys() == {"a"}


def test_what_cannot_be_looked_at(sources, monkeypatch):
    class Bad:
        @property
        def __dict__(self):
            raise ValueError

        def load(self):
            return 1

    check = sources.check(find(sources, dask.delayed(print, pure=True)([Bad()])))
    assert len(check.unknown) == 1
    found = {"x": frozenset([Source("x", BrokenFileSystem())])}
    assert sources.check(found).unknown == {"x": tuple(found["x"])}


class BrokenFileSystem:
    protocol = "memory"

    def invalidate_cache(self):
        raise ConnectionError


def test_digests_are_the_same_in_each_process(file):
    os.utime(file, ns=(0, 0))
    one, other = (Sources(clock=later) for _ in range(2))
    assert digests(one, load_npy(file)) == digests(other, load_npy(file))
    assert Source("x", ELSEWHERE) != Source("x")
