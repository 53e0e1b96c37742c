"""Results that nobody waits for: `fire_and_forget` of a key that is there already.

The scheduler lets go of such a key when its task has run. That of a kept one need not run, nor
that of a final one that somebody else has just asked for: the key would be wanted for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from dask.typing import Key

from cachingclient.graph.finalize import is_final
from cachingclient.scheduler.holding import Holder, stimulus

OPERATION = "client-desires-keys"
#: The client in whose name work is done that nobody waits for.
NOBODY = "fire-and-forget"


class ForgetGuard:
    """Stands before the scheduler's own handler.

    Parameters
    ----------
    holder : Holder
    is_kept : callable
        Whether a key is kept.
    """

    def __init__(self, holder: Holder, is_kept: Callable[[Key], bool]) -> None:
        self.scheduler = holder.scheduler
        self._is_kept = is_kept
        self._handlers: dict[str, Any] = self.scheduler.stream_handlers
        self._inner = self._handlers[OPERATION]
        self._handlers[OPERATION] = self

    def __call__(self, keys: Collection[Key], client: str, **kwargs: Any) -> None:
        self._inner(keys=keys, client=client, **kwargs)
        if client == NOBODY:
            tasks = self.scheduler.tasks
            there = [
                k
                for k in keys
                if k in tasks and tasks[k].state == "memory" and (self._is_kept(k) or is_final(k))
            ]
            if there:
                self.scheduler.client_releases_keys(there, NOBODY, stimulus_id=stimulus())

    def remove(self) -> None:
        """Put the scheduler's own handler back."""
        if self._handlers.get(OPERATION) is self:
            self._handlers[OPERATION] = self._inner
