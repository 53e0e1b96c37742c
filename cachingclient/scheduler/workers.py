"""The guard on workers: what is kept must not be changed by the tasks that read it."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import dumps

from cachingclient.scheduler.holding import stimulus
from cachingclient.worker.plugin import FORGET, MutationGuard

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Seconds that workers have to take the guard in.
PATIENCE = 30


class Guards:
    """Hangs a guard into each worker.

    A worker that cannot take it in works as ever: it is not registered as a worker plugin,
    which a worker without our package could not start with.

    Parameters
    ----------
    scheduler : Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        #: addresses of the workers that have one
        self.guarded: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def complete(self) -> bool:
        """Whether all workers have one; they hand values on to each other."""
        return len(self.guarded) >= len(self.scheduler.workers)

    async def add(self, workers: Collection[str]) -> None:
        """Hang guards into workers."""
        message = {"op": "plugin-add", "plugin": dumps(MutationGuard()), "name": MutationGuard.name}
        self.guarded.update(await self._tell(message, workers))

    async def _tell(self, message: dict[str, Any], workers: Collection[str]) -> list[str]:
        if not workers:
            return []
        try:
            answers = await asyncio.wait_for(
                self.scheduler.broadcast(msg=message, workers=list(workers), on_error="return"),
                PATIENCE,
            )
        except Exception:
            logger.info("Workers could not be told of the guard", exc_info=True)
            return []
        return [w for w, a in answers.items() if isinstance(a, dict) and a.get("status") == "OK"]

    def add_soon(self, worker: str) -> None:
        """Hang a guard into a worker that has just come."""
        self._start(self.add([worker]))

    def forget_ancestors(self, tasks: Iterable[TaskState]) -> None:
        """Have workers forget what keys were computed from."""
        keys = defaultdict(list)
        for ts in tasks:
            for ws in ts.who_has or ():
                if ws.address in self.guarded:
                    keys[ws.address].append(ts.key)
        for address, known in keys.items():
            message = {"op": FORGET, "keys": known, "stimulus_id": stimulus()}
            self.scheduler.worker_send(address, message)

    def lost(self, worker: str) -> None:
        """A worker has gone."""
        self.guarded.discard(worker)

    def remove_soon(self) -> None:
        """Leave workers as they were."""
        workers = [w for w in self.guarded if w in self.scheduler.workers]
        self.guarded.clear()
        message = {"op": "plugin-remove", "name": MutationGuard.name}

        async def remove() -> None:
            await self._tell(message, workers)

        self._start(remove())

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
