"""Random sessions on a plain client and on ours; what differs is printed.

    python benchmarks/differential.py [--sessions 500] [--seed 0] [--processes 5]
        [--without impure inplace] [--shrink]

Sessions have consecutive seeds; the last ones run with workers in other processes. Each one that
fails is printed with its steps, the smallest first, and the exit status is 1. With --shrink, steps
are left out as long as it fails. One that also fails between two plain clients is told apart.

500 sessions take about four minutes. See `tests/random_sessions` for what is compared.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import dask
import distributed

import cachingclient

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from random_sessions.playing import Stage, differences  # noqa: E402
from random_sessions.steps import Step, draw  # noqa: E402

#: Seconds until a step hangs.
HANGS = 30


class Failure(NamedTuple):
    """A session that differs."""

    seed: int
    steps: Sequence[Step]
    found: list[str]
    #: of three more tries with the same steps, between us and plain, and among plain
    again: int
    plain: int

    def show(self) -> None:
        kind = "PLAIN DIFFERS TOO" if self.plain else f"again in {self.again} of 3"
        print(f"\n--- seed {self.seed}, {len(self.steps)} steps, {kind}")
        for n, step in enumerate(self.steps):
            print(f"{n:3}  " + step.code.replace("\n", "\n     "))
        for text in self.found:
            print(f"  != {text[:1500]}")


class Theatre:
    """Two clients that get the same sessions."""

    def __init__(self, processes: bool, top: Path) -> None:
        self.plain = Stage(distributed.Client, processes, HANGS)
        self.ours = Stage(cachingclient.Client, processes, HANGS)
        self.top = top

    def close(self) -> None:
        self.plain.close()
        self.ours.close()

    def play(self, steps: Sequence[Step]) -> list[str]:
        return self.compare(steps, self.ours, "ours")

    def compare(self, steps: Sequence[Step], stage: Stage, name: str) -> list[str]:
        one = self.plain.play(steps, self.top / "base")
        return differences(steps, one, stage.play(steps, self.top / name))

    def examine(self, seed: int, steps: Sequence[Step], found: list[str], less: bool) -> Failure:
        """Whether it comes again, whether plain dask does it too, and with how few steps."""
        again = sum(bool(self.play(steps)) for _ in range(3))
        plain = sum(bool(self.compare(steps, self.plain, "more")) for _ in range(3))
        if less and again == 3 and not plain:
            steps = shrunk(steps, lambda fewer: bool(self.play(fewer)))
            found = self.play(steps) or found
        return Failure(seed, steps, found, again, plain)


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> Sequence[Step]:
    """Leave out steps as long as a session fails."""
    n = len(steps) - 1
    while n >= 0:
        fewer = [*steps[:n], *steps[n + 1 :]]
        if fails(fewer):
            steps = fewer
        n -= 1
    return steps


def run(seeds: Sequence[int], processes: bool, options: argparse.Namespace) -> list[Failure]:
    failures = []
    with tempfile.TemporaryDirectory() as top:
        theatre = Theatre(processes, Path(top))
        for seed in seeds:
            steps = draw(seed, frozenset(options.without), processes)
            if found := theatre.play(steps):
                failures.append(theatre.examine(seed, steps, found, options.shrink))
                print(f"seed {seed} fails: {failures[-1].found[0][:150]}", flush=True)
        theatre.close()
    return failures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--without", nargs="*", default=())
    parser.add_argument("--shrink", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    warnings.simplefilter("ignore")
    gc.freeze()
    start = time.perf_counter()
    seeds = range(options.seed, options.seed + options.sessions)
    last = max(len(seeds) - options.processes, 0)
    with dask.config.set({"distributed.scheduler.validate": True}):
        failures = [*run(seeds[:last], False, options), *run(seeds[last:], True, options)]
    for failure in sorted(failures, key=lambda f: len(f.steps)):
        failure.show()
    seconds = time.perf_counter() - start
    print(f"\n{len(failures)} of {len(seeds)} sessions differ ({seconds:.0f} s)")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
