"""The same interactive session with a plain client and with a caching one.

Makes CSV files and an array, runs one session step by step on two clusters of this machine,
compares the answers and prints what each step took.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import distributed
from dask import delayed
from dask.utils import format_bytes
from distributed.diagnostics.plugin import SchedulerPlugin

from cachingclient import Client

if TYPE_CHECKING:  # neither is needed to import cachingclient
    import dask.array as da
    import numpy as np
    import pandas as pd

#: CSV files that the rows are spread over
FILES = 8
#: Shape of one chunk of the array: 32 MiB of float64
CHUNK = (1024, 4096)
#: How often `denoise` smooths
ROUNDS = 8


# ---------------------------------------------------------------- the data


def trips(rows: int, seed: int) -> pd.DataFrame:
    """Made-up taxi rides, the same for the same seed."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(seed)
    distance = rng.gamma(2.0, 1.6, rows).round(2)
    start = np.datetime64("2026-01-01") + rng.integers(0, 86_400 * 90, rows).astype("m8[s]")
    return pd.DataFrame(
        {
            "pickup": start,
            "minutes": (distance * 3.1 + rng.exponential(4.0, rows)).round(1),
            "passengers": rng.integers(0, 6, rows),
            "zone": rng.integers(1, 264, rows),
            "payment": rng.choice(["card", "cash", "other"], rows, p=[0.7, 0.25, 0.05]),
            "distance": distance,
            "fare": (3.0 + 2.4 * distance + rng.normal(0, 1.0, rows)).round(2),
            "tip": rng.exponential(1.8, rows).round(2),
        }
    )


def write_csv(folder: str, rows: int) -> list[str]:
    from pyarrow import Table, csv

    paths = [os.path.join(folder, f"trips-{i}.csv") for i in range(FILES)]
    for i, path in enumerate(paths):
        share = rows * (i + 1) // FILES - rows * i // FILES
        csv.write_csv(Table.from_pandas(trips(share, seed=i), preserve_index=False), path)
    return paths


def noisy(gib: float) -> da.Array:
    """An array of at least `gib` GiB."""
    import dask.array as da

    chunks = math.ceil(gib * 2**30 / (math.prod(CHUNK) * 8))
    shape = (chunks * CHUNK[0], CHUNK[1])
    return da.random.default_rng(7).normal(10.0, 2.0, size=shape, chunks=CHUNK)


# ------------------------------------- what a user would write: runs on the workers


def denoise(block: np.ndarray) -> np.ndarray:
    """Smooth a block with its neighbours' values."""
    import numpy as np

    for _ in range(ROUNDS):
        vertical = np.roll(block, 1, axis=0) + np.roll(block, -1, axis=0)
        horizontal = np.roll(block, 1, axis=1) + np.roll(block, -1, axis=1)
        block = 0.5 * block + 0.125 * (vertical + horizontal)
    return block


def clean(df: pd.DataFrame) -> pd.DataFrame:
    """Drop impossible rides and add what is computed from the others."""
    df = df[(df.fare > 0) & (df.distance > 0.1) & (df.passengers > 0)].copy()
    df["hour"] = df["pickup"].dt.hour
    df["day"] = df["pickup"].dt.day_name()
    df["speed"] = 60 * df["distance"] / df["minutes"].clip(lower=1.0)
    return df


def load(path: str) -> pd.DataFrame:
    import pandas as pd

    return clean(pd.read_csv(path, parse_dates=["pickup"]))


