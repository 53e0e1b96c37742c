"""Functions of users in what a client is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from cachingclient.admission import key_name
from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.layers import facts_of
from cachingclient.internals import Expr, expr_name
from cachingclient.tasks import is_cheap, task_functions, unwrap

#: Expressions whose functions are remembered.
REMEMBERED = 10_000

_known: OrderedDict[str, tuple[Any, ...]] = OrderedDict()


def functions_of(expr: Expr) -> dict[Any, tuple[Any, ...]]:
    """Functions of unknown behaviour, by the names of the layers or nodes that call them.

    Parameters
    ----------
    expr : Expr
    """
    graphs = [hlg for _, hlg in graphs_of(expr)]
    if not graphs:
        found = ((expr_name(node), _of_node(node)) for node in expr.walk())
        return {name: functions for name, functions in found if functions}
    layers = ((n, facts_of(n, layer)) for hlg in graphs for n, layer in hlg.layers.items())
    return {name: facts.users for name, facts in layers if facts.users}


def functions_of_tasks(graph: Mapping[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    """The same of a low-level graph."""
    found: dict[Any, tuple[Any, ...]] = {}
    for key, task in graph.items():
        users = tuple(f for f in task_functions(task) if not is_cheap(f))
        if users:
            found[key_name(key)] = users
    return found


def _of_node(node: Expr) -> tuple[Any, ...]:
    name = expr_name(node)
    if name not in _known:
        _known[name] = tuple(f for f in _callables(node) if not is_cheap(f))
        if len(_known) > REMEMBERED:
            _known.popitem(last=False)
    return _known[name]


def _callables(node: Expr) -> Iterator[Any]:
    for operand in node.operands:
        for value in operand if type(operand) in (list, tuple) else (operand,):
            if callable(value) and not isinstance(value, (type, Expr)):
                yield from unwrap(value)
