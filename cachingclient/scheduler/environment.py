"""Changes of the workers' code: what was computed with the old code is let go."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

#: Plugins upload files and directories, and install packages.
OPERATIONS = (
    "register_worker_plugin",
    "unregister_worker_plugin",
    "register_nanny_plugin",
    "unregister_nanny_plugin",
)


class Environment:
    """Stands before the scheduler's own handlers.

    Parameters
    ----------
    scheduler : Scheduler
    changed : callable
        Called after each change.
    """

    def __init__(self, scheduler: Scheduler, changed: Callable[[], Any]) -> None:
        self._handlers: dict[str, Any] = scheduler.handlers
        self._changed = changed
        self._plain = {op: self._handlers[op] for op in OPERATIONS if op in self._handlers}
        self._ours = {op: self._wrap(plain) for op, plain in self._plain.items()}
        self._handlers.update(self._ours)

    def _wrap(self, plain: Any) -> Any:
        # The scheduler looks at the signature to see whether to hand over the comm.
        @wraps(plain)
        async def handler(*args: Any, **kwargs: Any) -> Any:
            try:
                return await plain(*args, **kwargs)
            finally:
                self._changed()

        return handler

    def remove(self) -> None:
        """Put the scheduler's own handlers back."""
        for op, ours in self._ours.items():
            if self._handlers.get(op) is ours:
                self._handlers[op] = self._plain[op]
