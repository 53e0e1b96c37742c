"""What the cache is worth where workers die: tasks run, against persist placed by hand.

Three workers with nannies; the process of one of them is killed every two seconds, while a user
asks 30 questions about one array whose blocks are slow to compute. A plain client gets the array
persisted before; ours is told nothing. All answers must be right. Printed are the tasks that ran
to their end, and the seconds it took, as ratios of ours to plain; the two sides take turns, each
with a cluster of its own, killed at the same moments.

    python benchmarks/kills.py [--rounds 3] [--questions 30] [--every 2] [--quiet]

takes about two minutes; the exit status is 1 where an answer is wrong, or the median ratio of
tasks is above 1.3.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import dask
import dask.array as da
import distributed
import numpy as np
from distributed import LocalCluster, SchedulerPlugin

import cachingclient

#: Tasks that ours may run for each of plain's
BOUND = 1.3
BLOCKS = 24
META = np.empty((0,))
CONFIG = {
    "distributed.scheduler.allowed-failures": 100_000,
    # Workers come back within a second
    "distributed.worker.multiprocessing-method": "forkserver",
    # A cluster gives up workers that it thinks are away for longer
    "distributed.deploy.lost-worker-timeout": "1 hour",
}


def load(block: np.ndarray) -> np.ndarray:
    """What all questions need."""
    time.sleep(0.1)
    return block + 1


def look(block: np.ndarray, number: int) -> np.ndarray:
    """What one question needs."""
    time.sleep(0.03)
    return block * number


class Round(NamedTuple):
    """One session of one side."""

    tasks: int
    #: calls of `load`, which a user pays for
    loads: int
    seconds: float
    kills: int
    wrong: int


class Counter(SchedulerPlugin):
    """Counts tasks that ran to their end."""

    name = "counter"

    def __init__(self) -> None:
        self.tasks = self.loads = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self.tasks += 1
            self.loads += "load" in str(key)


class Killer(threading.Thread):
    """Kills the process of a worker from time to time."""

    def __init__(self, cluster: LocalCluster, every: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.every = cluster, every
        self.rng, self.kills, self.done = random.Random(seed), 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(self.every):
            nanny = self.rng.choice(list(self.cluster.workers.values()))
            with contextlib.suppress(ProcessLookupError):
                if nanny.pid:
                    os.kill(nanny.pid, signal.SIGKILL)
                    self.kills += 1


@contextlib.contextmanager
def killing(cluster: LocalCluster, every: float, seed: int) -> Iterator[Killer]:
    killer = Killer(cluster, every, seed)
    if every:
        killer.start()
    try:
        yield killer
    finally:
        killer.done.set()
        if every:
            killer.join()


def ask(x: da.Array, number: int) -> bool:
    """Whether a question gets the right answer."""
    answer = x.map_blocks(look, number, dtype="f8", meta=META).sum().compute()
    return bool(answer == 2 * number * x.size)


def play(ours: bool, questions: int, every: float, seed: int) -> Round:
    """One session."""
    make = cachingclient.Client if ours else distributed.Client
    with LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster, make(cluster) as client:
        client.register_plugin(Counter())
        with killing(cluster, every, seed) as killer:
            start = time.perf_counter()
            x = da.ones(BLOCKS * 1000, chunks=1000).map_blocks(load, dtype="f8", meta=META)
            if not ours:
                x = client.persist(x)
            wrong = sum(not ask(x, number) for number in range(1, questions + 1))
            seconds = time.perf_counter() - start
        return Round(*counts(cluster), seconds, killer.kills, wrong)


def counts(cluster: LocalCluster) -> tuple[int, int]:
    counter: Any = cluster.scheduler.plugins["counter"]
    return counter.tasks, counter.loads


def compare(rounds: int, questions: int, every: float) -> bool:
    """Print the ratios of all rounds; returns whether the promise is kept."""
    ratios, times, right = [], [], True
    print(f"{'':14}{'tasks':>15}{'loads':>13}{'kills':>11}{'seconds':>15}{'tasks ratio':>14}")
    for n in range(rounds):
        order = [True, False] if n % 2 else [False, True]
        found = {ours: play(ours, questions, every, seed=n) for ours in order}
        plain, caching = found[False], found[True]
        ratios.append(caching.tasks / plain.tasks)
        times.append(caching.seconds / plain.seconds)
        right &= not plain.wrong and not caching.wrong
        pair = f"{caching.tasks}/{plain.tasks}", f"{caching.loads}/{plain.loads}"
        ended = f"{caching.kills}/{plain.kills}", f"{caching.seconds:.1f}/{plain.seconds:.1f}"
        print(f"ours/plain {n:3}{pair[0]:>15}{pair[1]:>13}{ended[0]:>11}{ended[1]:>15}", end="")
        print(f"{ratios[-1]:14.2f}", flush=True)
    print(f"all answers right: {right}")
    print(f"tasks {statistics.median(ratios):.2f} (at most {BOUND}; from {min(ratios):.2f}", end="")
    print(f" to {max(ratios):.2f}), seconds {statistics.median(times):.2f} of plain's")
    return right and statistics.median(ratios) <= BOUND


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between kills")
    parser.add_argument("--quiet", action="store_true", help="kill nobody")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with dask.config.set(CONFIG):
        kept = compare(args.rounds, args.questions, 0 if args.quiet else args.every)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
