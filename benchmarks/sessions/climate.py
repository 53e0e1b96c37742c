"""Array statistics: the wet-bulb temperature of twelve years of daily weather, with xarray.

A store of temperature and humidity, packed into 16 bits as such archives are. The heat stress is a
function of both that each question needs: global means, a climatology, anomalies, their spread and
trend, an index of one region, hot days a year, and the same figures once more for a plot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

#: Days of a chunk of the store
CHUNK = 365


def make(folder: Path, scale: float) -> None:
    """Write the store."""
    years, lats, lons = max(2, int(12 * scale)), *((90, 180) if scale > 0.1 else (9, 18))
    time = pd.date_range("2001-01-01", periods=365 * years)
    lat, lon = np.linspace(-89, 89, lats), np.arange(lons) * 360 / lons
    rng = np.random.default_rng(0)
    season = np.sin(2 * np.pi * (time.dayofyear.to_numpy() - 110) / 365.25)
    mean = 28 - 45 * np.sin(np.deg2rad(lat)) ** 2
    spread = 18 * np.sin(np.deg2rad(lat))
    trend = 0.03 * np.arange(len(time)) / 365
    shape = len(time), lats, lons
    t2m = (mean + spread * season[:, None] + trend[:, None])[:, :, None]
    t2m = t2m + 3 * rng.standard_normal(shape, dtype="f4")
    humidity = (70 + 12 * rng.standard_normal(shape, dtype="f4")).clip(5, 99)
    dims = "time", "lat", "lon"
    data = xr.Dataset(
        {"t2m": (dims, t2m.astype("f4")), "humidity": (dims, humidity)},
        {"time": time, "lat": lat, "lon": lon},
    )
    packed = {
        "dtype": "i2",
        "scale_factor": 0.01,
        "_FillValue": -32768,
        "chunks": (CHUNK, lats, lons),
    }
    encoding = {name: packed for name in data}
    data.to_zarr(folder / "weather.zarr", mode="w", encoding=encoding, consolidated=False)


def wet_bulb(celsius: Any, humidity: Any) -> Any:
    """Stull's formula (2011)."""
    return (
        celsius * np.arctan(0.151977 * np.sqrt(humidity + 8.313659))
        + np.arctan(celsius + humidity)
        - np.arctan(humidity - 1.676331)
        + 0.00391838 * humidity**1.5 * np.arctan(0.023101 * humidity)
        - 4.686035
    )


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    data = xr.open_zarr(folder / "weather.zarr", consolidated=False)
    heat = xr.apply_ufunc(
        wet_bulb, data.t2m, data.humidity, dask="parallelized", output_dtypes=["f4"]
    )
    heat = keep(heat)
    weights = np.cos(np.deg2rad(data.lat))

    globe = heat.weighted(weights).mean(("lat", "lon"))
    yield "global mean by year", globe.groupby("time.year").mean().compute()
    yield "warmest day a year", heat.groupby("time.year").max("time").compute()
    yield "hot days a year", (heat > 24).groupby("time.year").sum("time").compute()
    europe = heat.sel(lat=slice(35, 60), lon=slice(0, 40)).mean(("lat", "lon"))
    yield "Europe", europe.compute()

    months = heat.resample(time="1MS").mean().chunk(time=12)
    months = keep(months.coarsen(time=12).construct(time=("year", "month")).drop_vars("time"))
    climatology = months.mean("year")
    yield "climatology", climatology.compute()
    anomalies = months - climatology
    yield "spread of the anomalies", anomalies.std(("year", "month")).compute()
    years = xr.DataArray(np.arange(months.sizes["year"], dtype="f4"), dims="year")
    years = years - years.mean()
    trend = (anomalies * years).mean(("year", "month")) / (years**2).mean()
    yield "trend", trend.compute()
    pacific = anomalies.sel(lat=slice(-5, 5), lon=slice(190, 240)).mean(("lat", "lon"))
    yield "index of the Pacific", pacific.compute()
    yield "climatology again", climatology.compute()
    yield "trend by latitude", trend.mean("lon").compute()
