"""Exploring a stack of microscope frames: filters, windows, thresholds, counted cells.

Someone smooths the frames and takes the background off, looks at projections and at windows of
them, tries thresholds, counts what is above, changes the filter once, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from scipy import ndimage


def make(folder: Path, scale: float) -> None:
    """Write the frames: spots that move on an uneven background."""
    frames, side = max(4, int(20 * scale)), 1024 if scale > 0.1 else 96
    rng = np.random.default_rng(0)
    stack = zarr.create_array(
        folder / "frames.zarr",
        shape=(frames, side, side),
        chunks=(1, side, side),
        dtype="u2",
        overwrite=True,
    )
    yy, xx = np.mgrid[:side, :side] / side
    spots = rng.random((side // 3, 2)) * side
    for n in range(frames):
        spots = (spots + rng.normal(0, 2, spots.shape)) % side
        light = np.zeros((side, side))
        light[tuple(spots.astype(int).T)] = 40_000
        frame = ndimage.gaussian_filter(light, 2.5) + 500 * (1 + yy * xx)
        stack[n] = rng.poisson(frame).astype("u2")


def corrected(frame: Any, sigma: float) -> Any:
    """Take out single pixels, and the background."""
    frame = ndimage.median_filter(frame[0], size=3).astype("f4")
    return (frame - ndimage.gaussian_filter(frame, sigma, truncate=3))[None]


def cells(frame: Any, threshold: float) -> Any:
    """How many there are, and how many pixels they have."""
    labels, count = ndimage.label(frame[0] > threshold)
    return np.array([[count, (labels > 0).sum()]])


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    raw = da.from_zarr(folder / "frames.zarr")
    yield "a look at the raw data", raw[:4].mean(axis=0).compute()
    frames = keep(raw.map_blocks(corrected, sigma=15, dtype="f4"))
    yield "projection", frames.max(axis=0).compute()
    half = frames.shape[1] // 2
    window = frames[:, half : half + 64, half : half + 64]
    yield "a window over time", window.mean(axis=(1, 2)).compute()
    yield "the window's last frame", window[-1].compute()
    yield "spread of a window", frames[:, :half, :half].std(axis=0).compute()
    for threshold in (60, 100, 160):
        counted = frames.map_blocks(cells, threshold, dtype=int, chunks=(1, 2), drop_axis=2)
        yield f"cells above {threshold}", counted.compute()
    yield "what moved", abs(frames[1:] - frames[:-1]).mean(axis=0).compute()
    finer = keep(raw.map_blocks(corrected, sigma=8, dtype="f4"))
    yield "projection, finer", finer.max(axis=0).compute()
    yield "difference of the two", (frames - finer).std(axis=(1, 2)).compute()
    counted = finer.map_blocks(cells, 100, dtype=int, chunks=(1, 2), drop_axis=2)
    yield "cells, finer", counted.compute()
    yield "brightness over time", frames.mean(axis=(1, 2), dtype="f8").compute()
    yield "brightest frame", finer.max(axis=(1, 2)).compute()
