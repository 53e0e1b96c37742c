"""Three sessions on a real cluster, under one limit each, with each policy: seconds of task time.

Tasks sleep, and count for what they were to sleep, whatever else the machine does; they make
arrays of real sizes. The limit is a part of what the session asks for more than once. Each
session starts on a new cluster of worker processes. Nobody thinks between two questions, but the
scheduler's part of the cache is told by its clock that somebody did, for some 20 seconds:
requests fade with wall time. What must hold: fewer task seconds with `group` than with `lru` and
`cachey`, over all seeds of a session: what a session asks for next is drawn, and in a single one
any policy may have the luck.

aggregations
    One slow, cleaned array; columns of it; reductions of these, with passes over something large
    that nobody looks at again.
exploration
    Chains of derived arrays, some overwritten, and questions about the last ones.
editing
    A pipeline of four stages, of which a late one is edited again and again; sometimes the
    questions of the last version are asked once more.

    python benchmarks/policies/real.py [--sessions aggregations ...] [--seeds 0 1 2 3]
                                       [--trace FOLDER]

takes about five minutes a seed; with --trace the sessions are recorded for `compare.py --traces`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import work
from distributed import Client

import cachingclient

META = np.empty((0,))
CHUNKS = 8


def think(dask_scheduler: Any, seconds: float) -> None:
    """Set the cache's clock forward."""
    plugin = dask_scheduler.plugins["cachingclient"]
    clock = plugin.clock
    plugin.clock = lambda: clock() + seconds


class Session:
    """Builds arrays whose chunks take so many milliseconds and have so many kilobytes."""

    def __init__(self, seed: int, think: Callable[[float], Any]) -> None:
        self.rng = random.Random(seed)
        self._count = 0
        self._thoughts = random.Random(seed)
        self._think = think

    def ask(self, x: Any, how: int) -> None:
        [x.sum, x.max, x.min, x.mean, x.std][how % 5]().compute()
        self._think(self._thoughts.expovariate(1 / 20))

    def array(self, x: Any, milliseconds: float, kilobytes: int) -> Any:
        self._count += 1
        function = work.derive if x is not None else work.make
        if x is None:
            x = da.arange(CHUNKS, chunks=1)
        return x.map_blocks(
            function,
            milliseconds / 1000,
            kilobytes,
            self._count,
            dtype="f8",
            chunks=((kilobytes * work.KB // 8,) * CHUNKS,),
            meta=META,
        )


def aggregations(s: Session) -> None:
    clean = s.array(s.array(None, 60, 800), 40, 600)
    columns = [s.array(clean, 20, 100) for _ in range(4)]
    for n in range(36):
        if n % 6 == 5:
            s.ask(s.array(s.array(None, 15, 1200), 10, 1500), n)
        else:
            s.ask(s.rng.choice([clean, *columns]), s.rng.randrange(5))


def exploration(s: Session) -> None:
    base = s.array(s.array(None, 60, 900), 30, 700)
    trail = [base]
    for _ in range(40):
        what = s.rng.random()
        if what < 0.4:
            trail.append(s.array(trail[-1], s.rng.choice([10, 20, 60]), s.rng.choice([100, 300])))
        elif what < 0.55 and len(trail) > 1:
            del trail[s.rng.randrange(1, len(trail)) :]
        s.ask(trail[-1], s.rng.randrange(5))


def editing(s: Session) -> None:
    costs, sizes = [60, 40, 25, 15], [900, 600, 400, 150]

    def build(before: list[Any]) -> list[Any]:
        stages = list(before)
        while len(stages) < len(costs):
            k = len(stages)
            stages.append(s.array(stages[-1] if stages else None, costs[k], sizes[k]))
        return stages

    now = build([])
    for _ in range(36):
        s.ask(now[-1], s.rng.randrange(3))
        if s.rng.random() < 0.7:
            now = build(now[: s.rng.choice([1, 2, 2, 3, 3, 3])])


#: {session: limit in bytes}
SESSIONS: dict[str, tuple[Callable[[Session], None], int]] = {
    "aggregations": (aggregations, 3_000 * work.KB),
    "exploration": (exploration, 3_500 * work.KB),
    "editing": (editing, 4_000 * work.KB),
}


def run(name: str, policy: str, seed: int, trace: Path | None) -> dict[str, float]:
    play, limit = SESSIONS[name]
    kinds: dict[str, Any] = {"plain": Client}
    kind = kinds.get(policy, cachingclient.Client)
    settings = {} if policy == "plain" else {"cachingclient.policy": policy}
    with dask.config.set(settings):
        extra = {} if policy == "plain" else {"cache_limit": limit}
        with kind(
            n_workers=2,
            threads_per_worker=2,
            memory_limit="500 MiB",
            dashboard_address=None,
            **extra,
        ) as client:
            recording = client.cache.record(trace) if trace is not None else None

            def pause(seconds: float) -> None:
                if policy != "plain":
                    client.run_on_scheduler(think, seconds=seconds)

            start = time.perf_counter()
            play(Session(seed, pause))
            wall = time.perf_counter() - start
            if recording is not None:
                recording.stop()
            found = {"task seconds": sum(client.run(work.total).values()), "wall": wall}
            if policy != "plain":
                info = client.cache.info()
                found |= {"hits": info.hits, "evictions": info.evictions}
                found["kept MB"] = info.currsize / 1e6
            return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", nargs="+", default=list(SESSIONS), choices=SESSIONS)
    parser.add_argument("--policies", nargs="+", default=["plain", "group", "cachey", "lru"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--trace", type=Path, help="folder for recordings of ours")
    args = parser.parse_args()
    failed = False
    for name in args.sessions:
        seconds = dict.fromkeys(args.policies, 0.0)
        for seed, policy in product(args.seeds, args.policies):
            trace = None
            if args.trace and policy == "group":
                trace = args.trace / f"{name}-{seed}.trace"
            found = run(name, policy, seed, trace)
            seconds[policy] += found["task seconds"]
            row = "  ".join(f"{what} {value:8.1f}" for what, value in found.items())
            print(f"{name:14s} seed {seed} {policy:7s} {row}", flush=True)
        for other in set(seconds) - {"group"}:
            if "group" in seconds:
                ratio = seconds["group"] / seconds[other]
                print(f"{name:14s} task seconds of group / {other}: {ratio:.2f}", flush=True)
                failed |= ratio >= 1
    print(
        "missed: not the fewest" if failed else "fewer task seconds than any other in each session"
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
