"""A scheduler, its workers and a client, all of the test's process and event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from distributed import Scheduler, Worker

from cachingclient import Client


async def until(true, seconds=10):
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "this did not come true in time"
        await asyncio.sleep(0.005)


class Cluster:
    """Some workers of one thread, and a client."""

    many = 3
    kind: Any = Client
    #: whether the cache must still be on at the end
    stays_on = False
    #: what the scheduler, workers and the client are made with
    scheduler_options: dict[str, Any] = {}
    worker_options: dict[str, Any] = {}
    client_options: dict[str, Any] = {}

    async def __aenter__(self):
        self.scheduler = await Scheduler(dashboard_address=None, port=0, **self.scheduler_options)
        self.workers = [await self.worker() for _ in range(self.many)]
        self.client = await self.kind(
            self.scheduler.address, asynchronous=True, **self.client_options
        )
        return self

    async def worker(self):
        """One more worker."""
        return await Worker(self.scheduler.address, nthreads=1, **self.worker_options)

    async def __aexit__(self, *exception):
        self.scheduler.validate_state()
        assert not self.stays_on or not self.plugin.off
        await self.client.close()
        for worker in self.workers:
            await worker.close()
        await self.scheduler.close()

    @property
    def plugin(self):
        return self.scheduler.plugins["cachingclient"]

    async def let_go(self):
        """Wait until only the cache wants anything."""
        ours = {self.plugin.holder.client}
        await until(lambda: not self.client.futures)
        tasks = self.scheduler.tasks
        await until(lambda: all(ts.who_wants in (None, set(), ours) for ts in tasks.values()))
