"""dask's own cache for its local schedulers, which a distributed client never asks."""

from __future__ import annotations

import sys

from dask.callbacks import Callback


def local_cache_is_active() -> bool:
    """Whether a ``dask.cache.Cache`` is registered, or entered.

    Examples
    --------
    >>> from dask.cache import Cache
    >>> with Cache(1e6):
    ...     local_cache_is_active()
    True
    >>> local_cache_is_active()
    False
    """
    module = sys.modules.get("dask.cache")
    if module is None or not Callback.active:
        return False
    return any(
        isinstance(getattr(hook, "__self__", None), module.Cache)
        for hooks in tuple(Callback.active)  # other threads change it
        for hook in hooks
    )
