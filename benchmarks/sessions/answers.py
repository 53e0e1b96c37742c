"""Whether two answers are the same, but for the order in which numbers were added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

#: Of numbers with 64 and 32 bits, relative to the largest of an answer
EXACT, ROUGH = 1e-9, 1e-4


def same(one: Any, other: Any) -> bool:
    """Whether two answers are the same."""
    if type(one) is not type(other):
        return bool(np.isscalar(one) and np.isscalar(other) and close(one, other))
    if isinstance(one, (pd.Series, pd.DataFrame)):
        if len(one) != len(other) or list(pd.DataFrame(one)) != list(pd.DataFrame(other)):
            return False
        one, other = pd.DataFrame(one).sort_index(), pd.DataFrame(other).sort_index()
        return one.index.equals(other.index) and all(close(one[c], other[c]) for c in one)
    if isinstance(one, (xr.DataArray, xr.Dataset)):
        one, other = one.to_dict(), other.to_dict()
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        if len(one) == len(other) and all(isinstance(x, (int, float)) for x in (*one, *other)):
            return close(one, other)
        return len(one) == len(other) and all(map(same, one, other))
    return close(one, other)


def close(one: Any, other: Any) -> bool:
    """Whether two scalars or arrays are the same."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f" or other.dtype.kind != "f":
        return bool((one == other).all())
    if not one.size:
        return True
    least = ROUGH if min(one.dtype.itemsize, other.dtype.itemsize) < 8 else EXACT
    size = float(np.nanmax(np.abs(other))) if not np.isnan(other).all() else 0.0
    return bool(np.allclose(one, other, rtol=0, atol=least * size, equal_nan=True))
