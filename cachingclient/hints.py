"""What was computed again for lack of room, and what would help."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from dask.typing import Key
from dask.utils import key_split

from cachingclient.bounded import Bounded

#: Seconds of task time that are worth a word.
A_LOT = 60.0
#: Part of the cluster's memory that a higher limit may take: running work needs the rest.
MOST = 0.6
#: What is advised is more than what was missing: it is shared out among workers, never evenly.
MARGIN = 1.1
#: Keys without room that are remembered.
REMEMBERED = 100_000

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("kiB", 2**10))


class Regrets:
    """Keys that there was no room for, and what it took to compute them again.

    Examples
    --------
    >>> regrets = Regrets()
    >>> for key in range(100):
    ...     regrets.no_room(key, "read-csv-0123", nbytes=2**24)
    ...     regrets.ran(key, seconds=7.5)
    >>> regrets.hint(limit=2**30, memory=lambda: 2**34)
    '12m 30s spent again on read-csv, for lack of room: raise cache_limit to 2.9 GiB'
    """

    def __init__(self) -> None:
        #: {key that had to go, or was not taken: its layer and its bytes}
        self._gone: Bounded = Bounded(REMEMBERED)
        #: {key that was computed again: its bytes}
        self._again: Bounded = Bounded(REMEMBERED)
        #: {prefix: seconds of task time}
        self._seconds: Counter[str] = Counter()
        #: the limit under which that happened last
        self._limit: int | None = None

    def no_room(self, key: Key, name: str, nbytes: int) -> None:
        """A key had to go, or was not taken, because others are worth more.

        Parameters
        ----------
        key : Key
        name : str
            Its layer.
        nbytes : int
            Its bytes.
        """
        self._gone.note(key, (name, nbytes))

    def ran(self, key: Key, seconds: float, limit: int | None = None) -> None:
        """A key was computed again.

        Parameters
        ----------
        key : Key
        seconds : float
            Its own task time.
        limit : int, optional
            Bytes that might be kept then, if they may change.
        """
        gone = self._gone.pop(key, None)
        if gone is not None:
            name, nbytes = gone
            self._seconds[key_split(name)] += seconds  # type: ignore[assignment]
            self._again.note(key, nbytes)
            self._limit = limit

    def hint(self, limit: int, memory: Callable[[], int]) -> str | None:
        """What to tell the user, if it is worth a word.

        Parameters
        ----------
        limit : int
            Bytes that may be kept now.
        memory : callable
            Tells the bytes of memory that the cluster has.
        """
        if not self._seconds:
            return None
        prefix, seconds = self._seconds.most_common(1)[0]
        if seconds < A_LOT:
            return None
        before = limit if self._limit is None else self._limit
        needed = MARGIN * (before + sum(self._again.values()))
        if limit >= needed * (1 - 1e-6):  # as was advised, and rounded
            return None
        spent = f"{time_text(seconds)} spent again on {prefix}, for lack of room: "
        if needed > MOST * memory():
            return (
                f"{spent}the cluster's memory is too small to keep it all; more workers would "
                "help, or client.cache.pin(...) of what matters most"
            )
        return f"{spent}raise cache_limit to {rounded_up(needed)}"


def time_text(seconds: float) -> str:
    """Seconds of a long time.

    Examples
    --------
    >>> time_text(75), time_text(754), time_text(7260)
    ('1m 15s', '12m 34s', '2h 1m')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, more = divmod(minutes, 60)
    return f"{hours}h {more}m" if hours else f"{minutes}m {rest}s"


def rounded_up(nbytes: float) -> str:
    """Bytes as a limit that a person would write, not below them.

    Examples
    --------
    >>> rounded_up(2.51 * 2**30), rounded_up(11.2 * 2**20), rounded_up(1)
    ('2.6 GiB', '12 MiB', '1 kiB')
    """
    for unit, size in _UNITS:
        if nbytes >= size:
            number = nbytes / size
            tenths = math.ceil(number * 10 - 1e-9) / 10
            return f"{tenths:g} {unit}" if number < 10 else f"{math.ceil(number - 1e-9)} {unit}"
    return "1 kiB"
