"""What was paid for a key: its own time, and that of what it needed, in the request that ran it.

Formula
-------
``paid = own seconds + sum over dependencies of paid / number of their dependents``

counting only dependencies that were computed after the key's graph was submitted, and at most
the task time that was spent since then. What was there already had been paid for by an earlier
request; what several tasks share is split between them, so that no work counts twice, however
many diamonds are stacked and however many clients overlap. No graph is searched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dask.typing import Key

from cachingclient.bounded import Bounded

#: Names whose last submission is remembered.
REMEMBERED = 100_000


class Payments:
    """Keys that were computed, with what they had cost, while the scheduler knows them.

    Examples
    --------
    >>> payments = Payments()
    >>> payments.submitted(["slow", "sum"])
    1
    >>> payments.ran("slow", "slow", 2.0)
    2.0
    >>> payments.ran("sum", "sum", 0.5, [("slow", 1)])
    2.5
    >>> payments.submitted(["mean"])
    2
    >>> payments.ran("mean", "mean", 0.5, [("slow", 2)])  # which was there
    0.5
    """

    def __init__(self) -> None:
        #: number of the last submission
        self.number = 0
        #: seconds of all tasks that ran
        self._total = 0.0
        #: {name: (number of its last submission, seconds that had been spent by then)}
        self._submitted = Bounded(REMEMBERED)
        #: {key: (seconds, number of the last submission when it ran)}
        self._paid: dict[Key, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._paid)

    def submitted(self, names: Iterable[Any]) -> int:
        """Hear of a graph with these names; returns its number."""
        self.number += 1
        since = self.number, self._total
        for name in names:
            self._submitted.note(name, since)
        return self.number

    def request(self, name: Any) -> int:
        """Number of the last submission that had a name; 0 if there was none."""
        return self._submitted.get(name, (0, 0.0))[0]

    def ran(
        self, key: Key, name: Any, seconds: float, dependencies: Collection[tuple[Key, int]] = ()
    ) -> float:
        """Hear of a task that ran; returns what was paid for its key.

        Parameters
        ----------
        key : Key
        name : str
            Name of its layer.
        seconds : float
            Its own time.
        dependencies : collection
            (key, how many tasks share it) of each dependency.
        """
        self._total += seconds
        if not dependencies:
            self._paid[key] = seconds, self.number
            return seconds
        number, before = self._submitted.get(name, (0, 0.0))
        paid = seconds
        for dependency, sharers in dependencies:
            of_it, when = self._paid.get(dependency, (0.0, -1))
            if when >= number:
                paid += of_it / (sharers or 1)
        paid = max(seconds, min(paid, self._total - before))
        self._paid[key] = paid, self.number
        return paid

    def forgotten(self, key: Key) -> None:
        """The scheduler has forgotten a key."""
        self._paid.pop(key, None)
