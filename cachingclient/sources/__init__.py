"""Files and stores that computations read, and whether they changed."""

from cachingclient.sources.source import Source
from cachingclient.sources.watch import Check, Sources

__all__ = ["Check", "Source", "Sources"]
