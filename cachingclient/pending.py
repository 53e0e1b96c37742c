"""Computations on their way, remembered until they are in memory once.

A kept result that they count on may be lost meanwhile; then they are sent again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from dask.typing import Key

#: What the scheduler says when a graph refers to a key that is gone, and when something that a
#: key needs is gone for good.
LOST = "lost dependencies"
FORGOTTEN = "already forgotten"

_numbers = itertools.count()
#: Jobs after which those are looked for that nobody waits for any more.
MANY_JOBS = 100


class Job:
    """One computation, and the ways in which it can be sent.

    Parameters
    ----------
    keys : iterable
        Keys that are sent for.
    ways : iterable of callable
        ``way(keys)`` sends the computation; each needs less of the cache than the one
        before, the last nothing.
    silent : bool
        Whether the scheduler does not say that it has got it.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        ways: Iterable[Callable[[list[Key]], Any]],
        silent: bool = False,
    ) -> None:
        self.keys = list(keys)
        self.ways = list(ways)
        self.silent = silent
        #: tells its messages from those of an earlier job of the same keys
        self.number = next(_numbers)
        #: whether the scheduler has got it: what it says of the keys from then on counts
        self.arrived = False

    def send(self, keys: list[Key]) -> Any:
        """Send it in the next way."""
        self.arrived = self.silent
        return self.ways.pop(0)(keys)


class PendingJobs:
    """Jobs by the keys that are not in memory yet.

    Examples
    --------
    >>> jobs = PendingJobs()
    >>> job = Job(["x"], [lambda keys: "pruned", lambda keys: "plain"])
    >>> jobs.send(job)
    'pruned'
    >>> jobs.lost(["x", "y"], LOST, is_wanted=lambda key: True)
    ['y']
    >>> jobs.done("x")
    >>> len(jobs)
    0
    """

    def __init__(self) -> None:
        self._jobs: dict[Key, Job] = {}
        self._numbered: weakref.WeakValueDictionary[int, Job] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, key: Key) -> bool:
        return key in self._jobs

    def send(self, job: Job) -> Any:
        """Send a job for the first time."""
        if len(job.ways) > 1:
            # before it is sent: the answer comes in another thread
            self._numbered[job.number] = job
            self._jobs.update(dict.fromkeys(job.keys, job))
        try:
            return job.send(job.keys)
        except BaseException:
            for key in job.keys:
                self._jobs.pop(key, None)
            raise

    def arrived(self, number: int) -> None:
        """The scheduler has got a job."""
        job = self._numbered.get(number)
        if job is not None:
            job.arrived = True

    def done(self, key: Key) -> None:
        """A key is in memory, or has failed: from now on it is as with a plain client."""
        job = self._jobs.get(key)
        if job is not None and (job.arrived or not job.ways):
            del self._jobs[key]

    def early(self, key: Key) -> Job | None:
        """The job of a key that the scheduler has not got yet.

        What it says of the key now it says of an earlier job.
        """
        job = self._jobs.get(key)
        return job if job is not None and job.ways and not job.arrived else None

    def last_ways(self, keys: Iterable[Key]) -> list[tuple[Callable[[list[Key]], Any], list[Key]]]:
        """How keys that are not in memory yet would be sent at last, and which they are."""
        found: dict[int, tuple[Callable[[list[Key]], Any], list[Key]]] = {}
        for key in keys:
            job = self._jobs.get(key)
            ways = job.ways[-1:] if job is not None else []
            if ways:
                found.setdefault(id(job), (ways[0], []))[1].append(key)
        return list(found.values())

    def sweep(self, is_wanted: Callable[[Key], bool]) -> None:
        """Drop jobs of which no message came, and that nobody waits for."""
        if len(self._jobs) > MANY_JOBS:
            self._jobs = {k: job for k, job in self._jobs.items() if is_wanted(k)}

    def lost(
        self,
        keys: Collection[Key],
        reason: str | None,
        is_wanted: Callable[[Key], bool],
    ) -> list[Key]:
        """Send again what was cancelled because something kept was lost.

        Parameters
        ----------
        keys : collection
            Cancelled keys.
        reason : str
            As the scheduler gives it.
        is_wanted : callable
            Whether somebody still has a future of a key.

        Returns
        -------
        list
            Keys that are cancelled indeed.
        """
        again: dict[int, tuple[Job, list[Key]]] = {}
        cancelled = []
        for key in keys:
            job = self._jobs.get(key) if reason in (LOST, FORGOTTEN) else None
            if job is None or not job.ways:
                self._jobs.pop(key, None)
                cancelled.append(key)
            elif is_wanted(key):
                again.setdefault(id(job), (job, []))[1].append(key)
            else:
                self._jobs.pop(key, None)
        for job, wanted in again.values():
            job.send(wanted)
        return cancelled

    def clear(self) -> None:
        """Forget all."""
        self._jobs.clear()
