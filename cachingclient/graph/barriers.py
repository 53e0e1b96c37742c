"""Barriers: layers whose keys the optimizer must not fuse away.

Fusion hides what two computations share: of ``x.sum()`` and ``x.mean()`` the
scheduler sees no common key. With a barrier the keys of ``x`` stay visible, at
the price of one more task a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dask.blockwise import Blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key

from cachingclient.admission import key_name
from cachingclient.graph.layers import GraphFacts, LayerFacts
from cachingclient.internals import (
    Alias,
    Expr,
    GraphNode,
    HLGExpr,
    HLGExprSequence,
    HLGFinalizeCompute,
    Task,
    as_graph,
    cull,
    rebuilt,
    same_token,
)


def graphs_of(expr: Expr) -> Iterator[tuple[HLGExpr, HighLevelGraph]]:
    """HighLevelGraphs of an expression, without the tasks that put results together."""
    if isinstance(expr, HLGExprSequence):
        for part in expr.operands:
            yield from graphs_of(part)
    elif isinstance(expr, HLGFinalizeCompute):
        yield expr, expr.operand("dsk").hlg
    elif isinstance(expr, HLGExpr):
        yield expr, expr.hlg


class Choice(NamedTuple):
    """Layers of unknown work that somebody holds."""

    #: those that get a barrier
    chosen: list[str]
    #: those that would cost too much, as long as nobody knows what they save
    refused: list[str]


def choose(
    hlg: HighLevelGraph, facts: GraphFacts, alive: Iterable[str], affordable: float
) -> Choice:
    """Layers whose keys should stay visible, nothing about them having been measured.

    Only work of unknown cost (functions that users hand to collections) can be worth a
    barrier, so only layers that do such work, or stand directly on one that does, get one.

    Parameters
    ----------
    hlg : HighLevelGraph
    facts : GraphFacts
    alive : iterable of str
        Layers of living collections.
    affordable : float
        How many more tasks may be made.
    """
    alive = set(alive)
    dependents = hlg.dependents  # made anew each time that it is asked for
    wanted = {
        n
        for n, f in facts.layers.items()
        if n not in facts.denied and f.nkeys
        # A single key that was asked for is fused into the task that puts the result together.
        and (dependents.get(n) or f.nkeys == 1)
        and (f.wish is True or (n in alive and _unknown_work(n, hlg, facts.layers, alive)))
        and not _feeds_getter(n, dependents, facts.layers)
    }
    last = [n for n in wanted if not _reaches(n, wanted, dependents)]
    choice = Choice([], [])
    for name in sorted(last, key=lambda n: (facts.layers[n].nkeys, n)):
        affordable -= facts.layers[name].nkeys or 0
        (choice.chosen if affordable >= 0 else choice.refused).append(name)
    return choice


def _unknown_work(
    name: str, hlg: HighLevelGraph, layers: Mapping[str, LayerFacts], alive: set[str]
) -> bool:
    if layers[name].unknown:
        return True
    sources = list(hlg.dependencies[name])
    while sources:
        source = sources.pop()
        if layers[source].unknown and source not in alive:
            return True
        # Layers that only hand on keys (arrays made of delayed values) do no work of their own.
        if layers[source].alias:
            sources.extend(hlg.dependencies[source])
    return False


def _feeds_getter(
    name: str, dependents: Mapping[str, set[str]], layers: Mapping[str, LayerFacts]
) -> bool:
    """Slices are pushed into loads: a barrier between them would load whole chunks."""
    return layers[name].getter and any(layers[d].getter for d in dependents.get(name, ()))


def _reaches(name: str, wanted: set[str], dependents: Mapping[str, set[str]]) -> bool:
    """Whether a linear chain leads from a layer to another that is wanted."""
    following = dependents.get(name) or ()
    while len(following) == 1:
        (name,) = following
        if name in wanted:
            return True
        following = dependents.get(name) or ()
    return False


def protect(expr: Expr, names: set[str]) -> Expr:
    """Put barriers into the optimizers of an expression.

    Parameters
    ----------
    expr : Expr
    names : set of str
        Layers whose keys must stay visible.
    """
    if isinstance(expr, HLGExprSequence):
        return rebuilt(expr, [protect(part, names) for part in expr.operands])
    if not isinstance(expr, HLGExpr) or expr.low_level_optimizer is None:
        return expr
    ((_, hlg),) = graphs_of(expr)
    here = sorted(names.intersection(hlg.layers))
    if not here:
        return expr
    operands = list(expr.operands)
    operands[1] = BarrierOptimizer(expr.low_level_optimizer, here)
    return rebuilt(expr, operands, same_token(expr))


def expose(expr: Expr, names: Container[str]) -> Expr:
    """Take barriers away.

    Parameters
    ----------
    expr : Expr
    names : container of str
        Layers that may be fused into others again.
    """
    if isinstance(expr, HLGExprSequence):
        return rebuilt(expr, [expose(part, names) for part in expr.operands])
    optimizer = expr.low_level_optimizer if isinstance(expr, HLGExpr) else None
    if not isinstance(optimizer, BarrierOptimizer):
        return expr
    operands = list(expr.operands)
    left = [name for name in optimizer.barriers if name not in names]
    operands[1] = BarrierOptimizer(optimizer.inner, left) if left else optimizer.inner
    return rebuilt(expr, operands, same_token(expr))


def worth_reading(
    hlg: HighLevelGraph,
    number_kept: Callable[[str], int],
    paid: Callable[[str], float],
    task: float,
) -> set[str]:
    """Layers of which something is kept, so that their keys should be visible.

    Parameters
    ----------
    hlg : HighLevelGraph
    number_kept : callable
        How many keys of a layer are kept.
    paid : callable
        Seconds of task time that the kept keys of a layer had cost.
    task : float
        Seconds that one more task costs: each key that is not kept becomes one.
    """
    return {
        name
        for name, layer in hlg.layers.items()
        if (kept := number_kept(name))
        and isinstance(layer, (Blockwise, MaterializedLayer))
        and paid(name) > (len(layer) - kept) * task
    }


class BarrierOptimizer:
    """A collection's own optimizer, with the keys of some layers protected.

    Parameters
    ----------
    inner : callable
        ``optimize(graph, keys)`` of the collection.
    barriers : sequence of str
        Names of layers.
    """

    def __init__(self, inner: Callable[..., Any], barriers: Iterable[str]) -> None:
        self.inner = inner
        self.barriers = tuple(barriers)

    def __call__(self, graph: Any, keys: Iterable[Key], **kwargs: Any) -> Any:
        true = list(flatten(keys))
        # What is not needed may be protected too: it is culled below.
        protected = list(self._protected(graph))
        optimized = self.inner(graph, true + protected, **kwargs)
        if isinstance(optimized, HighLevelGraph):
            return optimized.cull(set(true))
        tasks = cull(as_graph(optimized), true)
        tasks = collapse_aliases(tasks, {*true, *protected})
        if "bag" in getattr(self.inner, "__module__", ""):
            _reify(tasks, protected)
        return tasks

    def _protected(self, graph: HighLevelGraph) -> Iterable[Key]:
        for name in self.barriers:
            layer = graph.layers.get(name)
            if layer is not None:
                keys = layer.get_output_keys()
                yield from keys if isinstance(layer, Blockwise) else _named(keys, name)


def _named(keys: Iterable[Key], name: str) -> Iterable[Key]:
    return (k for k in keys if key_name(k) == name)


def collapse_aliases(tasks: dict[Key, GraphNode], protected: set[Key]) -> dict[Key, GraphNode]:
    """Give fused tasks the keys that only refer to them.

    Linear fusion renames what it fuses and leaves an alias under the old key,
    whose task would look as if it had cost nothing.

    Parameters
    ----------
    tasks : dict
        {key: task}
    protected : set
        Keys that must keep their tasks.
    """
    renamed = {
        key: task.target
        for key, task in tasks.items()
        if type(task) is Alias
        and key in protected
        and task.target in tasks
        and task.target not in protected
    }
    if not renamed:
        return tasks
    users: dict[Key, int] = dict.fromkeys(renamed.values(), 0)
    for task in tasks.values():
        for dependency in task.dependencies:
            if dependency in users:
                users[dependency] += 1
    out = dict(tasks)
    for key, target in renamed.items():
        if users[target] == 1 and type(tasks[target]) is not Alias:
            out[key] = tasks[target].substitute({}, key=key)
            del out[target]
    return out


def _reify(tasks: dict[Key, GraphNode], keys: Iterable[Key]) -> None:
    """Partitions of bags may be iterators, which only one reader can read.

    Results of reductions are no partitions: their keys are texts.
    """
    from dask.bag.core import reify

    for key in keys:
        task = tasks.get(key)
        if task is not None and type(task) is not Alias and isinstance(key, tuple):
            tasks[key] = Task(key, reify, task)
