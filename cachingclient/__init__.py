"""Opportunistic caching for the distributed scheduler of dask."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The defaults of the settings are there as soon as the package is imported.
import cachingclient.config  # noqa: F401
from cachingclient.version import VERSION

if TYPE_CHECKING:
    from cachingclient.cache import Cache as Cache
    from cachingclient.client import CachingClient as CachingClient
    from cachingclient.client import Client as Client
    from cachingclient.context import caching as caching
    from cachingclient.info import CacheInfo as CacheInfo
    from cachingclient.info import Entry as Entry
    from cachingclient.scheduler.plugin import CachePlugin as CachePlugin

__version__ = VERSION

__all__ = ["Cache", "CacheInfo", "CachePlugin", "CachingClient", "Client", "Entry", "caching"]

#: {public name: its module}; imported when asked for: each worker imports this package as well,
#: and needs a third of it
_MODULES = {
    "Cache": "cache",
    "CacheInfo": "info",
    "CachePlugin": "scheduler.plugin",
    "CachingClient": "client",
    "Client": "client",
    "Entry": "info",
    "caching": "context",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
