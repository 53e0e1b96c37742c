"""Policies on made-up sessions: the share of the saving that one who knows the future could make.

For each generator of sessions, seed and limit (as a share of the bytes of all that is asked for
more than once) each policy runs through the session, and its saving of task time is divided by
an upper bound of what is possible (`bound.py`).

    python benchmarks/policies/compare.py [--seeds 4] [--limits 0.01 0.05 0.2 0.5]

needs scipy. Prints a line per generator and policy, then for each policy the mean over all, the
mean of the worst tenth, and its work over the least possible.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from baselines import GDSF
from bound import Bound
from generators import GENERATORS
from simulator import plain_work, run, working_set

from cachingclient.policy import CacheyPolicy, GroupPolicy, LRUPolicy

POLICIES = {
    "group": (GroupPolicy, True),
    "group, blind": (GroupPolicy, False),
    "cachey": (lambda: CacheyPolicy(100), False),
    "gdsf": (GDSF, False),
    "lru": (LRUPolicy, False),
}
#: What must hold.
LEAST = {"group": 0.92, "group, blind": 0.89}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--limits", type=float, nargs="+", default=[0.01, 0.05, 0.2, 0.5])
    parser.add_argument("--only", nargs="+", help="names of generators, or their beginnings")
    parser.add_argument("--verbose", action="store_true", help="a line for each limit")
    args = parser.parse_args()
    shares: dict[str, list[float]] = {p: [] for p in POLICIES}
    works: dict[str, list[float]] = {p: [] for p in POLICIES}
    print(f"{'session':24s}" + "".join(f"{p:>14s}" for p in POLICIES), flush=True)
    start = time.perf_counter()
    for make in GENERATORS:
        if args.only and not any(make.__name__.startswith(o) for o in args.only):
            continue
        here: dict[tuple[float, str], list[float]] = {}
        for seed in range(args.seeds):
            session = make(seed)
            plain, whole, bound = plain_work(session), working_set(session), Bound(session)
            for limit in args.limits:
                least = bound.work(limit * whole)
                for name, (policy, living) in POLICIES.items():
                    work = run(session, policy(), limit * whole, living).work
                    share = (plain - work) / (plain - least) if plain > least else 1.0
                    shares[name].append(share)
                    works[name].append(work / least)
                    here.setdefault((limit, name), []).append(share)
        for limit in args.limits if args.verbose else ():
            row = [statistics.mean(here[limit, p]) for p in POLICIES]
            print(f"  {limit:22.0%}" + "".join(f"{s:14.3f}" for s in row))
        row = [
            statistics.mean(s for (_, p), of in here.items() if p == name for s in of)
            for name in POLICIES
        ]
        print(f"{make.__name__:24s}" + "".join(f"{s:14.3f}" for s in row), flush=True)

    def tenth(found: list[float]) -> float:
        return statistics.mean(sorted(found)[: max(1, len(found) // 10)])

    for what, row in {
        "mean": [statistics.mean(shares[p]) for p in POLICIES],
        "worst tenth": [tenth(shares[p]) for p in POLICIES],
        "work / least possible": [statistics.mean(works[p]) for p in POLICIES],
    }.items():
        print(f"{what:24s}" + "".join(f"{s:14.3f}" for s in row))
    print(f"{len(shares['group'])} sessions and limits, {time.perf_counter() - start:.0f} s")
    failed = [p for p, least in LEAST.items() if statistics.mean(shares[p]) < least]
    for p in LEAST:
        for other in ("cachey", "gdsf"):
            better = statistics.mean(shares[p]) > statistics.mean(shares[other])
            if not better or tenth(shares[p]) <= tenth(shares[other]):
                failed.append(f"{p} against {other}")
    print("missed: " + "; ".join(failed) if failed else "all that must hold holds")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
