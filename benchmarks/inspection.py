"""What a static look at a function costs: the first time, and when it was seen before.

Prints, for some functions, the microseconds that `impurity` and `fingerprint` take: *bytecode* with
code that was never seen, *function* for another function of the same code (as it arrives with every
submission), *cached* for the same one.

    python benchmarks/inspection.py

takes some seconds.
"""

from __future__ import annotations

import random
import time
import timeit
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

from cachingclient.inspection import fingerprint, impurity
from cachingclient.inspection.scope import _outlines

#: Calls that a cached time is the mean of
CALLS = 10_000
#: First looks, of which the fastest counts
FIRST = 20

#: Of the processor, so that other processes do not count
CLOCK = time.process_time

SCALE = 2.5
OPTIONS: dict[str, Any] = {"window": 3, "mode": "same"}


def small(x: Any) -> Any:
    return x + 1


def helper(x: Any) -> Any:
    return np.convolve(x, np.ones(OPTIONS["window"]), mode=OPTIONS["mode"]) * SCALE


def calls(x: Any) -> Any:
    return helper(x) + helper(x.T)


def noisy(x: Any) -> Any:
    return helper(x) + np.random.normal(size=len(x))


def make_closure(function: Any) -> Any:
    return lambda x: function(x) + SCALE


def fifty_lines(
    frame: Any, columns: Any, *, low: float = 0.0, high: float = 1.0, weights: Any = None
) -> Any:
    """As long as functions in notebooks get."""
    frame = frame.dropna(subset=columns)
    frame = frame[frame["time"] > pd.Timestamp("2020-01-01")]
    for column in columns:
        values = frame[column].to_numpy(dtype="float64")
        values = np.clip(values, low, high)
        values = (values - values.mean()) / values.std()
        frame = frame.assign(**{column: values * SCALE})
    if weights is not None:
        total = np.sum(weights)
        weights = np.asarray(weights) / total
        frame["weighted"] = (frame[columns] * weights).sum(axis=1)
    else:
        frame["weighted"] = frame[columns].mean(axis=1)
    groups = frame.groupby(["site", frame["time"].dt.floor("D")])
    daily = groups.agg(mean=("weighted", "mean"), count=("weighted", "size")).reset_index()
    daily["anomaly"] = daily["mean"] - daily.groupby("site")["mean"].transform("mean")
    smooth = []
    for site, rows in daily.groupby("site"):
        rows = rows.sort_values("time")
        try:
            rows["smooth"] = helper(rows["anomaly"].to_numpy())
        except ValueError:
            rows["smooth"] = np.nan
        smooth.append(rows.assign(site=site))
    result = pd.concat(smooth, ignore_index=True)
    spectrum = np.abs(np.fft.rfft(result["smooth"].fillna(0).to_numpy()))
    peaks = [i for i, s in enumerate(spectrum) if s > spectrum.mean() + 2 * spectrum.std()]
    strongest = max(peaks, key=lambda i: spectrum[i], default=None)
    limits: dict[str, Any] = {
        "low": float(result["smooth"].min()),
        "high": float(result["smooth"].max()),
        "strongest": strongest,
    }
    if limits["low"] < -high or limits["high"] > high:
        outside = (result["smooth"].abs() > high).sum()
        result = result[result["smooth"].abs() <= high]
        limits["outside"] = int(outside)
    table = result.pivot_table(index="time", columns="site", values="smooth", aggfunc="median")
    table = table.interpolate(limit=OPTIONS["window"]).rename(columns=str.lower)
    correlation = np.corrcoef(table.to_numpy().T)
    upper = correlation[np.triu_indices_from(correlation, k=1)]
    limits["correlation"] = float(np.nanmedian(upper)) if upper.size else None
    ranks = table.rank(axis=1, method="average", pct=True).stack().rename("rank")
    result = result.merge(ranks.reset_index(), on=["time", "site"], how="left")
    result["label"] = np.where(result["rank"] > 0.5, "upper", "lower")
    return result, limits


CASES: dict[str, Any] = {
    "one line": small,
    "calls a helper": calls,
    "impure": noisy,
    "closure": make_closure(helper),
    "50 lines": fifty_lines,
    "partial of 50 lines": partial(fifty_lines, columns=["a"]),
    "C function": random.random,
}


def again(function: Any) -> Any:
    """Another function of the same code, as unpickling makes it."""
    if isinstance(function, partial):
        return partial(again(function.func), *function.args, **function.keywords)
    if not isinstance(function, FunctionType):
        return function
    parts = function.__globals__, function.__name__, function.__defaults__, function.__closure__
    return FunctionType(function.__code__, *parts)


def first(look: Callable[[Any], Any], function: Any, forget: bool) -> float:
    times = []
    for _ in range(FIRST):
        new = again(function)
        if forget:
            _outlines.clear()
        times.append(timeit.timeit(lambda: look(new), timer=CLOCK, number=1))
    return 1e6 * min(times)


def cached(look: Callable[[Any], Any], function: Any) -> float:
    look(function)
    times = timeit.repeat(lambda: look(function), timer=CLOCK, number=CALLS, repeat=3)
    return 1e6 * min(times) / CALLS


def main() -> None:
    print(f"{'microseconds':32}{'bytecode':>10}{'function':>10}{'cached':>10}")
    for look in (impurity, fingerprint):
        for name, function in CASES.items():
            costs = [first(look, function, forget) for forget in (True, False)]
            costs.append(cached(look, function))
            title = f"{look.__name__} {name}"
            print(f"{title:32}" + "".join(f"{cost:10.1f}" for cost in costs))


if __name__ == "__main__":
    main()
