"""Counts calls of functions; imported by name, so that it does not travel with the functions."""

from __future__ import annotations

from collections import Counter

_calls: list[str] = []
_seen: set[str] = set()


def count(what: str) -> None:
    """Note a call."""
    _calls.append(what)


def first(what: str) -> bool:
    """Whether this is asked for the first time."""
    seen = what in _seen
    _seen.add(what)
    return not seen


def counted() -> Counter[str]:
    """Calls since the last time."""
    n = len(_calls)
    found = Counter(_calls[:n])
    del _calls[:n]
    return found


def forget() -> None:
    """Start anew."""
    counted()
    _seen.clear()
