"""What a client does to a graph before it is sent, by the number of its layers.

Each graph is a chain of elementwise operations on two chunks with a sum at its end, or an xarray
Dataset of many variables with a mean of each. Collections on the way stay alive in a list, so that
liveness and barriers have work to do. What is timed is `make_plan`: the
client's own work beside what a plain client does. "first" sees every layer for the first time;
"again" is another question about the same collections, as it is asked all day.

    python benchmarks/rewriting.py [--layers 100 2000 8000] [--rounds 7]

takes half a minute. The bars: 10 ms for 100 layers, 150 ms for 8,000.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import xarray as xr
from dask.highlevelgraph import HighLevelGraph

from cachingclient.config import read_settings
from cachingclient.graph.plan import make_plan
from cachingclient.internals import as_computed

#: Milliseconds that rewriting may take, by number of layers
BARS = {100: 10, 8_000: 150}


def chain(layers: int, seed: int) -> tuple[Any, list[Any]]:
    """An array at the end of a chain, and all arrays on the way."""
    x = da.full(2, float(seed), chunks=1)
    alive = [x]
    for i in range(layers - 4):
        x = x + 1
        # Each holds all layers below: a hundred of them are much memory already
        if i % (layers // 100 + 1) == 0:
            alive.append(x)
    return x, alive


def dataset(layers: int, seed: int) -> tuple[Any, list[Any]]:
    """A Dataset of variables of four layers each, with their mean's four more."""
    alive = [
        (da.full(2, float(seed), chunks=1) + i).map_blocks(abs) * 2 for i in range(layers // 8)
    ]
    return xr.Dataset({f"v{i}": ("x", a) for i, a in enumerate(alive)}), alive


def questions(collection: Any) -> list[Callable[[], Any]]:
    return [collection.sum, collection.mean, collection.max]


def milliseconds(expr: Any) -> float:
    settings = read_settings()
    gc.collect()
    start = time.perf_counter()
    make_plan(expr, settings, (), None)
    return (time.perf_counter() - start) * 1000


def number_of_layers(collection: Any) -> int:
    graph = collection.__dask_graph__()
    return len(graph.layers) if isinstance(graph, HighLevelGraph) else 0


def measure(build: Callable[[int, int], tuple[Any, list[Any]]], layers: int, rounds: int) -> None:
    first, again, size = [], [], 0
    for seed in range(rounds):
        collection, alive = build(layers, seed)
        asked = [question() for question in questions(collection)]
        size = number_of_layers(asked[0])
        times = [milliseconds(as_computed(a)) for a in asked]
        first.append(times[0])
        again.append(statistics.median(times[1:]))
        del collection, alive, asked
    bar = next((ms for most, ms in BARS.items() if layers <= most), "")
    print(
        f"{build.__name__:8} {size:7,} {statistics.median(first):10.1f} "
        f"{statistics.median(again):10.1f} {bar:>8}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[100, 2_000, 8_000])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(f"{'graph':8} {'layers':>7} {'first, ms':>10} {'again, ms':>10} {'bar, ms':>8}")
    for layers in args.layers:
        for build in (chain, dataset):
            measure(build, layers, args.rounds)


if __name__ == "__main__":
    main()
