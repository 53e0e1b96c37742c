"""How many bytes a limit stands for on a cluster whose workers come and go."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from distributed.system import MEMORY_LIMIT

if TYPE_CHECKING:
    from distributed import Scheduler


def limit_in_bytes(limit: float, scheduler: Scheduler) -> int:
    """Bytes that a limit stands for.

    Parameters
    ----------
    limit : float
        A share of the cluster's memory up to 1, bytes above.
    scheduler : Scheduler
    """
    return int(limit if limit > 1 else limit * cluster_memory(scheduler))


def cluster_memory(scheduler: Scheduler) -> int:
    """Memory of all workers in bytes; one without a limit counts with its part of its host's."""
    return sum(_memories(scheduler).values())


def shares(limit_in_bytes: int, scheduler: Scheduler) -> dict[str, int]:
    """Bytes of a limit that each worker may hold: as its memory is a part of the cluster's."""
    memories = _memories(scheduler)
    whole = sum(memories.values()) or 1
    return {address: limit_in_bytes * own // whole for address, own in memories.items()}


def _memories(scheduler: Scheduler) -> dict[str, int]:
    unlimited = Counter(ws.host for ws in scheduler.workers.values() if not ws.memory_limit)
    return {
        address: ws.memory_limit or MEMORY_LIMIT // unlimited[ws.host]
        for address, ws in scheduler.workers.items()
    }
