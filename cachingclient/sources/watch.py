"""The sources of computations, found once, and whether they changed, looked at each time."""

from __future__ import annotations

import hashlib
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer

from cachingclient.admission import key_name
from cachingclient.internals import Expr, dataset_info, expr_name, other_operands
from cachingclient.sources import stores
from cachingclient.sources.finding import Finder, layer_parts
from cachingclient.sources.fingerprints import MISSING, Fingerprint, Fingerprints, settled
from cachingclient.sources.source import Source, on

#: Names of expressions, and sources, that are remembered.
REMEMBERED = 50_000
_MODULO = 1 << 128


class Check(NamedTuple):
    """The state of the sources of one submission."""

    #: {name: digest of the sources that it itself reads}, the same in each process
    digests: dict[str, str]
    #: {name: its sources that have no fingerprint: only a time to live can tell}
    unknown: dict[str, tuple[Source, ...]]
    #: sources that were looked at before and are not as they were then
    changed: frozenset[Source]
    #: paths where nothing is, for this client
    missing: frozenset[Source]
    #: sources changed so lately that another change would not show
    young: frozenset[Source] = frozenset()


class Sources:
    """Finds what computations read, and takes fingerprints of it.

    Parameters
    ----------
    cheap : iterable of str
        Protocols of fsspec file systems that are asked for checksums. For most of those that
        are far away this means a request a file.
    clock : callable
        Nanoseconds since the epoch.

    Examples
    --------
    >>> import dask, tempfile
    >>> file = tempfile.NamedTemporaryFile(suffix=".txt")
    >>> lazy = dask.delayed(open, pure=True)(file.name)
    >>> sources = Sources()
    >>> found = sources.of_graph(lazy.dask)
    >>> [[str(s) == file.name for s in of_layer] for of_layer in found.values()]
    [[True]]
    >>> before = sources.check(found).digests
    >>> _ = file.write(b"new"), file.flush()
    >>> sources.check(found).digests == before
    False
    """

    def __init__(
        self,
        cheap: Iterable[str] = ("memory",),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.cheap = frozenset(cheap)
        self._clock = clock
        self._fingerprints = Fingerprints(self.cheap)
        self._layers: dict[int, tuple[weakref.ref[Layer], dict[Any, frozenset[Source]]]] = {}
        self._nodes: OrderedDict[str, frozenset[Source]] = OrderedDict()
        #: {source: hash of its last fingerprint, if that can be relied on, and its number}
        self._marks: OrderedDict[Source, tuple[int | None, int]] = OrderedDict()

    # -- finding ---------------------------------------------------------------

    def of_graph(self, hlg: HighLevelGraph) -> dict[str, frozenset[Source]]:
        """The sources that layers themselves read: {name of a layer that does: sources}.

        A layer whose keys have several names, as of a dataframe among arrays, is there with all
        that it reads, and each of those names with what only its tasks read.

        Parameters
        ----------
        hlg : HighLevelGraph
        """
        finder = Finder(self.cheap)
        found: dict[Any, frozenset[Source]] = {}
        for name, layer in hlg.layers.items():
            of_layer = self._of_layer(layer, finder)
            if of_layer:
                found.update(of_layer)
                found[name] = frozenset().union(*of_layer.values())
        return found

    def _of_layer(self, layer: Layer, finder: Finder) -> dict[Any, frozenset[Source]]:
        key = id(layer)
        known = self._layers.get(key)
        if known is not None and known[0]() is layer:
            return known[1]
        sources = _by_name(finder, layer)
        layers = self._layers
        layers[key] = weakref.ref(layer, lambda _: layers.pop(key, None)), sources
        return sources

    def of_expr(self, expr: Expr) -> dict[str, frozenset[Source]]:
        """The sources that nodes of an expression themselves read: {name of a node: sources}.

        Parameters
        ----------
        expr : Expr
            Of dask.dataframe.
        """
        finder = Finder(self.cheap)
        found = {expr_name(node): self._of_node(node, finder) for node in expr.walk()}
        return {name: sources for name, sources in found.items() if sources}

    def of_reader(self, node: Expr, wanted: Container[str]) -> frozenset[Source]:
        """The sources that a node reads, whatever is wanted of them: a column may be called as a
        file is.

        Parameters
        ----------
        node : Expr
            Of dask.dataframe.
        wanted : container of str
            Names of operands that are not looked at.
        """
        finder = Finder(self.cheap)
        return finder.collect(_node_parts, finder, node, wanted)

    def _of_node(self, node: Expr, finder: Finder) -> frozenset[Source]:
        name = expr_name(node)
        sources = self._nodes.get(name)
        if sources is None:
            sources = finder.collect(_node_parts, finder, node)
            _remember(self._nodes, name, sources)
        return sources

    def of_tasks(self, graph: Mapping[Any, Any]) -> dict[Any, frozenset[Source]]:
        """The sources that tasks themselves read: {name of their keys: sources}.

        Parameters
        ----------
        graph : mapping
            {key: task}
        """
        return _of_tasks(Finder(self.cheap), graph)

    def forget(self) -> None:
        """Look for sources anew: what functions use of them has changed."""
        self._layers.clear()
        self._nodes.clear()

    # -- checking --------------------------------------------------------------

    def fingerprint(self, source: Source) -> Fingerprint | None:
        """What tells a source from its earlier self; None if that cannot be known.

        Parameters
        ----------
        source : Source
        """
        return self._fingerprint(source, self._clock())

    def _fingerprint(self, source: Source, now: int) -> Fingerprint | None:
        try:
            return self._fingerprints.take(source, now)
        except Exception:  # a file system that is not there today, say
            return None

    def check(self, found: Mapping[str, frozenset[Source]]) -> Check:
        """Look at sources, at each once.

        Parameters
        ----------
        found : mapping
            {name: sources}, as `of_graph`, `of_expr` and `of_tasks` return it.
        """
        marks: dict[Source, int] = {}
        unknown: set[Source] = set()
        changed: set[Source] = set()
        missing: set[Source] = set()
        young: set[Source] = set()
        for source in frozenset().union(*found.values()):
            last = self._marks.get(source)
            fingerprint, mark = self._mark(source, last)
            marks[source] = mark
            if fingerprint is None:
                unknown.add(source)
            elif fingerprint == MISSING:
                missing.add(source)
            elif self._marks[source][0] is None:
                young.add(source)
            if last is not None and last[1] != mark:
                changed.add(source)
        digests = {
            name: f"{sum(marks[s] for s in sources) % _MODULO:032x}"
            for name, sources in found.items()
        }
        return Check(
            digests,
            {n: tuple(sorted(u, key=str)) for n, s in found.items() if (u := s & unknown)},
            frozenset(changed),
            frozenset(missing),
            frozenset(young),
        )

    def _mark(
        self, source: Source, last: tuple[int | None, int] | None
    ) -> tuple[Fingerprint | None, int]:
        """The fingerprint of a source, and a number that is the same for equal ones."""
        now = self._clock()
        fingerprint = self._fingerprint(source, now)
        if fingerprint is not None and not settled(fingerprint, now):
            # Another change could follow that would not show: each look is another state.
            mark: tuple[int | None, int] = None, uuid.uuid4().int
        elif last is not None and last[0] == hash(fingerprint):
            return fingerprint, last[1]
        else:
            mark = hash(fingerprint), _number(source, fingerprint)
        _remember(self._marks, source, mark)
        return fingerprint, mark[1]


def _number(source: Source, fingerprint: Fingerprint | None) -> int:
    """Stands for the state of a source; sums of them for those of several in any order."""
    text = repr((str(source), fingerprint)).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


def _by_name(finder: Finder, layer: Layer) -> dict[Any, frozenset[Source]]:
    """What a layer reads, by the names of its keys."""
    if isinstance(layer, MaterializedLayer):
        return _of_tasks(finder, layer.mapping)
    sources = finder.collect(layer_parts, finder, layer)
    return {layer.output: sources} if sources and isinstance(layer, Blockwise) else {}


def _of_tasks(finder: Finder, graph: Mapping[Any, Any]) -> dict[Any, frozenset[Source]]:
    tasks: dict[Any, list[Any]] = {}
    for key, task in graph.items():
        tasks.setdefault(key_name(key), []).append(task)
    found = {name: finder.collect(finder.each, of_name) for name, of_name in tasks.items()}
    return {name: sources for name, sources in found.items() if sources}


def _node_parts(finder: Finder, node: Expr, wanted: Container[str] = ()) -> None:
    info, fs = dataset_info(node)
    if info:
        return _dataset(finder, info, fs)
    inputs = {id(d) for d in node.dependencies()}
    operands = other_operands(node, wanted)
    for operand in operands:
        for inner in _fused(operand, inputs):
            _node_parts(finder, inner, wanted)
    values = [o for o in operands if not isinstance(o, Expr)]
    functions = [o for o in values if callable(o) and not isinstance(o, type)]
    # Nodes between others read nothing, unless they call a function that somebody gave them.
    if functions or not inputs:
        finder.each(functions)
        finder.each(values)


def _fused(operand: Any, inputs: set[int]) -> Iterator[Expr]:
    """Expressions that became a part of another one: no inputs of it any more."""
    for part in operand if isinstance(operand, list) else (operand,):
        if isinstance(part, Expr) and id(part) not in inputs:
            yield part


def _dataset(finder: Finder, info: Mapping[str, Any], fs: Any) -> None:
    """Files of a parquet dataset: the path that was given may match others, too."""
    if "all_files" in info:
        stores.note_arrow(finder, fs, [f.path for f in info["all_files"]])
    else:
        for path in info["ds"].files:
            finder.add(on(info["fs"], path))


def _remember(table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    table[key] = value
    if len(table) > REMEMBERED:
        table.popitem(last=False)
