"""A dashboard that serves eight readers at once.

Each reader has a thread and looks at one panel after the other; some panels are popular. The
application has one table, and asks through one client.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import taxi

FILES, READERS, LOOKS = 8, 8, 8


def make(folder: Path, scale: float) -> None:
    """Write the files."""
    taxi.make(folder, rows=int(1_750_000 * scale) // FILES * FILES, files=FILES, seed=1)


def prepared(rides: pd.DataFrame) -> pd.DataFrame:
    """What the panels show."""
    minutes = (rides.dropoff - rides.pickup).dt.total_seconds() / 60
    return rides.assign(
        hour=rides.pickup.dt.floor("h"),
        weekday=rides.pickup.dt.day_name(),
        speed=rides.distance / minutes * 60,
        band=pd.cut(rides.total, [0, 10, 20, 40, 1000]).astype(str),
    )


PANELS: dict[str, Callable[[Any], Any]] = {
    "revenue": lambda df: df.total.sum(),
    "revenue by hour": lambda df: df.groupby("hour").total.sum(),
    "revenue by weekday": lambda df: df.groupby("weekday").total.sum(),
    "rides by band": lambda df: df.band.value_counts(),
    "speed by weekday": lambda df: df.groupby("weekday").speed.mean(),
    "tips by payment": lambda df: df.groupby("payment").tip.mean(),
    "top origins": lambda df: df.groupby("origin").total.sum().nlargest(10),
    "top targets": lambda df: df.groupby("target").total.sum().nlargest(10),
    "top drivers": lambda df: df.groupby("driver").total.sum().nlargest(10),
    "slowest hours": lambda df: df.groupby("hour").speed.mean().nsmallest(10),
    "airport": lambda df: df[df.airport > 0].groupby("weekday").total.mean(),
    "night": lambda df: df[df.hour.dt.hour < 5].groupby("band").tip.mean(),
}


def look(rides: Any, reader: int) -> list[tuple[str, Any]]:
    """What one reader sees."""
    rng = random.Random(reader)
    popular = [1 / (n + 1) for n in range(len(PANELS))]
    names = rng.choices(list(PANELS), popular, k=LOOKS)
    return [
        (f"reader {reader}, look {n}: {name}", PANELS[name](rides).compute())
        for n, name in enumerate(names)
    ]


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    rides = keep(dd.read_parquet(folder / "parquet").map_partitions(prepared))
    with ThreadPoolExecutor(READERS) as pool:
        for seen in pool.map(look, [rides] * READERS, range(READERS)):
            yield from seen
