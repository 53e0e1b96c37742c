"""What is sent in place of a graph: opened by the scheduler, which knows what is kept."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask.typing import Key

from cachingclient.admission import STALE, Rules, has_token, key_name
from cachingclient.frames.data import pack
from cachingclient.frames.leaves import Reader
from cachingclient.frames.rewriting import Rewritten, is_frame, rewrite, touches
from cachingclient.graph.barriers import expose, graphs_of, protect, size_of, worth_reading
from cachingclient.graph.choosing import Candidates, choose
from cachingclient.graph.pruning import prune_layers, prune_tasks
from cachingclient.internals import Expr, GraphNode, MapExpr, as_graph
from cachingclient.judging import Verdict, judge
from cachingclient.placing import Place
from cachingclient.registry import PLUGINS

logger = logging.getLogger("distributed.scheduler.cachingclient")


@dataclass(frozen=True)
class Request:
    """What a client says of one submission."""

    #: id of the scheduler
    scheduler: str
    #: id of the client
    client: str
    #: keys that were asked for
    outputs: tuple[Key, ...]
    #: tells this submission from others of the client
    number: int = -1
    #: {name that may not be kept, nor be answered from what is kept: reason}
    denied: Mapping[Any, str] = field(default_factory=dict)
    #: names to keep although they are not known to be pure
    lifted: frozenset[Any] = frozenset()
    #: what the client's configuration says
    rules: Rules = Rules()
    #: whether all names are lifted
    lift_all: bool = False
    #: whether to read from the cache and add to it at all
    use: bool = True
    #: where its outputs are to be computed
    place: Place | None = None
    #: {source: digest of its state}
    sources: Mapping[Any, str] = field(default_factory=dict)
    #: sources of which nobody can tell whether they changed
    unsure: frozenset[Any] = frozenset()
    #: {name: sources that it is made of}, as far as the client can tell
    made_of: Mapping[Any, Iterable[Any]] = field(default_factory=dict)
    #: {name of a node that reads a dataframe: what it reads}
    readers: Mapping[str, Reader] = field(default_factory=dict)
    #: tokens of large data that is sent with it
    data: frozenset[str] = frozenset()
    #: layers that may get a barrier
    candidates: Candidates = Candidates()
    #: {name: whether a living collection needs it; None where that is not known any more}
    alive: Mapping[str, bool | None] = field(default_factory=dict)


class Everything:
    """A container of everything."""

    def __contains__(self, item: object) -> bool:
        return True


class Either:
    """A container of what is in one of two."""

    def __init__(self, one: Container[Any], other: Container[Any]) -> None:
        self.one, self.other = one, other

    def __contains__(self, item: object) -> bool:
        return item in self.one or item in self.other


class Envelope:
    """An expression, and what the client says of it.

    The scheduler asks it for its graph as it would ask an expression. Anything that goes
    wrong here ends in the graph that a plain client would have sent.

    Parameters
    ----------
    expr : Expr or None
        None where the client knows that the outputs are kept.
    request : Request
    known : frozenset of str
        Tokens of data that the scheduler has.
    """

    def __init__(
        self, expr: Expr | None, request: Request, known: frozenset[str] = frozenset()
    ) -> None:
        self.expr = expr
        self.request = request
        self.known = known
        self.submission: Any = None
        self._empty = expr is None

    def __reduce__(self) -> Any:
        if self.known and self.expr is not None:
            return open_packed, (pack(self.expr, self.known), self.request)
        return open_envelope, (self.expr, self.request)

    def __dask_graph__(self) -> Mapping[Key, Any]:
        if self.expr is None or (self.submission is not None and self.submission.complete):
            self._empty = True
            return {}
        plain = self.expr
        if self.submission is None:
            return plain.__dask_graph__()
        try:
            return self._pruned(self.submission)
        except Exception as e:
            logger.exception("The plain graph is submitted: it could not be pruned")
            self.submission.plugin.warn_unused(e)
            self.expr = plain
            return plain.__dask_graph__()

    def __dask_annotations__(self) -> Mapping[str, Mapping[Key, Any]]:
        return {} if self._empty or self.expr is None else self.expr.__dask_annotations__()

    def _pruned(self, submission: Any) -> dict[Key, GraphNode]:
        request = self.request
        kept = submission.kept if request.use else {}
        if submission.stale_names and self.expr is not None:
            self.expr = expose(self.expr, submission.stale_names)
        dropped = self._prune_layers() if kept else 0
        if request.use:
            self._set_barriers(submission)
        assert self.expr is not None
        frames = self._rewritten(submission)
        if frames is not None:
            graph, dropped = frames.graph, frames.skipped
            submission.layers = [*submission.layers, *{key_name(k) for k in graph}]
            submission.read(frames.made_of)
            verdict = self._verdict(submission, graph, frames.used)
        if frames is None or not frames.used.isdisjoint(verdict.denied):
            dropped = 0 if frames is not None else dropped
            graph = as_graph(self.expr.__dask_graph__())
            verdict = self._verdict(submission, graph)
        if not submission.stale_names.isdisjoint(submission.layers):
            # Results of what somebody holds of such a layer have the names of these.
            verdict = verdict.refused(STALE)
        denied = verdict.denied

        def is_kept(key: Key) -> bool:
            return key in kept and key_name(key) not in denied

        def known(key: Key) -> GraphNode | None:
            # An equal name means an equal value, whatever may be kept of it.
            return submission.known(key) if has_token(key_name(key)) else None

        # First: what is let go of must not be taken for known.
        submission.judged(verdict, graph)
        tasks, used = prune_tasks(graph, request.outputs, is_kept, known)
        total = len(graph) + dropped
        submission.planned(used, total=total, skipped=total - len(tasks))
        return tasks

    def _verdict(
        self, submission: Any, graph: dict[Key, GraphNode], kept: Iterable[str] = ()
    ) -> Verdict:
        """Which names of a graph may be kept."""
        request = self.request
        return judge(
            graph,
            trusted=Either(frozenset(kept), submission.trusted),
            denied=request.denied,
            lifted=Everything() if request.lift_all else request.lifted,
            rules=request.rules,
            sources=submission.sources,
            given=not isinstance(self.expr, MapExpr),
        )

    def _rewritten(self, submission: Any) -> Rewritten | None:
        """The graph of a dataframe expression, without what is kept of it."""
        request = self.request
        # What is kept by other rules may be denied by these, and would not be seen any more.
        if not request.use or request.rules != Rules():
            return None
        if self.expr is None or not is_frame(self.expr):
            return None
        readers, index, stale = request.readers, submission.frames, submission.stale_names
        try:
            if stale and touches(self.expr, readers, index, stale):
                return None
            return rewrite(self.expr, request.outputs, readers, index, submission)
        except Exception as e:
            submission.failed(e)
            return None

    def _set_barriers(self, submission: Any) -> None:
        """Make visible what is kept in part, and what is worth it."""
        assert self.expr is not None
        graphs = [hlg for _, hlg in graphs_of(self.expr)]
        dependents: dict[str, set[str]] = {}
        visible: set[str] = set()
        for hlg in graphs:
            for name, following in hlg.dependents.items():
                dependents.setdefault(name, set()).update(following)
            if submission.kept:
                overhead = submission.experience.task_overhead
                visible |= worth_reading(hlg, self._number_kept, submission.paid, overhead)
        submission.layers = list(dependents)
        layers = {name: layer for hlg in graphs for name, layer in hlg.layers.items()}
        visible |= choose(
            self.request.candidates,
            dependents,
            lambda name: size_of(layers[name]),
            self.request.denied,
            submission.experience,
        )
        if visible:
            self.expr = protect(self.expr, visible - submission.stale_names)

    def _number_kept(self, name: str) -> int:
        return 0 if name in self.request.denied else self.submission.number_kept(name)

    def _prune_layers(self) -> int:
        """Drop what is kept whole."""
        assert self.expr is not None
        outputs = {key_name(k) for k in self.request.outputs}
        self.expr, dropped = prune_layers(self.expr, self._number_kept, outputs)
        return dropped


def open_envelope(expr: Expr | None, request: Request) -> Envelope:
    """Open an envelope: runs on the scheduler's event loop, before anything can change.

    Parameters
    ----------
    expr : Expr or None
    request : Request
    """
    envelope = Envelope(expr, request)
    plugin = PLUGINS.get(request.scheduler)
    if plugin is not None:
        envelope.submission = plugin.open_submission(request)
        if expr is not None and request.data:
            plugin.data.keep(expr)
    return envelope


def open_packed(packed: bytes, request: Request) -> Envelope:
    """Open an envelope whose data was sent before.

    Parameters
    ----------
    packed : bytes
    request : Request
    """
    plugin = PLUGINS.get(request.scheduler)
    return open_envelope(None if plugin is None else plugin.data.unpack(packed), request)
