"""What a ledger asks of a policy, and tells it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator

from dask.typing import Key

#: What one kept key costs the scheduler, in bytes; also keeps tiny results comparable.
KEY_OVERHEAD = 1000


class Policy(ABC):
    """Ranks kept keys. Unless said otherwise a method of this class does nothing."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of kept keys."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} keys>"

    # -- what it is told -------------------------------------------------------

    def request(self, now: float) -> None:
        """Hear that a graph was submitted.

        Parameters
        ----------
        now : float
            Seconds.
        """

    def computed(
        self,
        name: str,
        paid: float,
        nbytes: int,
        request: int | None = None,
        alive: bool | None = None,
        parts: int = 0,
    ) -> None:
        """Hear that a key was computed, before anything is decided of it.

        Parameters
        ----------
        name : str
            Name of its layer.
        paid : float
            Seconds of task time that it had cost, with its dependencies.
        nbytes : int
            Bytes of its value.
        request : int, optional
            Number of the submission that it was computed for; they grow. None: one of its own.
        alive : bool, optional
            Whether a living collection needs the layer; None if nobody told.
        parts : int
            Number of keys of the layer, where these are worth something only together.
        """

    def living(self, name: str, alive: bool | None) -> None:
        """Hear whether a living collection needs a layer; None if nobody knows any more."""

    @abstractmethod
    def put(self, key: Key, name: str, paid: float, nbytes: int) -> None:
        """Hear that a key is kept from now on; one that is known counts as it is now."""

    @abstractmethod
    def touch(self, key: Key, request: int | None = None) -> None:
        """Hear that a submission needed a key; one that is not kept is passed over."""

    @abstractmethod
    def forget(self, key: Key) -> None:
        """Hear that a key is kept no more."""

    def lacks(self, name: str) -> None:
        """Hear that a key of a layer was computed and could not be kept."""

    def inherit(self, other: Policy) -> bool:
        """Take over what another policy knows, if it is of the same kind; returns whether."""
        return False

    # -- what it is asked ------------------------------------------------------

    @abstractmethod
    def estimate(self, name: str, paid: float, nbytes: int) -> float:
        """Score that a new key would have; asking changes nothing.

        Parameters
        ----------
        name : str
            Name of its layer.
        paid : float
            Seconds.
        nbytes : int
            Bytes.
        """

    @abstractmethod
    def score(self, key: Key) -> float:
        """Score of a kept key; asking changes nothing."""

    @abstractmethod
    def least_valuable(self, spare: Collection[str] = ()) -> Iterator[Key]:
        """Kept keys in the order in which they may go, while nothing is changed.

        Parameters
        ----------
        spare : collection of str
            Names of layers to leave out.
        """

    @abstractmethod
    def ranked(self, keys: Iterable[Key]) -> list[Key]:
        """Some kept keys in the order in which they may go."""

    def frees(self, nbytes: float, worth: float, spare: Collection[str] = ()) -> bool:
        """Whether keys that score lower may have so many bytes; only False is certain."""
        return True
