"""Work that is three times as large as the cluster's memory, with the cache and without.

For each workload and round a cluster of worker processes is started with a plain client and
one with a caching client, in alternating order. First something is computed that is worth
keeping and fills the limit; then the workload runs. What must not be more with the cache than
without: bytes written to disk by spilling, times that a worker was paused, seconds.

rechunk, rechunk-p2p
    An array of many slow blocks, rechunked from rows to columns, by tasks and by P2P.

shuffle, shuffle-p2p
    A dataframe of many slow partitions, shuffled on a column, by tasks and by P2P.

    python benchmarks/pressure.py [--workloads rechunk shuffle] [--rounds 3] [--memory 640]

takes about five minutes on a quiet machine. Spilled bytes of a plain client alone differ by a
tenth from run to run.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

import cachingclient

MIB = 2**20
#: Data is so many times as large as the cluster's memory.
TIMES = 3
WORKERS = 1
#: MiB of a block, and of a partition.
BLOCK = 24
PARTITION = 8
#: Seconds that a block takes beside making its data.
SLOW = 0.005


def block(index: np.ndarray, rows: int, columns: int) -> np.ndarray:
    time.sleep(SLOW)
    return np.random.default_rng(int(index.flat[0])).random((rows, columns))


def partition(seed: int, rows: int) -> pd.DataFrame:
    time.sleep(SLOW)
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"key": rng.integers(0, 10_000, rows), "a": rng.random(rows)})


def blocks(many: int, seed: int = 0) -> da.Array:
    """An array of so many blocks of one row each."""
    columns = BLOCK * MIB // 8 // 16
    index = da.arange(seed, seed + many, chunks=1)
    made = index[:, None].map_blocks(
        block, 16, columns, dtype="f8", chunks=((16,) * many, (columns,)), meta=np.empty((0, 0))
    )
    assert made.nbytes == many * BLOCK * MIB
    return made


def rechunk(nbytes: int, method: str) -> Any:
    many = nbytes // (BLOCK * MIB)
    x = blocks(many, seed=1000)
    columns = x.shape[1] // many
    return (x.rechunk((x.shape[0], columns), block_size_limit=BLOCK * MIB, method=method) + 1).sum()


def shuffle(nbytes: int, method: str) -> Any:
    rows = PARTITION * MIB // 16
    many = nbytes // (PARTITION * MIB)
    meta = partition(0, 0)
    df = dd.from_map(partition, range(1000, 1000 + many), rows=rows, meta=meta)
    return df.shuffle("key", shuffle_method=method).map_partitions(len, meta=("n", "i8")).sum()


WORKLOADS: dict[str, Callable[[int], Any]] = {
    "rechunk": lambda nbytes: rechunk(nbytes, "tasks"),
    "rechunk-p2p": lambda nbytes: rechunk(nbytes, "p2p"),
    "shuffle": lambda nbytes: shuffle(nbytes, "tasks"),
    "shuffle-p2p": lambda nbytes: shuffle(nbytes, "p2p"),
}


def written(dask_worker: Any) -> float:
    """Bytes that a worker has spilled since it was started."""
    return getattr(dask_worker.data, "cumulative_metrics", {}).get(("disk-write", "bytes"), 0)


def pauses(client: Client) -> int:
    events = [e for w in client.run(lambda: None) for _, e in client.get_events(w)]
    return sum(e.get("status") == "paused" for e in events)


def run(kind: type[Client], name: str, memory: int) -> dict[str, float]:
    with kind(
        n_workers=WORKERS,
        threads_per_worker=1,
        memory_limit=memory * MIB,
        dashboard_address=None,
    ) as client:
        small = blocks(2 * memory // BLOCK // 5)
        assert small.sum().compute() == small.sum().compute()
        info = client.cache.info() if isinstance(client, cachingclient.Client) else None
        lazy = WORKLOADS[name](TIMES * WORKERS * memory * MIB)
        before = sum(client.run(written).values())
        start = time.perf_counter()
        lazy.compute()
        seconds = time.perf_counter() - start
        result = {
            "spilled MiB": (sum(client.run(written).values()) - before) / MIB,
            "pauses": pauses(client),
            "seconds": seconds,
        }
        if info is not None:
            after = client.cache.info()
            print(
                f"    kept before {info.currsize // MIB} MiB, after {after.currsize // MIB} MiB,"
                f" evictions {after.evictions - info.evictions}",
                flush=True,
            )
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", default=["ours", "plain"])
    parser.add_argument("--memory", type=int, default=640, help="MiB of a worker")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "(?s)Port 8787 is already in use")
    kinds: dict[str, type[Client]] = {"ours": cachingclient.Client, "plain": Client}
    kinds = {who: kinds[who] for who in args.clients}
    for name in args.workloads:
        found: dict[str, list[dict[str, float]]] = {who: [] for who in kinds}
        for i in range(args.rounds):
            for who in sorted(kinds, reverse=bool(i % 2)):
                found[who].append(run(kinds[who], name, args.memory))
            last = [rounds[-1] for rounds in found.values()]
            pair = "   ".join(
                f"{what} {'/'.join(f'{r[what]:.1f}' for r in last)}" for what in last[0]
            )
            print(f"{name:12s} round {i + 1}, {'/'.join(kinds)}:  {pair}", flush=True)
        if len(kinds) < 2:
            continue
        for what in last[0]:
            ours, plain = (statistics.median(r[what] for r in found[w]) for w in kinds)
            ratio = f"ratio {ours / plain:.2f}" if plain else f"difference {ours - plain:.1f}"
            print(f"{name:12s} median {what}: ours {ours:.1f}, plain {plain:.1f}, {ratio}")


if __name__ == "__main__":
    small_buffers = {
        "distributed.p2p.comm.buffer": "32 MiB",
        "distributed.p2p.storage.buffer": "32 MiB",
    }
    with dask.config.set({"dataframe.convert-string": False, **small_buffers}):
        main()
