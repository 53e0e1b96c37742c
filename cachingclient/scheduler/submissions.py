"""Submissions on their way: what they use may not be evicted until it is in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Mapping
from typing import TYPE_CHECKING, Any

from dask.typing import Key

from cachingclient.admission import key_name

if TYPE_CHECKING:
    from cachingclient.graph.envelope import Request
    from cachingclient.judging import Verdict


class Submission:
    """One graph, from the moment its envelope is opened until the scheduler knows its tasks.

    Parameters
    ----------
    request : Request
    kept : mapping
        What is kept: read from another thread, never changed there.
    number_kept : callable
        How many keys of a layer are kept.
    paid : callable
        Seconds of task time that the kept keys of a layer had cost.
    task_overhead : float
        Seconds that one more task costs.
    trusted : container
        Names that may be depended on.
    sources : callable
        Sources that a name was made of.
    seconds : callable
        How long a key of a layer takes, if that is known.
    known : callable
        How the scheduler would compute a key.
    is_known : callable
        Whether the scheduler knows a key.
    complete : bool
        Whether all that was asked for is kept.
    withdraw : callable
        Lets go of names, and of what keys depend on, on the event loop, and returns when
        that is done.
    deadline : float
        In seconds of `time.monotonic`.
    """

    def __init__(
        self,
        request: Request,
        kept: Mapping[Key, Any],
        number_kept: Callable[[str], int],
        paid: Callable[[str], float],
        task_overhead: float,
        trusted: Container[Any],
        sources: Callable[[Any], Collection[Any]],
        seconds: Callable[[str], float | None],
        known: Callable[[Key], Any],
        is_known: Callable[[Key], bool],
        complete: bool,
        withdraw: Callable[[Collection[Any], Collection[Key]], None],
        deadline: float,
    ) -> None:
        self.request = request
        self.kept = kept
        self.number_kept = number_kept
        self.paid = paid
        self.task_overhead = task_overhead
        self.trusted = trusted
        self.sources = sources
        self.seconds = seconds
        self.known = known
        self.is_known = is_known
        self.complete = complete
        self.deadline = deadline
        self._withdraw = withdraw
        #: {name of a fused task: the layer whose cost it tells}
        self.measured: Mapping[str, str] = {}
        self.outputs = set(request.outputs)
        self.verdict: Verdict | None = None
        self.used: list[Key] = list(request.outputs) if complete else []
        self.total = self.skipped = 0

    def measure(self, names: Mapping[str, str]) -> None:
        """Note what is to be measured; runs in the thread that made the graph."""
        self.measured = names

    def planned(
        self,
        verdict: Verdict,
        used: list[Key],
        tasks: Collection[Key],
        total: int,
        skipped: int,
    ) -> None:
        """Note what the graph came to; runs in the thread that made it."""
        self.verdict, self.used, self.total, self.skipped = verdict, used, total, skipped
        refused = verdict.denied if self.request.use else verdict.denied.keys() | verdict.allowed
        if not refused:
            return
        # What the scheduler knows already may have been made to depend on kept keys.
        known = [k for k in tasks if key_name(k) in refused and self.is_known(k)]
        if known or any(self.number_kept(name) for name in refused):
            self._withdraw(list(refused), known)


class Submissions:
    """All submissions on their way: one a client, since each client's are taken in turn.

    Parameters
    ----------
    lease_time : float
        Seconds after which one that never arrived is given up.
    """

    def __init__(self, lease_time: float) -> None:
        self.lease_time = lease_time
        self._open: dict[str, Submission] = {}

    def add(self, submission: Submission) -> None:
        """Note one that is on its way."""
        self._open[submission.request.client] = submission

    def deadline(self) -> float:
        """When one that starts now is given up."""
        return time.monotonic() + self.lease_time

    def any(self) -> bool:
        """Whether nothing may be evicted now."""
        if not self._open:
            return False
        now = time.monotonic()
        self._open = {c: s for c, s in self._open.items() if s.deadline > now}
        return bool(self._open)

    def end(self, client: str) -> Submission | None:
        """The submission of a client that the scheduler has just taken in, or refused."""
        return self._open.pop(client, None)
