"""Hooks that never raise: a cache must not break what it speeds up."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of a plugin fail at most once: it calls the plugin's `switch_off`.

    Where the cache is off already the method does nothing.
    """

    @wraps(hook)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.off:
            return None
        try:
            return hook(self, *args, **kwargs)
        except Exception as e:
            self.switch_off(e)
            return None

    return safe
