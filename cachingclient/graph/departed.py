"""Layers that were alive when they were last submitted, and no collection has any more."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from cachingclient.bounded import Bounded

#: Names that are watched.
WATCHED = 20_000


class Departed:
    """Notices when the last collection that has a layer goes.

    Collections share the objects that stand for their layers: where these are gone nothing
    needs the layer, until somebody builds it anew.

    Examples
    --------
    >>> class Layer: pass
    >>> departed, x = Departed(), Layer()
    >>> departed.watch({"x": x})
    >>> departed.take()
    []
    >>> del x
    >>> departed.take()
    ['x']
    >>> departed.take()
    []
    """

    def __init__(self) -> None:
        #: {name: references to its layer objects}
        self._watched = Bounded(WATCHED)
        # References die in any thread, at any moment: what follows waits until it is asked for.
        self._fallen: deque[str] = deque()

    def watch(self, layers: Mapping[str, Any]) -> None:
        """Watch layers that are alive."""
        for name, layer in layers.items():
            known: dict[int, Any] = self._watched.get(name, {})
            known = {i: ref for i, ref in known.items() if ref() is not None}
            if id(layer) not in known:
                known[id(layer)] = weakref.ref(layer, self._noter(name))
            self._watched.note(name, known)

    def _noter(self, name: str) -> Any:
        fallen = self._fallen

        def note(reference: Any) -> None:
            fallen.append(name)

        return note

    def take(self) -> list[str]:
        """Names that have gone since this was asked last."""
        gone = []
        while self._fallen:
            name = self._fallen.popleft()
            known = self._watched.get(name)
            if known is not None and all(ref() is None for ref in known.values()):
                del self._watched[name]
                gone.append(name)
        return gone

    def clear(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()
        self._fallen.clear()
