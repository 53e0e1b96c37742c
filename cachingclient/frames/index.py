"""What is known on the scheduler of dataframes that may be kept, whoever computed them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachingclient.admission import PART
from cachingclient.bounded import Bounded
from cachingclient.frames.canonical import Identity, Parts
from cachingclient.frames.leaves import PARQUET, Leaf, Reader

#: Nodes, identities and names that are remembered, and families.
REMEMBERED, FAMILIES = 20_000, 1_000
#: Nodes of one identity, and frames of one family, that are remembered.
FEW, MANY = 20, 100


@dataclass(frozen=True)
class Frame:
    """Columns of what is read, under one name."""

    name: str
    columns: tuple[Any, ...]
    #: whether its only column is a series
    series: bool
    #: {files of a partition: its number}; None where each partition is the file of its number
    at: Mapping[tuple[int, ...], int] | None = None

    def number(self, unit: tuple[int, ...]) -> int | None:
        """Number of the partition that some files are, if there is one.

        Examples
        --------
        >>> Frame("x", ("a",), False).number((3,))
        3
        >>> Frame("x", ("a",), False, {(2, 3): 1}).number((2, 3))
        1
        """
        if self.at is not None:
            return self.at.get(unit)
        return unit[0] if len(unit) == 1 else None


@dataclass
class Family:
    """What is read, and what computations wanted of it."""

    #: {name: frame}
    frames: Bounded = field(default_factory=lambda: Bounded(MANY))
    #: columns that were asked for, in this order
    asked: dict[Any, None] = field(default_factory=dict)
    #: {name of a frame: None}: those that were read, not taken from others
    read: Bounded = field(default_factory=lambda: Bounded(FEW))
    #: whether files are read one by one, although dask would read several at once
    by_file: bool = False


class FrameIndex:
    """Finds what else holds the same data.

    Examples
    --------
    >>> index = FrameIndex()
    >>> index.note("head-1", Identity("x", (0,), False))
    >>> list(index.twins("all-1", Identity("x", (0, 1), False)))
    [('head-1', (0,))]
    """

    def __init__(self) -> None:
        #: {name of a node: its identity}
        self.identities = Bounded(REMEMBERED)
        #: {name of keys that are not worth keeping: why}
        self.parts = Bounded(REMEMBERED)
        #: {name of a frame: None}: those of which others may want other columns
        self.narrow = Bounded(REMEMBERED)
        #: errors that have been told
        self._errors = Bounded(FEW)
        self._twins = Bounded(REMEMBERED)
        self._families = Bounded(FAMILIES)
        #: {name of a node that reads: what was said of it}
        self._said = Bounded(MANY)

    def agree(self, readers: Mapping[str, Reader]) -> None:
        """Forget all if a node is another one than before, although it has the same name.

        Parameters
        ----------
        readers : mapping
            {name of a node that reads: what the client says of it}
        """
        said = {name: (reader.family, reader.units) for name, reader in readers.items()}
        if any(self._said.get(name, what) != what for name, what in said.items()):
            for known in (self.identities, self._twins, self._families, self._said):
                known.clear()
        for name, what in said.items():
            self._said.note(name, what)

    def is_new(self, error: Exception) -> bool:
        """Whether an error is another one than before."""
        text = repr(error)
        known = text in self._errors
        self._errors.note(text)
        return not known

    def why_not(self, name: str, needs: Collection[Any], kept: Any) -> str | None:
        """Why a key of a name is not worth keeping.

        Parameters
        ----------
        name : str
        needs : collection of TaskState
            What it was made of.
        kept : container of Key
        """
        why: str | None = self.parts.get(name)
        if why == PART and not (needs and all(ts.key in kept for ts in needs)):
            return None
        return why

    def frames_of(self, family: str) -> list[Frame]:
        """Frames of a family, which stays where it is in the line of those to be forgotten."""
        known: Family | None = self._families.get(family)
        return [] if known is None else list(known.frames.values())

    def note_read(self, leaf: Leaf, name: str) -> None:
        """Note that a frame has to be read for a leaf."""
        self.family(leaf.family).read.note(name)
        if leaf.kind == PARQUET:
            self.narrow.note(name)

    def family(self, name: str) -> Family:
        """What is known of a family."""
        found: Family = self._families.get(name) or Family()
        self._families.note(name, found)
        return found

    def note(self, name: str, identity: Identity) -> None:
        """A node has been seen."""
        if identity.plain:
            return
        known = self._twins.get(identity.token)
        if known is None:
            known = Bounded(FEW)
            self._twins.note(identity.token, known)
        known.note(name, identity.parts)

    def twins(self, name: str, identity: Identity) -> list[tuple[str, Parts]]:
        """Other nodes that are parts of the same whole, and which parts they have of it."""
        known = () if identity.plain else self._twins.get(identity.token, {}).items()
        return [(other, parts) for other, parts in known if other != name]
