"""What becomes of a key that has just been computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cachingclient.admission import (
    LARGE,
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
from cachingclient.scheduler.shapes import Shapes, transfer_seconds

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed.scheduler import TaskState

    from cachingclient.scheduler.plugin import CachePlugin

#: Seconds that a task costs beside its own time, in the scheduler and around it.
OVERHEAD = 1e-3
#: Seconds that asking for a result costs whatever it is: sending a graph, and waiting for it.
REQUEST_OVERHEAD = 5e-3
#: So many times as much must have been paid for what nothing alive needs, where its layer has been
#: in no other computation, and a part of it for itself: the partial sums of a reduction are hardly
#: ever asked for again.
PASSING = 10
#: Bytes that a second pays for: what is kept cannot be used again by those that allocate, so that
#: the next results lie in memory which the system has to clear first (0.1 to 0.5 s a GB, and up
#: to 2 s where a virtual machine has to get it).
HOLDING = 2e9
#: How likely it is that such a layer, which nothing alive needs, is asked for again.
UNLIKELY = 0.05
#: How likely it is that the same columns of parquet are asked for again, before others are.
SELDOM = 0.125
#: Tasks whose costs are noted together. One by one, each finds the processor's caches full of other
#: things: noting takes seven times as long then as in a row (4 and 28 microseconds were measured).
TOGETHER = 64


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
            f"nothing that is held needs it, and it took less than {PASSING} times min-cost, or "
            "less than min-cost without what it needs"
        )
        self._kept = kept
        self._shapes = Shapes()
        #: tasks that ran: key, name and prefix; seconds that it and what it needed had cost, its
        #: own, and those that its function took; bytes; when it ended, the threads there were,
        #: and whether there was more to do; why it is not kept, if that is known already
        self._ran: list[tuple[Any, ...]] = []

    def finished(self, ts: TaskState, startstops: Sequence[dict[str, Any]]) -> None:
        """A key has come into memory."""
        # Cold work pays for each line: this runs once for each task.
        plugin, key = self.plugin, ts.key
        books, ledger, scheduler = plugin.books, plugin.ledger, plugin.scheduler
        ran = 0.0
        # A worker that has run it before, and still knows it, tells of all runs: this is the last.
        for span in reversed(startstops):
            if span["action"] == "compute":
                ran = span["stop"] - span["start"]
                break
        seconds = ran + OVERHEAD
        name = key_name(key)
        sharing = [(d.key, len(d.dependents)) for d in ts.dependencies] if ts.dependencies else ()
        paid = books.paid.ran(key, name, seconds, sharing)
        if ledger.journal is not None:
            ledger.journal("ran", key, name, seconds, ts.nbytes, sharing)
        why, worth = None, paid
        if allowed := name in books.allowed:
            plain = not (books.tainted or ts.actor) and readable_again(ts.type)
            if not plain and (unkeepable := self._unkeepable(ts)):
                books.refuse(key, unkeepable)
                if ts.dependents:
                    books.tainted.add(key)
                allowed = False
            else:
                if key in books.outputs:
                    worth += REQUEST_OVERHEAD
                if worth < self.min_cost and not books.pinned:
                    why = self._too_cheap
                elif worth < self.min_cost * PASSING or seconds < self.min_cost:
                    why = self._cheap(key, name, worth)
        row = key, name, ts.prefix.name, paid, seconds, ran, ts.nbytes
        now, threads, busy = time.monotonic(), scheduler.total_nthreads, bool(scheduler.queued)
        self._ran.append((*row, now, threads, busy, why))
        if allowed and why is None:
            ledger.ran(key, seconds)
            if why := self._not_now(ts, worth, seconds):
                books.refuse(key, why)
            elif ts.waiters or ts.who_wants:
                # Where nobody wants or awaits it its release is decided already.
                self._offer(ts, worth)
        if (
            len(self._ran) >= TOGETHER
            or (ts.who_wants and _is_last(ts))
            or not plugin.pressure.is_small(ts)  # the next of its kind may run already
        ):
            self.settle()

    def settle(self) -> None:
        """Note what has run: before anybody asks for it."""
        if not self._ran:
            return
        rows, self._ran = self._ran, []
        plugin = self.plugin
        durations, overhead, pressure = plugin.durations, plugin.overhead, plugin.pressure
        refused, ledger = plugin.books.refused, plugin.ledger
        for key, name, prefix, paid, seconds, ran, nbytes, now, threads, busy, why in rows:
            durations.ran(name, paid, nbytes)
            overhead.ran(now, ran, threads, busy)
            pressure.ran(key, prefix, nbytes)
            if why is not None:
                ledger.ran(key, seconds)
                if refused.get(name) is not why:
                    refused.note(name, why)

    def restart(self) -> None:
        """All tasks are gone, and what was learnt."""
        self._ran = []

    def _cheap(self, key: Key, name: Any, paid: float) -> str | None:
        """Why a key that is not dear is not worth keeping."""
        books = self.plugin.books
        if name in books.pinned:
            return None
        if paid < self.min_cost:
            return self._too_cheap
        return self._passing if self._is_passing(name) and key not in books.outputs else None

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

    def _not_now(self, ts: TaskState, paid: float, own: float) -> str | None:
        """Why a key is not kept as things are."""
        plugin, name = self.plugin, key_name(ts.key)
        if part := plugin.frames.why_not(name, ts.dependencies, plugin.ledger):
            return part
        if self._is_sooner_computed(ts, name, paid):
            return "takes longer to transfer than to compute"
        if self._is_sooner_made(ts, name, paid, own):
            return LARGE
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

    def _is_sooner_computed(self, ts: TaskState, name: Any, paid: float) -> bool:
        # Who set min-cost to nothing wants whatever it costs.
        if not self.min_cost or name in self.plugin.books.pinned:
            return False
        return transfer_seconds(self.plugin.scheduler, ts.nbytes) > paid

    def _is_sooner_made(self, ts: TaskState, name: Any, paid: float, own: float) -> bool:
        """Whether computing it again from what is kept takes less time than holding it."""
        books, key = self.plugin.books, ts.key
        if not self.min_cost or key in books.outputs or name in books.pinned:
            return False
        kept, near = self.plugin.ledger.kept, books.near
        seconds = own
        for d in ts.dependencies:
            if d.key not in kept:
                seconds += near.get(d.key, paid)
        seconds = min(seconds, paid)
        likely = 1.0
        if self._is_passing(name):
            likely = UNLIKELY
        elif name in self.plugin.frames.narrow:
            likely = SELDOM
        if seconds * likely >= ts.nbytes / HOLDING:
            return False
        near[key] = seconds
        return True

    def _is_passing(self, name: Any) -> bool:
        """Whether nothing alive needs a layer, and it was in one computation only."""
        books = self.plugin.books
        return books.alive.get(name) is False and books.seen.get(name) == 1

    def _offer(self, ts: TaskState, paid: float) -> None:
        plugin, key, name = self.plugin, ts.key, key_name(ts.key)
        clients, tasks = plugin.books.outputs.get(key, ((), 0))
        keep, victims = plugin.ledger.offer(
            key,
            name,
            paid,
            plugin.pressure.nbytes(ts),
            tasks,
            may_evict=not plugin.submissions.any(),
            alive=plugin.books.alive.get(name),
            where=[ws.address for ws in ts.who_has or ()],
            request=plugin.books.paid.request(name),
            parts=self._shapes.parts(ts, name),
        )
        if victims:
            plugin.release.soon(victims)
        if not keep:
            plugin.ledger.regrets.no_room(key, key_name(key), ts.get_nbytes())
            plugin.books.refuse(key, "no room: what is kept is worth more")
            if name in plugin.books.pinned:
                plugin.warn(
                    f"Not all of {name} can be kept, although it is pinned: it "
                    "is larger than the limit, or its workers' memory is needed."
                )
            return
        plugin.books.refused.pop(name, None)
        number = plugin.ledger.number(name)
        if not number & (number - 1):  # now and then: counting takes longer than the rest
            plugin.books.has(name, ts.group)
        plugin.holder.keep(ts)
        plugin.detaching.keep(key)
        for client in clients:
            self._kept(client, [key])


def _is_last(ts: TaskState) -> bool:
    """Whether no other key of its group is still to run."""
    states = ts.group.states
    return not (states["waiting"] or states["queued"] or states["processing"])
