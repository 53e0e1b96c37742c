"""Functions of users in what a client is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from cachingclient.admission import key_name
from cachingclient.bounded import Bounded
from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.layers import facts_of
from cachingclient.internals import Expr, expr_name
from cachingclient.tasks import Weakly, callables_in, is_cheap, task_functions, unwrap

#: Expressions whose functions are remembered.
REMEMBERED = 10_000

_known = Bounded(REMEMBERED)


def all_graphs_of(expr: Expr) -> list[HighLevelGraph]:
    """HighLevelGraphs of an expression, and those inside of it: delayed values in dataframes."""
    graphs = [hlg for _, hlg in graphs_of(expr)]
    return graphs or [hlg for node in expr.walk() for hlg in _inside(node)]


def _inside(node: Expr) -> Iterator[HighLevelGraph]:
    for operand in node.operands:
        for value in operand if type(operand) in (list, tuple) else (operand,):
            if isinstance(value, Delayed) and isinstance(value.dask, HighLevelGraph):
                yield value.dask


def functions_of(expr: Expr, graphs: Iterable[HighLevelGraph]) -> dict[Any, Iterable[Any]]:
    """Functions of unknown behaviour, by the names of the layers or nodes that call them.

    Parameters
    ----------
    expr : Expr
    graphs : iterable of HighLevelGraph
        As `all_graphs_of` gives them.
    """
    found: dict[Any, Iterable[Any]] = {}
    for hlg in graphs:
        for name, layer in hlg.layers.items():
            if len(users := facts_of(name, layer).users):
                found[name] = users
    if not any(graphs_of(expr)):
        for node in expr.walk():
            if len(users := _of_node(node)):
                found[expr_name(node)] = users
    return found


def functions_of_tasks(graph: Mapping[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    """The same of a low-level graph."""
    found: dict[Any, tuple[Any, ...]] = {}
    for key, task in graph.items():
        users = tuple(f for f in task_functions(task) if not is_cheap(f))
        if users:
            found[key_name(key)] = users
    return found


def _of_node(node: Expr) -> Weakly:
    name = expr_name(node)
    if name not in _known or len(list(_known[name])) < len(_known[name]):
        _known.note(name, Weakly(f for f in _callables(node) if not is_cheap(f)))
    found: Weakly = _known[name]
    return found


def _callables(node: Expr) -> Iterator[Any]:
    for value in callables_in(node.operands):
        if not isinstance(value, (type, Expr)):
            yield from unwrap(value)
