"""Where the objects of other libraries lie: told by names of types, so that none is imported.

Each function gets a `Finder` and an object of its library, and notes what it reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cachingclient.sources.source import Source, on, unknown

if TYPE_CHECKING:
    from cachingclient.sources.finding import Finder

#: Attributes that lead from xarray's objects to the files behind them, without opening any.
_LEADING = (
    *("_variables", "_variable", "_coords", "_data", "array", "_array", "datastore"),
    *("_manager", "manager", "zarr_group", "_filename"),
)
#: Longer arrays are data, not paths.
_MANY_VALUES = 10_000
#: Kinds of arrays that may hold texts.
_TEXTS = ("O", "U", "T")


def _kinds(thing: Any) -> set[str]:
    return {base.__name__ for base in type(thing).__mro__}


# -- fsspec ---------------------------------------------------------------------


def of_fsspec(finder: Finder, thing: Any, depth: int) -> None:
    """Files, open or not, and mappings; a file system alone is none."""
    path = getattr(thing, "path", None) or getattr(thing, "root", None)
    fs = getattr(thing, "fs", None)
    if isinstance(path, str) and fs is not None and "AbstractFileSystem" not in _kinds(thing):
        finder.add(on(fs, path))


# -- zarr -----------------------------------------------------------------------


def of_zarr(finder: Finder, thing: Any, depth: int) -> None:
    """Arrays, groups and stores."""
    where = getattr(thing, "store_path", thing)
    store = getattr(where, "store", None) or getattr(thing, "chunk_store", None)
    if store is not None:
        finder.add(_in_store(store, getattr(where, "path", None) or ""))
    elif _kinds(thing) & {"Store", "BaseStore"}:
        finder.add(_in_store(thing, ""))


def _in_store(store: Any, inside: str) -> Source:
    """The directory of an array or group: chunks may be written in place, so all of it counts."""
    root, fs, path = (getattr(store, name, None) for name in ("root", "fs", "path"))
    if fs is not None and isinstance(path, str):
        return on(fs, _joined(path, inside))
    if "ZipStore" in _kinds(store) and path is not None:
        return Source(os.fspath(path))
    for top in (root, path):
        if isinstance(top, (str, os.PathLike)):
            return Source(_joined(os.fspath(top), inside))
    if (inner := getattr(store, "_store", None)) is not None:
        return _in_store(inner, inside)
    return unknown(f"a zarr {type(store).__name__}")


def _joined(top: str, inside: str) -> str:
    return f"{top.rstrip('/')}/{inside.strip('/')}" if inside.strip("/") else top


# -- xarray ---------------------------------------------------------------------


def of_xarray(finder: Finder, thing: Any, depth: int) -> None:
    """Lazy arrays: wrappers around wrappers around a file."""
    hits = finder.hits
    arguments = getattr(thing, "_args", None)
    if isinstance(arguments, tuple) and arguments:  # of a file manager
        finder.path(arguments[0], depth)
    for name in _LEADING:
        if (inner := getattr(thing, name, None)) is not None:
            finder.look(inner, depth)
    if hits == finder.hits and "BackendArray" in _kinds(thing):
        finder.add(unknown(f"an xarray {type(thing).__name__}"))


# -- HDF5 and netCDF ------------------------------------------------------------


def of_h5py(finder: Finder, thing: Any, depth: int) -> None:
    """Datasets, groups and files."""
    file = getattr(thing, "file", None)
    if file is not None and "Reference" not in type(thing).__name__:
        finder.path(file.filename, depth)


def of_h5netcdf(finder: Finder, thing: Any, depth: int) -> None:
    """Variables, groups and files."""
    root = getattr(thing, "_root", thing)
    finder.look(getattr(root, "_h5file", None), depth)


def of_netcdf4(finder: Finder, thing: Any, depth: int) -> None:
    """Variables and datasets."""
    group = thing.group() if "Variable" in _kinds(thing) else thing
    if hasattr(group, "filepath"):
        finder.path(group.filepath(), depth)


# -- numpy and pandas -----------------------------------------------------------


def of_numpy(finder: Finder, thing: Any, depth: int) -> None:
    """Memory maps, and arrays of paths."""
    if "ndarray" not in _kinds(thing):
        return
    base = thing
    while base is not None:
        if (filename := getattr(base, "filename", None)) is not None:
            return finder.path(filename, depth)
        base = getattr(base, "base", None)
    if thing.dtype.kind in _TEXTS and thing.size <= _MANY_VALUES:
        finder.each(thing.ravel().tolist(), depth)


def of_pandas(finder: Finder, thing: Any, depth: int) -> None:
    """Columns of paths."""
    if getattr(thing, "ndim", 0) == 1 and _kinds(thing) & {"Series", "Index", "ExtensionArray"}:
        if len(thing) <= _MANY_VALUES and getattr(thing.dtype, "kind", "") == "O":
            finder.each(thing.tolist(), depth)


# -- pyarrow --------------------------------------------------------------------


def of_pyarrow(finder: Finder, thing: Any, depth: int) -> None:
    """Datasets, their fragments and file infos."""
    if not type(thing).__module__.startswith(("pyarrow._dataset", "pyarrow._fs", "pyarrow.parq")):
        return
    files = getattr(thing, "files", None) or [getattr(thing, "path", None)]
    note_arrow(finder, getattr(thing, "filesystem", None), [f for f in files if f])
    finder.each(getattr(thing, "children", ()), depth)


def note_arrow(finder: Finder, fs: Any, paths: Iterable[str]) -> None:
    """Note paths on a file system of pyarrow's.

    Parameters
    ----------
    finder : Finder
    fs : pyarrow.fs.FileSystem or None
    paths : iterable of str
    """
    for path in paths:
        finder.add(_on_arrow(fs, path))


def _on_arrow(fs: Any, path: str) -> Source:
    kind = type(fs).__name__
    if kind in ("LocalFileSystem", "NoneType"):
        return Source(path)
    if kind == "SubTreeFileSystem":
        return _on_arrow(fs.base_fs, fs.base_path + path)
    inner = getattr(getattr(fs, "handler", None), "fs", None)
    return unknown(f"{kind}: {path}") if inner is None else on(inner, path)


#: {package: what finds the sources of its objects}
HANDLERS: dict[str, Callable[[Finder, Any, int], None]] = {
    "fsspec": of_fsspec,
    "zarr": of_zarr,
    "xarray": of_xarray,
    "rioxarray": of_xarray,
    "h5py": of_h5py,
    "h5netcdf": of_h5netcdf,
    "netCDF4": of_netcdf4,
    "numpy": of_numpy,
    "pandas": of_pandas,
    "pyarrow": of_pyarrow,
}
