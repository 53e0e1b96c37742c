"""What keys of layers cost, learnt from all that has run: fused with others or not, kept or not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from dask.utils import key_split

from cachingclient.graph.choosing import Estimate

#: Names and functions that are remembered.
REMEMBERED = 20_000
#: Layers of a function, and fused tasks of a layer, that count in an estimate.
COUNTED = 4
#: Older keys of a layer count less than this one by one: what is kept by now makes it cheaper.
RECENT = 20


class _Mean:
    """Recent mean cost of the keys of a layer."""

    __slots__ = ("keys", "nbytes", "seconds")

    def __init__(self) -> None:
        self.keys = 0
        self.seconds = self.nbytes = 0.0

    def add(self, seconds: float, nbytes: int) -> None:
        if self.keys < RECENT:
            self.keys += 1
        self.seconds += (seconds - self.seconds) / self.keys
        self.nbytes += (nbytes - self.nbytes) / self.keys


class Durations:
    """Mean seconds and bytes a key, by layer, and seconds by function for layers that are new.

    Examples
    --------
    >>> durations = Durations()
    >>> durations.consists({"slow-1": ["sum-0"]})
    >>> durations.ran("sum-0", 0.5, nbytes=8)
    >>> durations.estimate("slow-1")
    Estimate(seconds=0.5, measured=True)
    >>> durations.estimate("slow-2")
    Estimate(seconds=0.5, measured=False)
    >>> durations.estimate("other-1")
    """

    def __init__(self) -> None:
        self._ran: OrderedDict[Any, _Mean] = OrderedDict()
        #: {layer: the last fused tasks that it was a part of}
        self._wholes: OrderedDict[Any, tuple[Any, ...]] = OrderedDict()
        #: {function: the last layers that call it}
        self._layers: OrderedDict[str, tuple[Any, ...]] = OrderedDict()

    def consists(self, wholes: Mapping[Any, Iterable[Any]]) -> None:
        """Hear of fused tasks.

        Parameters
        ----------
        wholes : mapping
            {name of a layer: names of the fused tasks that it is a part of}
        """
        for layer, names in wholes.items():
            if layer not in self._wholes:
                self._note_layer(layer)
            self._note(self._wholes, layer, names)

    def ran(self, name: Any, seconds: float, nbytes: int = 0) -> None:
        """A task ran.

        Parameters
        ----------
        name
            Name of its key.
        seconds : float
            What it cost, with what it needed.
        nbytes : int
            Bytes of its value.
        """
        mean = self._ran.get(name)
        if mean is None:
            mean = self._ran[name] = _Mean()
            if len(self._ran) > REMEMBERED:
                self._ran.popitem(last=False)
            if name not in self._wholes:
                self._note_layer(name)
        mean.add(seconds, nbytes)

    def _note_layer(self, layer: Any) -> None:
        self._note(self._layers, key_split(layer), [layer])

    def _note(
        self, table: OrderedDict[Any, tuple[Any, ...]], key: Any, names: Iterable[Any]
    ) -> None:
        """Note names, of which the last few count: there are thousands of such entries."""
        known = table.get(key, ())
        table[key] = (*known, *(n for n in names if n not in known))[-COUNTED:]
        if len(table) > REMEMBERED:
            table.popitem(last=False)

    def nbytes(self, layer: Any) -> float | None:
        """Mean bytes a key; None if it never ran by itself."""
        mean = self._ran.get(layer)
        return mean.nbytes if mean is not None else None

    def estimate(self, layer: Any) -> Estimate | None:
        """What a key costs; None if nothing like it has run."""
        seconds = self._seconds(layer)
        if seconds is not None:
            return Estimate(seconds, True)
        others = [
            s
            for name in tuple(self._layers.get(key_split(layer), ()))
            if (s := self._seconds(name)) is not None
        ]
        return Estimate(sum(others) / len(others), False) if others else None

    def _seconds(self, layer: Any) -> float | None:
        mean = self._ran.get(layer)
        if mean is not None:
            return mean.seconds
        # A layer takes no longer than the shortest of the tasks that it was fused into.
        wholes = (self._ran.get(name) for name in tuple(self._wholes.get(layer, ())))
        return min((mean.seconds for mean in wholes if mean is not None), default=None)
