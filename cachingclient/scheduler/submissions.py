"""Submissions on their way: what they use may not be evicted until it is in use."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Container, Mapping
from typing import TYPE_CHECKING, Any

from dask.typing import Key

from cachingclient.admission import key_name
from cachingclient.scheduler.experience import Learnt

if TYPE_CHECKING:
    from cachingclient.graph.envelope import Request
    from cachingclient.judging import Verdict
    from cachingclient.scheduler.plugin import CachePlugin


logger = logging.getLogger("distributed.scheduler.cachingclient")


class Submission:
    """One graph, from the moment its envelope is opened until the scheduler knows its tasks.

    Its methods run in the thread that makes the graph: they read what the event loop changes,
    and change nothing but the submission itself.

    Parameters
    ----------
    plugin : CachePlugin
    request : Request
    deadline : float
        When it is given up, in seconds of `time.monotonic`.
    """

    #: whether all that was asked for is kept
    complete: bool
    #: which names may be kept, once that is known
    verdict: Verdict | None = None
    #: tasks of the graph, and those of them that need not run
    total: int = 0
    skipped: int = 0
    #: layers of the graph; of a dataframe expression the names in it
    layers: Collection[str] = ()

    def __init__(self, plugin: CachePlugin, request: Request, deadline: float) -> None:
        self.plugin = plugin
        self.request = request
        self.deadline = deadline
        self.outputs = set(request.outputs)
        self.kept: Mapping[Key, Any] = plugin.ledger.kept
        self.trusted: Container[Any] = plugin.books.allowed
        self.experience = Learnt(plugin)
        self.frames = plugin.frames
        self.limit, self.min_cost = plugin.ledger.limit, plugin.settings["min_cost"]
        self._made_of: dict[Any, Collection[Any]] = {}
        #: layers of which somebody holds what would be another one now: plain dask, which fuses
        #: them, would not use that
        self.stale_names = {key_name(k) for k in plugin.books.tainted}
        self.complete = self._is_complete()
        self.used: list[Key] = list(request.outputs) if self.complete else []

    def _is_complete(self) -> bool:
        request = self.request
        return request.use and all(
            k in self.kept and key_name(k) not in request.denied for k in request.outputs
        )

    def number_kept(self, name: str) -> int:
        """How many keys of a layer are kept."""
        return self.plugin.ledger.number(name)

    def paid(self, name: str) -> float:
        """Seconds of task time that the kept keys of a layer had cost."""
        return self.plugin.ledger.paid(name)

    def sources(self, name: Any) -> Collection[Any]:
        """Sources that a name was made of."""
        return (
            *self.plugin.freshness.sources(name),
            *self.request.made_of.get(name, ()),
            *self._made_of.get(name, ()),
        )

    def read(self, made_of: Mapping[Any, Collection[Any]]) -> None:
        """Note what is read that nobody asked for: {name: its sources}."""
        self._made_of.update(made_of)

    def nbytes(self, name: str) -> float | None:
        """Bytes of a key of a name, if it ran."""
        return self.plugin.durations.nbytes(name)

    def seconds(self, name: str) -> float | None:
        """Seconds that a key of a name cost, if it ran."""
        estimate = self.plugin.durations.estimate(name)
        return estimate.seconds if estimate is not None and estimate.measured else None

    def failed(self, error: Exception) -> None:
        """An expression could not be rewritten: its graph is made as in plain dask."""
        if self.plugin.frames.is_new(error):
            logger.error("A dataframe is computed without sharing its reads", exc_info=error)
            self.plugin.warn_unused(error)

    def known(self, key: Key) -> Any:
        """How the scheduler would compute a key, if it knows all that it needs for that."""
        tasks = self.plugin.scheduler.tasks
        ts = tasks.get(key)
        task = ts.run_spec if ts is not None else None
        if task is None or self.plugin.detaching.stands_in(key):
            return None
        if not all(d in tasks for d in task.dependencies):
            return None
        # The scheduler will not take another task for a stale key: it has got one.
        if self.stale_names and key_name(key) not in self.stale_names:
            if any(key_name(d) in self.stale_names for d in task.dependencies):
                return None
        return task

    def planned(self, used: list[Key], total: int, skipped: int) -> None:
        """Note what the graph came to; runs in the thread that made it."""
        self.used, self.total, self.skipped = used, total, skipped

    def judged(self, verdict: Verdict, tasks: Mapping[Key, Any]) -> None:
        """Note which names may be kept, and let go of the others; runs in that thread too."""
        self.verdict = verdict
        if self.stale_names:
            self.plugin.renew({k: t for k, t in tasks.items() if key_name(k) in self.stale_names})
        use = self.request.use
        refused = verdict.denied if use else verdict.denied.keys() | verdict.allowed
        if not refused:
            return
        # What the scheduler knows already may have been made to depend on kept keys.
        there = self.plugin.scheduler.tasks
        # What is refused alone may use what is kept, whatever it is kept under.
        known = [k for k in tasks if k in there and key_name(k) in refused and not use]
        if known or any(self.number_kept(name) for name in refused):
            self.plugin.withdraw(list(refused), known)


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
