"""What a client says of the files that dataframe expressions read.

A family is a source of its own, beside each leaf: what is read for several leaves is made of it,
and is let go of whichever of them is the first to show that the files have changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from cachingclient.bounded import Bounded
from cachingclient.frames.leaves import (
    DATA,
    WANTED,
    Families,
    Reader,
    kind_of,
    readers,
    unsaid,
)
from cachingclient.internals import Expr, expr_name, frame_kinds

#: Families whose files and size are remembered, and files that are looked at for it.
REMEMBERED, MOST_FILES = 1_000, 10_000


@dataclass
class Read:
    """What one expression reads."""

    #: {name of a node that reads: what it reads}
    readers: dict[str, Reader] = field(default_factory=dict)
    #: {family: its sources}
    sources: dict[str, frozenset[Any]] = field(default_factory=dict)
    #: {name of a node of the expression: families that it reads}
    made_of: dict[str, set[str]] = field(default_factory=dict)
    #: {what stands for settings that a name does not tell: their digest}
    settings: dict[str, str] = field(default_factory=dict)


class Reading:
    """Finds out what expressions read.

    Parameters
    ----------
    sources : callable
        Sources of a node that reads, without looking at some operands.
    """

    def __init__(self, sources: Callable[[Expr, Container[str]], frozenset[Any]]) -> None:
        self._sources = sources
        self._families = Families()
        self._nbytes = Bounded(REMEMBERED)
        #: {family: its sources}
        self._known = Bounded(REMEMBERED)

    def look(self, expr: Expr) -> Read:
        """Look at an expression."""
        read = Read()
        for name, node in readers(expr):
            self._note_settings(read, name, node)
            reader = self._families.reader(node)
            if reader is None:
                continue
            family = reader.family
            if not self._is_data(node):
                if family not in read.sources:
                    read.sources[family] = self._found(family, node)
                read.made_of.setdefault(name, set()).add(family)
                read.made_of.setdefault(expr_name(node), set()).add(family)
                reader = reader._replace(nbytes=self._size(family, read.sources[family]))
            read.readers[expr_name(node)] = reader
        return read

    def _found(self, family: str, node: Expr) -> frozenset[Any]:
        if family not in self._known:
            self._known.note(family, self._sources(node, WANTED))
        found: frozenset[Any] = self._known[family]
        return found

    def _note_settings(self, read: Read, name: str, node: Expr) -> None:
        """A setting is a source, too: what was made under another one has the same name."""
        what = unsaid(node)
        if what == (None, None):
            return
        source = f"settings:{expr_name(node)}"
        digest = hashlib.blake2b(repr(what).encode(), digest_size=16)
        read.settings[source] = digest.hexdigest()
        for reader in (name, expr_name(node)):
            read.made_of.setdefault(reader, set()).add(source)

    def _is_data(self, node: Expr) -> bool:
        kinds = frame_kinds()
        return kinds is not None and kind_of(node, kinds) == DATA

    def _size(self, family: str, sources: Iterable[Any]) -> int | None:
        """Bytes of local files; a rough guess is good enough, so that they are asked once."""
        if family not in self._nbytes:
            self._nbytes.note(family, _size(list(sources)))
        found: int | None = self._nbytes[family]
        return found


def _size(sources: list[Any]) -> int | None:
    if len(sources) > MOST_FILES:
        return None
    try:
        return sum(os.path.getsize(source.path) for source in sources if source.fs is None)
    except OSError:
        return None
