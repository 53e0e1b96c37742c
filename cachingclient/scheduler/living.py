"""Which layers the collections of all clients need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachingclient.bounded import Bounded


class Living:
    """What clients told of the layers that living collections of theirs need.

    Parameters
    ----------
    maxsize : int
        Names that are remembered.

    Examples
    --------
    >>> living = Living(100)
    >>> living.tell("client 1", {"x": True})
    >>> living.tell("client 2", {"x": False, "y": False})
    >>> living.get("x"), living.get("y"), living.get("z")
    (True, False, None)
    >>> living.gone("client 1")
    ['x']
    >>> living.get("x")
    False
    >>> living.tell("client 2", {"x": None})
    >>> living.get("x")
    """

    def __init__(self, maxsize: int) -> None:
        #: {name: {client: whether a collection of its needs it}}
        self._told = Bounded(maxsize)

    def tell(self, client: str, alive: Mapping[Any, bool | None]) -> None:
        """A client tells of names; None takes back what it told before."""
        for name, is_alive in alive.items():
            told = self._told.get(name, {})
            if is_alive is not None:
                told[client] = is_alive
                self._told.note(name, told)
            elif told.pop(client, None) is not None and not told:
                del self._told[name]

    def get(self, name: Any) -> bool | None:
        """Whether somebody needs a name; None if nobody who is there told."""
        told = self._told.get(name)
        return any(told.values()) if told else None

    def gone(self, client: str) -> list[Any]:
        """A client has gone: what it told is not known any more. Returns the names."""
        names = [name for name, told in self._told.items() if client in told]
        for name in names:
            del self._told[name][client]
            if not self._told[name]:
                del self._told[name]
        return names
