"""Equality of answers: values, types, dtypes, indexes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

#: Plain dask calls the same computation by another name each time.
_TOKEN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|0x[0-9a-f]+")


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, and of equal types.

    Examples
    --------
    >>> same([1, np.ones(2)], [1, np.ones(2)]), same(1, 1.0), same({"a": float("nan")}, {"a": 0.0})
    (True, False, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return _same_arrays(one, other)
    if isinstance(one, (pd.DataFrame, pd.Series, pd.Index)):
        return _same_frames(one, other)
    return bool(one == other) or (one != one and other != other)


def _same_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _same_frames(one: Any, other: Any) -> bool:
    check = getattr(pd.testing, f"assert_{_KINDS[type(one).__name__]}_equal")
    try:
        check(one, other, check_exact=True)
    except AssertionError:
        return False
    return True


_KINDS = {"DataFrame": "frame", "Series": "series"} | dict.fromkeys(
    ("Index", "RangeIndex", "MultiIndex", "CategoricalIndex", "DatetimeIndex"), "index"
)


def error_text(error: BaseException, top: str) -> str:
    """Type and text of an error, without what is another one each time."""
    return nameless(f"{type(error).__name__}: {error}".replace(top, "HERE"))


def nameless(text: str) -> str:
    """A text without tokens and addresses."""
    return _TOKEN.sub("TOKEN", text)


def tidy(value: Any) -> Any:
    """Rows and elements in one order, where dask does not promise any.

    What a P2P shuffle writes arrives in any order; rows with equal keys keep it.
    """
    if isinstance(value, pd.DataFrame):
        value = value.reset_index() if value.index.name else value.reset_index(drop=True)
        return value.sort_values(list(value.columns)).reset_index(drop=True)
    if isinstance(value, pd.Series):
        return value.sort_index()
    return sorted(value)
