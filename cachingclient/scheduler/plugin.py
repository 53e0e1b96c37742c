"""The scheduler plugin: hooks, and nothing but what connects them to the parts beside it."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin

from cachingclient.admission import (
    ONCE,
    REJECTED,
    RETRIED,
    SHARED,
    STALE,
    UNGUARDED,
    UPSTREAM,
    key_name,
    readable_again,
)
from cachingclient.ledger import Ledger
from cachingclient.policy import CacheyPolicy
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.audit import Audits
from cachingclient.scheduler.cancelling import CancelGuard
from cachingclient.scheduler.desk import NAME, Desk
from cachingclient.scheduler.durations import Durations
from cachingclient.scheduler.environment import Environment
from cachingclient.scheduler.freshness import Freshness
from cachingclient.scheduler.guard import guarded
from cachingclient.scheduler.holding import Holder, stimulus
from cachingclient.scheduler.limits import limit_in_bytes
from cachingclient.scheduler.loss import Losses
from cachingclient.scheduler.submissions import Submission, Submissions
from cachingclient.scheduler.workers import Guards

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

    from cachingclient.config import Settings
    from cachingclient.graph.envelope import Request

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Names that are remembered as allowed, or as alive.
REMEMBERED = 100_000
#: Clients remember their last results by their keys, if these are not too many.
MANY_OUTPUTS = 1000
#: Seconds that a submission waits for the event loop to let go of what it must not use.
PATIENCE = 10
#: Seconds that a task costs beside its own time, in the scheduler and around it.
OVERHEAD = 1e-3
#: Seconds that asking for a result costs whatever it is: sending a graph, and waiting for it.
REQUEST_OVERHEAD = 5e-3


class CachePlugin(SchedulerPlugin):
    """Keeps results on the workers that are small, slow to compute and asked for again.

    Parameters
    ----------
    settings : Settings
        As the client that brings the plugin read them.
    """

    name = NAME

    #: {name that may be kept: None}, the least recently submitted first
    allowed: OrderedDict[Any, None]
    #: {name: whether a living collection needed it at its last submission}
    alive: OrderedDict[str, bool]
    #: {key in memory or before: seconds of task time that it had cost}
    paid: dict[Key, float]
    #: {key that a client asked for: (ids of the clients, tasks of its graph)}
    outputs: dict[Key, tuple[set[str], int]]
    #: {name: why its last key was not kept}
    refused: OrderedDict[Any, str]
    #: keys whose values cannot be kept, nor what is computed from them
    tainted: set[Key]

    #: names that an audit found to differ: never kept again
    rejected: set[Any]

    def __init__(self, settings: Settings) -> None:
        self.settings = vars(settings) if not isinstance(settings, dict) else settings
        self.limit = self.settings["cache_limit"]
        self.id = uuid.uuid4().hex
        self.off = False
        self.rejected = set()

    # -- life ------------------------------------------------------------------

    async def start(self, scheduler: Scheduler) -> None:
        """Set up beside a scheduler; takes over from a plugin that is there already."""
        old = scheduler.plugins.get(self.name)
        if isinstance(old, CachePlugin):
            old.leave(unregister=False)
        self.scheduler = scheduler
        self.loop = asyncio.get_running_loop()
        self.holder = Holder(scheduler, self.switch_off)
        policy = CacheyPolicy(self.settings["halflife"])
        self.ledger = Ledger(policy, limit_in_bytes(self.limit, scheduler))
        self.submissions = Submissions(self.settings["lease_time"])
        self.losses = Losses(self.holder, self.ledger.forget, self.ledger.__contains__)
        self.cancelling = CancelGuard(self.holder, self.ledger.__contains__, self._forgotten)
        self._forget_all()
        self.environment = Environment(scheduler, self.expire)
        self.guards = Guards(scheduler)
        self.audits = Audits(scheduler, self.settings["audit"], self._differs)
        self.desk = Desk(self)
        PLUGINS[scheduler.id] = self
        await self.guards.add(list(scheduler.workers))

    def _forget_all(self) -> None:
        self.allowed = OrderedDict()
        self.alive = OrderedDict()
        self.refused = OrderedDict()
        self.durations = Durations()
        self.freshness = Freshness(self.settings["source_lifetime"], time.monotonic)
        self.paid, self.outputs, self.tainted = {}, {}, set()

    def leave(self, unregister: bool = True) -> None:
        """Let everything go and leave nothing behind."""
        self.off = True
        self.clear()
        self.holder.close()
        self.cancelling.remove()
        self.environment.remove()
        self.audits.close()
        self.guards.remove_soon()
        self.desk.close()
        if PLUGINS.get(self.scheduler.id) is self:
            del PLUGINS[self.scheduler.id]
        if unregister and self.scheduler.plugins.get(self.name) is self:
            self.scheduler.remove_plugin(self.name)

    def switch_off(self, error: Exception) -> None:
        """Keep nothing from now on: the scheduler works as it would alone."""
        if not self.off:
            self.off = True
            logger.error("The cache is switched off after an error", exc_info=error)
            try:
                self.clear()
            except Exception:
                logger.exception("The cache could not be cleared")

    async def before_close(self) -> None:
        """Stop the clock; a closing scheduler has nobody to answer."""
        self.off = True
        self.desk.close()

    def restart(self, scheduler: Scheduler) -> None:
        """Everything is gone: start anew."""
        for key in list(self.ledger.kept):
            self.ledger.forget(key)
        self._forget_all()

    # -- what clients say ------------------------------------------------------

    @guarded
    def permit(
        self,
        client: str,
        allowed: Collection[Any] = (),
        denied: Collection[Any] = (),
        sources: Mapping[Any, str] = {},
        unsure: Collection[Any] = (),
        readers: Mapping[Any, Collection[Any]] = {},
    ) -> None:
        """Hear which names of the next graph may be kept, and which not."""
        self._withdraw_now(denied)
        self._withdraw_stale(self.freshness.submitted(sources, unsure))
        self._withdraw_stale(self.freshness.made(readers))
        self._allow(allowed)
        self.ledger.policy.request()
        used = [k for k in allowed if k in self.ledger]
        self.ledger.skipped += len(used)
        self.ledger.hit(used)
        for key in used:
            self.audits.used(key)

    @guarded
    def open_submission(self, request: Request) -> Submission:
        """Take, at one moment, what is kept; it stays until the submission has arrived."""
        self.ledger.policy.request()
        self._withdraw_stale(self.freshness.submitted(request.sources, request.unsure))
        submission = Submission(
            request,
            kept=self.ledger.kept,
            number_kept=self.ledger.number,
            paid=self.ledger.paid,
            task_overhead=self.settings["task_overhead"],
            trusted=self.allowed,
            sources=lambda name: (
                *self.freshness.sources(name),
                *request.made_of.get(name, ()),
            ),
            seconds=self.durations.seconds,
            known=self.known_task,
            is_known=self.scheduler.tasks.__contains__,
            complete=self._complete(request),
            withdraw=self.withdraw,
            deadline=self.submissions.deadline(),
        )
        self.submissions.add(submission)
        return submission

    def known_task(self, key: Key) -> Any:
        """How the scheduler would compute a key, if it knows all that it needs for that."""
        tasks = self.scheduler.tasks
        ts = tasks.get(key)
        task = ts.run_spec if ts is not None else None
        if task is None or not all(d in tasks for d in task.dependencies):
            return None
        return task

    def _complete(self, request: Request) -> bool:
        return (
            request.use
            and all(k in self.ledger for k in request.outputs)
            and not any(key_name(k) in request.denied for k in request.outputs)
        )

    def _differs(self, key: Key) -> None:
        """An audit found that a key cannot be kept, nor any of its layer."""
        name = key_name(key)
        self.rejected.add(name)
        self.refused[name] = REJECTED
        self.allowed.pop(name, None)
        self.holder.let_go_soon(self._forgotten(self.ledger.of_names([name])))

    def _allow(self, names: Collection[Any]) -> None:
        for name in names:
            if name in self.rejected:
                continue
            self.allowed[name] = None
            self.allowed.move_to_end(name)
        while len(self.allowed) > REMEMBERED:
            self.allowed.popitem(last=False)

    def _withdraw_stale(self, names: Collection[Any]) -> None:
        if names:
            for name in names:
                self.refused[name] = STALE
            self._withdraw_now(names)

    def withdraw(self, names: Collection[Any], keys: Collection[Key]) -> None:
        """Let go of names from another thread, and wait until it is done."""
        done: ThreadFuture[None] = ThreadFuture()

        def work() -> None:
            self._withdraw_now(names, keys)
            done.set_result(None)

        self.loop.call_soon_threadsafe(guard_call(self, work))
        done.result(timeout=PATIENCE)

    def _withdraw_now(self, names: Collection[Any], keys: Collection[Key] = ()) -> None:
        """What somebody else wants too is used, as it is where nothing is kept."""
        for name in names:
            self.allowed.pop(name, None)
        kept = {*self.ledger.of_names(names), *self._kept_upstream(keys)}
        tasks = self.scheduler.tasks
        self.let_go(k for k in kept if k in tasks and self.holder.only_ours(tasks[k]))

    def _kept_upstream(self, keys: Collection[Key]) -> list[Key]:
        work = [self.scheduler.tasks[k] for k in keys if k in self.scheduler.tasks]
        seen = set(work)
        while work:
            new = work.pop().dependencies - seen
            seen |= new
            work.extend(new)
        return [ts.key for ts in seen if ts.key in self.ledger]

    def kept_downstream(self, names: set[Any]) -> list[Key]:
        """Kept keys of layers, and those that were computed from them."""
        work = [ts for k, ts in self.scheduler.tasks.items() if key_name(k) in names]
        seen = set(work)
        while work:
            new = work.pop().dependents - seen
            seen |= new
            work.extend(new)
        return [ts.key for ts in seen if ts.key in self.ledger]

    # -- hooks -----------------------------------------------------------------

    @guarded
    def update_graph(
        self, scheduler: Scheduler, *, client: str, keys: set[Key], **kwargs: Any
    ) -> None:
        """A submission has arrived: its tasks hold what it uses from now on."""
        submission = self.submissions.end(client)
        if submission is None or submission.outputs != keys:
            return
        if submission.verdict is not None:
            if submission.request.use:
                self._withdraw_stale(self.freshness.made(submission.verdict.readers))
                self._withdraw_stale(self.freshness.note(submission.request.made_of))
                self._allow(submission.verdict.allowed)
            for name in submission.verdict.denied:
                self.allowed.pop(name, None)
        self.durations.watch(submission.measured)
        self._note_outputs(submission)
        self._note_alive(submission.request.alive)
        self._count_hits(submission)
        if not self.submissions.any():
            self.holder.let_go_soon(self._forgotten(self.ledger.over_limit()))

    def _note_outputs(self, submission: Submission) -> None:
        outputs = submission.outputs
        if not submission.complete and len(outputs) <= MANY_OUTPUTS:
            for key in outputs:
                clients, _ = self.outputs.get(key, (set(), 0))
                clients.add(submission.request.client)
                self.outputs[key] = clients, submission.total // len(outputs)
        if submission.complete:
            self._tell_kept(submission.request.client, list(outputs)[:MANY_OUTPUTS])

    def _note_alive(self, alive: Any) -> None:
        for name, is_alive in alive.items():
            self.alive[name] = is_alive
            self.alive.move_to_end(name)
        while len(self.alive) > REMEMBERED:
            self.alive.popitem(last=False)

    def _count_hits(self, submission: Submission) -> None:
        used = [k for k in submission.used if k in self.ledger]
        ledger = self.ledger
        ledger.hit(used)
        for key in used:
            self.audits.used(key)
            self.paid[key] = 0.0  # what is computed from it now did not pay for it
        ledger.skipped += (
            sum(ledger.kept[k].tasks or 1 for k in used)
            if submission.complete
            else submission.skipped
        )

    @guarded
    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Offer what has just been computed to the ledger, and notice what is gone."""
        self.audits.transition(key, finish)
        if finish == "memory":
            if start == "processing":
                self._finished(key, kwargs.get("startstops") or ())
        elif start == "memory" and key in self.ledger:
            self._gone(key)
        elif start == "processing" and finish == "waiting":
            # It failed, and is tried again: who knows what comes of it the next time.
            self.tainted.add(key)
        if finish == "forgotten":
            self.paid.pop(key, None)
            self.outputs.pop(key, None)
            self.tainted.discard(key)

    def _gone(self, key: Key) -> None:
        """Whoever took it from memory: it must not be computed again for the cache alone."""
        self._forgotten([key])
        self.holder.let_go_soon([key])

    def _finished(self, key: Key, startstops: Any) -> None:
        ts = self.scheduler.tasks[key]
        seconds = OVERHEAD
        for span in startstops:
            if span["action"] == "compute":
                seconds += span["stop"] - span["start"]
        paid = seconds
        for dependency in ts.dependencies:
            # Shared work is counted once, however many results share it.
            paid += self.paid.get(dependency.key, 0.0) / (len(dependency.dependents) or 1)
        self.paid[key] = paid
        self.durations.ran(key_name(key), seconds)
        if key_name(key) not in self.allowed or not self._may_keep(ts):
            return
        self.ledger.ran(key, seconds)
        if key in self.outputs:
            paid += REQUEST_OVERHEAD
        if self._others_could_be_misled(key):
            self._refuse(key, SHARED)
        elif not self.guards.complete():
            self._refuse(key, UNGUARDED)
        elif paid < self.settings["min_cost"]:
            self._refuse(key, f"took less than min-cost ({self.settings['min_cost'] * 1000:g} ms)")
        elif ts.waiters or ts.who_wants:
            # Where nobody wants or awaits it its release is decided already.
            self._offer(ts, paid)

    def _others_could_be_misled(self, key: Key) -> bool:
        """Whether a client that does not look at sources could be answered by a key."""
        return (
            not self.settings["share_sources"]
            and self.freshness.reads(key_name(key))
            and self.desk.plain_clients()
        )

    def _refuse(self, key: Key, why: str) -> None:
        name = key_name(key)
        if name not in self.refused and len(self.refused) >= REMEMBERED:
            self.refused.popitem(last=False)
        self.refused[name] = why

    def _may_keep(self, ts: TaskState) -> bool:
        if not readable_again(ts.type):
            why = f"a value of type {ts.type} {ONCE}"
        elif ts.key in self.tainted:
            why = RETRIED
        elif self.tainted and any(d.key in self.tainted for d in ts.dependencies):
            why = UPSTREAM
        else:
            return not ts.actor
        self._refuse(ts.key, why)
        if ts.dependents:
            self.tainted.add(ts.key)
        return False

    def _offer(self, ts: TaskState, paid: float) -> None:
        key = ts.key
        clients, tasks = self.outputs.get(key, (None, 0))
        keep, victims = self.ledger.offer(
            key,
            key_name(key),
            paid,
            ts.get_nbytes(),
            tasks,
            may_evict=not self.submissions.any(),
            needed=self.alive.get(key_name(key)) is not False,
        )
        if victims:
            self.holder.let_go_soon(self._forgotten(victims))
        if not keep:
            self._refuse(key, "no room: what is kept is worth more")
        else:
            self.refused.pop(key_name(key), None)
            self.holder.keep(ts)
            for client in clients or ():
                self._tell_kept(client, [key])

    def log_event(self, topic: str, msg: Any) -> None:
        """Events are logged before the scheduler acts on them."""
        if isinstance(msg, dict) and "action" in msg:
            self._event(topic, msg)

    @guarded
    def _event(self, topic: str, msg: dict[str, Any]) -> None:
        if msg["action"] == "update-graph":
            # No hook tells of a graph that was refused.
            self.submissions.end(topic)
        else:
            self.losses.event(topic, msg)

    @guarded
    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """The limit follows the workers, and each gets a guard."""
        self.guards.add_soon(worker)
        self._follow_limit()

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Forget what was lost, and nobody needs."""
        self.guards.lost(worker)
        self.losses.worker_removed(stimulus_id or stimulus())
        self._follow_limit()

    @guarded
    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """One that does not look at sources must not be answered by what was made of them."""
        if not self.settings["share_sources"] and not client.startswith("CachingClient"):
            self._withdraw_now(self.freshness.readers())

    @guarded
    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """When the last client that asked for caching has gone the idle time starts."""
        self.desk.client_gone(client)

    # -- letting go ------------------------------------------------------------

    def _follow_limit(self) -> None:
        limit = limit_in_bytes(self.limit, self.scheduler)
        self.holder.let_go_soon(self._forgotten(self.ledger.resize(limit)))

    def resize(self, limit: float) -> None:
        """Change the limit."""
        self.limit = limit
        self._follow_limit()

    def clear(self) -> None:
        """Let go of everything."""
        self.let_go(list(self.ledger.kept))

    @guarded
    def expire(self) -> None:
        """Nobody has asked for caching for a while, or the workers' code has changed."""
        self.clear()

    def let_go(self, keys: Any) -> None:
        """Let go of keys now: not inside a transition."""
        keys = list(keys)
        for key in keys:
            self.ledger.forget(key)
        self.holder.let_go(self._forgotten(keys))

    def _forgotten(self, keys: list[Key]) -> list[Key]:
        """Take keys off the books, and tell the clients that count on them."""
        for key in keys:
            self.ledger.forget(key)
            for client in self.outputs.get(key, ((), 0))[0]:
                if client in self.desk.clients:
                    self.scheduler.client_send(
                        client, {"op": "cachingclient-dropped", "keys": [key]}
                    )
        return keys

    def _tell_kept(self, client: str, keys: list[Key]) -> None:
        if client in self.desk.clients:
            self.scheduler.client_send(client, {"op": "cachingclient-kept", "keys": keys})


def guard_call(plugin: CachePlugin, work: Any) -> Any:
    """The same without arguments, failing as hooks fail."""

    def safe() -> None:
        try:
            work()
        except Exception as e:
            plugin.switch_off(e)

    return safe
