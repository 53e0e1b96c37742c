"""Audits: a sample of what is used from the cache is computed again and compared."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cachingclient import internals
from cachingclient.scheduler.holding import stimulus
from cachingclient.tasks import is_barrier
from cachingclient.worker.compare import difference

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: The client that asks for audits.
AUDITOR = "cachingclient-audit"
#: Audits under way at the same time, and tasks of one of them, at most.
MANY_AUDITS = 10
MANY_TASKS = 10_000
#: Everything else comes before an audit.
PRIORITY = -1000


class Audits:
    """Computes kept keys again, from their beginnings, under other names.

    Parameters
    ----------
    scheduler : Scheduler
    share : float
        Share of the used keys that is looked at.
    found : callable
        Told of a key whose value differs.
    tasks_of : callable
        ``tasks_of(key, most)`` are all tasks that a key is made of, or None.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        share: float,
        found: Callable[[Key], Any],
        tasks_of: Callable[[Key, int], Mapping[Key, Any] | None],
    ) -> None:
        self.scheduler = scheduler
        self.share = share
        self.done = self.differing = 0
        self._found = found
        self._tasks_of = tasks_of
        #: {key of a comparison: the kept key that it is about}
        self._running: dict[Any, Key] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def used(self, key: Key) -> None:
        """A kept key is used: look at it, perhaps."""
        if self.share and random.random() < self.share and len(self._running) < MANY_AUDITS:
            ts = self.scheduler.tasks.get(key)
            if ts is not None and key not in self._running.values():
                self._start(ts)

    def _start(self, ts: TaskState) -> None:
        name = f"audit-{uuid.uuid4()}"
        graph = again(ts.key, self._tasks_of(ts.key, MANY_TASKS) or {}, name)
        if graph is None:
            return
        self._running[name] = ts.key
        internals.pseudo_client(self.scheduler, AUDITOR)
        task = asyncio.ensure_future(
            internals.submit_on_scheduler(self.scheduler, AUDITOR, graph, name, PRIORITY)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def transition(self, key: Key, finish: str) -> None:
        """Notice the end of a comparison."""
        if finish not in ("memory", "erred", "forgotten") or key not in self._running:
            return
        about = self._running.pop(key)
        ts = self.scheduler.tasks.get(key)
        if finish == "memory" and ts is not None:
            self.done += 1
            if ts.type == "str":
                self.differing += 1
                logger.error("An audit found another value for %r, which is dropped", about)
                self._found(about)
        asyncio.get_running_loop().call_soon(self._let_go, key)

    def _let_go(self, key: Key) -> None:
        if key in self.scheduler.tasks and AUDITOR in self.scheduler.clients:
            self.scheduler.client_releases_keys([key], AUDITOR, stimulus_id=stimulus())

    def close(self) -> None:
        """Give up what is under way."""
        client = self.scheduler.clients.get(AUDITOR)
        if client is not None:
            keys = [ts.key for ts in client.wants_what]
            self.scheduler.client_releases_keys(keys, AUDITOR, stimulus_id=stimulus())
            del self.scheduler.clients[AUDITOR]
        self._running.clear()


def again(key: Key, tasks: Mapping[Key, Any], name: str) -> dict[Any, Any] | None:
    """A graph that computes a key again under other names, and compares.

    Parameters
    ----------
    key : Key
        The kept key.
    tasks : mapping
        {key: task}, of all that it is made of.
    name : str
        Key of the comparison.

    Returns
    -------
    dict or None
        None if it cannot be computed again by itself.
    """
    if key not in tasks or any(map(is_barrier, tasks.values())):
        return None
    new: dict[Any, Any] = {k: (f"{name}-task", i) for i, k in enumerate(tasks)}
    graph: dict[Any, Any] = {}
    for old, spec in tasks.items():
        needs = {d: new[d] for d in spec.dependencies if d in new}
        graph[new[old]] = spec.substitute(needs, key=new[old])
    graph[name] = internals.Task(
        name, difference, internals.TaskRef(key), internals.TaskRef(new[key])
    )
    return graph
