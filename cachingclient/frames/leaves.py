"""What dataframe expressions read: leaves of several names that read the same files.

Which columns, partitions and filters somebody wants of a file is in the name of what reads it, and
in the names of all that is made of that. A *family* is what is read, whatever is wanted of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dask.tokenize import TokenizationError, tokenize

from cachingclient.bounded import Bounded
from cachingclient.internals import (
    Expr,
    FrameKinds,
    as_series,
    converts_strings,
    expr_name,
    frame_kinds,
    fused_files,
    meta_of,
    reader_label,
    selected_partitions,
    total_partitions,
    with_operands,
)

#: Operands whose tokens are remembered: lists of files take a while.
REMEMBERED = 100
#: Readers by what it costs to read more than is wanted: nothing; what it is; who knows.
CSV, PARQUET, MAP = "csv", "parquet", "map"
#: Data that a client sends.
DATA = "data"

#: Operands that say what is wanted, or are found out when it is asked for.
WANTED = frozenset(
    {"columns", "_series", "_partitions", "_dataset_info_cache", "_pq_length_stats"}
    | {"_pd_length_stats"}
)
#: Types of operands that are tokenized in no time.
_SIMPLE = (str, int, float, bool, type(None))


#: Files of each partition.
Units = tuple[tuple[int, ...], ...]


class Reader(NamedTuple):
    """What a client says of one leaf."""

    #: what it reads
    family: str
    #: files of each partition, where several are read as one
    units: Units | None
    #: bytes of all its files, as far as known
    nbytes: int | None = None


@dataclass(frozen=True)
class Leaf:
    """What one node of an expression reads."""

    #: node that reads
    node: Any
    #: what reads a single file
    reader: Any
    family: str
    kind: str
    columns: tuple[Any, ...]
    #: whether the only column is given as a series
    series: bool
    #: files of each partition
    units: Units
    #: files in all
    total: int
    #: whether only some of them were asked for
    filtered: bool
    nbytes: int | None = None

    @property
    def together(self) -> bool:
        """Whether several files are read as one partition."""
        return self.node is not self.reader

    def all_columns(self) -> tuple[Any, ...] | None:
        """Columns of the files; None if nobody knows without reading."""
        columns = getattr(self.reader.operand("user_meta"), "columns", None)
        return None if columns is None else tuple(columns)


def readers(expr: Expr) -> Iterator[tuple[str, Any]]:
    """Nodes that read, with the names of the nodes of the expression that they are in.

    Parameters
    ----------
    expr : Expr
    """
    kinds = frame_kinds()
    if kinds is None:
        return
    for node in expr.walk():
        inside = node.exprs if isinstance(node, kinds.Fused) else (node,)
        for part in inside:
            if isinstance(part, kinds.BlockwiseIO) and kind_of(part, kinds) is not None:
                yield expr_name(node), part


def kind_of(node: Any, kinds: FrameKinds) -> str | None:
    """What kind of reader a node is; None where it is another one."""
    reader = _reader(node, kinds)
    if isinstance(reader, kinds.FromPandas):
        kind = DATA
    elif isinstance(reader, kinds.ReadParquet):
        kind = PARQUET
    elif type(reader) is kinds.FromMapProjectable:
        function = getattr(reader.func, "func", reader.func)
        kind = CSV if getattr(function, "__name__", "") == "_read_csv" else MAP
    else:
        return None
    # Other backends than pandas are left alone.
    return kind if type(meta_of(node)).__module__.partition(".")[0] == "pandas" else None


def _reader(node: Any, kinds: FrameKinds) -> Any:
    return node.operand("_expr") if isinstance(node, kinds.FusedIO) else node


def unsaid(node: Any) -> tuple[Units | None, bool | None]:
    """What follows from settings of dask, and is not in the name of what reads.

    Parameters
    ----------
    node : Expr
        As `readers` gives them.

    Returns
    -------
    tuple
        Files of each partition where several are read as one, and whether words become strings of
        pyarrow; None for what the name tells.
    """
    kinds = frame_kinds()
    assert kinds is not None
    reader = _reader(node, kinds)
    units = None
    if reader is not node:
        units = tuple(tuple(files) for files in fused_files(node))
    return units, converts_strings(reader)


class Families:
    """Tells what leaves read."""

    def __init__(self) -> None:
        self._known = Bounded(REMEMBERED * 10)
        #: {id of an operand: (the operand, its token)}: an id is only good while it lives
        self._tokens = Bounded(REMEMBERED)

    def reader(self, node: Any) -> Reader | None:
        """What a node reads; None where no token can tell.

        Parameters
        ----------
        node : Expr
            As `readers` gives them.
        """
        key = expr_name(node), unsaid(node)
        if key not in self._known:
            self._known.note(key, self._find(node, *key[1]))
        found: Reader | None = self._known[key]
        return found

    def _find(self, node: Any, units: Units | None, strings: bool | None) -> Reader | None:
        kinds = frame_kinds()
        assert kinds is not None
        reader = _reader(node, kinds)
        try:
            parts = [
                self._token(operand)
                for parameter, operand in zip(type(reader)._parameters, reader.operands)
                if parameter not in WANTED
            ]
            # fsspec's file systems have the number of the process in their tokens.
            parts.append(getattr(reader, "checksum", None))
            parts.append(strings)
            family = tokenize(type(reader).__name__, parts, ensure_deterministic=True)
        except (TokenizationError, RuntimeError):
            return None
        return Reader(f"{reader_label(reader)}-{family}", units)

    def _token(self, operand: Any) -> Any:
        if isinstance(operand, _SIMPLE):
            return operand
        known = self._tokens.get(id(operand))
        if known is not None and known[0] is operand:
            return known[1]
        token = tokenize(_ordered(operand), ensure_deterministic=True)
        if not _is_data(operand):
            self._tokens.note(id(operand), (operand, token))
        return token


def _is_data(operand: Any) -> bool:
    """Whether an operand may be large: what a user lets go of must not be held here."""
    while type(operand) in (list, tuple) and operand:
        operand = operand[0]
    return hasattr(operand, "dtype") or hasattr(operand, "dtypes")


def _ordered(operand: Any) -> Any:
    """Filters that dask has made of sets are in another order in each process."""
    if type(operand) is list and operand and all(type(part) in (list, tuple) for part in operand):
        if all(_is_condition(c) for part in operand for c in part):
            return sorted(sorted(map(repr, part)) for part in operand)
    return operand


def _is_condition(thing: Any) -> bool:
    return type(thing) is tuple and len(thing) == 3 and isinstance(thing[1], str)


def leaf_of(node: Any, said: Reader) -> Leaf | None:
    """What a node reads, in detail.

    Parameters
    ----------
    node : Expr
    said : Reader
        What the client says of it.
    """
    kinds = frame_kinds()
    if kinds is None or (kind := kind_of(node, kinds)) is None:
        return None
    reader = _reader(node, kinds)
    total = total_partitions(reader)
    files = selected_partitions(reader)
    units = said.units
    if units is None:
        units = tuple((file,) for file in (range(total) if files is None else files))
    columns = tuple(reader.columns)
    series = as_series(reader)
    return Leaf(
        node=node,
        reader=reader,
        family=said.family,
        kind=kind,
        columns=columns,
        series=series,
        units=units,
        total=total,
        filtered=files is not None,
        nbytes=said.nbytes,
    )


def columns_read(
    expr: Expr, said: Mapping[str, Reader]
) -> dict[str, tuple[str, str, list[str | int]]]:
    """What nodes read of files whose columns can be read apart from each other.

    Parameters
    ----------
    expr : Expr
    said : mapping
        {name of a node that reads: what is known of it}

    Returns
    -------
    dict
        {name of a node: (its family, its kind, labels of columns)}
    """
    found = {}
    for _, node in readers(expr):
        reader = said.get(name := expr_name(node))
        leaf = None if reader is None else leaf_of(node, reader)
        if leaf is not None and can_select(leaf):
            if all(isinstance(c, (str, int)) for c in leaf.columns):
                found[name] = leaf.family, leaf.kind, list(leaf.columns)
    return found


def can_select(leaf: Leaf) -> bool:
    """Whether columns can be selected one by one, and read apart from each other.

    Parameters
    ----------
    leaf : Leaf
    """
    if leaf.kind == DATA or len(set(leaf.columns)) < len(leaf.columns):
        return False
    meta = meta_of(leaf.node)
    if getattr(getattr(meta, "columns", None), "nlevels", 1) > 1:
        return False
    if leaf.kind == PARQUET:
        return True
    known = leaf.all_columns()
    if known is None:
        # Making an empty frame would mean to read a file.
        return not leaf.reader.operand("enforce_metadata")
    whole = leaf.reader.operand("user_meta").columns
    return whole.nlevels == 1 and whole.is_unique


def widened(leaf: Leaf, columns: tuple[Any, ...]) -> Any:
    """What reads other columns of the same files, all of them.

    Parameters
    ----------
    leaf : Leaf
    columns : tuple
    """
    token = tokenize("cachingclient", leaf.family, columns)
    changes = {"columns": list(columns), "_series": False, "_partitions": None}
    return with_operands(leaf.reader, changes, token)
