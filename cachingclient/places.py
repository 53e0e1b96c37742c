"""Where kept keys are, and how much of them each worker may hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from dask.typing import Key


class Places:
    """Bytes of kept keys by worker; a replica counts where it is.

    Examples
    --------
    >>> places = Places()
    >>> places.share({"tcp://a:1": 100, "tcp://b:1": 100})
    >>> places.add("x", 80, ["tcp://a:1", "tcp://b:1"])
    >>> places.over("tcp://a:1", 30), places.over("tcp://a:1", 20)
    (10, 0)
    >>> places.forget("x")
    >>> places.held("tcp://a:1")
    0
    """

    def __init__(self) -> None:
        self._shares: Mapping[str, int] = {}
        #: {address: {key: its bytes}}
        self._at: dict[str, dict[Key, int]] = {}
        self._held: dict[str, int] = {}
        self._where: dict[Key, set[str]] = {}
        self._nbytes: dict[Key, int] = {}

    def share(self, shares: Mapping[str, int]) -> None:
        """Set how many bytes each worker may hold; one that is not named has no limit."""
        self._shares = shares

    def add(self, key: Key, nbytes: int, where: Iterable[str]) -> None:
        """A key is kept from now on."""
        if key in self._where:
            self.forget(key)
        self._where[key], self._nbytes[key] = set(), nbytes
        for address in where:
            self.came(key, address)

    def came(self, key: Key, address: str) -> None:
        """A worker has a replica of a kept key."""
        where = self._where.get(key)
        if where is None or address in where:
            return
        where.add(address)
        self._at.setdefault(address, {})[key] = self._nbytes[key]
        self._held[address] = self._held.get(address, 0) + self._nbytes[key]

    def went(self, key: Key, address: str) -> None:
        """A worker has let go of its replica."""
        where = self._where.get(key)
        if where is None or address not in where:
            return
        where.discard(address)
        self._held[address] -= self._at[address].pop(key)
        if not self._at[address]:
            del self._at[address], self._held[address]

    def forget(self, key: Key) -> None:
        """A key is kept no more."""
        if key not in self._where:
            return
        for address in tuple(self._where[key]):
            self.went(key, address)
        del self._where[key], self._nbytes[key]

    def moved(self, address: str, keys: Collection[Key]) -> None:
        """These are the kept keys that a worker has."""
        for key in [k for k in self.at(address) if k not in keys]:
            self.went(key, address)
        for key in keys:
            self.came(key, address)

    def at(self, address: str) -> Mapping[Key, int]:
        """Kept keys of a worker, with their bytes."""
        return self._at.get(address, {})

    def held(self, address: str) -> int:
        """Bytes of kept keys on a worker."""
        return self._held.get(address, 0)

    def limit(self, address: str) -> int | None:
        """Bytes that a worker may hold; None for any number."""
        return self._shares.get(address)

    def fits(self, address: str, nbytes: int) -> bool:
        """Whether a worker's share has room for a key if nothing else is kept there."""
        return nbytes <= self._shares.get(address, nbytes)

    def over(self, address: str, nbytes: int = 0) -> int:
        """Bytes by which a worker holds more than its share, with so many more."""
        share = self._shares.get(address)
        return 0 if share is None else max(0, self.held(address) + nbytes - share)

    def crowded(self) -> Iterator[str]:
        """Workers that hold more than their share."""
        return (address for address in list(self._held) if self.over(address))
