"""What one more task costs on this cluster: the time of its threads that no task accounts for."""

from __future__ import annotations

from collections import deque

#: Tasks of a window.
WINDOW = 100
#: Windows that count.
WINDOWS = 15
#: Seconds between which the cost of a task lies, whatever a window seems to show.
LEAST, MOST = 0.5e-3, 50e-3


class Overhead:
    """Seconds of a worker's thread that a task costs beside its own time.

    Over a window of tasks, all of it with more to do than there are threads, these were busy with
    tasks for the sum of their durations; the rest of the window is what the tasks cost beside.
    Transfers and waiting for the scheduler count too, so the lower quartile of several windows is
    taken.

    Parameters
    ----------
    assumed : float
        Seconds, until something was measured; 0 stays, so that barriers are free.

    Examples
    --------
    >>> overhead = Overhead(assumed=4e-3)
    >>> for i in range(201):
    ...     overhead.ran(now=i * 0.01, seconds=0.008, threads=1, busy=True)
    >>> round(overhead.seconds, 6)
    0.002
    """

    def __init__(self, assumed: float) -> None:
        self.seconds = assumed
        self._windows: deque[float] = deque(maxlen=WINDOWS)
        self._start: float | None = None
        self._tasks = 0
        self._worked = 0.0

    def ran(self, now: float, seconds: float, threads: int, busy: bool) -> None:
        """A task has finished.

        Parameters
        ----------
        now : float
            Seconds, of any clock.
        seconds : float
            How long it ran.
        threads : int
            Threads of all workers.
        busy : bool
            Whether there is more to do than there are threads.
        """
        if not busy or not self.seconds:
            self._start = None
        elif self._start is None:
            self._start, self._tasks, self._worked = now, 0, 0.0
        else:
            self._tasks += 1
            self._worked += seconds
            if self._tasks == WINDOW:
                self._windows.append(((now - self._start) * threads - self._worked) / WINDOW)
                self.seconds = min(max(self._quartile(), LEAST), MOST)
                self._start, self._tasks, self._worked = now, 0, 0.0

    def _quartile(self) -> float:
        return sorted(self._windows)[len(self._windows) // 4]
