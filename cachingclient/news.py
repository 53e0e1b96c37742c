"""What happens to kept keys, gathered for those who listen: one event a batch, none a key."""

from __future__ import annotations

from typing import Any

#: Layers that an event names; the rest is in its numbers.
MANY_LAYERS = 20

KEEP, HIT, EVICT, CLEAR = "keep", "hit", "evict", "clear"


class News:
    """Numbers of keys and bytes by what happened to them, until they are taken.

    Examples
    --------
    >>> news = News()
    >>> for _ in range(2):
    ...     news.note("evict", "slow-0123", nbytes=8, cause="limit")
    >>> news.take()
    [{'action': 'evict', 'cause': 'limit', 'keys': 2, 'nbytes': 16, 'layers': {'slow-0123': 2}}]
    >>> news.take()
    []
    """

    def __init__(self) -> None:
        #: {(what happened, why): {layer: [keys, bytes]}}
        self._noted: dict[tuple[str, str], dict[str, list[int]]] = {}

    def note(self, action: str, name: str, nbytes: int = 0, cause: str = "") -> None:
        """Something happened to a key.

        Parameters
        ----------
        action : str
        name : str
            Its layer.
        nbytes : int
            Its bytes.
        cause : str
            Why, where there are several reasons for it.
        """
        layers = self._noted.get((action, cause))
        if layers is None:
            layers = self._noted[action, cause] = {}
        sums = layers.get(name)
        if sums is None:
            sums = layers[name] = [0, 0]
        sums[0] += 1
        sums[1] += nbytes

    def take(self) -> list[dict[str, Any]]:
        """What was noted since the last time, one event for each thing that happened."""
        noted, self._noted = self._noted, {}
        return [_event(action, cause, layers) for (action, cause), layers in noted.items()]


def _event(action: str, cause: str, layers: dict[str, list[int]]) -> dict[str, Any]:
    most = sorted(layers.items(), key=lambda item: -item[1][0])[:MANY_LAYERS]
    return {
        "action": action,
        **({"cause": cause} if cause else {}),
        "keys": sum(keys for keys, _ in layers.values()),
        "nbytes": sum(nbytes for _, nbytes in layers.values()),
        "layers": {str(name): keys for name, (keys, _) in most},
    }
