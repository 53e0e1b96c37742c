"""What it costs to find the files that a computation reads, and to see whether they changed.

finding
    Once for each layer or expression: a read_csv of 100 files, a bag of 100 files, a from_zarr, a
    graph of 1,000 delayed calls, and one of 10,000 tasks that read nothing.

checking
    At each submission: 100 and 1,000 local files of one layer, of as many layers, and of a zarr
    store of 1,000 chunks.

    python benchmarks/sources.py [--repeats 20]

prints the median of the repeats in microseconds, with the shortest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import zarr

from cachingclient.sources import Sources

#: Files that a checked collection reads.
NUMBERS = (100, 1_000)
MICROSECONDS = 1e6


def measure(name: str, call: Callable[[], Any], repeats: int) -> None:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * MICROSECONDS)
    print(f"{name:58} {statistics.median(times):10,.0f} us   (shortest {min(times):,.0f})")


def load(path: str) -> str:
    return path


def write(top: str, number: int) -> list[str]:
    """Small files that no rule finds too young."""
    paths = [os.path.join(top, f"{number}-{n}.csv") for n in range(number)]
    for path in paths:
        with open(path, "w") as f:
            f.write("a,b\n1,2\n")
    return paths


def write_zarr(path: str) -> str:
    zarr.create_array(path, data=np.arange(1_000), chunks=(1,))
    return path


def collections(top: str) -> Iterator[tuple[str, Any]]:
    paths = write(top, 100)
    yield "read_csv of 100 files", dd.read_csv(paths)
    yield "read_csv of 100 files, fused", dd.read_csv(paths).a.sum().optimize()
    yield "read_text of 100 files", db.read_text(paths).map(str.upper)
    yield "from_zarr of 1,000 chunks", da.from_zarr(write_zarr(os.path.join(top, "x.zarr")))
    calls = [dask.delayed(load, pure=True)(path) for path in write(top, 1_000)]
    yield "1,000 delayed calls with a file each", dask.delayed(list, pure=True)(calls)
    yield "10,000 chunks without files", da.ones(10_000, chunks=1).map_blocks(np.exp).sum()


def find(lazy: Any, sources: Sources) -> dict[str, frozenset]:
    is_frame = hasattr(type(lazy), "expr")
    return sources.of_expr(lazy.expr) if is_frame else sources.of_graph(lazy.dask)


def finding(top: str, repeats: int) -> None:
    for name, lazy in collections(top):
        measure(f"finding, {name}", lambda: find(lazy, Sources()), repeats)
        sources = Sources()
        find(lazy, sources)
        measure("    when found before", partial(find, lazy, sources), repeats)


def checking(top: str, repeats: int) -> None:
    for number in NUMBERS:
        paths = write(top, number)
        one = dask.delayed(list, pure=True)(paths)
        many = dask.delayed(list, pure=True)([dask.delayed(load, pure=True)(p) for p in paths])
        check(f"{number:,} files of one layer", one, repeats)
        check(f"{number:,} files of {number:,} layers", many, repeats)
    check("a zarr store of 1,000 chunks", da.from_zarr(os.path.join(top, "x.zarr")), repeats)


def check(name: str, lazy: Any, repeats: int) -> None:
    sources = Sources()
    found = find(lazy, sources)
    time.sleep(0.05)  # else they are too young
    measure(f"checking for the first time, {name}", partial(sources.check, found), 1)
    assert not sources.check(found).changed
    measure(f"checking, {name}", partial(sources.check, found), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as top:
        finding(top, repeats)
        checking(top, repeats)


if __name__ == "__main__":
    main()
