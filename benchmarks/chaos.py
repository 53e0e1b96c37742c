"""Thousands of chaotic steps, with workers killed by the clock as well; what fails is printed.

    python benchmarks/chaos.py [--steps 3000] [--seed 0] [--every 3] [--plain]

Sessions of 300 steps with consecutive seeds, as `tests/test_chaos.py` plays one; every few seconds
the process of a worker is killed besides, whatever it does. A step that fails is played again three
times with plain clients, with all that came before it, and is ours unless one of these fails in the
same way. The exit status is 1 where one is ours.

1000 steps take about five minutes where nothing fails. See `tests/chaos` for what is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from chaos.playing import DEADLINE, Outcome, examine, play  # noqa: E402
from chaos.stage import Stage  # noqa: E402
from chaos.steps import Step, draw  # noqa: E402

#: Steps of one session
LENGTH = 300


@contextlib.contextmanager
def clock(every: float, seed: int, stage: Stage) -> Iterator[None]:
    """Kill some worker every few seconds."""
    rng, done = random.Random(seed), threading.Event()

    def run() -> None:
        while not done.wait(rng.uniform(0.5, 1.5) * every):
            workers = sorted(stage.scheduler.workers)
            if workers:
                stage.kill(rng.choice(workers))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Tally:
    """What was played, and what failed."""

    def __init__(self) -> None:
        self.acts: Counter[str] = Counter()
        self.kills = self.hits = self.orphans = 0
        self.faults: list[str] = []

    def add(self, outcome: Outcome) -> None:
        self.acts += outcome.acts
        self.kills += outcome.kills
        self.hits += outcome.hits
        self.orphans += outcome.orphans

    def show(self, seconds: float) -> None:
        print(f"\n{sum(self.acts.values())} steps, {self.kills} kills, {self.hits} hits, ", end="")
        print(f"{self.orphans} tasks that plain dask forgot to forget, {seconds:.0f} s")
        print(", ".join(f"{act} {n}" for act, n in self.acts.most_common()))
        print(f"failures: {dict(Counter(self.faults)) or 'none'}")


def session(seed: int, steps: list[Step], tally: Tally, plain: bool, how: dict[str, Any]) -> None:
    """Play one session, and tell whose fault it is where a step fails."""
    outcome = play(steps, plain=plain, **how)
    tally.add(outcome)
    if outcome.step is None:
        print(f"seed {seed}: {len(steps)} steps", flush=True)
        return
    print(f"\n--- seed {seed}, step {outcome.step}, {steps[outcome.step]}: {outcome.error}")
    fault = "plain"
    if not plain:
        tries = examine(steps, outcome, **how)
        for n, other in enumerate(tries):
            print(f"  plain, try {n}: {other.sort or 'works'} at step {other.step}")
        fault = "plain too" if any(t.sort == outcome.sort for t in tries) else "ours"
    tally.faults.append(fault)
    print(f"--- {fault}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between kills")
    parser.add_argument("--seconds", type=float, default=2 * DEADLINE, help="until a step hangs")
    parser.add_argument("--plain", action="store_true", help="play with plain clients alone")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    warnings.simplefilter("ignore")
    tally, start = Tally(), time.monotonic()
    for seed, done in enumerate(range(0, options.steps, LENGTH), options.seed):
        steps = draw(seed, min(LENGTH, options.steps - done))
        beside: Callable[[Stage], Any] = partial(clock, options.every, seed)
        how = {"seconds": options.seconds, "beside": beside}
        session(seed, steps, tally, options.plain, how)
    tally.show(time.monotonic() - start)
    return int("ours" in tally.faults)


if __name__ == "__main__":
    sys.exit(main())
