"""Which kept results were made of which sources, and which sources have changed since."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

#: Sources that are remembered; what was made of others is let go.
REMEMBERED = 50_000
#: How sources are called that are code of functions.
CODE = "code:"


class Freshness:
    """What was made of which sources.

    Parameters
    ----------
    lifetime : float
        Seconds after which a source that cannot be looked at counts as changed.
    clock : callable
        Seconds.

    Examples
    --------
    >>> fresh = Freshness(lifetime=60, clock=lambda: 0.0)
    >>> fresh.submitted({"load": "before"})
    set()
    >>> fresh.made({"load": {"load", "sum"}})
    set()
    >>> sorted(fresh.submitted({"load": "after"}))
    ['load', 'sum']
    """

    #: {source: (digest of its state, when that was first seen)}
    _states: OrderedDict[Any, tuple[str, float]]
    #: {source: names that were made of it}
    _readers: dict[Any, set[Any]]
    #: {name: sources that it was made of}
    _made_of: dict[Any, set[Any]]

    def __init__(self, lifetime: float, clock: Callable[[], float]) -> None:
        self.lifetime = lifetime
        self._clock = clock
        self._states = OrderedDict()
        self._readers, self._made_of = {}, {}

    def submitted(self, digests: Mapping[Any, str], unsure: Collection[Any] = ()) -> set[Any]:
        """Take in the state of the sources of a submission.

        Parameters
        ----------
        digests : mapping
            {source: digest of its state}
        unsure : collection
            Those of them that a digest tells nothing of.

        Returns
        -------
        set
            Names of what was made of sources as they were before.
        """
        stale: set[Any] = set()
        now = self._clock()
        for name, digest in digests.items():
            before, since = self._states.get(name, (digest, now))
            if before != digest or (name in unsure and now - since >= self.lifetime):
                stale |= self._forget(name)
                since = now
            self._states[name] = digest, since
            self._states.move_to_end(name)
        return stale

    def made(self, readers: Mapping[Any, Iterable[Any]]) -> set[Any]:
        """Note what is made of sources.

        Parameters
        ----------
        readers : mapping
            {source: names that are made of it}

        Returns
        -------
        set
            Names whose sources are too many to be remembered.
        """
        for source, names in readers.items():
            self._readers.setdefault(source, set()).update(names)
            for name in names:
                self._made_of.setdefault(name, set()).add(source)
        stale: set[Any] = set()
        while len(self._states) > REMEMBERED:
            source, _ = self._states.popitem(last=False)
            stale |= self._forget(source)
        return stale

    def note(self, made_of: Mapping[Any, Iterable[Any]]) -> set[Any]:
        """The same the other way round: {name: sources that it is made of}."""
        readers: dict[Any, set[Any]] = {}
        for name, sources in made_of.items():
            for source in sources:
                readers.setdefault(source, set()).add(name)
        return self.made(readers)

    def sources(self, name: Any) -> Collection[Any]:
        """Sources that a name was made of."""
        return self._made_of.get(name, ())

    def reads(self, name: Any) -> bool:
        """Whether a name was made of files, and not of code alone."""
        return not all(str(s).startswith(CODE) for s in self._made_of.get(name, ()))

    def readers(self) -> set[Any]:
        """All names that were made of files."""
        return {name for name in self._made_of if self.reads(name)}

    def _forget(self, source: Any) -> set[Any]:
        readers = self._readers.pop(source, set())
        for name in readers:
            of_name = self._made_of.get(name)
            if of_name is not None:
                of_name.discard(source)
                if not of_name:
                    del self._made_of[name]
        return readers
