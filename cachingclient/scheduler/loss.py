"""Workers that leave: nothing is computed, copied or warned of for the cache's sake."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask.typing import Key

from cachingclient.scheduler.holding import Holder, stimulus

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler.cachingclient")

METHOD = "remove_worker"
_LEAVING = ("closing_gracefully", "closing", "closed")


class Losses:
    """Watches the events that the scheduler logs *before* it acts on them.

    Parameters
    ----------
    holder : Holder
    forget : callable
        Takes keys off the books.
    is_kept : callable
        Whether a key is on the books.
    """

    def __init__(
        self,
        holder: Holder,
        forget: Callable[[list[Key]], Any],
        is_kept: Callable[[Key], bool],
    ) -> None:
        self.holder = holder
        self.scheduler = holder.scheduler
        self._forget = forget
        self._is_kept = is_kept
        self._orphans: list[TaskState] = []
        self._inner: Any = self.scheduler.remove_worker
        # No event comes before the scheduler says that it lost data which cannot be recovered:
        # it would say so of all that is detached.
        setattr(self.scheduler, METHOD, self._remove_worker)

    async def _remove_worker(self, address: str, **kwargs: Any) -> Any:
        try:
            ws = self.scheduler.workers.get(address)
            if ws is not None:
                lost = {ts for ts in ws.has_what if ts.who_has == {ws}}
                self._let_go(lost, self.holder.only_ours)
        except Exception:
            logger.exception("What was only cached is lost as other data")
        return await self._inner(address, **kwargs)

    def remove(self) -> None:
        """Give the scheduler its own method back."""
        if vars(self.scheduler).get(METHOD) == self._remove_worker:
            delattr(self.scheduler, METHOD)

    def event(self, topic: str, message: dict[str, Any]) -> None:
        """Take in an event."""
        action = message.get("action")
        if action == "remove-worker" and topic == "all":
            self._worker_is_lost(message)
        elif action == "worker-status-change" and message.get("status") in _LEAVING:
            self._worker_leaves(topic, message.get("stimulus_id"))

    def _drop(self, ts: TaskState) -> None:
        self.holder.let_go_silently(ts)
        self._forget([ts.key])

    def _worker_is_lost(self, message: dict[str, Any]) -> None:
        """The scheduler is about to compute again what somebody wants: not for us."""
        computed = message.get("lost-computed-tasks", ())
        for key in (*computed, *message.get("lost-scattered-tasks", ())):
            ts = self.scheduler.tasks.get(key)
            if ts is not None and self._is_kept(key):
                self._drop(ts)
                self._orphans.append(ts)

    def _worker_leaves(self, address: str, stimulus_id: str | None) -> None:
        """Its data is about to be copied elsewhere: not what is only cached, and only there."""
        ws = self.scheduler.workers.get(address)
        if ws is None:
            return
        last = not self.scheduler.running - {ws}
        leaving = {
            ts
            for ts in ws.has_what
            if last or all(w.status.name in _LEAVING for w in ts.who_has or ())
        }
        # What something waits for is released when that has run: not copied after.
        self._let_go(leaving, self.holder.nobody_else_wants, stimulus_id)
        if last:
            keys = [ts.key for ts in self.holder.client.wants_what]
            self._forget(keys)
            self.holder.let_go(keys)

    def _let_go(
        self,
        leaving: set[TaskState],
        may_go: Callable[[TaskState], bool],
        stimulus_id: str | None = None,
    ) -> None:
        """Have the scheduler forget what is only cached."""
        gone: dict[Key, Any] = {}
        for ts in leaving:
            if self._is_kept(ts.key) and may_go(ts):
                only_cached = self.holder.only_ours(ts)
                self._drop(ts)
                if only_cached:
                    gone[ts.key] = "released" if ts.dependents else "forgotten"
        if gone:
            self.scheduler.transitions(gone, stimulus_id or stimulus())

    def worker_removed(self, stimulus_id: str) -> None:
        """What was lost, and nobody needs, is forgotten, as it is where nothing was kept."""
        orphans, self._orphans = self._orphans, []
        tasks = self.scheduler.tasks
        gone: dict[Key, Any] = {
            ts.key: "forgotten"
            for ts in orphans
            if tasks.get(ts.key) is ts
            and ts.state == "released"
            and not (ts.who_wants or ts.waiters or ts.dependents)
        }
        if gone:
            self.scheduler.transitions(gone, stimulus_id)
