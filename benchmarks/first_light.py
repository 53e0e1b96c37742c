"""What the cache wins on a repeat, and what it costs when nothing is ever asked again.

repeat
    A reduction of 100,000 tasks, and the same again in the same process: once as the same
    collection, and once built anew by the same code.

cold
    A chain of five cheap ufuncs and a sum over arrays that were never seen before: the cache could
    hold everything and can use nothing. Once with each array alive in a variable, and once with
    temporaries. Wall time and CPU time of all processes (client, scheduler, workers) as ratios to
    a plain client.

The two sides are child processes of this one, each with a LocalCluster of two worker processes of
one thread. Both live at the same time and one works at a time, in pairs of alternating order: a
drift of the machine meets both halves of a pair, and what a side leaves in its memory (a
scheduler's state, the garbage collector's) never weighs on the other, as it would in one process. A
process may be some per cent slower than another of the same code for all of its life (where its
memory lies, how its hashes fall; `--noise` shows it), so the sides are started anew several times,
the first one in turn, and are warmed up by a small graph each time. A ratio is formed within a
pair; what is printed is the median of the ratios with its 95 % interval from order statistics,
which assumes nothing about how they are distributed.

    python benchmarks/first_light.py [--parts alive temporary repeat] [--starts 8] [--rounds 3]
                                     [--chunks 500 1000 20000]

takes about an hour on two cores, most of it for 20,000 chunks; --quick two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import dask.array as da
import distributed
import numpy as np
import psutil

import cachingclient

#: Elements of a chunk: small enough that a task is nearly all overhead
SIZE = 1_000
#: Seconds a side is given to finish what it does behind the user's back
SETTLE = 0.3
#: Seconds after the answer that count
AFTER = 1.5
#: Pairs that an interval needs at the least
FEWEST = 6
#: Chunks after which there are fewer pairs: long computations vary less, and cost more time
MANY_CHUNKS = 10_000
#: Chunks of the graph that a side starts with, which does not count
WARM_UP = 200
#: Chunks whose sum has 100,003 tasks
REPEAT_CHUNKS = 75_000
PARTS = ["alive", "temporary", "repeat"]
CLIENTS: dict[str, Callable[..., distributed.Client]] = {
    "plain": distributed.Client,
    "caching": cachingclient.Client,
}


class Cost(NamedTuple):
    """Seconds of one computation."""

    wall: float
    #: user and system time of all processes of the side
    cpu: float


#: Five cheap ufuncs
STEPS: list[Callable[[Any], Any]] = [
    lambda x: x + 1,
    lambda x: x * 2,
    np.sqrt,
    lambda x: x - 0.5,
    np.abs,
]

# --------------------------------------------------------- what a side does


def cpu() -> float:
    """CPU seconds of this process and its descendants so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in [me, *me.children(recursive=True)]]
    return sum(t.user + t.system for t in times)


def measured(compute: Callable[[], Any]) -> tuple[Any, Cost]:
    gc.collect()
    time.sleep(SETTLE)
    before, start = cpu(), time.perf_counter()
    answer = compute()
    wall = time.perf_counter() - start
    # What goes on after the answer is a cost too: keys to release, results to keep and to pack
    time.sleep(AFTER)
    return answer, Cost(wall, cpu() - before)


def cold(chunks: int, seed: float, alive: bool) -> Cost:
    held = []
    x = da.full((chunks * SIZE,), seed, chunks=SIZE)
    for step in STEPS:
        if alive:
            held.append(x)
        x = step(x)
    total = x.sum()
    if not alive:
        del x
    answer, cost = measured(total.compute)
    if not np.isclose(answer, chunks * SIZE * abs(math.sqrt((seed + 1) * 2) - 0.5)):
        raise AssertionError(f"wrong sum: {answer}")
    return cost


def reduction(chunks: int) -> da.Array:
    return da.ones((chunks * SIZE,), chunks=SIZE).sum()


def repeat(chunks: int) -> tuple[Cost, Cost, Cost]:
    """A first run, the same collection again, and the same code again (medians of five)."""
    total = reduction(chunks)
    expected, first = measured(total.compute)
    again = [measured(total.compute) for _ in range(5)]
    anew = [measured(lambda: reduction(chunks).compute()) for _ in range(5)]
    if {answer for answer, _ in again + anew} != {expected}:
        raise AssertionError("a repeat gave another answer")
    return first, middle([cost for _, cost in again]), middle([cost for _, cost in anew])


def middle(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs)))


def serve(name: str, pipe: Connection) -> None:
    """Be one side: run the functions that come through the pipe until None comes."""
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    # EOFError: the other end was interrupted
    with cluster, CLIENTS[name](cluster), contextlib.suppress(EOFError):
        pipe.send("ready")
        for function, args in iter(pipe.recv, None):
            pipe.send(function(*args))


# ------------------------------------------------------------ the other end


