"""A pipeline of delayed functions that is edited and run again.

Readings of weather stations are loaded, cleaned and described, and a report is made of all. The
person runs it, edits a late step, runs all of it again, and so on; once an early step is edited,
too. An edit is another function here. The functions are declared ``pure``, as dask asks for where
equal arguments give equal results: without that, delayed makes up new names in each run, and
neither dask nor a cache can know that a step is the same.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dask import delayed

STATIONS = 16


def make(folder: Path, scale: float) -> None:
    """Write the readings of each station."""
    rows = int(155_000 * scale)
    time = pd.date_range("2026-01-01", periods=rows, freq="5min").strftime("%Y-%m-%d %H:%M")
    for n in range(STATIONS):
        rng = np.random.default_rng(n)
        temperature = 10 + n / 4 + 6 * np.sin(np.arange(rows) / 46) + rng.normal(0, 0.5, rows)
        temperature[rng.random(rows) < 0.01] = 99.9
        table = pd.DataFrame(
            {"time": time, "t": temperature.round(2), "wind": rng.gamma(2, 2, rows).round(1)}
        )
        table.to_csv(folder / f"station-{n:02}.csv.gz", index=False)


def load(path: str) -> Any:
    """Read a file; lines that are broken would be left out."""
    with gzip.open(path) as file:
        lines = csv.DictReader(io.TextIOWrapper(file))
        rows = [(row["time"], float(row["t"]), float(row["wind"])) for row in lines]
    table = pd.DataFrame(rows, columns=["time", "t", "wind"])
    return table.assign(time=pd.to_datetime(table.time)).set_index("time")


def despike(table: Any, width: int) -> Any:
    """Replace what is far from the median about it."""
    middle = table.t.rolling(width, center=True, min_periods=1).median()
    distance = (table.t - middle).abs()
    usual = distance.rolling(width, center=True, min_periods=1).median()
    return table.assign(t=table.t.where(distance < 6 * usual + 0.1, middle))


def describe(table: Any) -> Any:
    """The first version."""
    return table.resample("1D").mean()


def describe_wind(table: Any) -> Any:
    """The second, which has gusts."""
    daily = table.resample("1D")
    return daily.mean().assign(gust=daily.wind.max())


def describe_range(table: Any) -> Any:
    """The third, which has the range of a day."""
    daily = table.resample("1D")
    return daily.mean().assign(gust=daily.wind.max(), range=daily.t.max() - daily.t.min())


def report(tables: Any) -> Any:
    return pd.concat([table.mean() for table in tables], axis=1).T


def report_months(tables: Any) -> Any:
    return pd.concat([table.resample("MS").mean() for table in tables])


def report_warmest(tables: Any) -> Any:
    return pd.Series([table.t.idxmax().dayofyear for table in tables])


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    paths = sorted(str(path) for path in folder.glob("station-*.csv.gz"))

    def run(width: int, describe: Callable[..., Any], report: Callable[..., Any]) -> Any:
        loaded = [delayed(load, pure=True)(path) for path in paths]
        clean = keep([delayed(despike, pure=True)(table, width) for table in loaded])
        days = [delayed(describe, pure=True)(table) for table in clean]
        return delayed(report, pure=True)(days).compute()

    yield "first run", run(25, describe, report)
    yield "with gusts", run(25, describe_wind, report)
    yield "with the range", run(25, describe_range, report)
    yield "by month", run(25, describe_range, report_months)
    yield "wider window", run(73, describe_range, report_months)
    yield "warmest days", run(73, describe_range, report_warmest)
    yield "back to the first window", run(25, describe_range, report_warmest)
    yield "months again", run(25, describe_range, report_months)
