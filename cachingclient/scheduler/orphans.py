"""Tasks that the scheduler makes, and that nobody refers to.

Where a graph has another task for a key that is known, the scheduler keeps the known one, makes
what the other one would have needed all the same, and never forgets it: its `restart` refuses to
work from then on. Plain clients do so after persist; a key that is kept makes it happen to clients
that fuse more than we do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dask.typing import Key

from cachingclient.scheduler.holding import stimulus

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState


class Orphans:
    """Forgets them.

    Parameters
    ----------
    scheduler : Scheduler
    failed : callable
        Told of an exception in deferred work.
    """

    def __init__(self, scheduler: Scheduler, failed: Callable[[Exception], None]) -> None:
        self.scheduler = scheduler
        self._failed = failed

    def arrived(self, keys: Iterable[Key]) -> None:
        """Look at the tasks of a graph that has just arrived."""
        tasks = self.scheduler.tasks
        found = [ts for k in keys if (ts := tasks.get(k)) is not None and _unreferenced(ts)]
        if found:
            # What the graph starts is started first.
            asyncio.get_running_loop().call_soon(self._work, found)

    def _work(self, found: list[TaskState]) -> None:
        tasks = self.scheduler.tasks
        gone = [ts.key for ts in found if tasks.get(ts.key) is ts and _unreferenced(ts)]
        try:
            # What only they needed goes with them.
            self.scheduler.transitions(dict.fromkeys(gone, "forgotten"), stimulus())
        except Exception as e:
            self._failed(e)


def _unreferenced(ts: TaskState) -> bool:
    return ts.state == "released" and not (ts.dependents or ts.who_wants or ts.waiters)
