"""Opportunistic caching for the distributed scheduler of dask."""

from __future__ import annotations

from cachingclient.cache import Cache as Cache
from cachingclient.client import CachingClient as CachingClient
from cachingclient.client import Client as Client
from cachingclient.context import caching as caching
from cachingclient.info import CacheInfo as CacheInfo
from cachingclient.info import Entry as Entry
from cachingclient.scheduler.plugin import CachePlugin as CachePlugin
from cachingclient.version import VERSION

__version__ = VERSION

__all__ = ["Cache", "CacheInfo", "CachePlugin", "CachingClient", "Client", "Entry", "caching"]
