"""What a worker tells the scheduler of its memory, sooner and more than its heartbeats do."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from tornado.ioloop import PeriodicCallback

from cachingclient.bounded import Bounded
from cachingclient.worker.sizes import Size, measure

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

logger = logging.getLogger("distributed.worker.cachingclient")

#: Topic of what is told between heartbeats, and name of what is told in each of them.
TOPIC = "cachingclient-memory"
#: What is told of a result whose size dask does not see.
SIZE = "cachingclient-size"
#: Milliseconds between two looks: two for each look that a worker takes by itself.
INTERVAL = 50
#: The same where the process is small: the least and the most, and bytes a millisecond by which
#: each of its threads may make it grow.
SELDOM, RARELY = 200, 500
GROWTH = 2e6
#: Seconds in which tasks that end need no look of their own.
SOON = 0.005
#: Share of the limit below which there is nothing to tell, and a change that is worth telling.
ATTENTION = 0.4
CHANGE = 0.02
#: Share of the limit from which each result is looked at, and that of a result that always is.
HIGH, NOTICED = 0.3, 0.002
#: Tasks that run whose beginnings are remembered.
MANY = 1_000
#: A result that is larger by so many bytes than dask thinks is worth telling.
HIDDEN = 1_000_000

#: Workers of this process: where there are several, its memory says nothing of one of them.
_here: weakref.WeakSet[Worker] = weakref.WeakSet()


class MemoryWatch:
    """Watches one worker.

    Parameters
    ----------
    worker : Worker
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._tasks = worker.state.tasks
        self.limit: int = worker.memory_manager.memory_limit or 0
        self._noticed = NOTICED * self.limit
        # The dict in it, where there is one: asking an LRU makes a key the last to be spilled.
        fast = getattr(worker.data, "fast", worker.data)
        self._values = getattr(fast, "d", fast)
        self._told = self._told_spilled = self._unmanaged = 0
        self._looked = 0.0
        #: whether the process is so large that small results count too
        self._high = True
        #: {key that runs: bytes of the process beside what tasks returned, when it began}
        self._before = Bounded(MANY)  # those that fail are not heard of again
        self._failed = False
        #: tasks whose values change when they are read
        self._delicate: weakref.WeakSet[TaskState] = weakref.WeakSet()
        _here.add(worker)
        worker.metrics[TOPIC] = self.metric
        self._timer: PeriodicCallback | None = None
        if self.limit and not self.shared():
            self._timer = PeriodicCallback(self.look, INTERVAL)
            self._timer.start()

    def remove(self) -> None:
        """Watch no more."""
        _here.discard(self.worker)
        if self._timer is not None:
            self._timer.stop()
        if self.worker.metrics.get(TOPIC) == self.metric:
            del self.worker.metrics[TOPIC]

    def shared(self) -> bool:
        """Whether others are in the same process."""
        return len(_here) > 1 or self.worker.address.startswith("inproc://")

    def metric(self, worker: Worker) -> dict[str, Any]:
        """All that the scheduler should know: a part of each heartbeat."""
        manager = worker.memory_manager
        return {
            **self.reading(),
            "pid": os.getpid(),
            "shared": self.shared(),
            "target": manager.memory_target_fraction if hasattr(worker.data, "fast") else False,
            "spill": manager.memory_spill_fraction if hasattr(worker.data, "evict") else False,
            "pause": manager.memory_pause_fraction,
        }

    def reading(self) -> dict[str, Any]:
        """Memory now."""
        spilled, _ = getattr(self.worker.data, "spilled_total", (0, 0))
        process, managed = self.worker.monitor.get_process_memory(), self.worker.state.nbytes
        self._unmanaged = process - managed + spilled
        return {"process": process, "managed": managed, "spilled": spilled}

    def look(self) -> None:
        """Tell of a change that matters."""
        try:
            self._look()
        except Exception:
            self._failed_once()

    def _look(self) -> None:
        now = monotonic()
        if now < self._looked + SOON or not self.limit or self.shared():
            return
        self._looked = now
        reading = self.reading()
        process, spilled = reading["process"], reading["spilled"]
        was_high, self._high = self._high, process > HIGH * self.limit
        if self._timer is not None:
            self._timer.callback_time = INTERVAL if self._high else self._pause(process)
            if self._high and not was_high:
                self.worker.loop.add_callback(self._sooner)
        high = max(process, self._told) > ATTENTION * self.limit
        grown = spilled - self._told_spilled > CHANGE * self.limit
        changed = abs(process - self._told) > CHANGE * self.limit and high
        if changed or grown or bool(spilled) != bool(self._told_spilled):
            self._told, self._told_spilled = process, spilled
            message = {"action": TOPIC, "worker": self.worker.address, **reading}
            self.worker.log_event(TOPIC, message)

    def _sooner(self) -> None:
        """Have the next look come as soon as it has to come now."""
        if self._timer is not None and self._timer.is_running():
            self._timer.stop()
            self._timer.start()

    def _pause(self, process: int) -> float:
        """Milliseconds in which a small process cannot get large."""
        growth = GROWTH * self.worker.state.nthreads
        return min(max((HIGH * self.limit - process) / growth, SELDOM), RARELY)

    def begins(self, key: Key) -> None:
        """A task begins."""
        self._before.note(key, self._unmanaged)

    def came(self, key: Key, start: str) -> None:
        """A value has come into memory."""
        try:
            ts = self._tasks.get(key)
            if ts is None:
                return
            found = self._measured(ts)
            if start == "executing" or start == "long-running":
                self._size(ts, found)
            if self._high or (ts.nbytes or 0) > self._noticed:
                self.look()
        except Exception:
            self._failed_once()

    def delicate(self, tasks: Iterable[TaskState]) -> list[Key]:
        """Keys of those whose values change when they are read, as far as that is known."""
        return [ts.key for ts in tasks if ts in self._delicate] if self._delicate else []

    def _measured(self, ts: TaskState) -> Size | None:
        """What dask does not see of a value."""
        # What has been spilled at once is not read again for this.
        value = self._values.get(ts.key)
        if value is None:
            return None
        found = measure(value)
        if found is not None and found.delicate:
            self._delicate.add(ts)
        return found

    def _size(self, ts: TaskState, found: Size | None) -> None:
        """Tell the size of a value of which dask does not see it."""
        key = ts.key
        before = self._before.pop(key, None)
        if found is None:
            return
        nbytes = found.nbytes
        if not found.whole and before is not None and not self.shared():
            # What came with it is the best that can be known of what cannot be looked into.
            self.reading()
            nbytes = max(nbytes, self._unmanaged - before)
        if nbytes > ts.get_nbytes() + HIDDEN:
            self.worker.log_event(SIZE, {"action": SIZE, "key": key, "nbytes": nbytes})

    def _failed_once(self) -> None:
        if not self._failed:
            self._failed = True
            logger.exception("The memory of a worker could not be watched")
