"""The guard on workers: what is kept must not be changed by the tasks that read it."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import dumps

from cachingclient.carrying import IS_CARRIED, carried, lacks_package
from cachingclient.scheduler.holding import stimulus
from cachingclient.worker.plugin import FORGET, MutationGuard

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Seconds that workers have to take the guard in.
PATIENCE = 30

#: {scheduler: {worker: what it is told is told in order, whichever plugin says it}}
_ORDER: weakref.WeakKeyDictionary[Any, defaultdict[str, asyncio.Lock]]
_ORDER = weakref.WeakKeyDictionary()


class Guards:
    """Hangs a guard into each worker.

    A worker that cannot take it in works as ever: it is not registered as a worker plugin,
    which such a worker could not start with. One without our package is given that too.

    Parameters
    ----------
    scheduler : Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        #: addresses of the workers that have one
        self.guarded: set[str] = set()
        # Those, and others on the way to it.
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def complete(self) -> bool:
        """Whether all workers have one; they hand values on to each other."""
        return len(self.guarded) >= len(self.scheduler.workers)

    async def add(self, workers: Collection[str]) -> None:
        """Hang guards into workers."""
        self._asked.update(workers)
        # Where the scheduler was given the package, workers don't have it either.
        answers = await self._hang((carried if IS_CARRIED else dumps)(MutationGuard()), workers)
        if without := [w for w, answer in answers.items() if lacks_package(answer)]:
            answers.update(await self._hang(carried(MutationGuard()), without))
        self.guarded.update(
            worker
            for worker, answer in answers.items()
            if isinstance(answer, dict)
            and answer.get("status") == "OK"
            and worker in self.scheduler.workers
        )

    async def _hang(self, pickled: bytes, workers: Collection[str]) -> dict[str, Any]:
        message = {"op": "plugin-add", "plugin": pickled, "name": MutationGuard.name}
        return await self._tell(message, workers)

    async def _tell(self, message: dict[str, Any], workers: Collection[str]) -> dict[str, Any]:
        """Tell workers; returns what each of them answers, or the error."""
        told = await asyncio.gather(*(self._tell_one(message, w) for w in workers))
        return dict(zip(workers, told))

    async def _tell_one(self, message: dict[str, Any], worker: str) -> Any:
        # A guard that one plugin takes out must not be the one that the next has put in.
        order = _ORDER.setdefault(self.scheduler, defaultdict(asyncio.Lock))[worker]
        try:
            async with order:
                answers = await asyncio.wait_for(
                    self.scheduler.broadcast(msg=message, workers=[worker], on_error="return"),
                    PATIENCE,
                )
        except Exception as e:
            logger.info("A worker could not be told of the guard", exc_info=True)
            return e
        return answers.get(worker)

    def add_soon(self, workers: Collection[str]) -> None:
        """Hang guards into workers that have none yet."""
        new = [w for w in workers if w not in self.guarded]
        if new:
            self._start(self.add(new))

    async def settled(self) -> None:
        """Wait for the workers that are being told."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE)

    def succeed(self, old: Guards) -> None:
        """Leave the guards of another plugin where they are."""
        self.guarded, self._asked = old.guarded, old._asked

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
        self._asked.discard(worker)
        if (order := _ORDER.get(self.scheduler)) is not None:
            order.pop(worker, None)

    def remove_soon(self) -> None:
        """Leave workers as they were."""
        workers = [w for w in self._asked if w in self.scheduler.workers]
        self.guarded.clear()
        self._asked.clear()
        message = {"op": "plugin-remove", "name": MutationGuard.name}

        async def remove() -> None:
            await self._tell(message, workers)

        self._start(remove())

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
