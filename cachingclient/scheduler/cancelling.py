"""Cancelling what kept results depend on.

The scheduler cancels dependents along with a key, and expects that somebody wants
each of them. Barriers and kept results leave tasks that nobody wants between a
cancelled key and what is alive; its handler would end in an AssertionError, and take
the client's connection with it.

The final key of a computation is that of equal ones of other clients, where plain dask has
another each time: who cancels it cancels it for himself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from dask.typing import Key

from cachingclient.graph.finalize import is_final

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import ClientState, TaskState

    from cachingclient.scheduler.holding import Holder

OPERATION = "cancel-keys"


class CancelGuard:
    """Stands before the scheduler's own handler.

    Parameters
    ----------
    holder : Holder
    is_kept : callable
        Whether a key is kept.
    forget : callable
        Takes keys off the books.
    """

    def __init__(
        self,
        holder: Holder,
        is_kept: Callable[[Key], bool],
        forget: Callable[[list[Key]], Any],
    ) -> None:
        self.holder = holder
        self.scheduler: Scheduler = holder.scheduler
        self._is_kept = is_kept
        self._forget = forget
        self._inner: Any = self.scheduler.stream_handlers[OPERATION]
        self.scheduler.stream_handlers[OPERATION] = self

    def __call__(
        self, keys: Collection[Key], client: str, force: bool = False, **kwargs: Any
    ) -> None:
        cs = self.scheduler.clients.get(client)
        if cs is not None and not force:
            # The handler tells all clients, and one may have asked for the same in the meantime.
            alone = {k for k in keys if is_final(k) and not self._has_dependents(k)}
            self._cancel_alone(alone, cs, **kwargs)
            keys = [k for k in keys if k not in alone]
            if not keys:
                return
        if cs is None or not self._meets_unwanted(keys, cs, force):
            self._inner(keys=keys, client=client, force=force, **kwargs)
        else:
            self._release(keys, cs, force, **kwargs)

    def _cancel_alone(self, keys: Collection[Key], cs: ClientState, **kwargs: Any) -> None:
        for key in keys:
            ts = self.scheduler.tasks.get(key)
            if ts is not None and cs in (ts.who_wants or ()):
                self._let_go(ts)
        self._release(keys, cs, force=False, **kwargs)

    def _has_dependents(self, key: Key) -> bool:
        ts = self.scheduler.tasks.get(key)
        return ts is not None and bool(ts.dependents)

    def _meets_unwanted(self, keys: Collection[Key], cs: ClientState, force: bool) -> bool:
        """Go the way that the scheduler's handler goes: what is cancelled is not kept."""
        work = [self.scheduler.tasks[k] for k in keys if k in self.scheduler.tasks]
        seen = set(work)
        met = False
        while work:
            ts = work.pop()
            wanted = ts.who_wants or set()
            met |= not wanted
            if force or cs in wanted:
                self._let_go(ts)
            if force or ts.who_wants == {cs}:
                work.extend(d for d in ts.dependents if d not in seen)
                seen.update(ts.dependents)
        return met

    def _let_go(self, ts: TaskState) -> None:
        # Somebody else wants it too, so that it stays in memory until the handler has run.
        if self._is_kept(ts.key) and len(ts.who_wants or ()) > 1:
            self._forget([ts.key])
            self.holder.let_go_silently(ts)

    def _release(
        self,
        keys: Collection[Key],
        cs: ClientState,
        force: bool,
        reason: str | None = None,
        msg: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Cancel the keys themselves, and leave what depends on them alone."""
        known = [self.scheduler.tasks[k] for k in keys if k in self.scheduler.tasks]
        clients = {c for ts in known for c in ts.who_wants or ()} if force else {cs}
        for client in clients:
            wanted = [ts.key for ts in known if client in (ts.who_wants or ())]
            self.scheduler.client_releases_keys(wanted, client.client_key)
            message = {"op": "cancelled-keys", "keys": wanted, "reason": reason, "msg": msg}
            self.scheduler.client_send(client.client_key, message)

    def remove(self) -> None:
        """Put the scheduler's own handler back."""
        handler: Any = self.scheduler.stream_handlers.get(OPERATION)
        if handler is self:
            self.scheduler.stream_handlers[OPERATION] = self._inner
