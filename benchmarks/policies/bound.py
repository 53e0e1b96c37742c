"""What somebody who knows the future could save: a bound, by linear programming.

For each key k and each ask r that could need it there are three shares between 0 and 1: the key
is needed, n[k, r]; it runs, x[k, r]; it was held since the ask before, h[k, r].

- what is asked for is needed: n = 1; what a key that runs depends on is needed: n[d, r] >= x[k, r]
- what is needed runs or is held: x[k, r] + h[k, r] >= n[k, r]
- what is held was there at the ask before: h[k, r] <= h[k, r'] + x[k, r']
- between two asks no more is held than the limit, in bytes
- the sum of seconds * x is as small as can be

Every policy's schedule satisfies this, so the optimum is a lower bound of the work, and the
saving an upper bound, that not even a clairvoyant reaches where it would have to hold half a key.
Keys that are asked for together, and have the same neighbours, seconds and bytes, are one
variable (a mean over them of any schedule satisfies the same).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from simulator import Session, needed


class Unit:
    """Keys that are alike."""

    def __init__(self) -> None:
        self.number = 0
        self.seconds = self.nbytes = 0.0
        self.needs: set[int] = set()


def units(session: Session, asks: list[list[Hashable]]) -> tuple[list[Unit], dict]:
    """Merge keys that are alike, from the sources upward."""
    when: dict[Hashable, list[int]] = defaultdict(list)
    for r, order in enumerate(asks):
        for key in order:
            when[key].append(r)
    asked: dict[Hashable, list[int]] = defaultdict(list)
    for r, ask in enumerate(session.asks):
        for key in ask.outputs:
            asked[key].append(r)
    of: dict[Hashable, int] = {}
    signatures: dict[tuple, int] = {}
    found: list[Unit] = []
    for order in asks:
        for key in order:
            if key in of:
                continue
            task = session.tasks[key]
            needs = frozenset(of[d] for d in task.needs)
            at = tuple(when[key])
            signature = task.group, needs, at, tuple(asked[key]), task.seconds, task.nbytes
            if signature not in signatures:
                signatures[signature] = len(found)
                found.append(Unit())
            of[key] = signatures[signature]
            unit = found[of[key]]
            unit.number += 1
            unit.seconds += task.seconds
            unit.nbytes += task.nbytes
            unit.needs |= needs
    return found, of


class Bound:
    """The linear program of a session; solved for one limit after the other."""

    def __init__(self, session: Session) -> None:
        asks = [needed(session.tasks, ask.outputs)[0] for ask in session.asks]
        found, of = units(session, asks)
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        limits: list[float] = []
        costs: list[float] = []
        least: list[float] = []
        self._many = 0

        def variable(cost: float = 0.0, lower: float = 0.0) -> int:
            costs.append(cost)
            least.append(lower)
            return len(costs) - 1

        def at_most(terms: list[tuple[int, float]], limit: float) -> None:
            for column, value in terms:
                rows.append(len(limits))
                columns.append(column)
                values.append(value)
            limits.append(limit)

        before: dict[int, tuple[int, int, int]] = {}
        held: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for r, order in enumerate(asks):
            here = dict.fromkeys(of[k] for k in order)
            outputs = {of[k] for k in session.asks[r].outputs}
            need: dict[int, int] = {}
            runs: dict[int, int] = {}
            for u in here:
                unit = found[u]
                need[u] = variable(lower=1.0 if u in outputs else 0.0)
                runs[u] = variable(cost=unit.seconds)
                terms = [(need[u], 1.0), (runs[u], -1.0)]
                hold = -1
                if u in before:
                    since, ran, was = before[u]
                    hold = variable()
                    terms.append((hold, -1.0))
                    there = [(hold, 1.0), (ran, -1.0)]
                    if was >= 0:
                        there.append((was, -1.0))
                    at_most(there, 0.0)
                    for t in range(since, r):
                        held[t].append((hold, unit.nbytes))
                at_most(terms, 0.0)
                before[u] = r, runs[u], hold
            for u in here:
                for d in found[u].needs:
                    at_most([(runs[u], 1.0), (need[d], -1.0)], 0.0)
        self._first = len(limits)
        # What is held between the same asks as before adds nothing.
        for t in sorted(held):
            at_most([(v, b / 1e6) for v, b in held[t]], 0.0)
        self._costs = np.array(costs)
        self._limits = np.array(limits)
        shape = len(limits), len(costs)
        self._matrix = coo_matrix((values, (rows, columns)), shape=shape).tocsr()
        self._bounds = np.column_stack([np.array(least), np.ones(len(costs))])

    def work(self, limit: float) -> float:
        """Seconds of task time that have to be spent within a limit in bytes."""
        limits = self._limits.copy()
        limits[self._first :] = limit / 1e6
        found = linprog(
            self._costs, A_ub=self._matrix, b_ub=limits, bounds=self._bounds, method="highs"
        )
        if found.status != 0:
            raise RuntimeError(f"the linear program could not be solved: {found.message}")
        return float(found.fun)
