"""Machine learning: features of vibration signals, then a small search with scikit-learn.

Each window of a signal becomes two dozen numbers. They are looked at, scaled, and given to models
whose parameters are searched, first coarsely, then finely, then with the best features alone; at
last the best model is applied to all windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

LENGTH, BANDS, FEATURES = 1024, 16, 22


def make(folder: Path, scale: float) -> None:
    """Write signals of four kinds, and which kind each is."""
    windows = max(400, int(27_200 * scale))
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, windows)
    chunk = max(100, windows // 16)
    signals = zarr.create_array(
        folder / "signals.zarr",
        shape=(windows, LENGTH),
        chunks=(chunk, LENGTH),
        dtype="f4",
        overwrite=True,
    )
    time = np.arange(LENGTH) / LENGTH
    for n in range(0, windows, chunk):
        some = kinds[n : n + chunk, None]
        tones = np.sin(2 * np.pi * (40 + 25 * some) * time + 6 * rng.random(some.shape))
        noise = rng.standard_normal((len(some), LENGTH))
        signals[n : n + chunk] = 0.4 * tones + (1 + 0.1 * some) * noise
    np.save(folder / "kinds.npy", kinds)


def features(signals: Any) -> Any:
    """Energy in bands, moments, and how orderly a signal is."""
    spectrum = np.abs(np.fft.rfft(signals * np.hanning(LENGTH), axis=1))[:, 1:] ** 2
    bands = spectrum.reshape(len(signals), BANDS, -1).sum(axis=2)
    share = spectrum / spectrum.sum(axis=1, keepdims=True)
    centred = signals - signals.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1)
    codes = np.lib.stride_tricks.sliding_window_view(signals, 4, axis=1).argsort(axis=2)
    codes = codes @ np.array([64, 16, 4, 1])
    patterns = np.stack([np.bincount(row, minlength=256) for row in codes]) / codes.shape[1]
    rest = [
        spread,
        (centred**3).mean(axis=1) / spread**3,
        (centred**4).mean(axis=1) / spread**4,
        (np.diff(np.signbit(centred), axis=1)).mean(axis=1),
        -(share * np.log(share + 1e-12)).sum(axis=1),
        -(patterns * np.log(patterns + 1e-12)).sum(axis=1),
    ]
    return np.column_stack([np.log(bands), *rest])


def score(model: Any, known: Any, kinds: Any, test: Any, wanted: Any) -> float:
    """The share of the test's windows that a fitted model gets right."""
    return float(model.fit(known, kinds).score(test, wanted))


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    signals = da.from_zarr(folder / "signals.zarr")
    kinds = np.load(folder / "kinds.npy")
    table = signals.map_blocks(features, dtype="f8", chunks=(signals.chunks[0], (FEATURES,)))
    table = keep(table)

    mean, spread = dask.compute(table.mean(axis=0), table.std(axis=0))
    yield "mean and spread", (mean, spread)
    scaled = (table - mean) / spread
    yield "correlations", (scaled.T @ scaled / len(kinds)).compute()
    by_kind = [table[kinds == kind].mean(axis=0) for kind in range(4)]
    centres = np.stack(dask.compute(*by_kind))
    yield "means of the kinds", centres

    def tried(table: Any, step: int, strengths: list[float]) -> list[float]:
        """Scores of models that know every so many windows, on those that lie between."""
        half = step // 2
        known, test = dask.compute(table[::step], table[half::step])
        models = [LogisticRegression(C=strength, max_iter=100) for strength in strengths]
        runs = [
            dask.delayed(score)(model, known, kinds[::step], test, kinds[half::step])
            for model in models
        ]
        return list(dask.compute(*runs))

    yield "coarse search", tried(scaled, 20, [0.001, 0.1, 10])
    yield "fine search", tried(scaled, 10, [0.03, 0.1, 0.3])
    best = np.argsort(-centres.std(axis=0) / spread)[:10]
    yield "search with the best features", tried(scaled[:, best], 10, [0.03, 0.1, 0.3])
    model = LinearDiscriminantAnalysis().fit(scaled[::5, best].compute(), kinds[::5])
    right = scaled[:, best].map_blocks(model.predict, dtype=int, drop_axis=1)
    yield "all windows", (right == da.from_array(kinds, right.chunks)).mean().compute()
