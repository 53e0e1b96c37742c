"""Kept results cost the scheduler a constant: they give up the tasks that they were made of.

Where the scheduler knows many tasks a kept key that nobody uses is *detached*: to the scheduler it
is data of unknown origin, which any later graph that has the key gives its tasks back. A key that
is *used* (a pruned graph depends on it, or it answers somebody's future) gets a stand-in for its
task at once, and soon after what its task depends on, so that it can be lost (see `healing`) and a
graph that has it is no other one.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.typing import Key

from cachingclient import internals
from cachingclient.admission import key_name
from cachingclient.ledger import SCHEDULER
from cachingclient.scheduler.healing import Healing, forget_orphans, lost
from cachingclient.scheduler.holding import Holder
from cachingclient.scheduler.recipes import Draft, Recipe, assemble, linked
from cachingclient.tasks import is_barrier
from cachingclient.worker.plugin import REMEMBERS

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from cachingclient.ledger import Ledger

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Seconds between two sweeps, while there is something to do, and while there is not.
SHORT, LONG = 0.25, 8.0
#: A sweep takes no more than this share of the time.
LEISURE = 0.05
#: Tasks that the scheduler may know without any being packed: ten megabytes. Most sessions on
#: small graphs never pay for packing then.
ROOM = 4_000
#: Tasks after which a recipe gets no more results, and which are forgotten in one sweep.
ENOUGH = 5000
#: Bytes of a task on the scheduler.
TASK_STATE = 2500
#: The largest part of the limit that one recipe may take.
SHARE = 0.25


class Detached(NamedTuple):
    """What is left of the tasks of a key."""

    recipe: Recipe
    #: keys that its task depends on
    needs: Collection[Key]


class Detaching:
    """Detaches kept keys, and attaches them where they are used.

    Parameters
    ----------
    holder : Holder
    ledger : Ledger
    limit : int
        Bytes that recipes, and tasks which are known for the cache's sake alone, may take.
    release : callable
        Lets go of keys as soon as no transition is under way.
    detached : callable
        Told of keys that have been detached.
    busy : callable
        Whether a graph is on its way, which was made for the tasks that are known now.
    failed : callable
        Told of an exception in deferred work.
    """

    def __init__(
        self,
        holder: Holder,
        ledger: Ledger,
        limit: float,
        release: Callable[[list[Key]], Any],
        detached: Callable[[list[TaskState]], Any],
        busy: Callable[[], bool],
        failed: Callable[[Exception], Any],
    ) -> None:
        self.holder = holder
        self.scheduler = holder.scheduler
        self.ledger = ledger
        self.limit = limit
        self.healing = Healing(self.scheduler, self.recipe_of, self._healed, failed)
        self._release = release
        self._detached = detached
        #: keys that have been detached by this sweep
        self._fresh: list[TaskState] = []
        self._busy = busy
        self._failed = failed
        #: {key: what is left of its tasks, or what would be left if it were detached}
        self._packed: dict[Key, Detached] = {}
        #: keys that were kept, while the scheduler knows them: all that is said of any is said
        #: of these
        self._known: set[Key] = set()
        #: kept keys that have their tasks
        self._attached: set[Key] = set()
        #: keys without tasks that nobody uses
        self._idle: set[Key] = set()
        #: {key with a stand-in: whether the scheduler knows what it depends on}
        self.in_use: dict[Key, bool] = {}
        #: {key whose recipe would be too large: bytes that it takes as it is}
        self._stuck: dict[Key, float] = {}
        #: keys that get a recipe of their own
        self._alone: set[Key] = set()
        self._recipes: weakref.WeakSet[Recipe] = weakref.WeakSet()
        self._packing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause = self._shortest = SHORT
        self._over = False
        #: whether nothing is detached any more
        self._ended = False

    # -- what others tell and ask ----------------------------------------------

    def keep(self, key: Key) -> None:
        """A key is kept from now on."""
        self._attached.add(key)
        self._known.add(key)
        self._hurry()

    def event(self, topic: str, message: dict[str, Any]) -> None:
        """Give up where a worker cannot forget what the scheduler has forgotten.

        It would wait for ever for what a task had needed there, if it comes again and does not need
        it any more.
        """
        if message["action"] == REMEMBERS and not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._give_back)

    def _give_back(self) -> None:
        """Have the scheduler know all tasks again."""
        try:
            self.stop()
            self.healing.now({*self.in_use, *self._idle})
            self._idle.clear()
            if not (self.in_use or self.healing.parked):
                self._packed.clear()
        except Exception as e:
            self._failed(e)

    def recipe_of(self, key: Key) -> Recipe | None:
        """Recipe of a key, if it has one."""
        packed = self._packed.get(key)
        return None if packed is None else packed.recipe

    def stands_in(self, key: Key) -> bool:
        """Whether the task of a key is a stand-in."""
        return key in self.in_use

    def tasks_of(self, key: Key, most: int) -> dict[Key, Any] | None:
        """All tasks that a key is made of; None where they are too many, or not all there is."""
        draft = Draft(self.recipe_of, self.ledger.__contains__)
        draft.add(self.scheduler.tasks[key])
        length = len(draft.tasks) + sum(r.length for r in linked(draft.links))
        if length > most or not draft.complete:
            return None
        if not draft.links:
            return draft.tasks
        roots = {key} | {d for task in draft.tasks.values() for d in task.dependencies}
        return {**assemble(roots, draft.links, draft.tasks.__contains__).tasks, **draft.tasks}

    def made_of(self, names: Collection[Any]) -> list[Key]:
        """Detached keys that tasks of some names are part of."""
        return [k for k in (*self._idle, *self.in_use) if self._is_made_of(k, set(names))]

    def _is_made_of(self, key: Key, names: set[Any]) -> bool:
        recipe = self._packed[key].recipe
        if all(names.isdisjoint(r.names) for r in linked([recipe])):
            return False
        # Others share it.
        tasks = assemble([key], [recipe], lambda key: False).tasks
        return any(key_name(k) in names for k in tasks)

    def used(self, keys: Collection[Key]) -> None:
        """A graph has arrived that has these keys: before anything of it runs."""
        idle = self._idle.intersection(keys)
        for key in idle:
            ts = self.scheduler.tasks[key]
            self._idle.discard(key)
            if ts.run_spec is None:
                ts.run_spec = internals.stand_in(key, lost, self._packed[key].needs)
                self.in_use[key] = False
            else:
                self._attached.add(key)
        if self.healing.parked:
            self.healing.submitted(keys)
        if idle:
            self._hurry()

    def settle(self) -> None:
        """Have the scheduler know what used keys depend on: not inside a transition."""
        work = [key for key, known in self.in_use.items() if not known]
        for key in work:
            ts = self.scheduler.tasks[key]
            if ts.state == "memory" and not self._is_unused(ts):
                needs = self._packed[key].needs
                internals.link(self.scheduler, ts, needs)
                self.in_use[key] = True
                # Some of these are kept, and are used by that.
                self.used(needs)
                work += [k for k in needs if self.in_use.get(k) is False]

    def transition(self, key: Key, start: str, finish: str) -> None:
        """Notice that a key in use leaves memory: inside a transition."""
        ts = self.scheduler.tasks[key]
        if start == "memory":
            self.healing.park(ts)
        elif finish == "waiting":
            self.healing.awaited(ts)
        elif finish == "released" and ts.run_spec is None:
            ts.run_spec = internals.stand_in(key, lost, self._packed[key].needs)

    def forgotten(self, key: Key) -> None:
        """The scheduler has forgotten a key: inside a transition."""
        if key not in self._known:
            return
        self._known.discard(key)
        self._packed.pop(key, None)
        self.in_use.pop(key, None)
        self._stuck.pop(key, None)
        for keys in (self._attached, self._idle, self._alone, self.healing.parked):
            keys.discard(key)

    def _healed(self, keys: list[Key], touched: list[TaskState]) -> None:
        for key in keys:
            self.in_use.pop(key, None)
            if key in self.ledger:
                self._attached.add(key)
        self.used([ts.key for ts in touched])

    # -- sweeping --------------------------------------------------------------

    def _hurry(self) -> None:
        """Sweep soon: something has changed."""
        if self._ended:
            return
        if self._timer is None or self._pause > self._shortest:
            self._pause = self._shortest
            self._sweep_in(self._pause)

    def _sweep_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._work)

    def _work(self) -> None:
        start = time.perf_counter()
        self._timer = None
        try:
            changed = self._sweep()
        except Exception as e:
            self._failed(e)
            return
        # Nothing is known of what clients do with kept keys but by looking.
        self._shortest = max(SHORT, (time.perf_counter() - start) / LEISURE)
        self._pause = self._shortest if changed else min(2 * self._pause, LONG)
        if self.in_use or len(self._attached) > len(self._stuck):
            self._sweep_in(self._pause)

    def _sweep(self) -> bool:
        """Detach what nobody uses; returns whether anything has changed."""
        self.settle()
        if self._busy():
            return True
        orphans: list[TaskState] = []
        # What was let go of may have shared what takes the room.
        changed = self._rest(orphans) | (self._over and self._fit())
        draft = Draft(self.recipe_of, self.ledger.__contains__)
        asked: list[Key] = []
        crowded = len(self.scheduler.tasks) > ROOM
        for key in list(self._attached) if crowded else ():
            ts = self.scheduler.tasks.get(key)
            if ts is None or key not in self.ledger:
                self._attached.discard(key)
                self._stuck.pop(key, None)
            elif key in self._stuck or not self._is_ready(ts):
                continue
            elif len(orphans) >= ENOUGH or len(draft.tasks) >= ENOUGH:
                changed = True
                break
            elif key in self._packed:
                self._detach(ts, orphans)
                changed = True
            elif self._packing is None and not (asked and key in self._alone):
                draft.add(ts)
                asked.append(key)
                if key in self._alone:
                    break
        forget_orphans(self.scheduler, orphans)
        fresh, self._fresh = self._fresh, []
        self._detached(fresh)
        if asked:
            self._packing = asyncio.ensure_future(self._pack(draft, asked))
        return changed

    def _rest(self, orphans: list[TaskState]) -> bool:
        """Detach used keys that nobody uses any more."""
        keys = [k for k in self.in_use if self._is_unused(self.scheduler.tasks[k])]
        for key in keys:
            del self.in_use[key]
            self._detach(self.scheduler.tasks[key], orphans)
        return bool(keys)

    def _is_unused(self, ts: TaskState) -> bool:
        return not ts.dependents and self.holder.only_ours(ts)

    def _is_ready(self, ts: TaskState) -> bool:
        # The output of a shuffle would keep the worker that it had to run on for ever.
        return self._is_unused(ts) and not any(
            d.state != "released" and is_barrier(d.run_spec) for d in ts.dependencies
        )

    def _detach(self, ts: TaskState, orphans: list[TaskState]) -> None:
        orphans += internals.cut_loose(ts)
        internals.may_run_anywhere(ts)
        ts.run_spec = None
        self._attached.discard(ts.key)
        self._idle.add(ts.key)
        self._fresh.append(ts)

    # -- packing ---------------------------------------------------------------

    async def _pack(self, draft: Draft, asked: list[Key]) -> None:
        recipe: Recipe | None = None
        try:
            if draft.complete:
                recipe = await asyncio.get_running_loop().run_in_executor(None, draft.pack)
        except Exception:
            logger.debug("Tasks that cannot be pickled are not packed", exc_info=True)
        try:
            self._file(draft, recipe, asked)
            self._fit()
        except Exception as e:
            self._failed(e)
        self._packing = None
        if self._attached:
            self._sweep_in(0)

    def _file(self, draft: Draft, recipe: Recipe | None, asked: list[Key]) -> None:
        tasks = self.scheduler.tasks
        if recipe is not None and recipe.nbytes <= self.limit * SHARE:
            self._recipes.add(recipe)
            known = [
                k for k, ts in draft.kept.items() if tasks.get(k) is ts and k in self._attached
            ]
            recipe.sharers = max(len(known), 1)
            for key in known:
                self._packed[key] = Detached(recipe, draft.tasks[key].dependencies)
        elif len(asked) > 1:
            self._alone.update(asked)
        else:
            size = TASK_STATE * len(draft.tasks) + (recipe.nbytes if recipe is not None else 0)
            self._stuck.update((k, size) for k in asked if k in self._attached)

    def _fit(self) -> bool:
        """Let the least valuable keys go whose tasks take more than they may."""
        over = self.size - self.limit
        victims = []
        for key in self.ledger.policy.least_valuable():
            if over <= 0:
                break
            part = self._part(key)
            if part and not self.ledger.is_pinned(key):
                victims.append(key)
                over -= part
        self._over = bool(victims)
        if victims:
            self.ledger.count_evicted(victims, SCHEDULER)
            self._release(victims)
            self._hurry()
        return self._over

    @property
    def size(self) -> float:
        """Bytes of recipes, and of tasks that have none."""
        return sum(r.nbytes for r in self._recipes) + sum(self._stuck.values())

    def _part(self, key: Key) -> float:
        packed = self._packed.get(key)
        if packed is None:
            return self._stuck.get(key, 0.0)
        return packed.recipe.nbytes / packed.recipe.sharers

    # -- the end ---------------------------------------------------------------

    def succeed(self, other: Detaching) -> None:
        """Go on with what another one has detached, which has stopped."""
        self._packed, self.in_use, self._stuck = other._packed, other.in_use, other._stuck
        self._attached, self._idle, self._alone = other._attached, other._idle, other._alone
        self._recipes, self._over = other._recipes, other._over
        self._known = other._known
        self._ended, other._ended = other._ended, True
        self.healing.succeed(other.healing)
        self._hurry()

    def stop(self) -> None:
        """Detach nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._packing is not None:
            self._packing.cancel()
            # It files nothing any more: after a restart others are packed.
            self._packing = None

    def close(self) -> None:
        """Give everything that somebody uses its tasks back: not inside a transition."""
        self.stop()
        orphans: list[TaskState] = []
        self._rest(orphans)
        forget_orphans(self.scheduler, orphans)
        self.healing.now(self.in_use)
        self.restart()

    def restart(self) -> None:
        """The scheduler has forgotten everything, and has new workers."""
        self.stop()
        self._ended = False
        for keys in (self._packed, self._attached, self._idle, self.in_use, self._stuck):
            keys.clear()
        self._alone.clear()
        self._known.clear()
        self.healing.parked.clear()
