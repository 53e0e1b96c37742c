"""Running work needs memory: kept results make room, on its workers, before anything is spilled.

Told by what the scheduler knows of tasks (when one is sent, and when its result is there), by
readings of the workers (`cachingclient.worker.memory`: when a value comes into memory, at
changes, and in each heartbeat), and by their states. To let go of a kept result is always
safe for tasks that use it: they hold it until they are done.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import dask
from distributed.comm import get_address_host

from cachingclient.bounded import Bounded
from cachingclient.scheduler.heartbeats import Heartbeats
from cachingclient.scheduler.load import Load, Sizes, Thresholds, thresholds_of
from cachingclient.worker.memory import SIZE, TOPIC

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed.scheduler import TaskState, WorkerState

    from cachingclient.scheduler.plugin import CachePlugin

#: Share of a worker's memory that may be missing while a graph is on its way that may count
#: on what is kept; less than the margin below its spill threshold.
TOLERANCE = 0.05
#: Share of a worker's memory that is worth no trouble: the most valuable stay, unless it spills.
LEAST = 0.01
#: The same for one result that has just come.
SMALL = 0.0001
#: So many of them at most: a worker that spills writes one after the other, the oldest first.
MANY = 100
#: Part of the event loop's time that is spent on finding out where replicas are, and on looking
#: for what could be let go where there was nothing.
RECOUNT = 0.002
SEARCH = 0.05
#: Sizes that workers have told, until their results are known.
REMEMBERED = 10_000


class Pressure:
    """Lets go of kept results on workers that need their memory.

    Parameters
    ----------
    plugin : CachePlugin
    """

    def __init__(self, plugin: CachePlugin) -> None:
        self.plugin = plugin
        self.scheduler = plugin.scheduler
        self.restart()
        for address in self.scheduler.workers:
            self.heartbeat(address)
        self._heartbeats = Heartbeats(self.scheduler, plugin.heartbeat)

    def restart(self) -> None:
        """All tasks are gone."""
        #: bytes of a result that is no trouble to any worker
        self._small = 0.0
        self.loads: dict[str, Load] = {}
        self.sizes = Sizes()
        self._told = Bounded(REMEMBERED)
        self._sent: dict[Key, Load] = {}
        self._recount_at = 0.0
        self._search_at: dict[str, float] = {}

    def close(self) -> None:
        """Listen no more."""
        self._heartbeats.remove()

    # -- what is known of tasks --------------------------------------------------

    def sent(self, key: Key) -> None:
        """A task was sent to a worker."""
        if self._sent:
            self._arrived(key)
        ts = self.scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if ts is None or ws is None:
            return
        largest = fetched = 0
        for d in ts.dependencies:
            nbytes = d.get_nbytes()
            if nbytes > largest:
                largest = nbytes
            if not d.who_has or ws not in d.who_has:
                fetched += nbytes
        # What nobody has seen yet is guessed to be as large as what it is made of.
        expected = fetched + self.sizes.expected(ts.prefix.name, largest)
        if expected > self._small and expected > SMALL * ws.memory_limit:
            load = self._sent[ts.key] = self._load(ws)
            load.expect(ts.key, expected)
            self.relieve(ws)

    def ended(self, key: Key, finish: str) -> None:
        """A task is not on its worker any more: its result may be there."""
        if self._sent:
            self._arrived(key)
        if finish != "memory":
            return
        ts = self.scheduler.tasks[key]
        if ts.dependencies and (ledger := self.plugin.ledger).kept:
            kept = ledger.kept
            for d in ts.dependencies:
                if d.key in kept:
                    for ws in ts.who_has or ():
                        if ws in (d.who_has or ()):
                            ledger.came(d.key, ws.address)
                            self._settle(ws.address)
        if self.nbytes(ts) > self._small:  # many small ones are noticed at the next reading
            for ws in ts.who_has or ():
                self.relieve(ws)

    def is_small(self, ts: TaskState) -> bool:
        """Whether a result is no trouble to any worker; all are where workers have no limit."""
        small = self._small
        return not small or (ts.nbytes <= small and (not self._told or self.nbytes(ts) <= small))

    def ran(self, key: Key, prefix: str, nbytes: int) -> None:
        """A task of a function has returned so many bytes; small ones are told of in a row."""
        self.sizes.ran(prefix, max(nbytes, self._told.get(key, 0)))

    def _arrived(self, key: Key) -> None:
        load = self._sent.pop(key, None)
        if load is not None:
            load.arrived(key)

    def nbytes(self, ts: TaskState) -> int:
        """Bytes of a result: as its worker told, where dask does not see all of it."""
        nbytes = ts.get_nbytes()
        return max(nbytes, self._told.get(ts.key, 0)) if self._told else nbytes

    # -- what workers tell -------------------------------------------------------

    def event(self, topic: str, message: dict[str, Any]) -> None:
        """Take in an event."""
        action = message.get("action")
        if action == TOPIC:
            ws = self.scheduler.workers.get(message["worker"])
            if ws is not None:
                self._read(ws, message)
        elif action == SIZE:
            self._told.note(message["key"], message["nbytes"])
        elif action == "worker-status-change" and message.get("status") == "paused":
            self._give_all(topic)

    def heartbeat(self, address: str) -> None:
        """Take in what a worker has said in its last heartbeat."""
        ws = self.scheduler.workers.get(address)
        if ws is None:
            return
        load = self._load(ws)
        told = ws.metrics.get(TOPIC)
        if told is not None:
            load.thresholds = thresholds_of(told, ws.memory_limit)
            load.alone = not (told["shared"] or self._is_here(ws, told["pid"]))
        else:
            # A worker without our part: what it says of its process is older than the rest.
            load.alone = not address.startswith("inproc://")
            told = {
                "process": ws.metrics.get("memory", 0),
                "managed": ws.metrics.get("managed_bytes", 0),
                "spilled": ws.metrics.get("spilled_bytes", {}).get("memory", 0),
            }
        self._recount(ws)
        self._read(ws, told)

    def _is_here(self, ws: WorkerState, pid: int) -> bool:
        """Whether a worker is in the scheduler's own process."""
        return pid == os.getpid() and ws.host == get_address_host(self.scheduler.address)

    def _read(self, ws: WorkerState, told: dict[str, Any]) -> None:
        load = self._load(ws)
        before = load.spilled
        load.read(told["process"], told["managed"], told["spilled"], time.monotonic())
        if load.spilled > before:
            self._give_all(ws.address)
        else:
            self.relieve(ws)

    def _load(self, ws: WorkerState) -> Load:
        load = self.loads.get(ws.address)
        if load is None:
            limits = [w.memory_limit for w in self.scheduler.workers.values()]
            self._small = SMALL * min(limits, default=0)
            config = dask.config.get("distributed.worker.memory")
            marks = (config.get(k, False) for k in ("target", "spill", "pause"))
            load = Load(Thresholds.of(ws.memory_limit, *marks), ws.nthreads)
            load.alone = not ws.address.startswith("inproc://")
            self.loads[ws.address] = load
        return load

    def lost(self, address: str) -> None:
        """A worker has gone."""
        self.loads.pop(address, None)
        self._search_at.pop(address, None)

    def _recount(self, ws: WorkerState) -> None:
        """Find out which replicas a worker has: no hook tells of copies."""
        start = time.monotonic()
        if start < self._recount_at:
            return
        kept = self.plugin.holder.client.wants_what
        ours = {ts.key for ts in kept & ws.has_what if ts.key in self.plugin.ledger}
        self.plugin.ledger.moved(ws.address, ours)
        self._settle(ws.address)
        now = time.monotonic()
        self._recount_at = now + (now - start) / RECOUNT

    # -- what is let go ----------------------------------------------------------

    def _settle(self, address: str) -> None:
        """Let go of what copies put over a worker's share, unless a submission will on its way."""
        ledger = self.plugin.ledger
        if ledger.places.over(address) and not self.plugin.submissions.any():
            self._let_go(ledger.over_limit())

    def no_room(self, ts: TaskState) -> bool:
        """Whether running work needs the memory of the workers that have a result."""
        nbytes = self.nbytes(ts)
        return any(self._is_short(ws, nbytes) for ws in ts.who_has or ())

    def _is_short(self, ws: WorkerState, nbytes: int) -> bool:
        if ws.status.name == "paused":
            return True
        many = len(self.plugin.ledger.places.at(ws.address))
        if many < MANY and nbytes <= SMALL * (ws.memory_limit or 0):
            return False
        return self._excess(ws) > 0

    def _excess(self, ws: WorkerState, tolerance: float = 0) -> float:
        """Bytes that it needs: a worker that has spilled needs all."""
        load = self._load(ws)
        return math.inf if load.spilled else load.excess(ws.nbytes, time.monotonic(), tolerance)

    def relieve(self, ws: WorkerState) -> None:
        """Let go of what is worth least on a worker, until it has the memory that it needs."""
        places = self.plugin.ledger.places
        kept = places.at(ws.address)
        if places.held(ws.address) <= LEAST * ws.memory_limit and len(kept) <= MANY:
            return
        tolerance = TOLERANCE * ws.memory_limit if self.plugin.submissions.any() else 0
        excess = self._excess(ws, tolerance)
        start = time.monotonic()
        if excess and start >= self._search_at.get(ws.address, 0):
            victims = self._relieve(ws, self._only_ours(kept), excess)
            if not victims:
                now = time.monotonic()
                self._search_at[ws.address] = now + (now - start) / SEARCH
            self._let_go(victims)

    def _relieve(self, ws: WorkerState, ours: list[Key], excess: float) -> list[Key]:
        ledger, tasks = self.plugin.ledger, self.scheduler.tasks
        nbytes = {k: ledger.kept[k].nbytes for k in ours}
        hidden = {k: n - tasks[k].get_nbytes() for k, n in nbytes.items()}
        most = sum(nbytes.values()) - LEAST * ws.memory_limit
        victims = ledger.relieve(ours, min(excess, most))
        if excess > most:
            rest = ledger.ranked(k for k in ours if k in ledger)
            victims += ledger.relieve(rest[:-MANY], math.inf)
        self._load(ws).gave(sum(hidden[k] for k in victims))
        return victims

    def _only_ours(self, keys: Any) -> list[Key]:
        """Those that are in memory for the cache alone: others free no memory yet."""
        tasks, holder = self.scheduler.tasks, self.plugin.holder
        return [k for k in keys if k in tasks and holder.only_ours(tasks[k])]

    def _give_all(self, address: str) -> None:
        ledger = self.plugin.ledger
        self._let_go(ledger.relieve(list(ledger.places.at(address)), math.inf))

    def _let_go(self, victims: list[Key]) -> None:
        if victims:
            self.plugin.release.soon(victims)
