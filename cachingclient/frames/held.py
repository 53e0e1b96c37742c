"""Which steps of a dataframe expression belong to collections that somebody still holds.

What is sent is optimized: its nodes are other ones than those that collections are made of. But
references to the latter are counted. A node that more refers to than the nodes above it is held by
a collection; and where no collection is held but those that are asked for, and such that only read,
nothing but the answer needs the steps between.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from cachingclient.frames.rewriting import is_frame
from cachingclient.graph.liveness import KNOWN
from cachingclient.internals import Expr, FrameKinds, expr_name, frame_kinds, live_frames

#: Nodes in memory that are looked at, at most: a millisecond a thousand.
MANY = 5_000


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
        Nothing is told of what reads, shuffles, or calls functions of the user's.
    """
    kinds = frame_kinds()
    if kinds is None or not KNOWN or not is_frame(expr):
        return Steps({}, {})
    found = _held(expr, kinds)  # before anything here refers to nodes
    steps = [expr_name(n) for n in expr.walk() if _is_step(n, kinds)]
    if found is None:
        return Steps(dict.fromkeys(steps), {})
    asked = len(expr.operands) if isinstance(expr, kinds.Sequence) else 1
    if len(found) <= asked:
        return Steps(dict.fromkeys(steps, False), {})
    held = {name: found[name] for name in steps if name in found}
    return Steps({**dict.fromkeys(steps), **dict.fromkeys(held, True)}, held)


def _held(expr: Expr, kinds: FrameKinds) -> dict[str, Any] | None:
    """Nodes that collections are made of, but for those that only read."""
    nodes = live_frames(MANY)
    if nodes is None:
        return None
    referred = Counter(map(id, _operands(expr)))
    for node in nodes:
        if node is not expr:
            referred.update(map(id, _operands(node)))
    counts = [sys.getrefcount(node) for node in nodes]
    return {
        expr_name(node): node
        for node, count in zip(nodes, counts)
        if count > _COUNTED + referred[id(node)] and not _only_reads(node, kinds)
    }


def _operands(node: Any) -> Iterator[Any]:
    for operand in node.operands:
        if isinstance(operand, Expr):
            yield operand
        elif isinstance(operand, (list, tuple)):
            yield from (part for part in operand if isinstance(part, Expr))


def _is_step(node: Any, kinds: FrameKinds) -> bool:
    """Whether a node is one of dask's own steps, partition by partition, above what reads."""
    if not isinstance(node, kinds.Blockwise) or _only_reads(node, kinds):
        return False
    return not any(callable(operand) for operand in node.operands)


def _only_reads(node: Any, kinds: FrameKinds) -> bool:
    while isinstance(node, kinds.Projection):
        (node,) = node.dependencies()
    return not node.dependencies()


def _references() -> int:
    """References that `_held` itself has to what it counts those of."""
    nodes = [object() for _ in range(2)]
    return [sys.getrefcount(node) for node in nodes][0]


_COUNTED = _references()
