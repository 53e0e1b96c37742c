"""A cluster of this process whose workers are lost at chosen moments."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
from helpers import wait_until

from cachingclient import Client

META = np.empty((0,))
BLOCKS = 12
#: Consumers of later blocks wait for it.
gate = threading.Event()
#: Consumers of these blocks need not wait.
FREE = 4


def slow(block):
    helpers.count(("slow", int(block[0])))
    return block + 1


def consume(block):
    helpers.count(("consume", int(block[0]) - 1))
    if block[0] > FREE:
        assert gate.wait(30)
    return block * 2


def build():
    """One element a block; what is kept of it are its blocks."""
    x = da.arange(BLOCKS, chunks=1, dtype="f8")
    return x.map_blocks(slow, dtype="f8", meta=META)


def consumed(x):
    return x.map_blocks(consume, dtype="f8", meta=META)


#: Of the blocks consumed.
TOTAL = float(sum((i + 1) * 2 for i in range(BLOCKS)))


class Cluster:
    """Three workers and a client."""

    def __init__(self, client):
        self.client = client
        self.scheduler = client.cluster.scheduler
        self.plugin = self.scheduler.plugins["cachingclient"]
        self.detaching = self.plugin.detaching

    def on_loop(self, function, *args, **kwargs):
        """Call a function on the scheduler's event loop."""

        async def call():
            found = function(*args, **kwargs)
            return await found if hasattr(found, "__await__") else found

        return self.client.sync(call)

    def wait_detached(self):
        """Wait until all that is kept is detached."""
        helpers.forgotten(self.client)
        wait_until(lambda: set(self.scheduler.tasks) == set(self.plugin.ledger.kept))
        wait_until(lambda: self.detaching._idle == set(self.plugin.ledger.kept))
        assert not any(ts.dependencies or ts.run_spec for ts in self.scheduler.tasks.values())

    def warm(self):
        """Compute and keep blocks, and have them detached."""
        x = build()
        assert x.sum().compute() == BLOCKS * (BLOCKS + 1) / 2
        assert calls_of("slow") == Counter(range(BLOCKS))
        self.wait_detached()
        helpers.ran()
        return x

    def blocks_on(self, address, name):
        """Blocks of a layer of which a worker has the only copy."""
        found = self.scheduler.workers[address].has_what
        return {
            ts.key[1]
            for ts in found
            if isinstance(ts.key, tuple) and ts.key[0] == name and len(ts.who_has) == 1
        }

    def wait_consuming(self, name):
        """Wait until each worker is in the middle of a consumer, and some are done.

        Returns the address of a worker that has blocks which are still needed.
        """
        workers = self.scheduler.workers
        wait_until(lambda: sum(i >= FREE for i in calls_of("consume")) == len(workers))
        needed = {
            address: {
                i
                for i in self.blocks_on(address, name)
                if self.scheduler.tasks[name, i].waiters or self.scheduler.tasks[name, i].dependents
            }
            for address in self.scheduler.workers
        }
        victim = max(needed, key=lambda address: len(needed[address]))
        assert needed[victim]
        return victim

    def lose(self, address):
        """Lose a worker."""
        self.on_loop(self.scheduler.remove_worker, address, stimulus_id="test")

    def wait_forgotten(self):
        """Release all: the scheduler has not a task left."""
        helpers.forgotten(self.client)

        def empty():
            # What was running when it was cleared first may have been kept since.
            self.client.cache.clear()
            return not self.scheduler.tasks

        wait_until(empty)
        for left in (
            self.detaching._packed,
            self.detaching.in_use,
            self.detaching._idle,
            self.detaching.healing.parked,
            self.plugin.books.paid,
            self.plugin.books.outputs,
        ):
            assert not left


def calls_of(what):
    """How often each block was worked on."""
    return Counter(call[1] for call in list(helpers._calls) if call[0] == what)


@contextlib.contextmanager
def cluster():
    """A cluster that keeps everything."""
    gate.clear()
    with dask.config.set(helpers.KEEN):
        with Client(**{**helpers.INPROC, "n_workers": 3}) as client:
            try:
                yield Cluster(client)
                helpers.validate(client)
            finally:
                gate.set()


def other_client(c, plain=False):
    """Another client of the same cluster."""
    make = distributed.Client if plain else Client
    return make(c.client.cluster, set_as_default=False)
