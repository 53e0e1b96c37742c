"""Whether two results are the same; runs as a task."""

from __future__ import annotations

from typing import Any

import dask
from dask.tokenize import TokenizationError, tokenize


def difference(kept: Any, again: Any) -> int | str:
    """How a kept result differs from the same one computed again.

    Parameters
    ----------
    kept, again
        Two values of one key.

    Returns
    -------
    int or str
        0 if they are the same, or cannot be compared; a text if they differ. The scheduler
        sees the type of a result, and no more.

    Examples
    --------
    >>> difference([1, 2], [1, 2]), difference({"a": 1}, {"a": 2})
    (0, 'differs')
    """
    if type(kept) is not type(again):
        return "differs"
    try:
        with dask.config.set({"tokenize.ensure-deterministic": True}):
            if tokenize(kept) == tokenize(again):
                return 0
    except (TokenizationError, RuntimeError):
        pass
    return 0 if _equal(kept, again) else "differs"


def _equal(kept: Any, again: Any) -> bool:
    equals = getattr(kept, "equals", None)  # pandas: NaN equals NaN
    if equals is not None:
        return bool(equals(again))
    if hasattr(kept, "__array__"):
        return _equal_arrays(kept, again)
    try:
        return bool(kept == again)
    except Exception:
        # Somebody else's objects: what cannot be compared tells nothing.
        return True


def _equal_arrays(kept: Any, again: Any) -> bool:
    import numpy as np

    kept, again = np.asarray(kept), np.asarray(again)
    if kept.shape != again.shape or kept.dtype != again.dtype:
        return False
    return bool(((kept == again) | ((kept != kept) & (again != again))).all())
