"""A client looks at the sources of each of its submissions: files, and code of functions."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dask.highlevelgraph import HighLevelGraph

from cachingclient.admission import key_name
from cachingclient.bounded import Bounded
from cachingclient.frames.leaves import Reader
from cachingclient.frames.reading import Read, Reading
from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.functions import all_graphs_of, functions_of, functions_of_tasks
from cachingclient.inspection import at_one_moment, fingerprint, parts, print_alone
from cachingclient.internals import Expr, MapExpr
from cachingclient.judging import spread_sources
from cachingclient.scheduler.freshness import CODE
from cachingclient.sources import Check, Sources

#: Names that are remembered with the state of their sources.
REMEMBERED = 50_000
#: Seconds after which a file that was written a moment ago can be trusted.
SETTLE = 0.03


class Seen(NamedTuple):
    """The state of the sources of one submission."""

    #: {source: digest of its state}; files are called by the names of the layers that read them
    digests: Mapping[Any, str] = {}
    #: {name: sources that it is made of}
    made_of: Mapping[Any, set[Any]] = {}
    #: sources of which nobody can tell whether they changed
    unsure: frozenset[Any] = frozenset()
    #: whether they are not as this client saw them last
    changed: bool = False
    #: {name: what there is to say of the sources that it reads}
    remarks: Mapping[Any, str] = {}
    #: {name of a node that reads a dataframe: what it reads}
    readers: Mapping[str, Reader] = {}


class Watch:
    """Looks at sources.

    Parameters
    ----------
    checksums : iterable of str
        fsspec protocols that are asked for checksums.
    """

    def __init__(self, checksums: Iterable[str]) -> None:
        self.sources = Sources(cheap=checksums)
        #: whether the cluster is on other machines, whose files nobody can look at here
        self.elsewhere = False
        self._digests = Bounded(REMEMBERED)
        self._made_of = Bounded(REMEMBERED)
        self._reading = Reading(self.sources.of_reader)

    def look(self, expr: Expr) -> Seen:
        """Look at the sources of an expression."""
        with at_one_moment():
            return self._look_at(expr)

    def _look_at(self, expr: Expr) -> Seen:
        if isinstance(expr, MapExpr):
            # client.map makes its tasks from what it was given, in no time
            return self.look_at_tasks(expr.__dask_graph__())
        graphs = all_graphs_of(expr)
        code = _code_of(functions_of(expr, graphs))
        if self._differ(code[0]):
            # They may name other files now.
            self.sources.forget()
        found: dict[Any, Any] = {}
        frames = Read()
        if not any(graphs_of(expr)):
            found.update(self.sources.of_expr(expr))
            frames = self._reading.look(expr)
            found.update(frames.sources)
        for hlg in graphs:
            found.update(self.sources.of_graph(hlg))
        seen = self._look(found, code, graphs, frames.settings)
        if not frames.made_of and not frames.readers:
            return seen
        made_of = {n: set(s) for n, s in seen.made_of.items()}
        for name, families in frames.made_of.items():
            made_of.setdefault(name, set()).update(families)
        return seen._replace(made_of=made_of, readers=frames.readers)

    def look_at_tasks(self, graph: Mapping[Any, Any]) -> Seen:
        """Look at the sources of a low-level graph; futures carry theirs along."""
        with at_one_moment():
            code = _code_of(functions_of_tasks(graph))
            seen = self._look(self.sources.of_tasks(graph), code, ())
        made_of = dict(seen.made_of)
        for task in graph.values():
            for dependency in getattr(task, "dependencies", ()):
                name = key_name(dependency)
                made_of.setdefault(name, self._made_of.get(name, set()))
        return seen._replace(made_of=made_of)

    def _look(
        self,
        found: Mapping[Any, Any],
        code: tuple[dict[Any, str], dict[Any, set[Any]]],
        graphs: Iterable[HighLevelGraph],
        settings: Mapping[str, str] = {},
    ) -> Seen:
        digests, made_of = code
        digests.update(settings)
        unsure: frozenset[Any] = frozenset()
        remarks: dict[Any, str] = {}
        if found:
            check = self._check(found)
            unsure = frozenset(check.unknown)
            if self.elsewhere:
                # What is not here may be there, and change without being seen.
                unsure |= {name for name, of_name in found.items() if of_name & check.missing}
            remarks = _remarks(found, check)
            for name in {*check.digests, *unsure}:
                digests[name] = check.digests.get(name, "")
                made_of.setdefault(name, set()).add(name)
        # Fusion may leave nothing of a layer but the names of those that follow.
        for hlg in graphs if made_of else ():
            spread_sources(made_of, hlg.dependents.get)
        changed = bool(unsure) or self._differ(digests)
        for source, digest in digests.items():
            self._digests.note(source, digest)
        return Seen(digests, made_of, unsure, changed, remarks)

    def _differ(self, digests: Mapping[Any, str]) -> bool:
        """Whether something is not as it was seen last."""
        return any(self._digests.get(s, digest) != digest for s, digest in digests.items())

    def _check(self, found: Mapping[Any, Any]) -> Check:
        check = self.sources.check(found)
        if check.young and not _on_event_loop():
            # A moment later one can tell; else it would have to be read again each time.
            time.sleep(SETTLE)
            check = self.sources.check(found)
        return check

    def note(self, readers: Mapping[Any, Iterable[Any]]) -> None:
        """Note what was made of sources: futures of it may be handed to other tasks."""
        made: dict[Any, set[Any]] = {}
        for source, names in readers.items():
            for name in names:
                made.setdefault(name, set()).add(source)
        for name, of_name in made.items():
            self._made_of.note(name, of_name)


def _remarks(found: Mapping[Any, Any], check: Check) -> dict[Any, str]:
    remarks = {}
    for name, sources in found.items():
        if changed := sorted(map(str, sources & check.changed)):
            remarks[name] = f"reads {changed[0]}, which changed"
        elif name in check.unknown:
            remarks[name] = f"reads {check.unknown[name][0]}, which may change unseen"
    return remarks


def _code_of(functions: Mapping[Any, Iterable[Any]]) -> tuple[dict[Any, str], dict[Any, set[Any]]]:
    """Digests of code, and the names that it runs for."""
    called: dict[int, dict[str, str]] = {}
    digests: dict[Any, str] = {}
    made_of: dict[Any, set[Any]] = {}
    for name, of_name in functions.items():
        for function in of_name:
            key = id(function)
            if key not in called:
                called[key] = _digests_of(function)
                digests.update(called[key])
            if called[key]:
                made_of.setdefault(name, set()).update(called[key])
    return digests, made_of


def _digests_of(function: Any) -> dict[str, str]:
    """Digests of a function, and of those and of classes that it holds, by their names."""
    found = {f"{CODE}{_name_of(part)}": fingerprint(part) for part in (function, *parts(function))}
    return {name: digest for name, digest in found.items() if digest}


class _FunctionNames:
    """What functions are called, which stays as it is as long as they live.

    Once a module is loaded again, functions of it that somebody still holds are no longer those
    that it has under their names.
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}

    def __call__(self, function: Any) -> str:
        kind = function if hasattr(function, "__qualname__") else type(function)
        key = id(kind)
        reference, name = self._names.get(key, (_nobody, ""))
        if reference() is not kind:
            name = function_name(function)
            with contextlib.suppress(TypeError):  # what takes no weak references
                gone = weakref.ref(kind, lambda _: self._names.pop(key, None))
                self._names[key] = gone, name
        return name


def _nobody() -> None:
    """A function that is gone."""


_name_of = _FunctionNames()


def function_name(function: Any) -> str:
    """What a function is called, however its helpers are edited.

    One that its module has under its name keeps that when it is edited itself. Others are
    known to dask by their code, and what it was made with, so that they are told apart by it.

    Examples
    --------
    >>> from posixpath import join
    >>> function_name(join)
    'posixpath.join'
    """
    kind = function if hasattr(function, "__qualname__") else type(function)
    module, name = str(kind.__module__), kind.__qualname__
    found: Any = sys.modules.get(module) if module != "__main__" else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is kind:
        return f"{module}.{name}"
    return f"{module}.{name}-{print_alone(function) or fingerprint(function)}"


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
