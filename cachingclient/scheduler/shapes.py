"""What the shape of a graph says of a result: whether it is worth something alone, and sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.comm import get_address_host

from cachingclient.bounded import Bounded
from cachingclient.tasks import is_barrier

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

#: Names whose shape is remembered.
REMEMBERED = 10_000


class Shapes:
    """Layers whose keys are worth something only together: outputs of shuffles.

    A missing output of a shuffle needs a piece of every input, and all inputs have to be split
    for it: it takes as long as all outputs together. That is seen in the graph, whatever the
    shuffle is called; and P2P shuffles start anew for each output that is missing.
    """

    def __init__(self) -> None:
        #: {name: number of keys that are worth something together, or 0}
        self._parts = Bounded(REMEMBERED)

    def parts(self, ts: TaskState, name: Any) -> int:
        """How many keys of its layer a task is worth something together with; 0 if it is alone."""
        known: int | None = self._parts.get(name)
        if known is None:
            known = len(ts.group) if is_all_to_all(ts) or follows_barrier(ts) else 0
            self._parts.note(name, known)
        return known


def follows_barrier(ts: TaskState) -> bool:
    """Whether a task is an output of a P2P shuffle."""
    return any(is_barrier(d.run_spec) for d in ts.dependencies)


def is_all_to_all(ts: TaskState) -> bool:
    """Whether each task of a group takes a piece of every input."""
    if len(ts.dependencies) < 2 or len(ts.group) < 2:
        return False
    piece = next(iter(ts.dependencies))
    if piece.group is ts.group or len(piece.group) < 2 * len(ts.dependencies):
        return False
    for whole in piece.dependencies:
        # As many inputs as pieces, and each is cut into pieces for several outputs.
        if len(whole.group) == len(ts.dependencies) and len(whole.dependents) > 1:
            return True
    return False


def transfer_seconds(scheduler: Scheduler, nbytes: int) -> float:
    """Seconds that another worker would take to fetch a result.

    Parameters
    ----------
    scheduler : Scheduler
        Where a process is alone nothing is fetched, and on one machine at the speed of memory.
    nbytes : int
        Bytes.
    """
    workers = scheduler.workers
    if len(workers) < 2 or next(iter(workers)).startswith("inproc://"):
        return 0.0
    if len({get_address_host(address) for address in workers}) == 1:
        return 0.0
    return nbytes / scheduler.bandwidth
