"""What it costs that tasks, and users, may change what they are given.

ways
    Milliseconds that a task takes on one input, for functions that only read, that write in
    place, and that do a thing nobody can look into; without protection, with a copy for every
    function of a user, with read-only views (and copies, once the function has failed on one),
    and with the static look that was chosen. Medians; the views' first run counts apart.

look
    Microseconds that the look takes for one task: every time, and when it sees code first.

tasks
    A graph of dask's own functions on a worker of this process, with and without the plugin, in
    pairs of alternating order: the median of the ratios, with its quartiles.

gather
    Milliseconds until a client has results of a worker in its own process, with and without.

    python benchmarks/mutation.py [--parts ways look tasks gather] [--rounds 15]

takes about two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
from dask._task_spec import Task, TaskRef, convert_legacy_graph
from distributed import Client

from cachingclient.worker import bytecode
from cachingclient.worker.copies import copied
from cachingclient.worker.look import function_verdict, task_verdict
from cachingclient.worker.plugin import MutationGuard

CLUSTER: dict[str, Any] = {
    "n_workers": 1,
    "threads_per_worker": 1,
    "processes": False,
    "dashboard_address": None,
}


def seconds(call: Callable[[], Any], rounds: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# -- ways -------------------------------------------------------------------------------------


def reads(x: Any) -> Any:
    return x + 1


def writes(x: Any) -> Any:
    x *= 2
    return x


def hidden(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return y + 1

    return inner(x)


def reads_rows(rows: Any) -> Any:
    return [row["n"] + 1 for row in rows]


def writes_rows(rows: Any) -> Any:
    for row in rows:
        row["m"] = row["n"] + 1
    return len(rows)


def reads_frame(df: Any) -> Any:
    return df[df["0"] > 0.5]


def writes_frame(df: Any) -> Any:
    df["0"] = df["0"] + 1
    return df


def view(x: Any) -> Any:
    """Read-only view of an array; of other things a copy."""
    if type(x) is not np.ndarray:
        return copied(x)
    x = x.view()
    x.flags.writeable = False
    return x


class Views:
    """Read-only views until a function fails on them."""

    def __init__(self) -> None:
        self.failed: set[Any] = set()

    def __call__(self, function: Any, x: Any) -> Any:
        if function in self.failed:
            return function(copied(x))
        try:
            return function(view(x))
        except ValueError:
            self.failed.add(function)
            return function(copied(x))


def looked(function: Any, x: Any) -> Any:
    return function(copied(x) if function_verdict(function) else x)


def ways(rounds: int) -> None:
    inputs = {
        "8 MiB array": (lambda: np.ones(2**20), (reads, hidden, writes)),
        "128 MiB array": (lambda: np.ones(2**24), (reads, hidden, writes)),
        "20 columns x 100,000": (frame, (reads_frame, writes_frame)),
        "20,000 dicts": (lambda: [{"n": i} for i in range(20_000)], (reads_rows, writes_rows)),
    }
    print(f"{'ms a task':>40} {'plain':>8} {'copies':>8} {'views':>8} {'(first)':>8} {'look':>8}")
    for name, (make, functions) in inputs.items():
        x = make()
        for function in functions:
            views = Views()
            first = seconds(lambda: views(function, x), 1)
            calls = (
                lambda: function(x),
                lambda: function(copied(x)),
                lambda: views(function, x),
                lambda: looked(function, x),
            )
            plain, copies, later, chosen = (1e3 * seconds(call, rounds) for call in calls)
            print(
                f"{name:>25} {function.__name__:>14} {plain:8.2f} {copies:8.2f} {later:8.2f}"
                f" {1e3 * first:8.2f} {chosen:8.2f}"
            )


def frame() -> pd.DataFrame:
    return pd.DataFrame(np.ones((100_000, 20)), columns=[str(i) for i in range(20)])


# -- look -------------------------------------------------------------------------------------


def tasks_of(collection: Any) -> list[Any]:
    graph = dask.base.collections_to_expr([collection]).optimize().__dask_graph__()
    tasks = convert_legacy_graph(dict(graph)).values()
    return [task for task in tasks if task.dependencies]


def look_at(rounds: int) -> None:
    x = da.ones((400, 400), chunks=20)
    cases = {
        "user's function": [Task("y", reads_rows, TaskRef("x"))],
        "sum of sums": tasks_of((x + x.T).sum(axis=0)),
        "map_overlap": tasks_of(x.map_overlap(reads, depth=1, boundary="none")),
    }
    for name, tasks in cases.items():
        again = seconds(lambda: [task_verdict(task) for task in tasks], rounds) / len(tasks)
        print(f"{name:>40}: {1e6 * again:.1f} us a task")

    def anew() -> None:
        bytecode._facts.clear()
        task_verdict(cases["user's function"][0])

    print(f"{'code never seen before':>40}: {1e6 * seconds(anew, rounds):.1f} us")


# -- in a cluster -----------------------------------------------------------------------------


@contextlib.contextmanager
def clusters() -> Iterator[tuple[Client, Client]]:
    """One without the plugin and one with it."""
    with Client(**CLUSTER, set_as_default=False) as plain:
        with Client(**CLUSTER, set_as_default=False) as guarded:
            guarded.register_plugin(MutationGuard())
            yield plain, guarded


def tasks(rounds: int) -> None:
    ratios = []
    with clusters() as sides:
        for n in range(rounds + 1):
            took = {}
            for client in sides if n % 2 else reversed(sides):
                x = da.random.random((2000, 2000), chunks=100)
                start = time.perf_counter()
                client.compute((x + x.T).sum(axis=0)).result()
                took[client] = time.perf_counter() - start
            ratios.append(took[sides[1]] / took[sides[0]])
    low, middle, high = statistics.quantiles(ratios[1:], n=4)
    print(f"with / without the plugin: {middle:.3f} ({low:.3f} to {high:.3f})")


def gather(rounds: int) -> None:
    makes = {
        "a number": lambda: 1,
        "8 MiB array": lambda: np.ones(2**20),
        "128 MiB array": lambda: np.ones(2**24),
        "20 columns x 100,000": frame,
        "20,000 dicts": lambda: [{"n": i} for i in range(20_000)],
    }
    with clusters() as sides:
        for name, make in makes.items():
            futures = [client.submit(make, pure=False) for client in sides]
            took = [1e3 * seconds(future.result, rounds) for future in futures]
            print(f"{name:>25}: {took[0]:8.2f} ms plain {took[1]:8.2f} ms with the plugin")


PARTS = {"ways": ways, "look": look_at, "tasks": tasks, "gather": gather}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "(?s)Port 8787 is already in use")
    for part in arguments.parts:
        print(f"\n{part}")
        PARTS[part](arguments.rounds)


if __name__ == "__main__":
    main()