def hourly(parts: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(part.groupby("hour")[["fare", "speed"]].sum() for part in parts)


def correlations(parts: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(parts)[["distance", "minutes", "fare", "tip", "speed"]].corr()


# ------------------------------------------------------------- the session


def open_array(s: SimpleNamespace) -> None:
    noise: Any = noisy(s.gib)
    s.x = noise.map_blocks(denoise)


def open_frame(s: SimpleNamespace) -> None:
    import dask.dataframe as dd

    s.df = dd.read_csv(s.paths, parse_dates=["pickup"]).map_partitions(clean)


def open_parts(s: SimpleNamespace) -> None:
    s.parts = [delayed(load, pure=True)(path) for path in s.paths]


def by_payment(s: SimpleNamespace) -> pd.Series:
    return s.df.groupby("payment").fare.mean().compute()


#: What the user types, and what it does
Step = tuple[str, Callable[[SimpleNamespace], Any]]

SESSION: list[Step] = [
    ("x = noisy.map_blocks(denoise)", open_array),
    ("x.sum()", lambda s: s.x.sum().compute()),
    ("x.mean()", lambda s: s.x.mean().compute()),
    ("x.std()", lambda s: s.x.std().compute()),
    ("x[:, 1000:1100].max(axis=0)", lambda s: s.x[:, 1000:1100].max(axis=0).compute()),
    ("x.sum()  # again", lambda s: s.x.sum().compute()),
    ("df = read_csv(...).map_partitions(clean)", open_frame),
    ("df.groupby('payment').fare.mean()", by_payment),
    ("df.groupby('zone').tip.sum()", lambda s: s.df.groupby("zone").tip.sum().compute()),
    ("df[df.distance > 5].fare.mean()", lambda s: s.df[s.df.distance > 5].fare.mean().compute()),
    ("df.groupby('payment').fare.mean()  # again", by_payment),
    ("parts = [delayed(load, pure=True)(p) ...]", open_parts),
    ("delayed(hourly, pure=True)(parts)", lambda s: delayed(hourly, pure=True)(s.parts).compute()),
    (
        "delayed(correlations, pure=True)(parts)",
        lambda s: delayed(correlations, pure=True)(s.parts).compute(),
    ),
]


# ------------------------------------------------------ running and comparing


class Ran(SchedulerPlugin):
    """Counts the tasks that really ran on a cluster."""

    name = "cachingclient-demo"

    #: tasks that went from a worker's hands into memory
    count = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        self.count += start == "processing" and finish == "memory"


def ran(dask_scheduler: distributed.Scheduler) -> int:
    plugin: Any = dask_scheduler.plugins[Ran.name]
    return plugin.count


class Done(NamedTuple):
    """A finished step."""

    answer: Any
    seconds: float
    tasks: int
    #: tasks left out because of what was kept; 0 with a plain client
    skipped: int = 0


def skipped(client: distributed.Client) -> int:
    return client.cache.info().skipped if isinstance(client, Client) else 0


@contextlib.contextmanager
def connected(
    make: Callable[..., distributed.Client], workers: int, **kwargs: Any
) -> Iterator[Any]:
    """A client made by `make` on a cluster of its own that counts tasks."""
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, make(cluster, **kwargs) as client:
        client.register_plugin(Ran())
        yield client


def run_step(client: distributed.Client, do: Callable, state: SimpleNamespace) -> Done:
    tasks, left_out, start = client.run_on_scheduler(ran), skipped(client), time.perf_counter()
    answer = do(state)
    seconds = time.perf_counter() - start
    return Done(answer, seconds, client.run_on_scheduler(ran) - tasks, skipped(client) - left_out)


def session(client: distributed.Client, paths: list[str], gib: float) -> Iterator[Done]:
    """Run the steps of one session, each with the names that those before it made."""
    state = SimpleNamespace(paths=paths, gib=gib)
    for _, do in SESSION:
        yield run_step(client, do, state)


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal but for the order of floating point sums."""
    import numpy as np

    if one is None or other is None:
        return one is other
    labels = [list(getattr(answer, "index", ())) for answer in (one, other)]
    return labels[0] == labels[1] and np.shape(one) == np.shape(other) and np.allclose(one, other)


# ------------------------------------------------------------------ printing


COLUMNS = f"{'':44}{'plain':>10}{'cached':>10}{'tasks':>9}{'tasks':>9}{'tasks':>9}\n" + (
    f"{'step':44}{'seconds':>10}{'seconds':>10}{'plain':>9}{'cached':>9}{'skipped':>9}"
)


def show(title: str, plain: Done, cached: Done) -> None:
    print(
        f"{title:44}{plain.seconds:10.2f}{cached.seconds:10.2f}"
        f"{plain.tasks:9d}{cached.tasks:9d}{cached.skipped:9d}",
        flush=True,
    )


def total(steps: list[Done]) -> Done:
    return Done(None, *(sum(column) for column in list(zip(*steps))[1:]))


def summarise(plain: Done, cached: Done, info: Any) -> None:
    show("all", plain, cached)
    print(
        f"\n{plain.seconds / cached.seconds:.1f} times faster with the caching client: "
        f"{cached.tasks:,} tasks run instead of {plain.tasks:,}.\n"
        f"{format_bytes(info.currsize)} kept in {info.keys:,} results; "
        f"{info.saved:.0f} seconds of the workers' time saved."
    )


# ------------------------------------------------------------------ the command


def check_packages() -> None:
    try:
        import numpy  # noqa: F401
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise SystemExit(
            f"The demo needs {error.name}. Install it with: pip install 'cachingclient[demo]'"
        ) from None


def run_plain(paths: list[str], gib: float, workers: int) -> list[Done]:
    print("Running the session with distributed.Client ...", flush=True)
    with connected(distributed.Client, workers) as client:
        return list(session(client, paths, gib))


def run_cached(plain: list[Done], paths: list[str], gib: float, workers: int) -> list[str]:
    """Run the session again, print the comparison, return the steps that differ."""
    print("Running it again with cachingclient.Client ...\n", flush=True)
    print(COLUMNS, flush=True)
    steps = []
    # Room for the whole array and the frames, so that nothing depends on the memory of this machine
    with connected(Client, workers, cache_limit=int((gib + 1) * 2**30)) as client:
        for (title, _), before, after in zip(SESSION, plain, session(client, paths, gib)):
            show(title, before, after)
            steps.append(after)
        summarise(total(plain), total(steps), client.cache.info())
    pairs = zip(SESSION, plain, steps)
    return [title for (title, _), one, other in pairs if not same(one.answer, other.answer)]


def main(rows: int = 2_000_000, gib: float = 1.0, workers: int = 2) -> int:
    """Run the demo; the exit status is 1 if an answer differs."""
    check_packages()
    with tempfile.TemporaryDirectory(prefix="cachingclient-demo-") as folder:
        print(f"Writing {rows:,} rows of CSV in {FILES} files ...", flush=True)
        paths = write_csv(folder, rows)
        differ = run_cached(run_plain(paths, gib, workers), paths, gib, workers)
    if differ:
        print("The answers differ in:", *differ, sep="\n  ", file=sys.stderr)
        return 1
    print("All answers are the same.")
    return 0
