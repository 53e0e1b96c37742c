"""A dataframe of taxi rides: an analyst asks one question after the other of CSV files.

The table is cleaned by a function of the analyst's, and asked a dozen questions, some of which
come back with another column or filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import taxi

FILES = 8


def make(folder: Path, scale: float) -> None:
    """Write the files."""
    taxi.make(folder, rows=int(2_800_000 * scale) // FILES * FILES, files=FILES)


def cleaned(rides: Any) -> Any:
    """Drop what cannot be, and add what is asked for most."""
    rides = rides[(rides.distance > 0) & (rides.fare >= 3) & (rides.dropoff > rides.pickup)]
    minutes = (rides.dropoff - rides.pickup).dt.total_seconds() / 60
    return rides.assign(
        minutes=minutes,
        speed=rides.distance / minutes * 60,
        tip_rate=rides.tip / rides.fare,
        hour=rides.pickup.dt.hour,
        day=rides.pickup.dt.day_name(),
        route=rides.origin.astype(str) + "-" + rides.target.astype(str),
    )


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    raw = dd.read_csv(str(folder / "csv" / "*.csv"), parse_dates=["pickup", "dropoff"])
    yield "first rows", raw.head()
    rides = keep(raw.map_partitions(cleaned))
    yield "rides", len(rides)
    yield "mean fare", rides.fare.mean().compute()
    yield "fare by passengers", rides.groupby("passengers").fare.mean().compute()
    yield "rides by hour", rides.hour.value_counts().compute()
    yield "speed by hour", rides.groupby("hour").speed.mean().compute()
    yield "tips by payment", rides.groupby("payment").tip_rate.mean().compute()
    long = rides[rides.distance > 10]
    yield "long rides", long.total.mean().compute()
    yield "long rides by day", long.groupby("day").total.sum().compute()
    yield "busiest origins", rides.groupby("origin").total.sum().nlargest(10).compute()
    yield "routes", rides.route.nunique().compute()
    yield "tips by payment and hour", (rides.groupby(["payment", "hour"]).tip_rate.mean().compute())
    airport = rides[rides.airport > 0]
    yield "airport", airport.groupby("rate").agg({"total": "max", "minutes": "mean"}).compute()
    yield "speed by hour again", rides.groupby("hour").speed.mean().compute()
    yield "revenue by driver", rides.groupby("driver").total.sum().nlargest(5).compute()
