"""What a session is run with: five ways to have dask compute, and what each keeps.

=============  ===================================================================================
plain          `distributed.Client`
ours           `cachingclient.Client`, as it comes
sketch         `distributed.Client` and the plugin of `sketch.py`
dask.cache     dask's threaded scheduler with `dask.cache.Cache`, which keeps what cachey scores
               high; as many threads as the others have workers. Computations that overlap make
               dask forget it, so it is soon gone in the dashboard's session
persist        `distributed.Client`, and what an expert would persist who knows the whole session
=============  ===================================================================================

The script of a session is the same on each side. It hands what it uses again to a function `keep`,
the one place where a side differs: on the side *persist* it persists, elsewhere it returns what it
is given. All sides that have a limit have the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import cachey
import dask
import distributed
import measuring
from dask.cache import Cache
from distributed import LocalCluster
from distributed.system import MEMORY_LIMIT
from sketch import Sketch

import cachingclient

WORKERS = 2
#: Share of the memory that may be kept: the default of ours
SHARE = 0.2
#: Seconds that a task must run, to be kept by the sketch: the default of ours
LEAST = 0.005

SIDES = ["plain", "ours", "sketch", "dask.cache", "persist"]
#: Imported by workers when they start, as on a cluster that has been up for a while
IMPORTS = ["numpy", "pandas", "dask.array", "dask.bag", "dask.dataframe", "xarray", "zarr"]
IMPORTS += ["scipy.ndimage", "sklearn.linear_model"]


@dataclass
class Place:
    """Where a session runs."""

    #: counts tasks and seconds
    ran: Any
    #: of workers
    pids: list[int]
    #: makes a client, in a with statement
    client: Any
    keep: Any = field(default=lambda x: x)


@contextmanager
def cluster(side: str, processes: bool = True) -> Iterator[Place]:
    """A cluster of two workers with one thread each, for one side."""
    if side == "dask.cache":
        with threads() as place:
            yield place
        return
    preload = IMPORTS if processes else []
    with LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=":0",
        preload=preload,
    ) as local:
        ran = measuring.Ran()
        local.scheduler.add_plugin(ran)
        pids = [getattr(worker, "pid", os.getpid()) for worker in local.workers.values()]
        place = Place(ran, sorted(set(pids)), lambda: distributed.Client(local))
        if side == "ours":
            place.client = lambda: cachingclient.Client(local)
        if side == "sketch":
            local.scheduler.add_plugin(Sketch(local.scheduler, LEAST, SHARE * MEMORY_LIMIT))
        if side == "persist":
            place.keep = Persisting()
        yield place


@contextmanager
def threads() -> Iterator[Place]:
    """The threaded scheduler of this process, with dask's cache."""
    cache = Cache(cachey.Cache(SHARE * MEMORY_LIMIT))

    @contextmanager
    def registered() -> Iterator[None]:
        cache.register()
        try:
            yield
        finally:
            # Computations that overlap make dask forget what was registered.
            with suppress(KeyError):
                cache.unregister()

    with measuring.CountingPool(WORKERS) as pool, dask.config.set(scheduler="threads", pool=pool):
        yield Place(pool, [os.getpid()], registered)


class Persisting:
    """Persists what it is given, and holds it to the end of the session."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def __call__(self, x: Any) -> Any:
        (x,) = dask.persist(x)
        self.held.append(x)
        return x
