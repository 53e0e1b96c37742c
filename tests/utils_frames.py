"""Files of a small table, readers of them, and counts of what they read."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import dask.dataframe.io.csv as dask_csv
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr.io.parquet import ReadParquetPyarrowFS
from dask.dataframe.io.parquet.arrow import ArrowDatasetEngine

#: Files of each kind.
FILES = 4
ROWS = 200


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Rows of the kinds that files hold: numbers, words, few values, times, gaps."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 5, rows)
    b = rng.normal(size=rows).round(6)
    b[rng.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "a": np.arange(rows),
            "b": b,
            "k": k,
            "j": rng.integers(0, 3, rows),
            "s": [f"word{n % 7}" for n in k],
            "t": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 9999, rows), "min"),
            "x": rng.random(rows).round(6),
            "y": rng.random(rows).round(6),
        }
    )


#: Counts of what was read: files that were parsed, columns of files, calls of users' readers.
reads: Counter[str] = Counter()


#: Columns that a reader of a user's was asked for.
asked: list[Any] = []


def read_since() -> int:
    """How much was read since this was asked last."""
    total = reads.total()
    reads.clear()
    return total


def counting(monkeypatch: Any) -> None:
    """Count what dask reads, on workers of this process."""
    parse, partition = dask_csv.pandas_read_text, ArrowDatasetEngine.read_partition
    fragment = ReadParquetPyarrowFS._fragment_to_table

    @functools.wraps(parse)
    def pandas_read_text(*args: Any, **kwargs: Any) -> Any:
        reads["csv"] += 1
        return parse(*args, **kwargs)

    @functools.wraps(partition.__func__)
    def read_partition(cls: Any, fs: Any, pieces: Any, columns: Any, *args: Any, **kw: Any) -> Any:
        reads["parquet"] += len(columns)
        return partition.__func__(cls, fs, pieces, columns, *args, **kw)

    @functools.wraps(fragment)
    def _fragment_to_table(fragment_wrapper: Any, filters: Any, columns: Any, schema: Any) -> Any:
        reads["arrow"] += len(columns)
        return fragment(fragment_wrapper, filters, columns, schema)

    monkeypatch.setattr(dask_csv, "pandas_read_text", pandas_read_text)
    monkeypatch.setattr(ArrowDatasetEngine, "read_partition", classmethod(read_partition))
    monkeypatch.setattr(
        ReadParquetPyarrowFS, "_fragment_to_table", staticmethod(_fragment_to_table)
    )


def write(top: Path, pdf: pd.DataFrame, files: int = FILES) -> None:
    """Write a table as files of each kind."""
    for kind in ("csv", "parquet"):
        (top / kind).mkdir(exist_ok=True)
    for n, rows in enumerate(np.array_split(np.arange(len(pdf)), files)):
        part = pdf.iloc[rows]
        part.to_csv(top / "csv" / f"{n}.csv", index=False)
        part.to_parquet(top / "parquet" / f"{n}.parquet", index=False)


def load(path: str, columns: Any = None) -> pd.DataFrame:
    """A reader of a user's."""
    reads["load"] += 1
    asked.append(columns)
    return pd.read_parquet(path, columns=columns)


def load_all(path: str) -> pd.DataFrame:
    """A reader of a user's that reads all that there is."""
    reads["load"] += 1
    return pd.read_parquet(path)


def read_csv(top: Path) -> Any:
    return dd.read_csv(str(top / "csv" / "*.csv"), parse_dates=["t"])


def read_parquet(top: Path) -> Any:
    return dd.read_parquet(top / "parquet")


def read_arrow(top: Path) -> Any:
    return dd.read_parquet(top / "parquet", filesystem="arrow")


def _meta(top: Path) -> pd.DataFrame:
    return pd.read_parquet(top / "parquet" / "0.parquet").iloc[:0]


def _paths(top: Path) -> list[str]:
    return sorted(map(str, (top / "parquet").glob("*.parquet")))


def from_map(top: Path) -> Any:
    return dd.from_map(load, _paths(top), meta=_meta(top))


def from_map_all(top: Path) -> Any:
    return dd.from_map(load_all, _paths(top), meta=_meta(top))


def from_delayed(top: Path) -> Any:
    import dask

    parts = [dask.delayed(load_all, pure=True)(path) for path in _paths(top)]
    return dd.from_delayed(parts, meta=_meta(top))


def same(got: Any, want: Any) -> None:
    """Fail if a result is not what pandas says, in any order of rows."""
    if isinstance(want, pd.DataFrame):
        # dask loses the order of columns that are selected from what was filtered twice
        assert sorted(got.columns) == sorted(want.columns)
        got = got[list(want.columns)]
        keys = [str(n) for n in range(len(want.columns))]
        got, want = (
            f.set_axis(keys, axis=1)
            .reset_index(drop=True)
            .astype(object)
            .sort_values(keys, key=lambda c: c.map(str), kind="stable", ignore_index=True)
            for f in (got, want)
        )
        pd.testing.assert_frame_equal(got, want, check_dtype=False, check_exact=False)
    elif isinstance(want, pd.Series):
        assert got.name == want.name
        got, want = (pd.Series(dict(zip(map(str, s.index), s))).sort_index() for s in (got, want))
        pd.testing.assert_series_equal(got, want, check_dtype=False, check_exact=False)
    elif isinstance(want, float):
        assert np.isclose(got, want, equal_nan=True), (got, want)
    else:
        assert got == want
