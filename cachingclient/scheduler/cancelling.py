"""Cancelling what kept results depend on.

The scheduler cancels dependents along with a key and expects that somebody wants
each of them. Tasks between a cancelled key and a kept result are wanted by nobody,
so the kept results go first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

OPERATION = "cancel-keys"


class CancelGuard:
    """Stands before the scheduler's own handler.

    Parameters
    ----------
    scheduler : Scheduler
    is_kept : callable
        Whether a key is kept.
    let_go : callable
        Lets kept keys go at once.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        is_kept: Callable[[Hashable], bool],
        let_go: Callable[[Collection[Hashable]], None],
    ) -> None:
        self.scheduler = scheduler
        self._is_kept = is_kept
        self._let_go = let_go
        self._inner = scheduler.stream_handlers[OPERATION]
        scheduler.stream_handlers[OPERATION] = self

    def __call__(self, keys: Collection[Hashable] = (), **kwargs: Any) -> Any:
        kept = self._kept_downstream(keys)
        if kept:
            self._let_go(kept)
        return self._inner(keys=keys, **kwargs)

    def _kept_downstream(self, keys: Collection[Hashable]) -> list[Hashable]:
        work, seen, kept = list(keys), set(keys), []
        while work:
            key = work.pop()
            if self._is_kept(key):
                kept.append(key)
            ts = self.scheduler.tasks.get(key)
            for dependent in ts.dependents if ts is not None else ():
                if dependent.key not in seen:
                    seen.add(dependent.key)
                    work.append(dependent.key)
        return kept

    def remove(self) -> None:
        """Put the scheduler's own handler back."""
        if self.scheduler.stream_handlers.get(OPERATION) is self:
            self.scheduler.stream_handlers[OPERATION] = self._inner
