"""An analyst's session over a table of 20 columns: plain, with the cache, and with persist.

Fourteen questions about taxi rides, asked one after the other of the same CSV files, and then of
the same rows as parquet, on two worker processes of one thread. *plain* is distributed.Client,
*ours* is cachingclient.Client, *persist* is distributed.Client and ``df = df.persist()`` in front,
as one would write who knew what is to come; its cost counts. Each session has processes of its
own, the three follow each other in rounds, each round in another order, and are compared within
their round.

Printed are the medians of wall time, of the seconds that tasks ran, of CPU time of all processes,
and of bytes that workers read from files; and for the first three the ratio to plain, and of ours
to persist. The answers of the three are compared, too.

    python benchmarks/frames.py [--rows 7_000_000] [--rounds 3] [--kinds csv parquet]
                                [--folder FOLDER] [--questions]

takes about 40 minutes with 1 GB of CSV on two cores; ``--rows 700_000`` four.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import distributed
import pandas as pd
import psutil
from distributed import LocalCluster, SchedulerPlugin
from taxi import FILES, ROWS, make

import cachingclient

WAYS = ("plain", "ours", "persist")
CLIENTS = {
    "plain": distributed.Client,
    "ours": cachingclient.Client,
    "persist": distributed.Client,
}
#: Bytes of CSV in a partition, at the most.
BLOCK = 64_000_000
MOST_DIFFERENCE = 1e-9


def minutes(df: Any) -> Any:
    return (df.dropoff - df.pickup).dt.total_seconds() / 60


QUESTIONS = {
    "first rows": lambda df: df.head(compute=False),
    "rides": lambda df: df.fare.count(),
    "mean fare": lambda df: df.fare.mean(),
    "fare by passengers": lambda df: df.groupby("passengers").fare.mean(),
    "payments": lambda df: df.payment.value_counts(),
    "tip by payment": lambda df: df.groupby("payment").tip.mean(),
    "long rides": lambda df: df[df.distance > 10].total.mean(),
    "rides by hour": lambda df: df.pickup.dt.hour.value_counts(),
    "duration": lambda df: minutes(df).mean(),
    "busiest origins": lambda df: df.groupby("origin").total.sum().nlargest(10),
    "describe": lambda df: df[["fare", "tip", "total", "distance"]].describe(),
    "tip rate by vendor": lambda df: df.assign(r=df.tip / df.fare).groupby("vendor").r.mean(),
    "airport": lambda df: df[(df.airport > 0) & (df.tolls > 0)].groupby("rate").total.max(),
    "fare by passengers again": lambda df: df.groupby("passengers").fare.mean(),
}


class Cost(NamedTuple):
    """What one session cost."""

    wall: float
    tasks: float
    cpu: float
    read: float
    #: seconds of each question
    each: tuple[float, ...]


class Spent(SchedulerPlugin):
    """Adds up the seconds that tasks ran."""

    name = "spent"

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            # The last: a worker tells of earlier runs of a task, too, if it still knows it.
            for span in reversed(kwargs.get("startstops") or ()):
                if span["action"] == "compute":
                    self.seconds += span["stop"] - span["start"]
                    break


def open_files(kind: str, folder: Path) -> Any:
    if kind == "parquet":
        return dd.read_parquet(folder / "parquet")
    path = str(folder / "csv" / "*.csv")
    return dd.read_csv(path, blocksize=BLOCK, parse_dates=["pickup", "dropoff"])


def processes() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu() -> float:
    return sum(sum(p.cpu_times()[:2]) for p in processes())


def bytes_read() -> float:
    return sum(p.io_counters().read_chars for p in processes()[1:])


def session(way: str, kind: str, folder: Path, results: Any) -> None:
    """One session; runs in a process of its own."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, CLIENTS[way](cluster) as client:
        spent = Spent()
        cluster.scheduler.add_plugin(spent)
        answers, each = [], []
        df = open_files(kind, folder)
        before = cpu(), bytes_read()
        start = time.perf_counter()
        if way == "persist":
            df = df.persist()
        for ask in QUESTIONS.values():
            asked = time.perf_counter()
            answers.append(ask(df).compute())
            each.append(time.perf_counter() - asked)
        wall = time.perf_counter() - start
        client.run_on_scheduler(lambda: None)
        used = cpu() - before[0], bytes_read() - before[1]
        results.put((Cost(wall, spent.seconds, *used, tuple(each)), answers))


def run(way: str, kind: str, folder: Path) -> tuple[Cost, list[Any]]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=session, args=(way, kind, folder, results))
    process.start()
    found: tuple[Cost, list[Any]] = results.get()
    process.join()
    return found


def compare(kind: str, rounds: dict[str, list[Any]]) -> None:
    """Fail if two ways gave different answers."""
    for _, answers in rounds["ours"] + rounds["persist"]:
        for name, got, want in zip(QUESTIONS, answers, rounds["plain"][0][1]):
            if isinstance(want, (pd.Series, pd.DataFrame)):
                got, want = got.sort_index(), want.sort_index()
                assert got.astype(str).shape == want.shape, (kind, name)
                numbers = [pd.DataFrame(f).select_dtypes("number") for f in (got, want)]
                # Quantiles depend on the partitions.
                rtol = 0.05 if name == "describe" else MOST_DIFFERENCE
                pd.testing.assert_frame_equal(*numbers, rtol=rtol, check_dtype=False)
            else:
                assert abs(got - want) <= MOST_DIFFERENCE * abs(want), (kind, name)


def report(kind: str, rounds: dict[str, list[Any]], questions: bool) -> None:
    def column(way: str, field: str) -> list[float]:
        return [getattr(cost, field) for cost, _ in rounds[way]]

    def ratio(way: str, other: str, field: str) -> float:
        pairs = zip(column(way, field), column(other, field))
        return statistics.median(a / b for a, b in pairs)

    print(f"\n{kind}{'wall s':>18}{'task s':>10}{'CPU s':>10}{'read MB':>10}", end="")
    print("   wall/plain  tasks/plain  CPU/plain")
    for way in WAYS:
        wall, tasks, used, read = (
            statistics.median(column(way, f)) for f in ("wall", "tasks", "cpu", "read")
        )
        print(f"{way:12}{wall:12.2f}{tasks:10.2f}{used:10.2f}{read / 1e6:10.0f}", end="")
        print("".join(f"{ratio(way, 'plain', f):12.2f}" for f in ("wall", "tasks", "cpu")))
    for field in ("wall", "cpu"):
        print(f"ours / persist, {field}: {ratio('ours', 'persist', field):.2f}")
    if questions:
        for n, name in enumerate(QUESTIONS):
            seconds = (statistics.median(c.each[n] for c, _ in rounds[w]) for w in WAYS)
            print(f"    {name:26}" + "".join(f"{s:9.2f}" for s in seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--questions", action="store_true", help="seconds of each question")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        make(folder, options.rows, options.files)
        for kind in options.kinds:
            rounds: dict[str, list[Any]] = {way: [] for way in WAYS}
            for n in range(options.rounds):
                for way in (*WAYS[n % len(WAYS) :], *WAYS[: n % len(WAYS)]):
                    rounds[way].append(run(way, kind, folder))
            compare(kind, rounds)
            report(kind, rounds, options.questions)


if __name__ == "__main__":
    main()
