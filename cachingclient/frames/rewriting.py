"""The graph of a dataframe expression, as far as it has to run.

From the outputs down: a node whose partitions are kept has no tasks, and nothing below it is
looked at. Nodes that are the same as kept ones under other names, or parts of them, become those.
Keys keep their names, whatever their tasks are: a key that somebody asks for is the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask.typing import Key

from cachingclient.frames import serving
from cachingclient.frames.canonical import Identities, Identity
from cachingclient.frames.fusing import fuse
from cachingclient.frames.index import FrameIndex
from cachingclient.frames.leaves import CSV, Leaf, Reader, leaf_of
from cachingclient.frames.serving import View
from cachingclient.internals import (
    Alias,
    Expr,
    GraphNode,
    as_graph,
    counts_rows,
    expr_name,
    frame_kinds,
    has_task_per_partition,
    layer_of,
    partition_task,
)


@dataclass
class Rewritten:
    """A graph, and what is new in it."""

    graph: dict[Key, GraphNode]
    #: keys of the whole graph that have no task
    skipped: int
    #: {name of a frame that is read for several: families}
    made_of: dict[str, set[str]] = field(default_factory=dict)


def is_frame(expr: Expr) -> bool:
    """Whether an expression is one of dask.dataframe, or several of them."""
    kinds = frame_kinds()
    if kinds is None:
        return False
    parts = expr.operands if isinstance(expr, kinds.Sequence) else [expr]
    return any(isinstance(part, kinds.Expr) for part in parts)


def rewrite(
    expr: Expr,
    outputs: Iterable[Key],
    readers: Mapping[str, Reader],
    index: FrameIndex,
    view: View,
) -> Rewritten:
    """Make the graph of a dataframe expression.

    Parameters
    ----------
    expr : Expr
    outputs : iterable
        Keys that were asked for.
    readers : mapping
        {name of a node that reads: what the client says of it}
    index : FrameIndex
    view : View
    """
    rewriting = _Rewriting(expr, readers, index, view)
    rewriting.walk()
    return rewriting.finish(set(outputs))


class _Rewriting:
    """Rewrites one expression."""

    def __init__(
        self, expr: Expr, readers: Mapping[str, Reader], index: FrameIndex, view: View
    ) -> None:
        kinds = frame_kinds()
        assert kinds is not None
        self.kinds = kinds
        self.expr, self.readers = expr, readers
        self.index, self.view = index, view
        self.identities = Identities(self._leaf, index.identities)
        self.tasks: dict[Key, Any] = {}
        #: {key: kept key of the same value}
        self.same: dict[Key, Key] = {}
        #: keys that are used and have no task
        self.outside: set[Key] = set()
        #: {key of a task that takes no time: whether it copies nothing}
        self.minor: dict[Key, bool] = {}
        self.made_of: dict[str, set[str]] = {}
        self._leaves: dict[str, Leaf | None] = {}
        self._users: dict[str, list[Any]] = {}
        self._work: list[Any] = [expr]
        self._seen: set[str] = set()
        self._inside: set[str] = set()

    def _leaf(self, node: Any) -> Leaf | None:
        name = expr_name(node)
        if name not in self.readers:
            return None
        if name not in self._leaves:
            self._leaves[name] = leaf_of(node, self.readers[name])
        return self._leaves[name]

    # -- from the outputs down -------------------------------------------------

    def walk(self) -> None:
        """Look at all nodes that have to run."""
        for node in self.expr.walk():
            for part in node.exprs if isinstance(node, self.kinds.Fused) else (node,):
                for dependency in part.dependencies():
                    self._users.setdefault(expr_name(dependency), []).append(part)
        while self._work:
            node = self._work.pop()
            name = expr_name(node)
            if name in self._seen:
                continue
            self._seen.add(name)
            if isinstance(node, self.kinds.Expr):
                self._visit(node, name)
            else:
                if not isinstance(node, self.kinds.Sequence):  # has those of its parts
                    self.tasks.update(layer_of(node))
                self._work.extend(node.dependencies())

    def _visit(self, node: Any, name: str) -> None:
        missing = list(range(node.npartitions))
        if self.view.number_kept(name):
            kept = self.view.kept
            self.outside.update((name, n) for n in missing if (name, n) in kept)
            missing = [n for n in missing if (name, n) not in kept]
        if not missing:
            return
        identity = self.identities.of(node)
        self.index.note(name, identity)
        missing = self._find_twins(name, identity, missing)
        if missing:
            missing = self._serve(node, name, missing)
        if not missing:
            return
        if isinstance(node, self.kinds.Fused):
            self._open(node, name, missing)
        else:
            self._emit(node, name, missing)

    def _find_twins(self, name: str, identity: Identity, missing: list[int]) -> list[int]:
        """Use what is kept under other names; returns what is not."""
        found: dict[Any, Key] = {}
        for other, parts in self.index.twins(name, identity):
            if self.view.number_kept(other):
                for n, part in enumerate(parts):
                    if (other, n) in self.view.kept:
                        found.setdefault(part, (other, n))
        if not found:
            return missing
        for n in missing:
            if (twin := found.get(identity.parts[n])) is not None:
                self.same[name, n] = twin
        return [n for n in missing if (name, n) not in self.same]

    def _serve(self, node: Any, name: str, missing: list[int]) -> list[int]:
        """Serve what reads, and selections of columns from it; returns what is not served."""
        leaf = self._leaf(node)
        selected = leaf is None and isinstance(node, self.kinds.Projection)
        if selected:
            leaf = self.identities.selection(node)
        if leaf is None:
            return missing
        family = self.index.family(leaf.family)
        users = self._users.get(name, ())
        served = serving.serve(
            leaf,
            name,
            family,
            self.view,
            only_length=bool(users) and all(counts_rows(u, self.kinds) for u in users),
            # What a selection is taken from is read as it was asked for, or for others too.
            may_read=not selected or leaf.kind == CSV,
        )
        if not selected:
            serving.note(leaf, name, family)
        self.tasks.update(served.tasks)
        self.minor.update(served.selections)
        for n in missing:
            if (twin := served.same.get((name, n))) is not None:
                self.same[name, n] = twin
        for frame in served.read:
            self.made_of.setdefault(frame, set()).add(leaf.family)
        if served.selections:
            self.index.parts.note(name)
        self.outside.update(d for t in served.tasks.values() for d in t.dependencies)
        done = served.tasks.keys() | served.same.keys()
        return [n for n in missing if (name, n) not in done]

    def _open(self, node: Any, name: str, missing: list[int]) -> None:
        """Look at what was fused: parts of it may be kept."""
        first = expr_name(node.exprs[0])
        for n in missing:
            self.tasks[name, n] = Alias((name, n), (first, n))
        self._inside.update(expr_name(part) for part in node.exprs)
        self._work.append(node.exprs[0])

    def _emit(self, node: Any, name: str, missing: list[int]) -> None:
        if has_task_per_partition(node, self.kinds):
            new: Mapping[Key, Any] = {(name, n): partition_task(node, n) for n in missing}
        else:
            there = self.outside | self.same.keys()
            new = {k: t for k, t in layer_of(node).items() if k not in there}
        self.tasks.update(new)
        if name in self._inside:
            self.minor.update(dict.fromkeys(new, False))
        self._work.extend(node.dependencies())

    # -- the graph -------------------------------------------------------------

    def finish(self, outputs: set[Key]) -> Rewritten:
        """Put the graph together."""
        same = self.same
        graph = as_graph(self.tasks, self.outside | same.keys())
        if same:
            for key, task in graph.items():
                if not task.dependencies.isdisjoint(same):
                    graph[key] = task.substitute(same)
            for key in outputs & same.keys():
                graph[key] = Alias(key, same[key])
                self.index.parts.note(key[0])
        graph = fuse(graph, self.minor, outputs)
        return Rewritten(graph, self._skipped(), self.made_of)

    def _skipped(self) -> int:
        unseen = (n for n in self.expr.walk() if expr_name(n) not in self._seen)
        skipped = sum(getattr(node, "npartitions", 0) for node in unseen)
        return skipped + len(self.same)
