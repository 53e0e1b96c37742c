"""Play chaos sessions: ``python -m chaos --seed 3``; the exit status is 1 where one fails."""

from __future__ import annotations

import argparse
import sys
import time
import warnings

from chaos.playing import DEADLINE, Outcome, examine, play
from chaos.steps import draw


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=DEADLINE, help="until a step hangs")
    parser.add_argument("--plain", action="store_true", help="with distributed's own client")
    parser.add_argument("--verbose", action="store_true", help="say each step")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, flush=True)


def tell(outcome: Outcome, seed: int) -> None:
    say(f"seed {seed}: acts {dict(outcome.acts)}")
    say(f"{outcome.kills} kills, {outcome.hits} hits, {outcome.orphans} orphans")
    slowest = ", ".join(f"{act} {s:.0f} s" for act, s in outcome.seconds.most_common(6))
    say(f"slowest: {slowest}")


def main() -> int:
    options = arguments()
    warnings.simplefilter("ignore")
    steps = draw(options.seed, options.steps)
    start = time.monotonic()
    how = {"seconds": options.seconds, "say": say if options.verbose else lambda text: None}
    outcome = play(steps, plain=options.plain, **how)
    tell(outcome, options.seed)
    say(f"{time.monotonic() - start:.0f} s")
    if outcome.step is None:
        return 0
    say(f"seed {options.seed}, step {outcome.step}, {steps[outcome.step]} fails: {outcome.error}")
    if options.plain:
        return 1
    tries = examine(steps, outcome, **how)
    for n, other in enumerate(tries):
        say(
            f"plain, try {n}: "
            + (f"step {other.step} fails: {other.error}" if other.error else "works")
        )
    same = any(other.sort == outcome.sort for other in tries)
    say("PLAIN FAILS TOO" if same else "OURS")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
