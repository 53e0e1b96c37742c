"""What a session costs: seconds and number of tasks, and memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psutil
from distributed import SchedulerPlugin

#: Seconds between two looks at the memory
INTERVAL = 0.1


class Ran(SchedulerPlugin):
    """Counts the tasks that ran on workers, and adds up how long."""

    name = "ran"

    def __init__(self) -> None:
        self.tasks = 0
        self.seconds = 0.0

    def start(self, scheduler: Any) -> None:
        pass

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self.tasks += 1
            # The last: a worker tells of earlier runs of a task, too, if it still knows it.
            for span in reversed(kwargs.get("startstops") or ()):
                if span["action"] == "compute":
                    self.seconds += span["stop"] - span["start"]
                    break


class CountingPool(ThreadPoolExecutor):
    """Does the same for dask's threaded scheduler, which hands each task to a pool."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.tasks = 0
        self.seconds = 0.0
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._timed, function, *args, **kwargs)

    def _timed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            with self._lock:
                self.tasks += 1
                self.seconds += time.perf_counter() - start


def cpu() -> float:
    """Seconds of CPU that this process and those it started have used."""
    me = psutil.Process()
    return float(sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True))))


class Memory:
    """The most memory that processes had together; a context manager.

    Parameters
    ----------
    pids : list of int
    """

    def __init__(self, pids: list[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        #: bytes
        self.peak = 0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            # A worker that was killed has none.
            with suppress(psutil.NoSuchProcess):
                self.peak = max(self.peak, sum(p.memory_info().rss for p in self._processes))
            if self._done.wait(INTERVAL):
                return
