"""A cluster of processes that come and go, its clients, and what their users hold."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import distributed
from chaos.killer import Killer
from chaos.questions import QUESTIONS
from distributed import LocalCluster

import cachingclient

WORKERS = 3
#: Collections that somebody has in a variable
ALIVE = 8
#: Seconds until what was let go of must be gone
PATIENCE = 15

CONFIG = {
    "distributed.scheduler.validate": True,
    "distributed.scheduler.allowed-failures": 100_000,
    # Workers start in half a second, and not in two
    "distributed.worker.multiprocessing-method": "forkserver",
    # The cluster's own idea of how many workers there are is not asked for
    "distributed.deploy.lost-worker-timeout": "1 hour",
    "cachingclient.min-cost": "0s",
    "cachingclient.task-overhead": "0s",
    # By its code it is not pure
    "cachingclient.always": ["fatal"],
}


@dataclass
class Held:
    """A future, or a persisted collection, that a user has in a variable."""

    thing: Any
    client: str
    kind: str
    n: int
    m: int
    known: Any
    #: whether somebody cancelled this, or what it is made of
    cancelled: bool = False


class Stage:
    """A cluster with a client; two more come and go.

    Parameters
    ----------
    plain : bool
        Whether all clients are distributed's own.
    top : str
        A folder that workers see.
    """

    def __init__(self, plain: bool, top: str) -> None:
        self.plain, self.top = plain, top
        self.held: list[Held] = []
        self.alive: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.clients: dict[str, distributed.Client] = {}
        self.kills = self.orphans = 0
        self.cluster = LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
            memory_limit="1 GiB",
            local_directory=top,
        )
        self.scheduler = self.cluster.scheduler
        self.killer = Killer(self.kill)
        self.on_loop(self._add_killer)
        self.join("first")
        self.limit = self.cache.info().maxsize if not plain else 0

    async def _add_killer(self) -> None:
        await self.killer.start(self.scheduler)
        self.scheduler.add_plugin(self.killer)

    def on_loop(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run something where the scheduler runs: nothing changes meanwhile."""

        async def run() -> Any:
            found = function(*args)
            return await found if hasattr(found, "__await__") else found

        return self.cluster.sync(run)

    # -- clients -------------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Connect a client: "plain" is a plain one, the others are ours."""
        if name not in self.clients:
            ours = not self.plain and name != "plain"
            make = cachingclient.Client if ours else distributed.Client
            self.clients[name] = make(self.cluster, set_as_default=False)

    def leave(self, name: str) -> None:
        """Disconnect a client with all that its user holds."""
        self.held = [h for h in self.held if h.client != name]
        self.clients.pop(name).close()

    def pick(self, number: int) -> tuple[str, distributed.Client]:
        """A client: mostly the first."""
        names = [*self.clients, "first", "first"]
        name = names[number % len(names)]
        return name, self.clients[name]

    @property
    def cache(self) -> Any:
        """The cache, or in its place something that does nothing."""
        return Nothing() if self.plain else self.clients["first"].cache

    def base(self, kind: str, n: int) -> Any:
        """A collection, the same object for as long as the user has it in a variable."""
        if (kind, n) not in self.alive:
            self.alive[kind, n] = QUESTIONS[kind].make(n)
        self.alive.move_to_end((kind, n))
        while len(self.alive) > ALIVE:
            self.alive.popitem(last=False)
        return self.alive[kind, n]

    # -- workers -------------------------------------------------------------------------------

    def workers(self) -> list[Any]:
        """States of the workers that are there, in the order of their names."""

        def look() -> list[Any]:
            return sorted(self.scheduler.running, key=lambda ws: str(ws.name))

        return self.on_loop(look)

    def worker(self, number: int) -> Any:
        """One of the workers that are there."""
        self.wait(self.workers, "a worker")
        found = self.workers()
        return found[number % len(found)]

    def kill(self, address: str) -> None:
        """Kill the process of a worker, as the kernel does where memory is short."""
        for nanny in list(self.cluster.workers.values()):
            if nanny.worker_address == address and nanny.pid:
                self.kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)

    def retire(self, ws: Any) -> None:
        """Retire a worker, with its nanny."""
        self.clients["first"].retire_workers([ws.address], close_workers=True)
        self.cluster.worker_spec.pop(ws.name, None)
        nanny = self.cluster.workers.pop(ws.name, None)
        if nanny is not None:
            self.on_loop(nanny.close)

    def add(self) -> None:
        """One more worker; it comes in its own time."""
        self.cluster.scale(len(self.cluster.worker_spec) + 1)

    # -- the end -------------------------------------------------------------------------------

    def wait(self, true: Callable[[], Any], what: str) -> None:
        """Poll until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"after {PATIENCE} s: {what}")
            time.sleep(0.005)

    def let_go(self) -> None:
        """Users hold nothing any more."""
        self.held.clear()
        self.alive.clear()
        gc.collect()

    def left(self) -> str:
        """What is still there, on the scheduler and on the workers."""

        def look() -> str:
            tasks = [f"{ts.key}: {ts.state}" for ts in self._tasks_left()]
            data = [f"{ws} has {ws.nbytes} bytes" for ws in self.scheduler.workers.values()]
            busy = [d for d, ws in zip(data, self.scheduler.workers.values()) if ws.nbytes]
            return "; ".join([*tasks[:5], *busy])

        return self.on_loop(look) or self._left_on_workers()

    def _tasks_left(self) -> list[Any]:
        """Tasks on the scheduler, but for those that plain dask forgets to forget.

        Where a key is submitted again with other dependencies than before it keeps the old ones;
        the new ones are made, and then nobody refers to them, nor do they ever run.
        """
        orphans = self.find_orphans()
        self.orphans = len(orphans)
        return [ts for ts in self.scheduler.tasks.values() if ts not in orphans]

    def find_orphans(self) -> set[Any]:
        """Tasks that nobody refers to and that never ran, and what only they refer to."""
        work = [
            ts
            for ts in self.scheduler.tasks.values()
            if ts.key not in self.killer.moved and not ts.dependents
        ]
        orphans: set[Any] = set()
        while work:
            ts = work.pop()
            if ts.state == "released" and not (ts.who_wants or ts.waiters):
                orphans.add(ts)
                work.extend(d for d in ts.dependencies if d.dependents <= orphans)
        return orphans

    def forget_orphans(self) -> None:
        """Do what plain dask forgot to do."""
        gone = {ts.key: "forgotten" for ts in self.find_orphans() if not ts.dependents}
        self.scheduler.transitions(gone, "chaos")

    def _left_on_workers(self) -> str:
        try:
            found = self.clients["first"].run(_data, on_error="return")
        except Exception:
            return ""  # a worker has gone meanwhile, with all that it had
        return "; ".join(f"{w} has {d}" for w, d in found.items() if isinstance(d, list) and d)

    def close(self) -> None:
        """Close all."""
        self.let_go()
        for client in list(self.clients.values()):
            client.close()
        self.cluster.close()


def _data(dask_worker: Any) -> list[str]:
    return [str(k) for k in dask_worker.data]


class Nothing:
    """A cache that is none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def configured() -> Any:
    """The configuration that sessions need."""
    return dask.config.set(CONFIG)
