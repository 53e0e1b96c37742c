"""Heartbeats of workers: no hook tells of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

OPERATION = "heartbeat_worker"


class Heartbeats:
    """Stands before the scheduler's own handler.

    Parameters
    ----------
    scheduler : Scheduler
    heard : callable
        Called after each heartbeat with the address of its worker.
    """

    def __init__(self, scheduler: Scheduler, heard: Callable[[str], Any]) -> None:
        self._handlers: dict[str, Any] = scheduler.handlers
        plain = self._plain = self._handlers[OPERATION]

        # The scheduler looks at the signature to see whether to hand over the comm.
        @wraps(plain)
        def handler(*args: Any, **kwargs: Any) -> Any:
            answer = plain(*args, **kwargs)
            heard(kwargs.get("address", ""))
            return answer

        self._ours = self._handlers[OPERATION] = handler

    def remove(self) -> None:
        """Put the scheduler's own handler back."""
        if self._handlers.get(OPERATION) is self._ours:
            self._handlers[OPERATION] = self._plain
