"""The graph of a dataframe expression, as far as it has to run.

From the outputs down: a node whose partitions are kept has no tasks, and nothing below it is
looked at. Nodes that are the same as kept ones under other names, or parts of them, become those.
Keys keep their names, whatever their tasks are: a key that somebody asks for is the same key.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dask.typing import Key

from cachingclient.admission import NOT_WHOLE, PART
from cachingclient.frames import serving
from cachingclient.frames.canonical import Identities, Identity
from cachingclient.frames.fusing import fuse
from cachingclient.frames.index import Family, FrameIndex
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
    #: names of kept keys that stand for their tasks
    used: set[str] = field(default_factory=set)
    #: {name of a frame that is read for several: families}
    made_of: dict[str, set[str]] = field(default_factory=dict)


class _Waiting(NamedTuple):
    """A leaf that is served when all are known."""

    node: Any
    name: str
    #: numbers of its partitions that are not kept
    missing: list[int]
    leaf: Leaf
    #: whether it is a selection of columns from what reads
    selected: bool


def is_frame(expr: Expr) -> bool:
    """Whether an expression is one of dask.dataframe, or several of them."""
    kinds = frame_kinds()
    if kinds is None:
        return False
    parts = expr.operands if isinstance(expr, kinds.Sequence) else [expr]
    return any(isinstance(part, kinds.Expr) for part in parts)


def touches(
    expr: Expr, readers: Mapping[str, Reader], index: FrameIndex, names: Container[Any]
) -> bool:
    """Whether some names are of nodes of an expression, or of what would be read for it.

    Parameters
    ----------
    expr : Expr
    readers : mapping
        {name of a node that reads: what the client says of it}
    index : FrameIndex
    names : container of str
    """
    if any(expr_name(node) in names for node in expr.walk()):
        return True
    families = {reader.family for reader in readers.values()}
    return any(name in names for family in families for name in index.family(family).frames)


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
    index.agree(readers)
    rewriting = _Rewriting(expr, readers, index, view)
    rewriting.walk()
    return rewriting.finish(set(outputs))


class _Leaves:
    """Tells what nodes read.

    This is apart from what rewrites, which would refer to itself: dask finds a node that is still
    in memory by its name, with what it knew of its partitions under other settings.
    """

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers
        self._known: dict[str, Leaf | None] = {}

    def __call__(self, node: Any) -> Leaf | None:
        name = expr_name(node)
        if name not in self._readers:
            return None
        if name not in self._known:
            self._known[name] = leaf_of(node, self._readers[name])
        return self._known[name]


class _Rewriting:
    """Rewrites one expression."""

    def __init__(
        self, expr: Expr, readers: Mapping[str, Reader], index: FrameIndex, view: View
    ) -> None:
        kinds = frame_kinds()
        assert kinds is not None
        self.kinds = kinds
        self.expr = expr
        self.index, self.view = index, view
        self._leaf = _Leaves(readers)
        self.identities = Identities(self._leaf, index.identities)
        self.tasks: dict[Key, Any] = {}
        #: {key: kept key of the same value}
        self.same: dict[Any, Any] = {}
        #: keys that are used and have no task
        self.outside: set[Any] = set()
        #: {key of a task that takes no time: whether it copies nothing}
        self.minor: dict[Key, bool] = {}
        self.made_of: dict[str, set[str]] = {}
        self._users: dict[str, list[Any]] = {}
        self._work: list[Any] = [expr]
        self._seen: set[str] = set()
        self._inside: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._coming: set[Key] = set()

    # -- from the outputs down -------------------------------------------------

    def walk(self) -> None:
        """Look at all nodes that have to run."""
        for node in self.expr.walk():
            for part in node.exprs if isinstance(node, self.kinds.Fused) else (node,):
                for dependency in part.dependencies():
                    self._users.setdefault(expr_name(dependency), []).append(part)
        while self._work or self._waiting:
            while self._work:
                node = self._work.pop()
                name = expr_name(node)
                if name not in self._seen:
                    self._seen.add(name)
                    self._look(node, name)
            self._serve_all()

    def _look(self, node: Any, name: str) -> None:
        if isinstance(node, self.kinds.Expr):
            self._visit(node, name)
            return
        if not isinstance(node, self.kinds.Sequence):  # has the tasks of its parts
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
        if not missing:
            return
        leaf, selected = self._leaf(node), False
        if leaf is None and isinstance(node, self.kinds.Projection):
            leaf, selected = self.identities.selection(node), True
        if leaf is None:
            self._go_on(node, name, missing)
        else:
            self._waiting.append(_Waiting(node, name, missing, leaf, selected))

    def _go_on(self, node: Any, name: str, missing: list[int]) -> None:
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

    # -- what reads ------------------------------------------------------------

    def _serve_all(self) -> None:
        """Serve leaves: those that read most come first, since others may take it from them."""
        waiting, self._waiting = self._waiting, []
        waiting.sort(key=lambda w: (-len(w.leaf.columns), w.selected, w.name))
        asked: dict[str, set[Any]] = {}
        for wait in waiting:
            if not wait.selected:
                only_length = self._only_length(wait.name)
                serving.ask(wait.leaf, self._family(wait), only_length)
                if not only_length:
                    asked.setdefault(wait.leaf.family, set()).update(wait.leaf.columns)
        for wait in waiting:
            self._serve(wait, asked.get(wait.leaf.family, ()))

    def _family(self, wait: _Waiting) -> Family:
        return self.index.family(wait.leaf.family)

    def _only_length(self, name: str) -> bool:
        users = self._users.get(name, ())
        return bool(users) and all(counts_rows(u, self.kinds) for u in users)

    def _serve(self, wait: _Waiting, asked: Collection[Any]) -> None:
        """Serve what reads, and selections of columns from it."""
        name, leaf = wait.name, wait.leaf
        served = serving.serve(
            leaf,
            name,
            self._family(wait),
            self.view,
            self._coming,
            only_length=self._only_length(name),
            # What a selection is taken from is read as it was asked for, or for others too.
            may_read=not wait.selected or leaf.kind == CSV,
            also=asked,
        )
        self.tasks.update(served.tasks)
        self.minor.update(served.selections)
        self.same.update((k, twin) for k, twin in served.same.items() if k not in self.outside)
        for frame in served.read:
            self.index.note_read(leaf, frame)
            self.made_of.setdefault(frame, set()).add(leaf.family)
        if served.selections:
            self.index.parts.note(name, PART)
        if served.too_large:
            self.index.parts.note(name, NOT_WHOLE)
        self.outside.update(d for t in served.tasks.values() for d in t.dependencies)
        self._coming.update(k for k in served.tasks if k[0] in served.read)
        done = served.tasks.keys() | self.same.keys()
        rest = [n for n in wait.missing if (name, n) not in done]
        if not wait.selected:
            serving.note(leaf, name, self._family(wait))
            self._coming.update((name, n) for n in rest)
        if rest:
            self.index.note_read(leaf, name)
            self._go_on(wait.node, name, rest)

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
            there = self.outside.union(self.same)
            new = {k: t for k, t in layer_of(node).items() if k not in there}
        self.tasks.update(new)
        if name in self._inside:
            self.minor.update(dict.fromkeys(new, False))
        self._work.extend(node.dependencies())

    # -- the graph -------------------------------------------------------------

    def finish(self, outputs: set[Any]) -> Rewritten:
        """Put the graph together."""
        same = self.same
        graph = as_graph(self.tasks, self.outside.union(same))
        if same:
            for key, task in graph.items():
                if not task.dependencies.isdisjoint(same):
                    graph[key] = task.substitute(same)
            for key in outputs & same.keys():
                graph[key] = Alias(key, same[key])
                self.index.parts.note(key[0], PART)
        graph = fuse(graph, self.minor, outputs)
        used = {k[0] for k in self.outside.union(same.values()) if k in self.view.kept}
        return Rewritten(graph, self._skipped(), used, self.made_of)

    def _skipped(self) -> int:
        unseen = (n for n in self.expr.walk() if expr_name(n) not in self._seen)
        skipped = sum(getattr(node, "npartitions", 0) for node in unseen)
        return skipped + sum(key in self.view.kept for key in self.same.values())
