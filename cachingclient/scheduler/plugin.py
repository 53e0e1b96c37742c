"""The scheduler plugin: hooks, and nothing but what connects them to the parts beside it."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin

from cachingclient.admission import REJECTED, key_name
from cachingclient.ledger import Ledger
from cachingclient.policy import CacheyPolicy
from cachingclient.registry import PLUGINS
from cachingclient.scheduler.audit import Audits
from cachingclient.scheduler.books import Books
from cachingclient.scheduler.cancelling import CancelGuard
from cachingclient.scheduler.desk import NAME, Desk
from cachingclient.scheduler.detaching import Detaching
from cachingclient.scheduler.durations import Durations
from cachingclient.scheduler.environment import Environment
from cachingclient.scheduler.freshness import Freshness
from cachingclient.scheduler.guard import guarded
from cachingclient.scheduler.holding import Holder, stimulus
from cachingclient.scheduler.keeping import Keeper
from cachingclient.scheduler.limits import limit_in_bytes
from cachingclient.scheduler.loss import Losses
from cachingclient.scheduler.releasing import Release
from cachingclient.scheduler.submissions import Submission, Submissions
from cachingclient.scheduler.workers import Guards

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

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
        self.off = False

    # -- life ------------------------------------------------------------------

    async def start(self, scheduler: Scheduler) -> None:
        """Set up beside a scheduler; takes over from a plugin that is there already."""
        old = scheduler.plugins.get(self.name)
        if isinstance(old, CachePlugin):
            old.leave(unregister=False)
        self.scheduler = scheduler
        self.loop = asyncio.get_running_loop()
        self.books = Books()
        self.holder = Holder(scheduler, self.switch_off)
        policy = CacheyPolicy(self.settings["halflife"])
        self.ledger = Ledger(policy, limit_in_bytes(self.limit, scheduler))
        self.release = Release(self.holder, self.ledger, self.books, self._tell_dropped)
        self.submissions = Submissions(self.settings["lease_time"])
        self._start_parts(scheduler)
        self._learn_anew()
        PLUGINS[scheduler.id] = self
        await self.guards.add(list(scheduler.workers))

    def _start_parts(self, scheduler: Scheduler) -> None:
        is_kept = self.ledger.__contains__
        self.detaching = Detaching(
            self.holder,
            self.ledger,
            self.settings["scheduler_memory"],
            self.release.soon,
            self._tell_workers,
            self.submissions.any,
            self.switch_off,
        )
        self.keeper = Keeper(self, self._tell_kept)
        self.losses = Losses(self.holder, self.release.forget, is_kept)
        self.cancelling = CancelGuard(self.holder, is_kept, self.release.forget)
        self.environment = Environment(scheduler, self.expire)
        self.guards = Guards(scheduler)
        self.audits = Audits(
            scheduler, self.settings["audit"], self._differs, self.detaching.tasks_of
        )
        self.desk = Desk(self)

    def _learn_anew(self) -> None:
        self.durations = Durations()
        self.freshness = Freshness(self.settings["source_lifetime"], time.monotonic)

    def leave(self, unregister: bool = True) -> None:
        """Let everything go and leave nothing behind but, to a successor, guards on workers."""
        self.off = True
        self.detaching.close()
        self.clear()
        self.holder.close()
        self.cancelling.remove()
        self.losses.remove()
        self.environment.remove()
        self.audits.close()
        self.desk.close()
        if PLUGINS.get(self.scheduler.id) is self:
            del PLUGINS[self.scheduler.id]
        if unregister:
            self.guards.remove_soon()
            if self.scheduler.plugins.get(self.name) is self:
                self.scheduler.remove_plugin(self.name)

    def switch_off(self, error: Exception) -> None:
        """Keep nothing from now on: the scheduler works as it would alone."""
        if not self.off:
            self.off = True
            logger.error("The cache is switched off after an error", exc_info=error)
            try:
                self.detaching.close()
                self.clear()
            except Exception:
                logger.exception("The cache could not be cleared")

    async def before_close(self) -> None:
        """Stop the clock; a closing scheduler has nobody to answer."""
        self.off = True
        self.detaching.stop()
        self.desk.close()

    def restart(self, scheduler: Scheduler) -> None:
        """Everything is gone: start anew."""
        for key in list(self.ledger.kept):
            self.ledger.forget(key)
        self.books.restart()
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
    ) -> None:
        """Hear which names of the next graph may be kept, and which not."""
        self.release.names(denied)
        self.release.stale(self.freshness.submitted(sources, unsure))
        self.release.stale(self.freshness.made(readers))
        self.books.allow(allowed)
        self.ledger.policy.request()
        used = [k for k in allowed if k in self.ledger]
        self._use(used, skipped=len(used))

    @guarded
    def open_submission(self, request: Request) -> Submission:
        """Take, at one moment, what is kept; it stays until the submission has arrived."""
        self.ledger.policy.request()
        self.detaching.settle()
        self.release.stale(self.freshness.submitted(request.sources, request.unsure))
        submission = Submission(self, request, self.submissions.deadline())
        self.submissions.add(submission)
        # What is said of its keys before this was said of an earlier submission.
        self._tell(request.client, {"op": "cachingclient-arrived", "number": request.number})
        return submission

    def withdraw(self, names: Collection[Any], keys: Collection[Key]) -> None:
        """Let go of names from another thread, and wait until it is done."""
        done: ThreadFuture[None] = ThreadFuture()

        def work() -> None:
            try:
                self.release.names(names, keys)
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
        submission = self.submissions.end(client)
        if submission is None or submission.outputs != keys:
            return
        request, verdict = submission.request, submission.verdict
        if verdict is not None:
            gone = self.freshness.made(verdict.readers) | self.freshness.note(request.made_of)
            self.release.soon(self.ledger.of_names(gone))
            if request.use:
                self.books.allow(verdict.allowed - gone)
            self.books.deny({*verdict.denied, *gone})
        self.durations.watch(submission.measured)
        self.books.living(request.alive)
        if submission.complete:
            self._tell_kept(client, list(keys)[:MANY_OUTPUTS])
        elif len(keys) <= MANY_OUTPUTS:
            self.books.asked(client, keys, submission.total // len(keys))
        used = [k for k in submission.used if k in self.ledger]
        self._use(used, submission.skipped or sum(self.ledger.kept[k].tasks or 1 for k in used))
        if not self.submissions.any():
            self.release.soon(self.ledger.over_limit())

    def _use(self, keys: list[Key], skipped: int) -> None:
        self.ledger.hit(keys)
        self.ledger.skipped += skipped
        for key in keys:
            self.audits.used(key)
            self.books.paid[key] = 0.0  # what is computed from it now did not pay for it

    @guarded
    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Offer what has just been computed to the ledger, and notice what is gone."""
        if finish == "memory":
            if start == "processing":
                ts = self.scheduler.tasks[key]
                self.keeper.finished(ts, kwargs.get("startstops") or ())
        elif start == "memory" and key in self.ledger:
            # Whoever took it: it must not be computed again for the cache alone.
            self.release.soon([key])
        elif start == "processing" and finish == "waiting":
            # It failed, and is tried again: who knows what comes of it the next time.
            self.books.tainted.add(key)
        self.detaching.transition(key, start, finish)
        self.audits.transition(key, finish)
        if finish == "forgotten":
            self.books.forgotten(key)

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
        self.resize(self.limit)

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Forget what was lost, and nobody needs."""
        self.guards.lost(worker)
        self.losses.worker_removed(stimulus_id or stimulus())
        self.resize(self.limit)

    @guarded
    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """One that does not look at sources must not be answered by what was made of them."""
        if not self.settings["share_sources"] and not client.startswith("CachingClient"):
            self.release.names(self.freshness.readers())

    @guarded
    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """When the last client that asked for caching has gone the idle time starts."""
        self.desk.client_gone(client)

    # -- what the parts ask for ------------------------------------------------

    def resize(self, limit: float) -> None:
        """Change the limit, or follow it as workers come and go."""
        self.limit = limit
        self.release.soon(self.ledger.resize(limit_in_bytes(limit, self.scheduler)))

    def clear(self) -> None:
        """Let go of everything."""
        self.release.everything()

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
