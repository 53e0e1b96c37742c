"""Dataframes of dask in several threads, before Python 3.12.

There each cached property has a lock for all objects together. Two threads that look at properties
of expressions in different orders wait for each other for ever, whatever the client. Later Pythons
have no such locks; this takes them away from dask's expressions.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any


def unlock(cls: type[Any]) -> None:
    """Take the locks from the cached properties of a class, and of those that inherit from it."""
    for value in vars(cls).values():
        if isinstance(value, cached_property) and hasattr(value, "lock"):
            setattr(value, "lock", contextlib.nullcontext())  # noqa: B010
    for inherits in cls.__subclasses__():
        unlock(inherits)
