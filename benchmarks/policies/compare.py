"""Policies on made-up sessions: the share of the saving that one who knows the future could make.

For each generator of sessions, seed and limit (as a share of the bytes of all that is asked for
more than once) each policy runs through the session, and its saving of task time is divided by
an upper bound of what is possible (`bound.py`). A session of length 1 has some 70 questions, one
of length 3 has 200: the longer it is, the more of it a policy has learnt.

    python benchmarks/policies/compare.py [--seeds 4] [--limits 0.01 0.05 0.2 0.5] [--length 3]
    python benchmarks/policies/compare.py --traces FILE... [--limits 0.01 0.05 0.2 0.5]

The second form does the same with recorded sessions (`client.cache.record`).

needs scipy (``pip install '.[bench]'``) and some minutes. Prints a line per generator, then for
each policy the mean over all, the mean of the worst tenth, and its work over the least possible.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import generators
import traces
from baselines import GDSF
from bound import Bound
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


def sources(args: argparse.Namespace) -> Iterator[tuple[str, Callable, Iterable]]:
    """Name, function that makes a session of a seed, and seeds."""
    if args.traces:
        for path in args.traces:
            yield Path(path).name[-24:], traces.session, [path]
        return
    for make in generators.GENERATORS:
        if not args.only or any(make.__name__.startswith(o) for o in args.only):
            yield make.__name__, make, range(args.first, args.first + args.seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--limits", type=float, nargs="+", default=[0.01, 0.05, 0.2, 0.5])
    parser.add_argument("--length", type=int, default=3)
    parser.add_argument("--traces", nargs="+", default=[], help="files")
    parser.add_argument("--only", nargs="+", help="names of generators, or their beginnings")
    parser.add_argument("--verbose", action="store_true", help="a line for each limit")
    args = parser.parse_args()
    shares: dict[str, list[float]] = {p: [] for p in POLICIES}
    works: dict[str, list[float]] = {p: [] for p in POLICIES}
    print(f"{'session':24s}" + "".join(f"{p:>14s}" for p in POLICIES), flush=True)
    start = time.perf_counter()
    generators.LENGTH = args.length
    for name_of, make, seeds in sources(args):
        here: dict[tuple[float, str], list[float]] = {}
        for seed in seeds:
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
        print(f"{name_of:24s}" + "".join(f"{s:14.3f}" for s in row), flush=True)

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
