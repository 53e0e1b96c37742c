"""How a cache came to be what it is: a few hundred readings, however long it lives."""

from __future__ import annotations

from typing import NamedTuple

#: Readings that are remembered.
MANY = 600


class Reading(NamedTuple):
    """What a cache was like at one moment; times and durations in seconds, sizes in bytes."""

    time: float
    nbytes: int = 0
    limit: int = 0
    hits: int = 0
    misses: int = 0
    saved: float = 0.0
    recomputed: float = 0.0
    evictions: int = 0


class History:
    """Readings from the beginning until now, further apart the longer that is.

    What stays as it was is not noted again, so that an idle cache does not lose its past.

    Parameters
    ----------
    many : int
        Readings that are remembered, at most.

    Examples
    --------
    >>> history = History(many=4)
    >>> for second in range(100):
    ...     history.note(Reading(second, hits=second))
    >>> [reading.time for reading in history.readings]
    [0, 49, 97]
    >>> history.at(70).hits
    49
    """

    def __init__(self, many: int = MANY) -> None:
        self.readings: list[Reading] = []
        self._many = many
        self._apart = 0.0

    def note(self, reading: Reading) -> None:
        """Take a reading in, if it says anything new and the last one is not too recent."""
        readings = self.readings
        if readings:
            last = readings[-1]
            if reading[1:] == last[1:] or reading.time < last.time + self._apart:
                return
        readings.append(reading)
        if len(readings) >= self._many:
            # Each second one goes, and from now on they come at half the rate.
            self._apart = max(2 * self._apart, (reading.time - readings[0].time) / self._many * 2)
            del readings[1::2]

    def at(self, time: float) -> Reading | None:
        """The last reading that is not later than a time."""
        return next((r for r in reversed(self.readings) if r.time <= time), None)
