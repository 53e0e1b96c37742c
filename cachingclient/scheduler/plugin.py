"""The scheduler plugin: hooks, and nothing but what connects them to the parts beside it."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin

from cachingclient import internals
from cachingclient.admission import REJECTED, key_name
from cachingclient.frames.data import Stash
from cachingclient.frames.index import FrameIndex
from cachingclient.history import History
from cachingclient.ledger import Ledger
from cachingclient.placing import Place
from cachingclient.policy import Policy, make_policy
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.audit import Audits
from cachingclient.scheduler.books import Books
from cachingclient.scheduler.cancelling import CancelGuard
from cachingclient.scheduler.desk import NAME, Desk
from cachingclient.scheduler.detaching import Detaching
from cachingclient.scheduler.durations import Durations
from cachingclient.scheduler.environment import Environment
from cachingclient.scheduler.erring import Erred
from cachingclient.scheduler.forgetting import ForgetGuard
from cachingclient.scheduler.freshness import CODE, Freshness
from cachingclient.scheduler.guard import guarded
from cachingclient.scheduler.holding import Holder, stimulus
from cachingclient.scheduler.keeping import Keeper
from cachingclient.scheduler.leaving import Undo, Vigil
from cachingclient.scheduler.limits import limit_in_bytes, shares
from cachingclient.scheduler.loss import Losses
from cachingclient.scheduler.orphans import Orphans
from cachingclient.scheduler.overhead import Overhead
from cachingclient.scheduler.pressure import Pressure
from cachingclient.scheduler.releasing import Release
from cachingclient.scheduler.reporting import Reporter
from cachingclient.scheduler.scaling import Scaling
from cachingclient.scheduler.showing import Showing
from cachingclient.scheduler.submissions import Submission, Submissions
from cachingclient.scheduler.succession import go_on, take_over
from cachingclient.scheduler.workers import Guards
from cachingclient.telling import unused

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState, WorkerState

    from cachingclient.config import Settings
    from cachingclient.graph.envelope import Request

logger = logging.getLogger("distributed.scheduler.cachingclient")

#: Clients remember their last results by their keys, if these are not too many.
MANY_OUTPUTS = 1000
#: Seconds that a submission waits for the event loop to let go of what it must not use.
PATIENCE = 10


class CachePlugin(SchedulerPlugin):
    """Keeps results on the workers that are small, slow to compute and asked for again.

    Parameters
    ----------
    settings : Settings
        As the client that brings the plugin read them.
    """

    name = NAME

    def __init__(self, settings: Settings) -> None:
        self.settings = vars(settings)
        self.limit = self.settings["cache_limit"]
        self.id = uuid.uuid4().hex
        #: whether nothing is kept any more, and whether nothing is left behind
        self.off = self.left = False
        #: what those who ask for caching are told
        self.remark = ""
        # What is undone when nothing is kept any more, and when the plugin goes itself.
        self.undo, self.at_the_end = Undo(), Undo()

    # -- life ------------------------------------------------------------------

    async def start(self, scheduler: Scheduler) -> None:
        """Set up beside a scheduler; takes over from a plugin that is there already.

        Waits for nothing: whoever registers this adds it to the scheduler next, and until
        then no hook of it is called.
        """
        found = scheduler.plugins.get(self.name)
        if found is self:
            return  # a scheduler that starts does so with what its preloads have started already
        self._refuse(scheduler)
        old = found if isinstance(found, CachePlugin) else None
        if old is not None:
            old.step_aside()
        self.scheduler = scheduler
        #: tells the time at which graphs are submitted, in seconds
        self.clock: Callable[[], float] = time.monotonic
        self.loop = asyncio.get_running_loop()
        self.books = Books()
        self.holder = Holder(scheduler, self.switch_off)
        policy = self._policy()
        self.ledger = Ledger(policy, 0)
        self.history = History()
        self.submissions = Submissions(self.settings["lease_time"])
        self._learn_anew()
        if old is not None:
            take_over(self, old)
        self.ledger.pinned = self.books.pinned
        self._start_parts(scheduler)
        self.resize(self.limit)
        if old is not None:
            go_on(self, old)
        PLUGINS[scheduler.id] = self
        self.guards.add_soon(list(scheduler.workers))

    def _refuse(self, scheduler: Scheduler) -> None:
        """Raise an error where nobody could use this."""
        if lacking := internals.lacking():
            raise RuntimeError(lacking)
        if NAME in scheduler.blocked_handlers:
            raise ValueError(f"The {NAME!r} handler has been explicitly disallowed in Scheduler")

    def _policy(self) -> Policy:
        try:
            return make_policy(self.settings["policy"], self.settings["halflife"])
        except ImportError as e:
            # A scheduler that this package was carried to lacks what it needs.
            self.settings = {**self.settings, "policy": "group"}
            self.remark = f"The scheduler has no package {e.name}: the policy is group."
            return make_policy("group")

    def _start_parts(self, scheduler: Scheduler) -> None:
        is_kept = self.ledger.__contains__
        self.release = Release(self.holder, self.ledger, self.books, self._tell_dropped)
        self.detaching = Detaching(
            self.holder,
            self.ledger,
            self.settings["scheduler_memory"],
            self.release.soon,
            self._tell_workers,
            self.submissions.any,
            self.switch_off,
        )
        self.at_the_end.add(self.detaching.stop)
        self.keeper = Keeper(self, self._tell_kept)
        self.losses = Losses(self.holder, self.release.forget, is_kept)
        self.undo.add(self.losses.remove)
        self.orphans = Orphans(scheduler, self.switch_off)
        self.desk = Desk(self)
        self.at_the_end.add(self.desk.close)
        self.vigil = Vigil(self.is_registered, self.leave)
        self.at_the_end.add(self.vigil.stop)
        self.cancelling = CancelGuard(self.holder, is_kept, self.release.forget)
        self.undo.add(self.cancelling.remove)
        self.undo.add(ForgetGuard(self.holder, is_kept).remove)
        self.erred = Erred(scheduler, self.switch_off)
        self.undo.add(self.erred.close)
        self.environment = Environment(scheduler, self.expire)
        self.undo.add(self.environment.remove)
        self.scaling = Scaling(self.holder, self.switch_off)
        self.undo.add(self.scaling.remove)
        self.guards = Guards(scheduler)
        self.pressure = Pressure(self)
        self.undo.add(self.pressure.close)
        self.audits = Audits(
            scheduler, self.settings["audit"], self._differs, self.detaching.tasks_of
        )
        self.undo.add(self.audits.close)
        self.reporter = Reporter(self)
        self.at_the_end.add(self.reporter.stop)
        self.showing = Showing(self)
        for end in (self.undo, self.at_the_end):  # a scheduler that closes runs the second alone
            end.add(self.showing.remove)

    def _learn_anew(self) -> None:
        self.durations = Durations()
        self.overhead = Overhead(self.settings["task_overhead"])
        self.freshness = Freshness(self.settings["source_lifetime"], time.monotonic)
        self.frames = FrameIndex()
        self.data = Stash(self.settings["scheduler_memory"])

    def is_registered(self) -> bool:
        """Whether the scheduler calls the hooks."""
        return self.scheduler.plugins.get(self.name) is self

    def leave(self) -> None:
        """Let everything go and leave nothing behind."""
        if not self.left:
            self.left = True
            self._take_down()
            self.at_the_end.run()
            if PLUGINS.get(self.scheduler.id) is self:
                del PLUGINS[self.scheduler.id]
            if self.is_registered():
                self.scheduler.remove_plugin(self.name)

    def step_aside(self) -> None:
        """Leave everything to a successor: what is held, and the guards on workers."""
        self.off = self.left = True
        self.keeper.settle()
        self.holder.finish()
        self.undo.run()
        self.at_the_end.run()

    def _take_down(self) -> None:
        """All but the answer that there is no cache any more."""
        self.off = True
        self.desk.send_away()
        self.undo.add(self.guards.remove_soon)
        self.undo.add(self.holder.close)
        self.undo.add(self.clear)
        # Before all else: what somebody uses gets its tasks back.
        self.undo.add(self.detaching.close)
        self.undo.run()

    def switch_off(self, error: Exception) -> None:
        """Keep nothing from now on: the scheduler works as it would alone."""
        if not self.off:
            self.off = True
            logger.error("The cache is switched off after an error", exc_info=error)
            self.warn(
                f"Nothing is kept any more: the cache is switched off after an error, {error!r}. "
                "Clients work as distributed.Client does."
            )
            # Hooks fail inside of transitions, which nothing may be released in.
            self.loop.call_soon(self._take_down)

    async def before_close(self) -> None:
        """Stop the clocks; a closing scheduler has nobody to answer."""
        self.off = True
        self.at_the_end.run()

    @guarded
    def restart(self, scheduler: Scheduler) -> None:
        """Everything is gone: start anew."""
        for key in list(self.ledger.kept):
            self.ledger.forget(key)
        self.books.restart()
        self.keeper.restart()
        self.pressure.restart()
        self.detaching.restart()
        self._learn_anew()

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
        alive: Mapping[Any, bool | None] = {},
        place: Collection[Any] | None = None,
    ) -> None:
        """Hear which names of the next graph may be kept, and which not."""
        self.keeper.settle()
        self.erred.let_go()
        if place is not None:
            self._leave_to(Place(*place), self.ledger.of_names(allowed))
        self.release.names(denied)
        self._compare(sources, unsure)
        self.release.stale(self.freshness.made(readers))
        self.books.allow(allowed)
        number = self._submitted(client, {*allowed, *denied}, (), alive)
        used = [k for k in allowed if k in self.ledger]
        self._use(used, number, skipped=len(used))

    @guarded
    def open_submission(self, request: Request) -> Submission | None:
        """Take, at one moment, what is kept; it stays until the submission has arrived."""
        if not self.is_registered():
            self.leave()
            return None
        self.keeper.settle()
        self.erred.let_go()
        self.detaching.settle()
        self._compare(request.sources, request.unsure)
        self._leave_to(request.place, request.outputs)
        submission = Submission(self, request, self.submissions.deadline())
        self.submissions.add(submission)
        # What is said of its keys before this was said of an earlier submission.
        self._tell(request.client, {"op": "cachingclient-arrived", "number": request.number})
        return submission

    def _compare(self, sources: Mapping[Any, str], unsure: Collection[Any]) -> None:
        """Let go of what was made of sources as they were before."""
        code = {source: d for source, d in sources.items() if str(source).startswith(CODE)}
        self.release.stale(self.freshness.submitted(code), edited=True)
        others = {source: d for source, d in sources.items() if source not in code}
        self.release.stale(self.freshness.submitted(others, unsure))

    def withdraw(self, names: Collection[Any], keys: Collection[Key]) -> None:
        """Let go of names from another thread, and wait until it is done."""
        self._on_loop(lambda: self.release.names(names, keys))

    def renew(self, tasks: Mapping[Key, Any]) -> None:
        """Let the scheduler compute stale keys as they would be now; from another thread."""
        if tasks:
            self._on_loop(lambda: self.release.renew(tasks))

    def _on_loop(self, call: Callable[[], None]) -> None:
        done: ThreadFuture[None] = ThreadFuture()

        def work() -> None:
            try:
                call()
            except Exception as e:
                self.switch_off(e)
            finally:
                done.set_result(None)

        self.loop.call_soon_threadsafe(work)
        done.result(timeout=PATIENCE)

    # -- hooks -----------------------------------------------------------------

    @guarded
    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        keys: set[Key],
        tasks: Collection[Key],
        **kwargs: Any,
    ) -> None:
        """A submission has arrived: its tasks hold what it uses from now on."""
        self.detaching.used(tasks)
        self.orphans.arrived(tasks)
        submission = self.submissions.end(client)
        if submission is None or submission.outputs != keys:
            return
        request, verdict = submission.request, submission.verdict
        self.books.met(submission.layers)
        if verdict is not None:
            self.durations.consists(verdict.wholes)
            gone = self.freshness.made(verdict.readers) | self.freshness.note(request.made_of)
            self.release.soon(self.ledger.of_names(gone))
            if request.use:
                self.books.allow(verdict.allowed - gone)
            self.books.deny({*verdict.denied, *gone})
        names = {key_name(k) for k in keys}
        if verdict is not None:
            names.update(verdict.allowed, verdict.denied)
        number = self._submitted(client, names, keys, request.alive)
        if submission.complete:
            # They may have been let go of since the envelope was opened.
            self._tell_kept(client, [k for k in keys if k in self.ledger][:MANY_OUTPUTS])
        elif len(keys) <= MANY_OUTPUTS:
            self.books.asked(client, keys, submission.total // len(keys))
        used = [k for k in submission.used if k in self.ledger]
        skipped = submission.skipped or sum(self.ledger.kept[k].tasks or 1 for k in used)
        self._use(used, number, skipped)
        if not self.submissions.any():
            self.release.soon(self.ledger.over_limit())

    def _submitted(
        self,
        client: str,
        names: Collection[Any],
        outputs: Collection[Key],
        alive: Mapping[Any, bool | None],
    ) -> int:
        """Note a graph with these names; returns its number."""
        policy, books, now = self.ledger.policy, self.books, self.clock()
        policy.request(now)
        books.alive.tell(client, alive)
        told = {name: books.alive.get(name) for name in alive}
        for name, is_alive in told.items():
            policy.living(name, is_alive)
        number = books.paid.submitted(names)
        if self.ledger.journal is not None:
            self.ledger.journal("submit", now, number, names, outputs, told)
        return number

    def _use(self, keys: list[Key], number: int, skipped: int) -> None:
        self.ledger.hit(keys, number)
        self.ledger.skipped += skipped
        for key in keys:
            self.audits.used(key)

    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Offer what has just been computed to the ledger, and notice what is gone."""
        # Not `guarded`, and no call that can be spared: each task comes here six times.
        if self.off:
            return
        try:
            if finish == "processing":
                self.pressure.sent(key)
            elif start == "processing":
                self.pressure.ended(key, finish)
                if finish == "memory":
                    ts = self.scheduler.tasks[key]
                    self.keeper.finished(ts, kwargs.get("startstops") or ())
                elif finish == "released" and internals.has_failed(kwargs["stimulus_id"]):
                    # It is tried again: who knows what comes of it the next time.
                    self.books.tainted.add(key)
            elif start == "memory":
                if key in self.ledger.kept:
                    # Whoever took it: it must not be computed again for the cache alone.
                    self.release.soon([key])
            elif start == "erred" and finish == "released":
                self.books.tainted.add(key)
            detaching = self.detaching
            if finish == "forgotten":
                detaching.forgotten(key)
                self.books.forgotten(key)
            elif detaching.in_use and key in detaching.in_use:
                detaching.transition(key, start, finish)
            if finish == "erred" or start == "erred":
                self.erred.transition(key, start, finish)
            if self.audits.share:
                self.audits.transition(key, finish)
        except Exception as e:
            self.switch_off(e)

    def log_event(self, topic: str, msg: Any) -> None:
        """Events are logged before the scheduler acts on them."""
        if isinstance(msg, dict) and "action" in msg and topic != NAME:
            self._event(topic, msg)

    @guarded
    def _event(self, topic: str, msg: dict[str, Any]) -> None:
        if msg["action"] == "update-graph":
            # No hook tells of a graph that was refused.
            self.submissions.end(topic)
        else:
            self.losses.event(topic, msg)
            self.pressure.event(topic, msg)
            self.detaching.event(topic, msg)

    @guarded
    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """The limit follows the workers, and each gets a guard."""
        self.guards.add_soon([worker])
        self.pressure.heartbeat(worker)
        self.resize(self.limit)

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Forget what was lost, and nobody needs."""
        self.guards.lost(worker)
        self.pressure.lost(worker)
        self.losses.worker_removed(stimulus_id or stimulus())
        self.resize(self.limit)

    def valid_workers_downscaling(
        self, scheduler: Scheduler, workers: list[WorkerState]
    ) -> list[WorkerState]:
        """What is only cached keeps no worker from being closed."""
        return self._stand_ins(workers) or workers

    @guarded
    def _stand_ins(self, workers: list[WorkerState]) -> list[Any]:
        return self.scaling.stand_ins(workers)

    @guarded
    def heartbeat(self, worker: str) -> None:
        """A worker has told how it is."""
        self.keeper.settle()
        self.pressure.heartbeat(worker)

    @guarded
    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """One that does not look at sources must not be answered by what was made of them."""
        if not self.settings["share_sources"] and not client.startswith("CachingClient"):
            self.release.names(self.freshness.readers())

    @guarded
    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """When the last client that asked for caching has gone the idle time starts."""
        self.erred.let_go()
        self.desk.client_gone(client)
        for name in self.books.alive.gone(client):
            self.ledger.policy.living(name, self.books.alive.get(name))

    # -- what the parts ask for ------------------------------------------------

    def resize(self, limit: float) -> None:
        """Change the limit, or follow it as workers come and go."""
        self.limit = limit
        nbytes = limit_in_bytes(limit, self.scheduler)
        self.release.soon(self.ledger.resize(nbytes, shares(nbytes, self.scheduler)))

    def clear(self) -> None:
        """Let go of everything."""
        self.release.everything()
        self.forget_frames()

    def _leave_to(self, place: Place | None, keys: Collection[Key]) -> None:
        """Let go of keys that are kept where they are not wanted."""
        if place is None:
            return
        scheduler, tasks = self.scheduler, self.scheduler.tasks
        elsewhere = {
            key_name(k)
            for k in keys
            if k in self.ledger
            and not any(place.has(scheduler, ws) for ws in tasks[k].who_has or ())
        }
        # With what is made of them: a task that the scheduler knows runs where it ran before.
        self.release_all_of(elsewhere)

    def release_all_of(self, names: set[Any]) -> None:
        """Let go of names, and of all that was made of them: not inside a transition."""
        self.release.now(self.detaching.made_of(names))
        self.release.downstream(names)

    def forget_frames(self) -> None:
        """Forget what was asked of dataframes, and data that was sent with them."""
        # Another thread may work with the old one.
        self.frames = FrameIndex()
        self.data.clear()

    @guarded
    def expire(self) -> None:
        """Nobody has asked for caching for a while, or the workers' code has changed."""
        self.clear()

    def _differs(self, key: Key) -> None:
        """An audit found that a key cannot be kept, nor any of its layer."""
        name = key_name(key)
        self.books.rejected.add(name)
        self.books.deny([name], REJECTED)
        self.release.soon(self.ledger.of_names([name]))

    def warn(self, text: str) -> None:
        """Have all clients warn their users: each once."""
        for client in self.desk.clients:
            self._tell(client, {"op": "cachingclient-warning", "text": text})

    def warn_unused(self, error: Exception) -> None:
        """Have users warned of an error that made the cache stand aside; from any thread."""
        self.loop.call_soon_threadsafe(self.warn, unused(error))

    def hint(self, client: str, text: str) -> None:
        """Tell a client what would have saved a lot of work."""
        self._tell(client, {"op": "cachingclient-hint", "text": text})

    def _tell_workers(self, detached: list[TaskState]) -> None:
        self.guards.forget_ancestors(detached)

    def _tell_kept(self, client: str, keys: list[Key]) -> None:
        self._tell(client, {"op": "cachingclient-kept", "keys": keys})

    def _tell_dropped(self, client: str, keys: list[Key]) -> None:
        self._tell(client, {"op": "cachingclient-dropped", "keys": keys})

    def _tell(self, client: str, message: dict[str, Any]) -> None:
        # A plain client would log an error for a message that it does not know.
        if client in self.desk.clients:
            self.scheduler.client_send(client, message)
