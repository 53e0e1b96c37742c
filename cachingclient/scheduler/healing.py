"""Kept results that are lost while somebody needs them, though the scheduler no longer knows
how they are computed.

Such a key has a stand-in for its task, which must never run. When the key leaves memory it is
parked: no worker may run it, so that the scheduler has it, and all that waits for it, wait.
Meanwhile its recipe is unpacked; then it gets its tasks back, and the scheduler heals itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import dask.order
from dask.typing import Key

from cachingclient import internals
from cachingclient.scheduler.holding import stimulus
from cachingclient.scheduler.recipes import Assembled, Recipe, assemble, linked

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Other keys may be lost while a recipe is unpacked.
ATTEMPTS = 5
#: Tasks that are unpacked on the event loop: some ten milliseconds.
QUICK = 2000


def lost() -> None:
    """Run in place of a task that is packed away: never, as long as all goes well."""
    raise RuntimeError("A result was lost together with what it was computed from")


def stands_in(ts: TaskState) -> bool:
    """Whether the task of a key is a stand-in."""
    return getattr(ts.run_spec, "func", None) is lost


class Healing:
    """Gives keys their tasks back.

    Parameters
    ----------
    scheduler : Scheduler
    recipe_of : callable
        Recipe of a key.
    healed : callable
        Told of keys that have their tasks again, and of all keys that these need.
    failed : callable
        Told of an exception in deferred work.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        recipe_of: Callable[[Key], Recipe | None],
        healed: Callable[[list[Key], list[TaskState]], Any],
        failed: Callable[[Exception], Any],
    ) -> None:
        self.scheduler = scheduler
        #: keys that wait for their tasks
        self.parked: set[Key] = set()
        self._recipe_of = recipe_of
        self._healed = healed
        self._failed = failed
        self._fresh: set[Key] = set()
        self._orphans: list[TaskState] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def succeed(self, other: Healing) -> None:
        """Go on with what another one has parked; it ends what it has begun."""
        # Not what has just been parked there: what begins with it is due already, over there,
        # and would not be due here.
        self.parked = other.parked

    def park(self, ts: TaskState) -> None:
        """A key with a stand-in has left memory: inside a transition."""
        if ts.who_wants or ts.waiters:
            # It will be tried at once, and nothing before it may be.
            self._orphans += internals.cut_loose(ts)
        internals.may_run_nowhere(ts)
        self.parked.add(ts.key)
        if not self._fresh:
            asyncio.get_running_loop().call_soon(self._start)
        self._fresh.add(ts.key)

    def awaited(self, ts: TaskState) -> None:
        """A parked key is needed now, and what it depends on with it: inside a transition."""
        for dts in ts.dependencies:
            if dts.run_spec is None and dts.state == "released":
                dts.run_spec = internals.stand_in(dts.key, lost, frozenset())
                internals.may_run_nowhere(dts)

    def submitted(self, keys: Iterable[Key]) -> None:
        """A graph has arrived: parked keys that are in it have their tasks again."""
        back = []
        for key in self.parked.intersection(keys):
            ts = self.scheduler.tasks[key]
            if ts.run_spec is not None and not stands_in(ts):
                internals.may_run_anywhere(ts)
                back.append(ts)
        if back:
            self.parked.difference_update(ts.key for ts in back)
            self._healed([ts.key for ts in back], [])
            asyncio.get_running_loop().call_soon(self._resume, back, {})

    def _start(self) -> None:
        orphans, self._orphans = self._orphans, []
        keys, self._fresh = self._fresh, set()
        try:
            forget_orphans(self.scheduler, orphans)
            keys &= self.parked
            if not keys or self._is_quick(keys) and self._attach(keys, *self._assembled(keys)):
                return
            for key in keys:
                ts = self.scheduler.tasks[key]
                if ts.state == "no-worker":
                    # Whoever submits its graph now gives it its tasks back.
                    ts.run_spec = None
        except Exception as e:
            self._failed(e)
            return
        task = asyncio.ensure_future(self._heal(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_quick(self, keys: set[Key]) -> bool:
        return sum(r.length for r in linked(self._recipes(keys))) <= QUICK

    def _recipes(self, keys: Iterable[Key]) -> list[Recipe]:
        return [r for r in map(self._recipe_of, keys) if r is not None]

    async def _heal(self, keys: set[Key]) -> None:
        loop = asyncio.get_running_loop()
        try:
            for _ in range(ATTEMPTS):
                keys &= self.parked
                if not keys:
                    return
                graph, order = await loop.run_in_executor(None, self._assembled, set(keys))
                if self._attach(keys & self.parked, graph, order):
                    return
        except Exception:
            logger.exception("Lost results could not be computed again")
        self._one_by_one(keys & self.parked, self._is_there)

    def _one_by_one(self, keys: set[Key], is_there: Callable[[Key], bool]) -> None:
        """One that cannot be computed again does not keep others from it."""
        hopeless = {k for k in keys if not self._attach({k}, *self._assembled({k}, is_there))}
        if hopeless:
            self._give_up(hopeless)

    def now(self, keys: Iterable[Key]) -> None:
        """Give keys their tasks back at once, however long it takes: not inside a transition."""
        keys = set(keys)
        if keys and not self._attach(keys, *self._assembled(keys, self._needs_nobody)):
            self._one_by_one(keys, self._needs_nobody)

    def _needs_nobody(self, key: Key) -> bool:
        """Whether the scheduler can compute a key without us."""
        ts = self.scheduler.tasks.get(key)
        if ts is None:
            return False
        if self._recipe_of(key) is None:
            return ts.run_spec is not None or ts.state == "memory"
        return ts.run_spec is not None and not stands_in(ts)

    def _assembled(
        self, keys: set[Key], is_there: Callable[[Key], bool] | None = None
    ) -> tuple[Assembled, dict[Key, int]]:
        """A graph of keys, and its order; perhaps in another thread."""
        graph = assemble(keys, self._recipes(keys), is_there or self._is_there)
        return graph, dask.order.order(graph.tasks) if graph.tasks else {}

    def _is_there(self, key: Key) -> bool:
        """Whether the scheduler has a key, or knows how to compute it."""
        ts = self.scheduler.tasks.get(key)
        if ts is None:
            return False
        if key in self.parked or ts.state == "memory":
            return True
        return ts.run_spec is not None and not stands_in(ts)

    def _attach(self, keys: set[Key], graph: Assembled, order: dict[Key, int]) -> bool:
        """Give keys their tasks back; False where something is missing by now."""
        scheduler = self.scheduler
        if not (keys <= graph.tasks.keys() and all(map(self._is_there, graph.outside))):
            return False
        states = [scheduler.tasks[key] for key in keys]
        for key in graph.tasks:
            ts = scheduler.tasks.get(key)
            if ts is not None and (key in keys or stands_in(ts)):
                ts.run_spec = None
                internals.may_run_anywhere(ts)
                if key not in keys:
                    states.append(ts)
        # What waits for them has waited long enough.
        priority = max((int(-ts.priority[0]) for ts in states if ts.priority), default=0)
        touched, due = internals.attach(
            scheduler, graph.tasks, keys, graph.annotations, order, priority
        )
        self.parked -= keys
        self._healed(list(keys), touched)
        self._resume(states, due)
        return True

    def _resume(self, states: list[TaskState], due: dict[Key, Any]) -> None:
        """Have the scheduler look for workers again: not inside a transition."""
        gone: dict[Key, Any] = {
            ts.key: "released"
            for ts in states
            if ts.state == "no-worker" and self.scheduler.tasks.get(ts.key) is ts
        }
        if gone or due:
            self.scheduler.transitions({**gone, **due}, stimulus())

    def _give_up(self, keys: Collection[Key]) -> None:
        """As where data is lost that a client sent: what depends on it is cancelled."""
        logger.warning("%d lost results cannot be computed again: %s", len(keys), list(keys)[:3])
        gone: dict[Key, Any] = {}
        for key in keys:
            self.parked.discard(key)
            ts = self.scheduler.tasks.get(key)
            if ts is not None:
                ts.run_spec = None
                if ts.state != "memory":
                    ts.has_lost_dependencies = True
                    gone[key] = "forgotten" if ts.state == "released" else "released"
        self.scheduler.transitions(gone, stimulus())


def forget_orphans(scheduler: Scheduler, orphans: Iterable[TaskState]) -> None:
    """Have tasks forgotten that nobody needs: not inside a transition."""
    gone: dict[Key, Any] = {
        ts.key: "forgotten"
        for ts in orphans
        if scheduler.tasks.get(ts.key) is ts
        and ts.state in ("released", "memory", "erred")
        and not (ts.dependents or ts.who_wants or ts.waiters)
    }
    if gone:
        scheduler.transitions(gone, stimulus())
