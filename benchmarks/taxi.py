"""Makes a table of taxi rides, as CSV and as parquet: 20 columns, the same rows for the same seed.

    python benchmarks/taxi.py FOLDER [--rows 7_000_000] [--files 16] [--seed 0]

7 million rows are 1 GB of CSV, and 0.3 GB of parquet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

ROWS, FILES = 7_000_000, 16


def rides(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Some rides."""
    start = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 31 * 86_400, rows), "s")
    distance = rng.gamma(2.0, 1.7, rows).round(2)
    fare = (3 + 2.5 * distance + rng.normal(0, 1, rows)).clip(3).round(2)
    tip = (fare * rng.choice([0, 0.1, 0.15, 0.2, 0.25], rows)).round(2)
    tolls = rng.choice([0, 0, 0, 0, 6.55], rows)
    extra = rng.choice([0.0, 0.5, 1.0, 2.5], rows)
    congestion = rng.choice([0.0, 2.5], rows)
    return pd.DataFrame(
        {
            "vendor": rng.integers(1, 3, rows),
            "pickup": start,
            "dropoff": start + pd.to_timedelta((distance * 210).astype(int) + 60, "s"),
            "passengers": rng.integers(1, 7, rows),
            "distance": distance,
            "rate": rng.choice([1, 1, 1, 1, 2, 3, 5], rows),
            "stored": rng.choice(["N", "N", "N", "Y"], rows),
            "origin": rng.integers(1, 264, rows),
            "target": rng.integers(1, 264, rows),
            "payment": rng.choice(["card", "card", "cash", "dispute"], rows),
            "fare": fare,
            "extra": extra,
            "tax": 0.5,
            "tip": tip,
            "tolls": tolls,
            "improvement": 0.3,
            "total": (fare + tip + tolls + extra + congestion + 0.8).round(2),
            "congestion": congestion,
            "airport": rng.choice([0.0, 1.25], rows),
            "driver": rng.integers(1, 20_000, rows),
        }
    )


def make(top: Path, rows: int = ROWS, files: int = FILES, seed: int = 0) -> None:
    """Write the files, unless they are there."""
    done = top / f"{rows}-{files}-{seed}.done"
    if done.exists():
        return
    for kind in ("csv", "parquet"):
        (top / kind).mkdir(parents=True, exist_ok=True)
        for old in (top / kind).iterdir():
            old.unlink()
    for old in top.glob("*.done"):
        old.unlink()
    for n in range(files):
        part = rides(rows // files, np.random.default_rng((seed, n)))
        part.to_csv(top / "csv" / f"{n:03}.csv", index=False)
        part.to_parquet(top / "parquet" / f"{n:03}.parquet", index=False)
    done.touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make(options.folder, options.rows, options.files, options.seed)


if __name__ == "__main__":
    main()
