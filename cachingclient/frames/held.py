"""Which steps of a dataframe expression belong to collections that somebody still holds.

What is sent is optimized: its nodes are other ones than those that collections are made of. But
references to the latter are counted. A node that more refers to than the nodes above it is held by
a collection; and where no collection is held but those that are asked for, and such that only read,
nothing but the answer needs the steps between.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from cachingclient.frames.rewriting import is_frame
from cachingclient.graph.liveness import KNOWN
from cachingclient.internals import Expr, FrameKinds, expr_name, frame_kinds, live_frames

logger = logging.getLogger("distributed.client.cachingclient")

#: Nodes in memory that are looked at, at most: two milliseconds.
MANY = 300
#: Items of operands that are looked through: nodes are not in longer ones.
LONG = 100


class Steps(NamedTuple):
    """What is known of the steps of an expression."""

    #: {name: whether a collection that is held needs it; None where nobody can tell}
    alive: dict[str, bool | None]
    #: {name: node}, of those that are held
    held: dict[str, Any]


def alive(expr: Expr) -> Steps:
    """Tell which nodes of an expression are needed by collections that are held.

    Parameters
    ----------
    expr : Expr
        As it is sent. Nobody else may refer to its parts, but collections.

    Returns
    -------
    Steps
        Nothing is told of what reads, shuffles, or calls functions of the user's, nor of what was
        asked for: that may be in a variable, too.
    """
    kinds = frame_kinds()
    if kinds is None or not KNOWN or not is_frame(expr):
        return Steps({}, {})
    try:
        return _alive(expr, kinds)
    except Exception:
        # Another thread may make nodes: this is only a hint.
        logger.debug("Nobody can tell which steps are held", exc_info=True)
        return Steps({}, {})


def _alive(expr: Expr, kinds: FrameKinds) -> Steps:
    steps = [expr_name(node) for node in expr.walk() if _is_step(node, kinds)]
    if not steps:
        return Steps({}, {})
    found = _held(expr, kinds)  # before anything here refers to nodes
    tops = _tops(expr, kinds)
    steps = [name for name in steps if name not in tops]
    asked = [top for top in tops.values() if not _only_reads(top, kinds)]
    # Of several frames one may be a step of another.
    if found is None or len(asked) > 1 and any(top.npartitions > 1 for top in asked):
        return Steps(dict.fromkeys(steps), {})
    if len(found) <= len(asked):
        return Steps(dict.fromkeys(steps, False), {})
    held = {name: found[name] for name in steps if name in found}
    return Steps({**dict.fromkeys(steps), **dict.fromkeys(held, True)}, held)


def _held(expr: Expr, kinds: FrameKinds) -> dict[str, Any] | None:
    """Nodes that collections are made of, but for those that only read."""
    nodes = live_frames(MANY)
    if nodes is None:
        return None
    referred: Counter[int] = Counter()
    known = set(map(id, nodes))
    if id(expr) not in known:
        known.add(id(expr))
        nodes.append(expr)
    for node in nodes:
        for other in _referred(node):
            referred[id(other)] += 1
            if id(other) not in known:  # of those with equal names a table has one
                known.add(id(other))
                nodes.append(other)
    node = other = None  # which would be one more reference
    others = [sys.getrefcount(node) - _COUNTED - referred[id(node)] for node in nodes]
    return {
        expr_name(node): node
        for node, number in zip(nodes, others)
        if number > 0
        and isinstance(node, kinds.Expr)
        and not _only_reads(node, kinds)
        and number > _own(node)
    }


def _own(node: Any) -> int:
    """References of a node to itself: functions among its cached properties close over it."""
    functions = [value for value in list(vars(node).values()) if type(value) is FunctionType]
    cells = [cell for function in functions for cell in function.__closure__ or ()]
    return sum(cell.cell_contents is node for cell in cells)


def _referred(node: Any) -> Iterator[Any]:
    """What a node refers to: its operands, and what is made of them."""
    yield from (value for value in node.operands if isinstance(value, Expr))
    for value in list(vars(node).values()):
        if isinstance(value, Expr):
            yield value
        elif type(value) in (list, tuple) and len(value) <= LONG and value is not node.operands:
            yield from (part for part in value if isinstance(part, Expr))
    for value in node.operands:
        if type(value) in (list, tuple) and len(value) <= LONG:
            yield from (part for part in value if isinstance(part, Expr))


def _is_step(node: Any, kinds: FrameKinds) -> bool:
    """Whether a node is one of dask's own steps, partition by partition, above what reads."""
    if not isinstance(node, kinds.Blockwise) or _only_reads(node, kinds):
        return False
    return not any(callable(operand) for operand in node.operands)


def _tops(expr: Expr, kinds: FrameKinds) -> dict[str, Any]:
    """What was asked for, without what puts its partitions together."""
    tops = {}
    for top in expr.operands if isinstance(expr, kinds.Sequence) else [expr]:
        while isinstance(top, kinds.RepartitionToFewer):
            (top,) = top.dependencies()
        tops[expr_name(top)] = top
    return tops


def _only_reads(node: Any, kinds: FrameKinds) -> bool:
    while isinstance(node, kinds.Projection):
        (node,) = node.dependencies()
    return not node.dependencies()


def _references() -> int:
    """References that `_held` itself has to what it counts those of."""
    nodes = [object() for _ in range(2)]
    return [sys.getrefcount(node) for node in nodes][0]


_COUNTED = _references()
