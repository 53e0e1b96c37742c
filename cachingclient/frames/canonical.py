"""What nodes of dataframe expressions are, whatever dask calls them.

dask names a node after its operands, and so after the columns and partitions that somebody
wanted of what was read. Nodes of equal identity hold the same data, partition by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dask.tokenize import TokenizationError, tokenize

from cachingclient.bounded import Bounded
from cachingclient.frames.leaves import Leaf
from cachingclient.internals import (
    Expr,
    FrameKinds,
    expr_name,
    frame_kinds,
    is_blockwise,
    selected_partitions,
    total_partitions,
)

#: Partitions that are told by their numbers.
Parts = Sequence[Any]


class Identity(NamedTuple):
    """What a node is.

    Examples
    --------
    >>> Identity.of_name("sum-0123", 3)
    Identity(token='sum-0123', parts=range(0, 3), single=False, plain=True)
    """

    #: the same for all nodes that are parts of the same whole
    token: str
    #: which part of the whole each partition is
    parts: Parts
    #: whether the whole has one partition, which is used with all of another
    single: bool
    #: whether the name says it all
    plain: bool = False

    @classmethod
    def of_name(cls, name: str, npartitions: int) -> Identity:
        """Identity of a node that is told by its name."""
        return cls(name, range(npartitions), npartitions == 1, plain=True)


class Identities:
    """Finds the identities of nodes.

    Parameters
    ----------
    leaf : callable
        What a node reads; None for one that reads nothing.
    known : Bounded
        {name of a node: its identity}, filled as they are found.
    """

    def __init__(self, leaf: Callable[[Any], Leaf | None], known: Bounded) -> None:
        self._leaf = leaf
        self._known = known

    def of(self, node: Any) -> Identity:
        """Identity of a node.

        Parameters
        ----------
        node : Expr
            Of dask.dataframe.
        """
        name = expr_name(node)
        found: Identity | None = self._known.get(name)
        if found is None:
            try:
                found = self._find(node)
            except (TokenizationError, RuntimeError):
                found = Identity.of_name(name, node.npartitions)
            self._known.note(name, found)
        return found

    def _find(self, node: Any) -> Identity:
        kinds = frame_kinds()
        assert kinds is not None
        if isinstance(node, kinds.Fused):
            return self.of(node.exprs[0])
        if isinstance(node, kinds.BlockwiseIO):
            leaf = self._leaf(node)
            return self._of_leaf(leaf) if leaf is not None else self._of_reader(node, kinds)
        if isinstance(node, kinds.Partitions):
            whole = self.of(node.frame)
            parts = tuple(whole.parts[n] for n in node.partitions)
            return Identity(whole.token, parts, whole.single)
        if isinstance(node, kinds.Projection) and (leaf := self.selection(node)) is not None:
            return self._of_leaf(leaf)
        return self._of_inputs(node, kinds)

    def selection(self, node: Any) -> Leaf | None:
        """What a selection of columns takes right from what reads them: that is a leaf, too."""
        leaf = self._leaf(node.frame)
        if leaf is None or leaf.series:
            return None
        columns = node.operand("columns")
        series = not isinstance(columns, list)
        wanted = (columns,) if series else tuple(columns)
        try:
            inside = set(wanted) <= set(leaf.columns)
        except TypeError:
            return None
        # A label that is not unique, or a part of one, selects several columns.
        if not inside or len(set(leaf.columns)) < len(leaf.columns):
            return None
        return replace(leaf, columns=wanted, series=series)

    def _of_leaf(self, leaf: Leaf) -> Identity:
        token = tokenize("leaf", leaf.family, leaf.columns, leaf.series)
        single = leaf.total == 1 or (not leaf.filtered and len(leaf.units) == 1)
        # Parts of other things are told by numbers, too: what is put beside each other is found.
        parts = tuple(unit[0] if len(unit) == 1 else unit for unit in leaf.units)
        return Identity(token, parts, single)

    def _of_reader(self, node: Any, kinds: FrameKinds) -> Identity:
        """One whose partitions can be asked for alone, whatever it reads."""
        name = expr_name(node)
        # Data is not tokenized again.
        if not isinstance(node, kinds.FromMap) and not node.dependencies():
            return Identity.of_name(name, node.npartitions)
        if not isinstance(node, kinds.PartitionsFiltered):
            return Identity.of_name(name, node.npartitions)
        operands = [
            self._operand(operand)
            for parameter, operand in zip(type(node)._parameters, node.operands)
            if parameter != "_partitions"
        ]
        files = selected_partitions(node)
        total = total_partitions(node)
        parts: Parts = range(total) if files is None else files
        return Identity(_token(node, operands), parts, total == 1)

    def _of_inputs(self, node: Any, kinds: FrameKinds) -> Identity:
        name, npartitions = expr_name(node), node.npartitions
        inputs = {expr_name(d): (d, self.of(d)) for d in node.dependencies()}
        if all(identity.plain for _, identity in inputs.values()):
            return Identity.of_name(name, npartitions)
        operands = [self._operand(o) for o in node.operands]
        if is_blockwise(node, kinds):
            small: list[Identity] = []
            large: list[Identity] = []
            for dependency, identity in inputs.values():
                alone = dependency.npartitions == 1 if npartitions > 1 else identity.single
                (small if alone else large).append(identity)
            all_parts = {tuple(identity.parts) for identity in large}
            if len(all_parts) == 1:
                (parts,) = all_parts
                return Identity(_token(node, operands, _parts_of(small)), parts, False)
            if not large:
                return Identity(_token(node, operands, _parts_of(small)), range(1), True)
        every = _parts_of(identity for _, identity in inputs.values())
        return Identity(_token(node, operands, every), range(npartitions), npartitions == 1)

    def _operand(self, operand: Any) -> Any:
        return self.of(operand).token if isinstance(operand, Expr) else operand


def _parts_of(identities: Iterable[Identity]) -> list[tuple[Any, ...]]:
    return [tuple(identity.parts) for identity in identities if not identity.plain]


def _token(node: Any, *what: Any) -> str:
    kind = type(node)
    return tokenize(f"{kind.__module__}.{kind.__qualname__}", *what, ensure_deterministic=True)
