"""A client looks at the sources of each of its submissions."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.functions import functions_of, functions_of_tasks
from cachingclient.inspection import fingerprint
from cachingclient.internals import Expr, MapExpr
from cachingclient.scheduler.freshness import CODE
from cachingclient.sources import Sources

#: Names that are remembered with the state of their sources.
REMEMBERED = 50_000
#: Seconds after which a file that was written a moment ago can be trusted.
SETTLE = 0.03


class Seen(NamedTuple):
    """The state of the sources of one submission."""

    #: {name: digest of the sources that it itself reads}
    digests: Mapping[Any, str] = {}
    #: names that read sources of which nobody can tell whether they changed
    unsure: frozenset[Any] = frozenset()
    #: whether they are not as this client saw them last
    changed: bool = False


class Watch:
    """Looks at sources.

    Parameters
    ----------
    checksums : iterable of str
        fsspec protocols that are asked for checksums.
    """

    def __init__(self, checksums: Iterable[str]) -> None:
        self.sources = Sources(cheap=checksums)
        self._digests: OrderedDict[Any, str] = OrderedDict()
        self._made_of: OrderedDict[Any, set[Any]] = OrderedDict()

    def look(self, expr: Expr) -> Seen:
        """Look at the sources of an expression."""
        graphs = [hlg for _, hlg in graphs_of(expr)]
        found: dict[Any, Any] = {}
        for hlg in graphs:
            found.update(self.sources.of_graph(hlg))
        if not graphs:
            # client.map makes its tasks from what it was given, in no time
            if isinstance(expr, MapExpr):
                return self.look_at_tasks(expr.__dask_graph__())
            found = self.sources.of_expr(expr)
        return self._check(found, functions_of(expr))

    def look_at_tasks(self, graph: Mapping[Any, Any]) -> Seen:
        """Look at the sources of a low-level graph."""
        return self._check(self.sources.of_tasks(graph), functions_of_tasks(graph))

    def _check(self, found: Mapping[Any, Any], functions: Mapping[Any, Any]) -> Seen:
        code = _digests_of(functions)
        if not found:
            return self._seen(code, frozenset())
        check = self.sources.check(found)
        if check.young and not _on_event_loop():
            # A moment later one can tell; else it would have to be read again each time.
            time.sleep(SETTLE)
            check = self.sources.check(found)
        unsure = frozenset(check.unknown)
        digests = {name: check.digests.get(name, "") for name in {*check.digests, *unsure}}
        return self._seen({**digests, **code}, unsure)

    def _seen(self, digests: Mapping[Any, str], unsure: frozenset[Any]) -> Seen:
        changed = bool(unsure) or any(
            self._digests.get(name, digest) != digest for name, digest in digests.items()
        )
        _remember(self._digests, digests)
        return Seen(digests, unsure, changed)

    def made_of(self, names: Iterable[str]) -> dict[Any, Collection[Any]]:
        """{name: names of the sources that it was made of}: futures carry them along."""
        found: dict[Any, Collection[Any]] = {n: set(s) for n, s in self._made_of.items()}
        for source in names:
            name = source.removeprefix(CODE)
            found[name] = {source, *found.get(name, ())}
        return found

    def note(self, readers: Mapping[Any, Iterable[Any]]) -> None:
        """Note what was made of sources."""
        made: dict[Any, set[Any]] = {}
        for source, names in readers.items():
            for name in names:
                made.setdefault(name, set()).add(source)
        _remember(self._made_of, made)


def _digests_of(functions: Mapping[Any, Iterable[Any]]) -> dict[str, str]:
    """Digests of code, as sources of the layers that run it."""
    prints: dict[int, str] = {}
    found = {}
    for name, of_name in functions.items():
        for function in of_name:
            if id(function) not in prints:
                prints[id(function)] = fingerprint(function)
        if text := "".join(prints[id(f)] for f in of_name):
            found[f"{CODE}{name}"] = text
    return found


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _remember(known: OrderedDict[Any, Any], new: Mapping[Any, Any]) -> None:
    known.update(new)
    for name in new:
        known.move_to_end(name)
    while len(known) > REMEMBERED:
        known.popitem(last=False)
