"""A heavy job that runs once: nothing is asked for twice, and nothing can be gained.

Frames are denoised and written to a store, a matrix is decomposed, a table of CSV is converted to
parquet. What matters here is that a cache costs nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import taxi
import zarr
from scipy import ndimage

FILES = 8


def make(folder: Path, scale: float) -> None:
    """Write frames and a table."""
    taxi.make(folder, rows=int(4_400_000 * scale) // FILES * FILES, files=FILES, seed=2)
    frames, side = max(4, int(180 * scale)), 1024 if scale > 0.1 else 64
    rng = np.random.default_rng(0)
    stack = zarr.create_array(
        folder / "frames.zarr",
        shape=(frames, side, side),
        chunks=(1, side, side),
        dtype="u2",
        overwrite=True,
    )
    for n in range(frames):
        stack[n] = rng.poisson(300, (side, side)).astype("u2")
    np.save(folder / "size.npy", np.array([max(400, int(165_000 * scale)), 400]))


def denoised(frame: Any) -> Any:
    return ndimage.gaussian_filter(ndimage.median_filter(frame[0], 3).astype("f4"), 2)[None]


def converted(rides: Any) -> Any:
    return rides.assign(hour=rides.pickup.dt.hour, rate=rides.tip / rides.fare)


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as top:
        out = Path(top)
        frames = da.from_zarr(folder / "frames.zarr").map_blocks(denoised, dtype="f4")
        da.to_zarr(frames, str(out / "denoised.zarr"))
        yield "denoised", np.asarray(zarr.open_array(out / "denoised.zarr", mode="r")[-1])

        rows, columns = (int(n) for n in np.load(folder / "size.npy"))
        matrix = da.random.default_rng(0).normal(size=(rows, columns), chunks=(rows // 20, columns))
        matrix = matrix - matrix.mean(axis=0)
        yield "singular values", da.linalg.svd(matrix)[1].compute()

        rides = dd.read_csv(str(folder / "csv" / "*.csv"), parse_dates=["pickup", "dropoff"])
        rides.map_partitions(converted).to_parquet(out / "rides")
        table = pd.read_parquet(out / "rides", columns=["hour", "rate", "total"])
        yield "converted", table.groupby("hour").mean()
