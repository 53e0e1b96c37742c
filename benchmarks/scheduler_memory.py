"""What kept results cost the scheduler.

memory
    Distinct results of graphs of some 2,000 tasks, one after the other, with a plain client and
    with a caching one, at the same time, each in a process of its own that has scheduler and client
    (the worker is another): tasks that the scheduler knows afterwards, and the memory of that
    process. Differences.

clear
    Milliseconds for which `client.cache.clear()` keeps the scheduler's event loop busy, with the
    results' tasks given up, and where they are not.

repeat
    Milliseconds until the result of a repeated computation is there, alike.

loss
    Milliseconds from the loss of the worker that has a result, which a user holds, until the
    scheduler knows all tasks again that it needs to compute it; and the share of one computation
    that packing its tasks takes, in another thread.

    python benchmarks/scheduler_memory.py [--results 1000] [--tasks 2000] [--attached 100]

takes about forty minutes on a small machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import psutil

import cachingclient
from cachingclient.scheduler.detaching import ROOM, Detaching
from cachingclient.scheduler.keeping import OVERHEAD
from cachingclient.scheduler.recipes import Draft

META = np.empty((0,))
MIB = 2**20
#: What must hold for 1,000 results.
MOST_TASKS, MOST_MIB = 5_000, 50


def work(block: Any) -> Any:
    return block + 1


def question(i: int, tasks: int) -> Any:
    """A result of so many tasks: three of four are blocks, the others add four of them up."""
    blocks = tasks * 3 // 4
    return da.full(blocks, i, chunks=1, dtype="i8").map_blocks(work, dtype="i8", meta=META).sum()


def memory() -> float:
    """MiB of this process, after what is free has been given back."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss / MIB


def settled(scheduler: Any, plugin: Any) -> None:
    """Wait until nothing is left to be detached."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        # A last graph or two may stay as they are.
        if plugin is None or len(scheduler.tasks) <= max(len(plugin.ledger.kept), ROOM):
            return
        time.sleep(0.1)


def child(kind: str, results: int, tasks: int) -> dict[str, Any]:
    """Compute, and look at what is left."""
    make = distributed.Client if kind == "plain" else cachingclient.Client
    if kind == "attached":
        Detaching.keep = lambda self, key: None  # type: ignore[method-assign]
    packing = watch_packing()
    # What is kept is the results alone: their parts cost less.
    settings = {
        "cachingclient.min-cost": 0.75 * OVERHEAD * tasks,
        "distributed.scheduler.validate": False,
        # Where tasks queue, a result takes as long as some thousand messages to and fro.
        "distributed.scheduler.worker-saturation": float("inf"),
    }
    with dask.config.set(settings):
        with make(n_workers=1, processes=True, dashboard_address=":0") as client:
            scheduler = client.cluster.scheduler
            client.compute(question(-1, tasks)).result()
            start, began = memory(), time.perf_counter()
            for i in range(results):
                client.compute(question(i, tasks)).result()
            seconds = time.perf_counter() - began
            plugin = scheduler.plugins.get("cachingclient")
            time.sleep(2)
            if kind == "caching":
                settled(scheduler, plugin)
            found = {
                "tasks": len(scheduler.tasks),
                "MiB": memory() - start,
                "seconds": seconds,
            }
            if plugin is not None:
                found["kept"] = len(plugin.ledger.kept)
                found["recipes MiB"] = plugin.detaching.size / MIB
                found["repeat ms"] = statistics.median(repeats(client, tasks))
                found["packing"] = sum(packing) / seconds
                found["clear ms"] = 1e3 * clear(client)
                if kind == "caching":
                    client.compute(question(0, tasks)).result()
                    settled(scheduler, plugin)
                    found["loss ms"] = 1e3 * loss(client, scheduler, plugin, tasks)
            return found


def watch_packing() -> list[float]:
    """Note the CPU seconds that packing takes."""
    seconds: list[float] = []
    plain = Draft.pack

    def pack(self: Draft) -> Any:
        start = time.thread_time()
        try:
            return plain(self)
        finally:
            seconds.append(time.thread_time() - start)

    Draft.pack = pack  # type: ignore[method-assign]
    return seconds


def repeats(client: Any, tasks: int) -> list[float]:
    times = []
    for _ in range(20):
        again = question(0, tasks)
        start = time.perf_counter()
        client.compute(again).result()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def loss(client: Any, scheduler: Any, plugin: Any, tasks: int) -> float:
    """Seconds until what was lost is being computed again."""
    future = client.compute(question(0, tasks))
    future.result()

    async def lose() -> float:
        start = time.perf_counter()
        # As where a worker reports that it no longer has what it had.
        for ts in list(scheduler.tasks.values()):
            for ws in list(ts.who_has or ()):
                scheduler.release_worker_data(ts.key, ws.address, "benchmark")
        await asyncio.sleep(0)
        while plugin.detaching.healing.parked:
            await asyncio.sleep(0.001)
        return time.perf_counter() - start

    seconds: float = client.sync(lose)
    future.result()
    return seconds


def clear(client: Any) -> float:
    """Seconds for which the loop is busy."""

    async def clear(dask_scheduler: Any) -> float:
        start = time.perf_counter()
        dask_scheduler.plugins["cachingclient"].clear()
        return time.perf_counter() - start

    seconds: float = client.run_on_scheduler(clear)
    return seconds


def run(kind: str, results: int, tasks: int) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, __file__, "--child", kind]
    command += ["--results", str(results), "--tasks", str(tasks)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(f"{kind:9}", {k: round(v, 3) for k, v in found.items()}, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--attached", type=int, default=100, help="results that stay attached")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.results, options.tasks)))
        return 0
    with ThreadPoolExecutor() as pool:
        sides = [
            pool.submit(run, kind, options.results, options.tasks) for kind in ("plain", "caching")
        ]
    plain, caching = (side.result() for side in sides)
    if options.attached:
        run("attached", options.attached, options.tasks)
    tasks, mib = caching["tasks"] - plain["tasks"], caching["MiB"] - plain["MiB"]
    print(f"{caching['kept']} results: {tasks} tasks and {mib:.1f} MiB more than without")
    print(f"time: {caching['seconds'] / plain['seconds']:.3f} of plain")
    scale = options.results / 1000
    return int(tasks > MOST_TASKS * scale or mib > MOST_MIB * max(scale, 0.2))


if __name__ == "__main__":
    sys.exit(main())
