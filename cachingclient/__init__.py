"""Opportunistic caching for the distributed scheduler of dask."""

from __future__ import annotations

from cachingclient.cache import Cache as Cache
from cachingclient.client import CachingClient as CachingClient
from cachingclient.client import Client as Client
from cachingclient.context import caching as caching
from cachingclient.info import CacheInfo as CacheInfo
from cachingclient.info import Entry as Entry
from cachingclient.scheduler.plugin import CachePlugin as CachePlugin

#: Kept aligned with setup.cfg.
__version__ = "0.1.0"

__all__ = ["Cache", "CacheInfo", "CachePlugin", "CachingClient", "Client", "Entry", "caching"]
