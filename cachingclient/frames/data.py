"""Data of from_pandas, which a client sends with each expression: the scheduler remembers it.

An expression that is asked about again is sent without its data, under the token of it. Where the
scheduler has forgotten that, it has no graph, as for any result that is gone, and the client sends
all of it.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Any

import cloudpickle

from cachingclient.internals import Expr, data_token, frame_kinds

#: Bytes below which data is sent with each expression.
SMALL = 100_000
#: What stands for data in a pickle.
_MARK = "cachingclient-data"


def data_of(expr: Expr) -> dict[str, Any]:
    """Large data in an expression, by its token.

    Parameters
    ----------
    expr : Expr
    """
    return {data_token(data): data for data in _walk(expr) if size_of(data) > SMALL}


def _walk(expr: Expr) -> Iterator[Any]:
    kinds = frame_kinds()
    if kinds is None:
        return
    for node in expr.walk():
        for part in node.exprs if isinstance(node, kinds.Fused) else (node,):
            if isinstance(part, kinds.FromPandas):
                yield part.operand("frame")


def size_of(data: Any) -> int:
    """Bytes of data, without what its objects refer to."""
    usage = data.memory_usage(index=True)
    return int(usage.sum() if hasattr(usage, "sum") else usage)


def pack(expr: Expr, known: Container[str]) -> bytes:
    """Pickle an expression without data that the scheduler has.

    Parameters
    ----------
    expr : Expr
    known : container of str
        Tokens of that data.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, known).dump(expr)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, buffer: io.BytesIO, known: Container[str]) -> None:
        super().__init__(buffer)
        self._known = known
        kinds = frame_kinds()
        self._kind = () if kinds is None else kinds.BackendData

    def persistent_id(self, thing: Any) -> tuple[str, str] | None:
        if isinstance(thing, self._kind) and (token := data_token(thing)) in self._known:
            return _MARK, token
        return None


class Stash:
    """Data that a scheduler remembers, the most recent first to stay.

    Parameters
    ----------
    limit : float
        Bytes that it may take.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._data: OrderedDict[str, Any] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, token: str) -> bool:
        return token in self._data

    def keep(self, expr: Expr) -> None:
        """Remember the data of an expression."""
        for token, data in data_of(expr).items():
            if token in self._data:
                self._data.move_to_end(token)
            elif size_of(data) <= self.limit:
                self._data[token] = data
                self.nbytes += size_of(data)
        while self.nbytes > self.limit:
            _, data = self._data.popitem(last=False)
            self.nbytes -= size_of(data)

    def unpack(self, packed: bytes) -> Expr | None:
        """An expression with its data; None if some of that is gone.

        Parameters
        ----------
        packed : bytes
            As `pack` returns it.
        """
        try:
            expr: Expr = _Unpickler(packed, self._data).load()
        except _Gone:
            return None
        return expr

    def clear(self) -> None:
        """Forget all."""
        self._data.clear()
        self.nbytes = 0


class _Gone(Exception):
    """Data that is not there any more."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, data: OrderedDict[str, Any]) -> None:
        super().__init__(io.BytesIO(packed))
        self._data = data

    def persistent_load(self, mark: Any) -> Any:
        _, token = mark
        if token not in self._data:
            raise _Gone(token)
        self._data.move_to_end(token)
        return self._data[token]