class Side:
    """A child process with a client of the given name."""

    def __init__(self, name: str):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(name, theirs))
        self.process.start()
        theirs.close()  # so that recv raises EOFError when the child dies
        self.pipe.recv()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
        self.process.join()

    def run(self, function: Callable, *args: Any) -> Any:
        self.pipe.send((function, args))
        return self.pipe.recv()


def pairs(
    plain: Side, caching: Side, chunks: int, rounds: int, alive: bool
) -> list[tuple[Cost, Cost]]:
    """(plain, caching) costs of cold graphs."""
    results = []
    for side in (plain, caching):
        side.run(cold, WARM_UP, 0.25, alive)
    for seed in range(rounds):
        order = [plain, caching] if seed % 2 else [caching, plain]
        first = chunks + seed + alive / 2  # never seen before by either part
        costs = {side: side.run(cold, chunks, first, alive) for side in order}
        results.append((costs[plain], costs[caching]))
    return results


@contextlib.contextmanager
def both(second: str, swapped: bool) -> Iterator[tuple[Side, Side]]:
    """A plain side and another, which starts first if they are swapped."""
    names = ["plain", second]
    with Side(names[swapped]) as one, Side(names[not swapped]) as other:
        yield (other, one) if swapped else (one, other)


# --------------------------------------------------------------- statistics


def interval(values: list[float]) -> tuple[float, float] | None:
    """The 95 % confidence interval of the median; None for fewer than six values.

    >>> interval([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    (2, 9)
    >>> interval([1, 2, 3, 4, 5])
    """
    n, ordered = len(values), sorted(values)
    tails = [sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n)]
    outside = [k for k, tail in enumerate(tails) if tail <= 0.025]
    return (ordered[outside[-1]], ordered[-1 - outside[-1]]) if outside else None


def ratio(values: list[float]) -> str:
    span = interval(values)
    text = f"[{span[0]:.3f}, {span[1]:.3f}]" if span else "(too few rounds for an interval)"
    return f"{statistics.median(values):.3f} {text}"


def report_cold(part: str, chunks: int, results: list[tuple[Cost, Cost]]) -> None:
    wall = ratio([caching.wall / plain.wall for plain, caching in results])
    work = ratio([caching.cpu / plain.cpu for plain, caching in results])
    base = middle([plain for plain, _ in results])
    costs = f"{base.wall:10.3f}  {base.cpu:10.3f}"
    print(f"{part:9} {chunks:8,}  {wall:24}  {work:24}  {costs}", flush=True)


def report_repeat(chunks: int, first: Cost, again: Cost, anew: Cost) -> None:
    print(f"Repeat of a sum over {chunks:,} chunks: first run {first.wall:.2f} s")
    print(f"  the same collection  {first.wall / again.wall:7.0f} times faster, {again.wall:.4f} s")
    print(f"  built anew           {first.wall / anew.wall:7.0f} times faster, {anew.wall:.4f} s")


# ------------------------------------------------------------------ command


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--rounds", type=int, help="pairs of cold graphs each start; default: 3, 1 of large ones"
    )
    parser.add_argument(
        "--starts", type=int, help=f"starts of both sides; default: 8, {FEWEST} for large graphs"
    )
    parser.add_argument("--chunks", type=int, nargs="+", default=[500, 1_000, 20_000])
    parser.add_argument("--quick", action="store_true", help="6 pairs, 500 chunks, small repeat")
    parser.add_argument(
        "--noise", action="store_true", help="two plain clients: what the method itself varies by"
    )
    args = parser.parse_args()
    if args.quick:
        args.starts, args.rounds, args.chunks = 2, FEWEST // 2, [500]
    return args


def run_cold(args: argparse.Namespace) -> None:
    print("Cold graphs of cheap operations, as ratios to a plain client (median, 95 %)")
    columns = f"{'chunks':>8}  {'wall':24}  {'CPU':24}  {'plain wall':>10}  {'plain CPU':>10}"
    print(f"{'arrays':9} {columns}")
    for chunks in args.chunks:
        large = chunks > MANY_CHUNKS
        rounds, starts = args.rounds or (1 if large else 3), args.starts or (FEWEST if large else 8)
        costs: dict[str, list[tuple[Cost, Cost]]] = {}
        for start in range(starts):
            with both("plain" if args.noise else "caching", bool(start % 2)) as (plain, caching):
                for part in sorted({"alive", "temporary"} & set(args.parts)):
                    found = pairs(plain, caching, chunks, rounds, part == "alive")
                    costs.setdefault(part, []).extend(found)
        for part, found in costs.items():
            report_cold(part, chunks, found)


def run_repeat(args: argparse.Namespace) -> None:
    chunks = REPEAT_CHUNKS // (10 if args.quick else 1)
    with Side("caching") as caching:
        report_repeat(chunks, *caching.run(repeat, chunks))


def main() -> None:
    args = parsed()
    if {"alive", "temporary"} & set(args.parts):
        run_cold(args)
    if "repeat" in args.parts:
        run_repeat(args)


if __name__ == "__main__":
    main()
