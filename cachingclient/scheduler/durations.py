"""How long keys of layers take, learnt from what has run: fused with others or not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from dask.utils import key_split

#: Layers and functions that are remembered.
REMEMBERED = 10_000


class Durations:
    """Mean seconds a key, by layer, and by function for layers that are new.

    Examples
    --------
    >>> durations = Durations()
    >>> durations.watch({"sum-0": "slow-1"})
    >>> durations.ran("sum-0", 0.5)
    >>> durations.seconds("slow-1"), durations.seconds("slow-2"), durations.seconds("other-1")
    (0.5, 0.5, None)
    """

    def __init__(self) -> None:
        #: {name of a task: the layer whose cost it tells}
        self._watched: OrderedDict[Any, str] = OrderedDict()
        #: {layer or function: (seconds, keys)}
        self._known: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def watch(self, names: Mapping[str, str]) -> None:
        """Measure a layer by tasks that it is a part of: what else they do is cheap."""
        self._watched.update(names)
        while len(self._watched) > REMEMBERED:
            self._watched.popitem(last=False)

    def ran(self, name: Any, seconds: float) -> None:
        """A task ran."""
        layer = self._watched.get(name)
        if layer is not None:
            for what in (layer, key_split(layer)):
                before, keys = self._known.pop(what, (0.0, 0))
                self._known[what] = before + seconds, keys + 1
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def seconds(self, layer: str) -> float | None:
        """Mean seconds a key; None if nothing like it has run."""
        for what in (layer, key_split(layer)):
            if what in self._known:
                seconds, keys = self._known[what]
                return seconds / keys
        return None
