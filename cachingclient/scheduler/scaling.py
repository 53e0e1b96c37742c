"""Scaling: what is only cached does not count when workers are asked for, closed or evened out.

The scheduler counts all bytes that its workers hold: kept results would make an adaptive
cluster grow, and keep it from shrinking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from dask.typing import Key

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState

    from cachingclient.scheduler.holding import Holder


class StandIn:
    """A worker's state with other `nbytes`: the scheduler's own must not be changed."""

    __slots__ = ("_worker", "nbytes")

    def __init__(self, worker: WorkerState, nbytes: int) -> None:
        self._worker = worker
        self.nbytes = nbytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def __hash__(self) -> int:
        return hash(self._worker)

    def __eq__(self, other: object) -> bool:
        return self._worker == getattr(other, "_worker", other)


class Scaling:
    """Stands before what the scheduler decides on by the bytes that its workers hold.

    Parameters
    ----------
    holder : Holder
    failed : callable
        Told of an exception of ours; the scheduler decides alone then.
    """

    def __init__(self, holder: Holder, failed: Callable[[Exception], Any]) -> None:
        self.holder = holder
        self.scheduler: Any = holder.scheduler
        self._failed = failed
        self._left_out = False
        self._ours = {
            "adaptive_target": self._target(self.scheduler.adaptive_target),
            "rebalance": self._rebalance(self.scheduler.rebalance),
        }
        self._handlers = {op: self.scheduler.handlers[op] for op in self._ours}
        for op, ours in self._ours.items():
            # Some look it up on the scheduler (HTTP routes), some send a message.
            setattr(self.scheduler, op, ours)
            self.scheduler.handlers[op] = ours

    def cached(self) -> Counter[WorkerState]:
        """Bytes that are only cached, by worker."""
        found: Counter[WorkerState] = Counter()
        for ts in self._only_cached():
            for worker in ts.who_has or ():
                found[worker] += ts.get_nbytes()
        return found

    def _only_cached(self) -> Iterator[TaskState]:
        return filter(self.holder.only_ours, self.holder.client.wants_what)

    def stand_ins(self, workers: Sequence[WorkerState]) -> list[Any]:
        """The same workers, as if nothing was only cached."""
        cached = Counter() if self._left_out else self.cached()
        return [StandIn(ws, ws.nbytes - cached[ws]) if cached[ws] else ws for ws in workers]

    @contextmanager
    def _without_cached(self) -> Iterator[None]:
        """Leave out what is only cached while the scheduler decides, which is at once."""
        try:
            cached = self.cached()
        except Exception as e:
            self._failed(e)
            cached = Counter()
        self._left_out = True
        for worker, nbytes in cached.items():
            worker.nbytes -= nbytes
        try:
            yield
        finally:
            for worker, nbytes in cached.items():
                worker.nbytes += nbytes
            self._left_out = False

    def _target(self, plain: Callable[..., int]) -> Callable[..., int]:
        @wraps(plain)
        def adaptive_target(*args: Any, **kwargs: Any) -> int:
            with self._without_cached():
                return plain(*args, **kwargs)

        return adaptive_target

    def _rebalance(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        async def rebalance(
            keys: Iterable[Key] | None = None, *args: Any, **kwargs: Any
        ) -> dict[str, Any]:
            others = self._others() if keys is None else None
            if others is None:
                return await plain(keys, *args, **kwargs)
            answer = await plain(others, *args, **kwargs)
            # Nobody named these keys: as without names, some may be gone meanwhile.
            return {"status": "OK"} if answer["status"] == "partial-fail" else answer

        return rebalance

    def _others(self) -> list[Key] | None:
        """Keys that are not only cached: nothing is copied for the cache's sake."""
        try:
            cached = {ts.key for ts in self._only_cached()}
        except Exception as e:
            self._failed(e)
            return None
        if not cached:
            return None
        tasks = self.scheduler.tasks
        return [k for k, ts in tasks.items() if ts.state == "memory" and k not in cached]

    def remove(self) -> None:
        """Let the scheduler decide alone."""
        for op, ours in self._ours.items():
            if vars(self.scheduler).get(op) is ours:
                delattr(self.scheduler, op)
            if self.scheduler.handlers.get(op) is ours:
                self.scheduler.handlers[op] = self._handlers[op]
