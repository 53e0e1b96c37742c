"""All writers that dask and xarray have: each writes each time, whatever was kept of it before.

What they have is found by looking (`found`), and `TABLE` says what each name is: one that a later
dask brings fails here until somebody has said so too.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import helpers
import numpy as np
import pandas as pd
import pytest
from helpers import forgotten

import cachingclient

#: dask's own code for parquet; and zarr has its warnings
pytestmark = pytest.mark.filterwarnings("ignore")

NAMESPACES = ("dask.array", "dask.dataframe", "dask.bag", "xarray")
PDF = pd.DataFrame({"a": np.arange(40) % 7, "b": np.arange(40.0)})
META = np.empty((0,))


class Writer(NamedTuple):
    """How to write something below a folder, and how to read what is there."""

    #: makes what is written
    make: Callable[[], Any]
    write: Callable[[Any, Path], Any]
    read: Callable[[Path], Any]
    #: what `read` gives
    want: Any
    #: packages that it needs
    needs: tuple[str, ...] = ()


#: Why a name is no writer
CONVERSION = "returns another object, and writes nothing"
TEXT = "returns a text, and writes nothing"
BROKEN = "plain dask raises an error: pandas cannot write it either, or dask does not get so far"
TILEDB = "needs tiledb, which is not to be had for all Pythons; `to-tiledb` is in admission's table"
HDF5 = "plain dask cannot send a file to a scheduler that h5py has open for writing"
IRIS = "returns a cube of scitools-iris, and writes nothing"


# -- what is written -----------------------------------------------------------------------


def plus_one(block):
    return block + 1


def array():
    return da.arange(40, chunks=10, dtype="f8").map_blocks(plus_one, dtype="f8", meta=META)


def frame():
    return dd.from_pandas(PDF, npartitions=4).map_partitions(plus_one, meta=PDF)


def series():
    return frame().b


def index():
    return frame().index


def bag():
    return db.from_sequence("abcd", npartitions=2).map(str.upper)


def records():
    return db.from_sequence([{"n": 1}, {"n": 2}, {"n": 3}], npartitions=2).map(dict)


def data_array():
    return importlib.import_module("xarray").DataArray(array(), dims="x", name="v")


def dataset():
    return data_array().to_dataset()


def tree():
    return importlib.import_module("xarray").DataTree.from_dict({"/": dataset(), "/g": dataset()})


#: Sums of the arrays, and of the column b
ARRAY, COLUMN = 820.0, 820.0


# -- how it is read ------------------------------------------------------------------------


class Target:
    """An array in a file: as with HDF5, its tasks write where the object came from."""

    def __init__(self, path):
        self.path = path
        np.save(path, np.zeros(40))

    def __setitem__(self, index, value):
        out = np.lib.format.open_memmap(self.path, mode="r+")
        out[index] = value
        out.flush()


def numpy_files(top):
    return float(sum(np.load(f).sum() for f in top.rglob("*.npy")))


def zarr_sums(top, *names):
    zarr = importlib.import_module("zarr")
    group = zarr.open(str(top / "z"), mode="r")
    return [float(np.sum((group[n] if n else group)[:])) for n in names]


def frames_of(read: Callable[..., Any], pattern: str) -> Callable[[Path], Any]:
    """Sum of a column over files of frames."""

    def get(top: Path) -> float:
        return float(sum(read(f)["b"].sum() for f in top.glob(pattern)))

    return get


def series_json(path):
    return {"b": pd.read_json(path, typ="series", orient="records", lines=True)}


def texts(top):
    return sorted(line for f in top.glob("*.txt") for line in f.read_text().split())


def avro(top):
    reader = importlib.import_module("fastavro").reader
    rows = []
    for path in top.glob("*.avro"):
        with open(path, "rb") as f:
            rows += reader(f)
    return sum(row["n"] for row in rows)


def hdf(top):
    found = pd.read_hdf(top / "f.h5", "k")
    return float((found["b"] if found.ndim == 2 else found).sum())


def sql(top):
    engine = importlib.import_module("sqlalchemy").create_engine(f"sqlite:///{top / 'f.db'}")
    found = pd.read_sql("select * from t", engine)
    engine.dispose()
    return float(found["b"].sum())


def netcdf(*names: str, group: str | None = None) -> Callable[[Path], Any]:
    """Sums of a variable in files."""

    def get(top: Path) -> list[float]:
        open_dataset = importlib.import_module("xarray").open_dataset
        sums = []
        for name in names:
            with open_dataset(top / name, group=group) as ds:
                sums.append(float(ds.v.sum()))
        return sums

    return get


def dump(ds, top):
    module = importlib.import_module("xarray.backends")
    store = module.ZarrStore.open_group(str(top / "z"), mode="w", consolidated=False)
    ds.load().dump_to_store(store)


def save_mfdataset(ds, top):
    paths = [str(top / "1.nc"), str(top / "2.nc")]
    importlib.import_module("xarray").save_mfdataset([ds, ds], paths)


def uri(top):
    return f"sqlite:///{top / 'f.db'}"


def schema():
    fields = [{"name": "n", "type": "int"}]
    return {"name": "r", "type": "record", "fields": fields}


# -- what each name is ---------------------------------------------------------------------

ZARR = ("zarr",)
XZARR = ("xarray", "zarr")
NETCDF = ("xarray", "netCDF4")

to_csv = frames_of(pd.read_csv, "*.csv")
to_json = frames_of(lambda f: pd.read_json(f, orient="records", lines=True), "*.json")
to_parquet = frames_of(pd.read_parquet, "*.parquet")
to_orc = frames_of(pd.read_orc, "*.orc")

TABLE: dict[str, Writer | str] = {
    # arrays
    "dask.array.store": Writer(
        array, lambda x, top: da.store(x, Target(str(top / "1.npy"))), numpy_files, ARRAY
    ),
    "dask.array.Array.store": Writer(
        array, lambda x, top: x.store(Target(str(top / "1.npy"))), numpy_files, ARRAY
    ),
    "dask.array.to_npy_stack": Writer(
        array, lambda x, top: da.to_npy_stack(str(top / "s"), x), numpy_files, ARRAY
    ),
    "dask.array.to_zarr": Writer(
        array,
        lambda x, top: da.to_zarr(x, str(top / "z")),
        lambda top: zarr_sums(top, ""),
        [ARRAY],
        ZARR,
    ),
    "dask.array.Array.to_zarr": Writer(
        array,
        lambda x, top: x.to_zarr(str(top / "z")),
        lambda top: zarr_sums(top, ""),
        [ARRAY],
        ZARR,
    ),
    "dask.array.to_hdf5": HDF5,
    "dask.array.Array.to_hdf5": HDF5,
    "dask.array.to_tiledb": TILEDB,
    "dask.array.Array.to_tiledb": TILEDB,
    "dask.array.Array.to_backend": CONVERSION,
    "dask.array.Array.to_dask_dataframe": CONVERSION,
    "dask.array.Array.to_delayed": CONVERSION,
    "dask.array.Array.to_svg": TEXT,
    # dataframes
    "dask.dataframe.to_csv": Writer(
        frame, lambda df, top: dd.to_csv(df, str(top / "*.csv")), to_csv, COLUMN
    ),
    "dask.dataframe.DataFrame.to_csv": Writer(
        frame, lambda df, top: df.to_csv(str(top / "*.csv")), to_csv, COLUMN
    ),
    "dask.dataframe.Series.to_csv": Writer(
        series, lambda s, top: s.to_csv(str(top / "*.csv")), to_csv, COLUMN
    ),
    "dask.dataframe.to_json": Writer(
        frame, lambda df, top: dd.to_json(df, str(top / "*.json")), to_json, COLUMN
    ),
    "dask.dataframe.DataFrame.to_json": Writer(
        frame, lambda df, top: df.to_json(str(top / "*.json")), to_json, COLUMN
    ),
    "dask.dataframe.Series.to_json": Writer(
        series,
        lambda s, top: s.to_json(str(top / "*.json")),
        frames_of(series_json, "*.json"),
        COLUMN,
    ),
    "dask.dataframe.to_parquet": Writer(
        frame, lambda df, top: dd.to_parquet(df, str(top)), to_parquet, COLUMN, ("pyarrow",)
    ),
    "dask.dataframe.DataFrame.to_parquet": Writer(
        frame, lambda df, top: df.to_parquet(str(top)), to_parquet, COLUMN, ("pyarrow",)
    ),
    "dask.dataframe.to_orc": Writer(
        frame, lambda df, top: dd.to_orc(df, str(top)), to_orc, COLUMN, ("pyarrow",)
    ),
    "dask.dataframe.DataFrame.to_orc": Writer(
        frame, lambda df, top: df.to_orc(str(top)), to_orc, COLUMN, ("pyarrow",)
    ),
    "dask.dataframe.to_hdf": Writer(
        frame, lambda df, top: dd.to_hdf(df, str(top / "f.h5"), "k"), hdf, COLUMN, ("tables",)
    ),
    "dask.dataframe.DataFrame.to_hdf": Writer(
        frame, lambda df, top: df.to_hdf(str(top / "f.h5"), "k"), hdf, COLUMN, ("tables",)
    ),
    "dask.dataframe.Series.to_hdf": Writer(
        series, lambda s, top: s.to_hdf(str(top / "f.h5"), "k"), hdf, COLUMN, ("tables",)
    ),
    "dask.dataframe.to_sql": Writer(
        frame, lambda df, top: dd.to_sql(df, "t", uri(top)), sql, COLUMN, ("sqlalchemy",)
    ),
    "dask.dataframe.DataFrame.to_sql": Writer(
        frame, lambda df, top: df.to_sql("t", uri(top)), sql, COLUMN, ("sqlalchemy",)
    ),
    "dask.dataframe.Series.to_sql": Writer(
        series, lambda s, top: s.to_sql("t", uri(top)), sql, COLUMN, ("sqlalchemy",)
    ),
    **dict.fromkeys(
        [f"dask.dataframe.to_{name}" for name in ("bag", "records")]
        + [f"dask.dataframe.to_{name}" for name in ("datetime", "numeric", "timedelta")]
        + [
            f"dask.dataframe.{kind}.to_{name}"
            for kind in ("DataFrame", "Series", "Index", "Scalar")
            for name in ("backend", "bag", "dask_array", "delayed", "records", "timestamp")
        ]
        + [f"dask.dataframe.{kind}.to_frame" for kind in ("Series", "Index")]
        + [f"dask.dataframe.{kind}.to_series" for kind in ("Index", "Scalar")],
        CONVERSION,
    ),
    **dict.fromkeys(
        [f"dask.dataframe.{kind}.to_string" for kind in ("DataFrame", "Series", "Index")]
        + ["dask.dataframe.DataFrame.to_html"],
        TEXT,
    ),
    **dict.fromkeys(
        [
            f"dask.dataframe.{kind}.to_{name}"
            for kind in ("Index", "Scalar")
            for name in ("csv", "json", "hdf", "orc", "sql")
        ]
        + ["dask.dataframe.Series.to_orc"],
        BROKEN,
    ),
    # bags
    "dask.bag.to_textfiles": Writer(
        bag, lambda b, top: db.to_textfiles(b, str(top / "*.txt")), texts, list("ABCD")
    ),
    "dask.bag.Bag.to_textfiles": Writer(
        bag, lambda b, top: b.to_textfiles(str(top / "*.txt")), texts, list("ABCD")
    ),
    "dask.bag.Bag.to_avro": Writer(
        records, lambda b, top: b.to_avro(str(top / "*.avro"), schema()), avro, 6, ("fastavro",)
    ),
    "dask.bag.Bag.to_dataframe": CONVERSION,
    "dask.bag.Bag.to_delayed": CONVERSION,
    "dask.bag.Item.to_delayed": CONVERSION,
    # xarray
    "xarray.Dataset.to_zarr": Writer(
        dataset,
        lambda ds, top: ds.to_zarr(top / "z"),
        lambda top: zarr_sums(top, "v"),
        [ARRAY],
        XZARR,
    ),
    "xarray.DataArray.to_zarr": Writer(
        data_array,
        lambda v, top: v.to_zarr(top / "z"),
        lambda top: zarr_sums(top, "v"),
        [ARRAY],
        XZARR,
    ),
    "xarray.DataTree.to_zarr": Writer(
        tree,
        lambda t, top: t.to_zarr(top / "z"),
        lambda top: zarr_sums(top, "v", "g/v"),
        [ARRAY, ARRAY],
        XZARR,
    ),
    "xarray.Dataset.dump_to_store": Writer(
        dataset, dump, lambda top: zarr_sums(top, "v"), [ARRAY], XZARR
    ),
    "xarray.Dataset.to_netcdf": Writer(
        dataset,
        lambda ds, top: ds.to_netcdf(top / "1.nc"),
        netcdf("1.nc"),
        [ARRAY],
        NETCDF,
    ),
    "xarray.DataArray.to_netcdf": Writer(
        data_array,
        lambda v, top: v.to_netcdf(top / "1.nc"),
        netcdf("1.nc"),
        [ARRAY],
        NETCDF,
    ),
    "xarray.DataTree.to_netcdf": Writer(
        tree,
        lambda t, top: t.to_netcdf(top / "1.nc"),
        netcdf("1.nc", group="g"),
        [ARRAY],
        NETCDF,
    ),
    "xarray.save_mfdataset": Writer(
        dataset, save_mfdataset, netcdf("1.nc", "2.nc"), [ARRAY, ARRAY], NETCDF
    ),
    "xarray.DataArray.to_iris": IRIS,
    **{
        f"xarray.{kind}.to_{name}": CONVERSION
        for kind, names in {
            "DataArray": "dask_dataframe dataframe dataset dict index masked_array numpy pandas"
            " series unstacked_dataset",
            "Dataset": "array dask_dataframe dataarray dataframe dict pandas stacked_array",
            "DataTree": "dataset dict",
            "Coordinates": "dataset index",
            "CFTimeIndex": "datetimeindex flat_index frame list numpy series",
            "Index": "pandas_index",
            "Variable": "base_variable coord dict index index_variable numpy variable",
            "IndexVariable": "base_variable coord dict index index_variable numpy variable",
            "NamedArray": "numpy",
        }.items()
        for name in names.split()
    },
}


# -- what there is -------------------------------------------------------------------------

#: How writers are called, and what only looks like it
_VERB = re.compile(r"to_|store|save|dump|write")


def found() -> Iterator[str]:
    """Names of functions and methods of the public namespaces that may write something."""
    for module in NAMESPACES:
        try:
            namespace = vars(importlib.import_module(module))
        except ImportError:
            continue  # xarray is not needed
        for name, thing in namespace.items():
            if name.startswith("_"):
                continue
            if _VERB.match(name) and not inspect.ismodule(thing):
                yield f"{module}.{name}"
            if inspect.isclass(thing) and thing.__module__.split(".")[0] in ("dask", "xarray"):
                yield from (f"{module}.{name}.{m}" for m in dir(thing) if _VERB.match(m))


def test_all_are_classified():
    """A name that nobody has classified: is it a writer? Then admission must know it, too."""
    assert set(found()) - TABLE.keys() == set()


WRITERS = {name: entry for name, entry in TABLE.items() if isinstance(entry, Writer)}


@pytest.fixture(scope="module")
def client():
    """Everything is kept that may be."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with dask.config.set(helpers.KEEN):
        with cachingclient.Client(dashboard_address=None, **options) as client:
            yield client


def needed(writer: Writer) -> None:
    for package in writer.needs:
        pytest.importorskip(package)


@pytest.mark.parametrize("name", WRITERS)
def test_written_each_time(client, tmp_path, name):
    """The same lazy object twice, then one that is made anew."""
    writer = WRITERS[name]
    needed(writer)
    top = tmp_path / "out"
    lazy = writer.make()
    # What the writer reads is kept, too.
    dask.compute(lazy)
    for lazy in (lazy, lazy, writer.make()):
        top.mkdir()
        writer.write(lazy, top)
        assert writer.read(top) == writer.want
        shutil.rmtree(top)
        del lazy
        forgotten(client)


@pytest.mark.parametrize("name", [n for n in WRITERS if n.startswith("dask.dataframe.Data")])
def test_what_was_written_can_be_asked_after(client, tmp_path, name):
    """Writers may change what they get; the next question does not see it."""
    writer = WRITERS[name]
    needed(writer)
    lazy = writer.make()
    for _ in range(2):
        assert lazy.b.sum().compute() == COLUMN
        writer.write(lazy, tmp_path)
        assert list(lazy.compute().columns) == ["a", "b"]
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        forgotten(client)
