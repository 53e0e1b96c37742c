"""Barriers: layers whose keys the optimizer must not fuse away.

Fusion hides what two computations share: of ``x.sum()`` and ``x.mean()`` the
scheduler sees no common key. With a barrier the keys of ``x`` stay visible, at
the price of one more task a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from dask.blockwise import Blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key

from cachingclient.admission import key_name
from cachingclient.graph.choosing import Candidates
from cachingclient.graph.layers import GraphFacts
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
    is_rechunk,
    number_of_outputs,
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


def candidates(
    hlg: HighLevelGraph,
    facts: GraphFacts,
    dependents: Mapping[str, set[str]],
    alive: Container[str],
) -> Candidates:
    """What speaks for a barrier at layers, and against it.

    Parameters
    ----------
    hlg : HighLevelGraph
    facts : GraphFacts
    dependents : mapping
        {name: names of the layers that need it}
    alive : container of str
        Layers that somebody holds.
    """
    of_layers = facts.layers
    # Data is there already, and an object to read from is only of use to what reads.
    blocked = frozenset(
        n for n, f in of_layers.items() if f.data or _is_sliced_load(n, hlg, facts, dependents)
    )
    speaking = {n for n in of_layers if n in alive and n not in blocked}
    return Candidates(
        blocked=blocked,
        alive=frozenset(n for n in of_layers if n in alive),
        unknown=frozenset(
            n for n in of_layers if _does_unknown_work(n, hlg, facts, speaking, blocked)
        ),
        wanted=frozenset(n for n, f in of_layers.items() if f.wish is True),
    )


def size_of(layer: Layer) -> int:
    """Number of keys of a layer; 0 if its keys cannot be protected."""
    if is_rechunk(layer):
        return number_of_outputs(layer)
    return len(layer) if isinstance(layer, (Blockwise, MaterializedLayer)) else 0


def _does_unknown_work(
    name: str,
    hlg: HighLevelGraph,
    facts: GraphFacts,
    alive: Container[str],
    blocked: Container[str],
) -> bool:
    """Whether it calls functions that a user handed over, or stands directly on one that does."""
    layers = facts.layers
    if layers[name].unknown:
        return True
    sources = list(hlg.dependencies[name])
    while sources:
        source = sources.pop()
        if layers[source].unknown and source not in alive:
            return True
        # Layers that only hand on keys (arrays made of delayed values) do no work of their own,
        # and a slice is taken out of what it reads from.
        if layers[source].alias or source in blocked:
            sources.extend(hlg.dependencies[source])
    return False


def _is_sliced_load(
    name: str, hlg: HighLevelGraph, facts: GraphFacts, dependents: Mapping[str, set[str]]
) -> bool:
    """Slices are pushed into loads: a barrier on either would load whole chunks."""
    layers = facts.layers
    if not layers[name].getter:
        return False
    sources = hlg.dependencies[name]
    if all(layers[s].data for s in sources):
        return any(layers[d].getter for d in dependents.get(name, ()))
    while len(sources) == 1:
        (source,) = sources
        if not layers[source].getter:
            return False
        sources = hlg.dependencies[source]
        if all(layers[s].data for s in sources):
            return True
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
        and (size := size_of(layer))
        and paid(name) > (size - kept) * task
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
            if layer is None:
                continue
            if isinstance(layer, Blockwise) or is_rechunk(layer):
                yield from layer.get_output_keys()
            else:
                yield from _named(layer, name)


def _named(layer: Mapping[Key, Any], name: str) -> Iterable[Key]:
    """Keys that others may need: those of the layer's name, or what nothing in it needs."""
    named = [k for k in layer if key_name(k) == name]
    if named:
        return named
    tasks = as_graph(layer)
    inner = {d for task in tasks.values() for d in task.dependencies}
    return [k for k in tasks if k not in inner]


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
