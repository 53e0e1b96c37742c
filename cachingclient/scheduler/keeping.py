"""What becomes of a key that has just been computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cachingclient.admission import (
    LEAVING,
    NO_MEMORY,
    ONCE,
    RETRIED,
    SHARED,
    UNGUARDED,
    UPSTREAM,
    key_name,
    readable_again,
)

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed.scheduler import TaskState

    from cachingclient.scheduler.plugin import CachePlugin

#: Seconds that a task costs beside its own time, in the scheduler and around it.
OVERHEAD = 1e-3
#: Seconds that asking for a result costs whatever it is: sending a graph, and waiting for it.
REQUEST_OVERHEAD = 5e-3
#: So many times as much must have been paid for what nothing alive needs, where its layer has been
#: in no other computation: the partial sums of a reduction are hardly ever asked for again.
PASSING = 4


class Keeper:
    """Offers to the ledger what may be kept.

    Parameters
    ----------
    plugin : CachePlugin
    kept : callable
        Told of a client, and a key that is kept for it to ask for again.
    """

    def __init__(self, plugin: CachePlugin, kept: Callable[[str, list[Key]], Any]) -> None:
        self.plugin = plugin
        self.min_cost = plugin.settings["min_cost"]
        self._too_cheap = f"took less than min-cost ({self.min_cost * 1000:g} ms)"
        self._passing = (
            f"nothing that is held needs it, and it took less than {PASSING} times min-cost"
        )
        self._kept = kept

    def finished(self, ts: TaskState, startstops: Iterable[dict[str, Any]]) -> None:
        """A key has come into memory."""
        # Cold work pays for each line: this runs once for each task.
        plugin, key = self.plugin, ts.key
        books, scheduler = plugin.books, plugin.scheduler
        ran = 0.0
        for span in startstops:
            if span["action"] == "compute":
                ran += span["stop"] - span["start"]
        seconds = ran + OVERHEAD
        paid = seconds + self._paid_for(ts) if ts.dependencies else seconds
        books.paid[key] = paid
        name = key_name(key)
        plugin.durations.ran(name, paid, ts.nbytes)
        busy = bool(scheduler.queued)
        plugin.overhead.ran(time.monotonic(), ran, scheduler.total_nthreads, busy)
        if name not in books.allowed:
            return
        if why := self._unkeepable(ts):
            books.refuse(key, why)
            if ts.dependents:
                books.tainted.add(key)
            return
        plugin.ledger.ran(key, seconds)
        if key in books.outputs:
            paid += REQUEST_OVERHEAD
        if paid < self.min_cost * PASSING and (cheap := self._cheap(key, name, paid)):
            if books.refused.get(name) is not cheap:
                books.refuse(key, cheap)
        elif why := self._not_now(ts):
            books.refuse(key, why)
        elif ts.waiters or ts.who_wants:
            # Where nobody wants or awaits it its release is decided already.
            self._offer(ts, paid)

    def _paid_for(self, ts: TaskState) -> float:
        paid, total = self.plugin.books.paid, 0.0
        for d in ts.dependencies:
            # Shared work is counted once, however many results share it.
            total += paid.get(d.key, 0.0) / (len(d.dependents) or 1)
        return total

    def _cheap(self, key: Key, name: Any, paid: float) -> str | None:
        """Why a key that is not dear is not worth keeping."""
        books = self.plugin.books
        if name in books.pinned:
            return None
        if paid < self.min_cost:
            return self._too_cheap
        passing = books.alive.get(name) is False and books.seen.get(name) == 1
        return self._passing if passing and key not in books.outputs else None

    def _unkeepable(self, ts: TaskState) -> str | None:
        """Why neither a key may be kept, nor what is computed from it."""
        tainted = self.plugin.books.tainted
        if not readable_again(ts.type):
            return f"a value of type {ts.type} {ONCE}"
        if ts.actor:
            return "an actor"
        if ts.key in tainted:
            return RETRIED
        if tainted and any(d.key in tainted for d in ts.dependencies):
            return UPSTREAM
        return None

    def _not_now(self, ts: TaskState) -> str | None:
        """Why a key is not kept as things are."""
        plugin, name = self.plugin, key_name(ts.key)
        if part := plugin.frames.why_not(name, ts.dependencies, plugin.ledger):
            return part
        if not plugin.guards.complete():
            return UNGUARDED
        if not any(ws in plugin.scheduler.running for ws in ts.who_has or ()):
            return LEAVING
        if plugin.pressure.no_room(ts):
            return NO_MEMORY
        if (
            not plugin.settings["share_sources"]
            and plugin.freshness.reads(name)
            and plugin.desk.plain_clients()
        ):
            return SHARED
        return None

    def _offer(self, ts: TaskState, paid: float) -> None:
        plugin, key = self.plugin, ts.key
        clients, tasks = plugin.books.outputs.get(key, ((), 0))
        keep, victims = plugin.ledger.offer(
            key,
            key_name(key),
            paid,
            plugin.pressure.nbytes(ts),
            tasks,
            may_evict=not plugin.submissions.any(),
            needed=plugin.books.alive.get(key_name(key)) is not False,
            where=[ws.address for ws in ts.who_has or ()],
        )
        if victims:
            plugin.release.soon(victims)
        if not keep:
            plugin.books.refuse(key, "no room: what is kept is worth more")
            if key_name(key) in plugin.books.pinned:
                plugin.warn(
                    f"Not all of {key_name(key)} can be kept, although it is pinned: it "
                    "is larger than the limit, or its workers' memory is needed."
                )
            return
        plugin.books.refused.pop(key_name(key), None)
        plugin.holder.keep(ts)
        plugin.detaching.keep(key)
        for client in clients:
            self._kept(client, [key])
