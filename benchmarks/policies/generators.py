"""Interactive sessions, made up: what users of dask do to arrays and dataframes in a notebook.

Each generator takes a seed. A session is written as a user would: variables hold collections
(what is in a variable is alive), questions are computed, some time is spent thinking. Sizes and
seconds of chunks are drawn from lognormal distributions a decade wide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

from simulator import Ask, Session, Task

MB = 1_000_000
#: Asks of a session, as multiples of half an hour's.
LENGTH = 1
CHUNKS = 40
#: Threads of the cluster: what is computed takes its part of wall time.
THREADS = 8


class User:
    """Builds graphs, binds them to names, asks.

    Parameters
    ----------
    name : str
        Name of the session.
    seed : int
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = random.Random(f"{name} {seed}")
        self.now = 0.0
        self.tasks: dict = {}
        self.asks: list[Ask] = []
        #: {group: groups that it needs, itself too}
        self._closure: dict[str, frozenset[str]] = {}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self.variables: dict[str, str] = {}
        self._told: dict[str, bool] = {}
        self._count = 0

    # -- drawing ---------------------------------------------------------------

    def around(self, median: float, spread: float = 2.0) -> float:
        """A lognormal number: two thirds lie within the factor `spread`."""
        return median * math.exp(self.rng.gauss(0, math.log(spread)))

    def token(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    # -- graphs ----------------------------------------------------------------

    def chunks(self, group: str) -> int:
        return sum(1 for i in range(10_000) if (group, i) in self.tasks) if group else 0

    def add(
        self,
        what: str,
        needs: Callable[[int], Iterable] | None,
        inputs: Sequence[str],
        seconds: float,
        nbytes: float,
        chunks: int = CHUNKS,
        parts: int = 0,
    ) -> str:
        """A layer; `needs` tells the keys that its chunk i needs."""
        group = self.token(what)
        for i in range(chunks):
            keys = tuple(needs(i)) if needs is not None else ()
            self.tasks[group, i] = Task(group, keys, seconds, int(nbytes), parts)
        self._inputs[group] = tuple(inputs)
        self._closure[group] = frozenset([group]).union(*(self._closure[i] for i in inputs))
        return group

    def source(self, seconds: float = 0.5, nbytes: float = 20 * MB, chunks: int = CHUNKS) -> str:
        return self.add("source", None, (), self.around(seconds), self.around(nbytes), chunks)

    def map(
        self, *inputs: str, seconds: float, nbytes: float, chunks: int = CHUNKS, what: str = "map"
    ) -> str:
        """A function of each chunk."""
        return self.add(
            what,
            lambda i: [(x, i) for x in inputs],
            inputs,
            self.around(seconds),
            self.around(nbytes),
            chunks,
        )

    def reduce(self, *inputs: str, chunks: int = CHUNKS, seconds: float = 0.02) -> str:
        """A number made of all chunks: a part of each, and the whole."""
        part = self.map(*inputs, seconds=seconds, nbytes=1000, chunks=chunks, what="part")
        return self.add(
            "whole", lambda i: [(part, j) for j in range(chunks)], [part], 0.005, 1000, 1
        )

    def shuffle(self, x: str, seconds: float, nbytes: float, chunks: int = CHUNKS) -> str:
        """Each output takes a piece of every input."""
        split = self.map(x, seconds=seconds, nbytes=nbytes, chunks=chunks, what="split")
        return self.add(
            "shuffle",
            lambda i: [(split, j) for j in range(chunks)],
            [split],
            self.around(seconds),
            nbytes,
            chunks,
            parts=chunks,
        )

    # -- asking ----------------------------------------------------------------

    def think(self, seconds: float = 20.0) -> None:
        self.now += self.rng.expovariate(1 / seconds)

    def compute(self, *groups: str, chunks: Iterable[int] | None = None) -> None:
        """Ask for groups, or for some chunks of them."""
        if chunks is None:
            outputs = [(g, i) for g in groups for i in range(self.chunks(g))]
        else:
            chunks = list(chunks)
            outputs = [(g, i) for g in groups for i in chunks]
        self.asks.append(Ask(self.now, outputs, self._alive(groups)))
        self.think()

    def _alive(self, groups: Sequence[str]) -> dict[str, bool]:
        """What a client tells with a graph: who needs its layers, and what has died."""
        holders = [self._closure[g] for g in self.variables.values()]
        here = frozenset().union(*(self._closure[g] for g in groups))
        count = {g: sum(g in closure for closure in holders) for g in here}
        following: dict[str, int] = {}
        for g in here:
            for i in self._inputs[g]:
                following[i] = max(following.get(i, 0), count[g])
        alive = {g: count[g] > n for g, n in following.items()}
        dead = {
            g: False
            for g, was in self._told.items()
            if was and g not in here and not any(g in closure for closure in holders)
        }
        self._told.update({**alive, **dead})
        return {**alive, **dead}

    def session(self) -> Session:
        return Session(self.name, self.tasks, self.asks)


def shared_source(seed: int) -> Session:
    """One cleaned data set, many aggregations, some asked for again."""
    u = User("shared source", seed)
    raw = u.source(0.6, 30 * MB)
    clean = u.variables["clean"] = u.map(raw, seconds=0.3, nbytes=15 * MB)
    made: list[str] = []
    columns = [u.map(clean, seconds=0.05, nbytes=2 * MB) for _ in range(8)]
    for i, column in enumerate(columns[:3]):
        u.variables[f"column {i}"] = column
    for _ in range(70 * LENGTH):
        if made and u.rng.random() < 0.3:
            u.compute(u.rng.choice(made))
        else:
            made.append(u.reduce(u.rng.choice([clean, *columns])))
            u.compute(made[-1])
    return u.session()


def filter_explore(seed: int) -> Session:
    """A tree of filters and derived columns; the user goes on from one, or back."""
    u = User("filter and explore", seed)
    base = u.variables["df"] = u.map(u.source(0.8, 40 * MB), seconds=0.3, nbytes=30 * MB)
    trail = [base]
    for n in range(80 * LENGTH):
        at = trail[-1]
        what = u.rng.random()
        if what < 0.4:
            step = u.map(at, seconds=u.around(0.1, 3), nbytes=u.around(8 * MB, 3))
            trail.append(step)
            u.variables[f"step {len(trail)}"] = step
        elif what < 0.55 and len(trail) > 1:
            # Back; what was in the last variables is overwritten by the next steps.
            del trail[u.rng.randrange(1, len(trail)) :]
        for _ in range(u.rng.choice([1, 1, 2])):
            u.compute(u.reduce(trail[-1]))
    return u.session()


def parameter_sweep(seed: int) -> Session:
    """Preparations, and fits of each with several parameters; the best ones are looked at again."""
    u = User("parameter sweep", seed)
    raw = u.variables["raw"] = u.source(0.5, 20 * MB)
    results = []
    for a in range(8 * LENGTH):
        prepared = u.variables["prepared"] = u.map(raw, seconds=0.4, nbytes=15 * MB)
        for b in range(6):
            fit = u.map(prepared, seconds=u.around(0.5), nbytes=u.around(1 * MB))
            score = u.reduce(fit)
            results.append((u.rng.random(), fit, score))
            u.compute(score)
        best = max(results)
        u.variables["best"] = best[1]
        u.compute(u.reduce(best[1]))
        u.compute(best[2])
    return u.session()


def rolling_windows(seed: int) -> Session:
    """A window of days that moves on by a day, and sometimes back to an earlier one."""
    u = User("rolling windows", seed)
    days, window = 12 + 48 * LENGTH, 12
    raw = u.variables["raw"] = u.source(0.4, 10 * MB, chunks=days)
    features = u.variables["features"] = u.map(raw, seconds=0.3, nbytes=5 * MB, chunks=days)
    for day in range(window, days):
        at = day if u.rng.random() < 0.85 else u.rng.randrange(window, day + 1)
        part = u.add(
            "part", lambda i: [(features, at - window + i)], [features], 0.02, 1000, window
        )
        whole = u.add("whole", lambda i: [(part, j) for j in range(window)], [part], 0.01, 1000, 1)
        u.compute(whole)
        if u.rng.random() < 0.3:
            again = u.add(
                "again", lambda i: [(features, at - window + i)], [features], 0.02, 1000, window
            )
            u.compute(again)
    return u.session()


def several_users(seed: int) -> Session:
    """Three people work on two data sets, each on things of their own."""
    u = User("several users", seed)
    shared = [u.map(u.source(0.6, 25 * MB), seconds=0.2, nbytes=20 * MB) for _ in range(2)]
    for i, x in enumerate(shared):
        u.variables[f"shared {i}"] = x
    own: dict[int, list[str]] = {who: [] for who in range(3)}
    asked: dict[int, list[str]] = {who: [] for who in range(3)}
    for _ in range(90 * LENGTH):
        who = u.rng.randrange(3)
        if not own[who] or u.rng.random() < 0.2:
            x = u.map(u.rng.choice(shared), seconds=u.around(0.2), nbytes=u.around(8 * MB))
            own[who] = [*own[who][-2:], x]
            for i, mine in enumerate(own[who]):
                u.variables[f"{who} {i}"] = mine
        if asked[who] and u.rng.random() < 0.25:
            u.compute(u.rng.choice(asked[who]))
        else:
            asked[who].append(u.reduce(u.rng.choice([*own[who], *shared])))
            u.compute(asked[who][-1])
    return u.session()


def one_off_scans(seed: int) -> Session:
    """Work on something small, with passes over large data that nobody looks at again."""
    u = User("one-off scans", seed)
    clean = u.variables["clean"] = u.map(u.source(0.6, 10 * MB), seconds=0.3, nbytes=8 * MB)
    columns = [u.map(clean, seconds=0.1, nbytes=2 * MB) for _ in range(4)]
    for i, column in enumerate(columns):
        u.variables[f"column {i}"] = column
    for n in range(70 * LENGTH):
        if n % 5 == 4:
            large = u.source(0.3, 60 * MB, chunks=2 * CHUNKS)
            u.variables["large"] = u.map(large, seconds=0.2, nbytes=40 * MB, chunks=2 * CHUNKS)
            u.compute(u.reduce(u.variables["large"], chunks=2 * CHUNKS))
            del u.variables["large"]
        else:
            u.compute(u.reduce(u.rng.choice([clean, *columns])))
    return u.session()


def larger_than_the_limit(seed: int) -> Session:
    """Passes over one data set, epoch after epoch, with something small beside it."""
    u = User("larger than the limit", seed)
    data = u.variables["data"] = u.map(
        u.source(0.4, 50 * MB, chunks=48), seconds=0.3, nbytes=40 * MB, chunks=48
    )
    small = u.variables["small"] = u.map(u.source(0.5, 5 * MB), seconds=0.5, nbytes=2 * MB)
    for n in range(40 * LENGTH):
        if u.rng.random() < 0.5:
            u.compute(u.reduce(data, chunks=48))
        else:
            u.compute(u.reduce(small))
    return u.session()


def edit_and_rerun(seed: int) -> Session:
    """A pipeline of six stages, of which one is edited and the rest run again, or it is undone."""
    u = User("edit and rerun", seed)
    cost = [0.8, 0.3, 0.4, 0.1, 0.2, 0.1]
    size = [30, 20, 15, 10, 5, 2]
    versions: list[list[str]] = []

    def build(before: list[str]) -> list[str]:
        stages = list(before)
        while len(stages) < len(cost):
            k = len(stages)
            if not stages:
                stages.append(u.source(cost[0], size[0] * MB))
            elif k == 3:
                stages.append(u.shuffle(stages[-1], cost[k], size[k] * MB))
            else:
                stages.append(u.map(stages[-1], seconds=cost[k], nbytes=size[k] * MB))
        return stages

    now = build([])
    for _ in range(60 * LENGTH):
        for i, stage in enumerate(now[1:]):
            u.variables[f"stage {i}"] = stage
        u.compute(u.reduce(now[-1]))
        versions.append(now)
        if u.rng.random() < 0.15:
            now = u.rng.choice(versions[-6:])
        else:
            edited = min(len(cost) - 1, 1 + int(5 * u.rng.random() ** 0.6))
            now = build(now[:edited])
    return u.session()


def many_tiny_tasks(seed: int) -> Session:
    """Thousands of tasks of milliseconds: what they cost together counts."""
    u = User("many tiny tasks", seed)
    n = 64
    base = u.variables["base"] = u.source(0.01, 0.1 * MB, chunks=n)
    live = [base]
    asked: list[str] = []
    for i in range(60 * LENGTH):
        if u.rng.random() < 0.5:
            x = u.rng.choice(live)
            for _ in range(3):
                x = u.map(x, seconds=0.004, nbytes=0.05 * MB, chunks=n)
            live = [*live[-4:], x]
            u.variables[f"x {i % 5}"] = x
        if asked and u.rng.random() < 0.2:
            u.compute(u.rng.choice(asked))
        else:
            asked.append(u.reduce(u.rng.choice(live), chunks=n, seconds=0.002))
            u.compute(asked[-1])
    return u.session()


def diamonds(seed: int) -> Session:
    """Normalised again and again: each step needs the one before it twice."""
    u = User("stacked diamonds", seed)
    x = u.variables["x"] = u.source(0.5, 20 * MB)
    steps = [x]
    for n in range(50 * LENGTH):
        if len(steps) < 6 and u.rng.random() < 0.4:
            at = steps[-1]
            left = u.map(at, seconds=0.1, nbytes=15 * MB)
            right = u.map(at, seconds=0.1, nbytes=15 * MB)
            steps.append(u.map(left, right, seconds=0.1, nbytes=10 * MB))
            u.variables[f"step {len(steps)}"] = steps[-1]
        elif len(steps) > 2 and u.rng.random() < 0.15:
            del steps[u.rng.randrange(1, len(steps)) :]
        u.compute(u.reduce(u.rng.choice(steps[-3:])))
    return u.session()


GENERATORS = (
    shared_source,
    filter_explore,
    parameter_sweep,
    rolling_windows,
    several_users,
    one_off_scans,
    larger_than_the_limit,
    edit_and_rerun,
    many_tiny_tasks,
    diamonds,
)
