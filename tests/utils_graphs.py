"""Graphs as they arrive at a client and at a scheduler, without either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import dask
from dask.core import flatten

from cachingclient import internals
from cachingclient.admission import key_name
from cachingclient.config import read_settings
from cachingclient.frames.index import FrameIndex
from cachingclient.graph.envelope import Envelope, Request
from cachingclient.graph.plan import make_plan
from cachingclient.judging import Verdict


class Asked(NamedTuple):
    """A computation as dask hands it to a client."""

    expr: Any
    keys: list


def asked(*collections: Any, **kwargs: Any) -> Asked:
    """What `dask.compute` would hand to a client."""
    caught: list[Asked] = []

    def get(expr, keys, **_):
        caught.append(Asked(expr, list(flatten([keys]))))
        return dask.get(expr, keys)

    dask.compute(*collections, scheduler=get, **kwargs)
    return caught[0]


class Nothing:
    """What a scheduler has learnt that has run nothing."""

    task_overhead = 0.004

    def was_seen(self, name: str) -> bool:
        return False

    def is_pinned(self, name: str) -> bool:
        return False

    def estimate(self, name: str) -> None:
        """Nothing was measured."""

    def share(self, name: str, nkeys: int) -> float:
        return 1.0


class Submission:
    """Stands for a scheduler's submission: takes down what comes of it."""

    complete = False
    stale_names: frozenset = frozenset()
    experience = Nothing()
    limit, min_cost = 1e9, 0.005

    def __init__(self, kept: Mapping = {}) -> None:  # noqa: B006 - never changed
        self.kept = kept
        self.trusted: frozenset = frozenset()
        self.layers: list = []
        self.verdict: Verdict | None = None
        self.used: list = []
        self.frames = FrameIndex()

    def number_kept(self, name: str) -> int:
        return sum(key_name(k) == name for k in self.kept)

    def paid(self, name: str) -> float:
        return float(self.number_kept(name))

    def known(self, key: Any) -> None:
        """No key is known to a scheduler that has run nothing."""

    def sources(self, name: Any) -> tuple:
        """Nothing was read."""
        return ()

    def nbytes(self, name: str) -> None:
        """Nothing was measured."""

    def seconds(self, name: str) -> None:
        """Nothing ran."""

    def failed(self, error: Exception) -> None:
        raise error

    def read(self, made_of: Mapping) -> None:
        """Nothing is looked at again."""

    def judged(self, verdict, tasks) -> None:
        self.verdict = verdict

    def planned(self, used, total, skipped) -> None:
        self.used, self.total, self.skipped = used, total, skipped


def opened(*collections: Any, kept: Mapping = {}) -> tuple[dict, Submission]:  # noqa: B006
    """The tasks that a scheduler makes of a computation, and what it notes of them."""
    computation = asked(*collections)
    plan = make_plan(computation.expr, read_settings(), (), None)
    outputs = tuple(plan.renamed.get(k, k) for k in computation.keys)
    request = Request(
        "scheduler",
        "client",
        outputs,
        denied=plan.denied,
        lifted=frozenset(plan.lifted),
        candidates=plan.candidates,
    )
    envelope = Envelope(plan.expr, request)
    envelope.submission = submission = Submission(kept)
    graph = dict(envelope.__dask_graph__())
    assert submission.verdict is not None, "the plain graph was sent"
    return graph, submission


def judged(*collections: Any) -> tuple[dict, Verdict]:
    """The tasks of a computation and the verdict on them, as a scheduler finds them."""
    graph, submission = opened(*collections)
    assert submission.verdict is not None
    return graph, submission.verdict


def value_of(graph: Mapping, key: Any, data: Mapping = {}) -> Any:  # noqa: B006
    """Value of a key, computed one task after the other, with some keys put in as data."""
    return dask.get({**internals.as_graph(graph), **data}, key)
