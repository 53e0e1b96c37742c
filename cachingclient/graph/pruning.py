"""Leaving out of a graph what need not run."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key

from cachingclient.graph.barriers import size_of
from cachingclient.internals import (
    Expr,
    GraphNode,
    HLGExpr,
    HLGExprSequence,
    is_rechunk,
    rebuilt,
    same_token,
)


class KeptLayer(MaterializedLayer):
    """Stands for a layer all of whose keys are kept."""

    #: Lets dask know that there is no reference in it that it would have to look for.
    has_legacy_tasks = False


def prune_tasks(
    graph: Mapping[Key, GraphNode],
    outputs: Iterable[Key],
    is_kept: Callable[[Key], bool],
    known: Callable[[Key], GraphNode | None] = lambda key: None,
) -> tuple[dict[Key, GraphNode], list[Key]]:
    """Walk from the outputs and stop at what is kept.

    Parameters
    ----------
    graph : mapping
        {key: task}
    outputs : iterable
        Keys that were asked for.
    is_kept : callable
        Whether a key is kept.
    known : callable
        Task by which the scheduler knows a key. Where fusion made another one of it, the
        known one is submitted again: a key must not have two tasks.

    Returns
    -------
    (dict, list)
        What has to be submitted, and the kept keys that it stops at.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> graph = {"x": Task("x", int), "y": Task("y", abs, TaskRef("x"))}
    >>> tasks, used = prune_tasks(graph, ["y"], {"x"}.__contains__)
    >>> list(tasks), used
    (['y'], ['x'])
    """
    tasks: dict[Key, GraphNode] = {}
    used = []
    work = list(outputs)
    seen = set(work)
    while work:
        key = work.pop()
        if is_kept(key):
            used.append(key)
            continue
        task = graph.get(key)
        if task is None:
            continue
        old = known(key)
        if old is not None and old.dependencies != task.dependencies:
            # The scheduler has all that the known task needs.
            tasks[key] = old
            continue
        tasks[key] = task
        for dependency in task.dependencies:
            if dependency not in seen:
                seen.add(dependency)
                work.append(dependency)
    return tasks, used


def prune_layers(
    expr: Expr, number_kept: Callable[[str], int], outputs: Container[Key]
) -> tuple[Expr, int]:
    """Drop layers that are kept whole, before their tasks are made.

    Parameters
    ----------
    expr : Expr
    number_kept : callable
        How many keys of a layer are kept.
    outputs : container
        Names of layers that were asked for themselves.

    Returns
    -------
    (Expr, int)
        The expression, and how many tasks were not made.
    """
    if isinstance(expr, HLGExprSequence):
        parts = [prune_layers(part, number_kept, outputs) for part in expr.operands]
        dropped = sum(n for _, n in parts)
        return (rebuilt(expr, [e for e, _ in parts]) if dropped else expr), dropped
    if not isinstance(expr, HLGExpr):
        return expr, 0
    # The graph to finalize is an expression of its own inside.
    inner = expr.operand("dsk")
    new: Any
    if isinstance(inner, Expr):
        new, dropped = prune_layers(inner, number_kept, outputs)
    else:
        new, dropped = prune_graph(inner, number_kept, outputs)
    if not dropped:
        return expr, 0
    return rebuilt(expr, [new, *expr.operands[1:]], same_token(expr)), dropped


def prune_graph(
    hlg: HighLevelGraph, number_kept: Callable[[str], int], outputs: Container[Key]
) -> tuple[HighLevelGraph, int]:
    """Drop layers of a HighLevelGraph that are kept whole, and what only they need."""
    dependents = hlg.dependents
    whole = {
        name
        for name, layer in hlg.layers.items()
        if name not in outputs and _droppable(name, layer, hlg, dependents, number_kept)
    }
    if not whole:
        return hlg, 0
    layers: dict[str, Layer] = {}
    dependencies: dict[str, set[str]] = {}
    work = [n for n in hlg.layers if not dependents.get(n)]
    while work:
        name = work.pop()
        if name in layers:
            continue
        layers[name] = KeptLayer({}) if name in whole else hlg.layers[name]
        dependencies[name] = set() if name in whole else set(hlg.dependencies[name])
        work.extend(dependencies[name])
    dropped = (n for n in hlg.layers if n not in layers or n in whole)
    return HighLevelGraph(layers, dependencies), sum(size_of(hlg.layers[n]) for n in dropped)


def _droppable(
    name: str,
    layer: Layer,
    hlg: HighLevelGraph,
    dependents: Mapping[str, set[str]],
    number_kept: Callable[[str], int],
) -> bool:
    kept = number_kept(name)
    size = size_of(layer)
    if not kept or not size or kept < size:
        return False
    if isinstance(layer, Blockwise) and layer.output != name:
        return False
    # Tasks of the old kind find their inputs by looking for known keys, which are gone then.
    return all(
        isinstance(hlg.layers[d], Blockwise)
        or is_rechunk(hlg.layers[d])
        or not hlg.layers[d].has_legacy_tasks
        for d in dependents.get(name, ())
    )
