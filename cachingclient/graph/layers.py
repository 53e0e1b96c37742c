"""What is known of one layer of a HighLevelGraph, found once and remembered while it lives."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.typing import Key

from cachingclient import admission
from cachingclient.internals import Alias, TaskRef, blockwise_parts

#: Modules whose functions are cheap: what they do to a block costs less than a task.
CHEAP = ("dask", "numpy", "operator", "builtins", "toolz", "tlz", "_operator", "functools")
#: Functions that dask.array pushes slices into.
GETTERS = frozenset({"getter", "getter_nofancy", "getter_inline", "getitem"})


@dataclass
class LayerFacts:
    """What one layer says of itself."""

    #: names of its keys
    names: frozenset[Any]
    #: number of its keys; None if only making them would tell
    nkeys: int | None = None
    #: why its keys may not be kept, as far as it can tell alone
    reason: str | None = None
    #: the user's word on it: ``annotate(cache=...)``
    wish: bool | None = None
    #: names that its tasks depend on, as far as its tasks tell
    inputs: frozenset[Any] = frozenset()
    #: names of what its tasks hand to writers that may change it in place
    written: frozenset[Any] = frozenset()
    #: whether all of it is a writer that may change its inputs in place
    mutates: bool = False
    #: whether it calls functions of unknown cost
    unknown: bool = False
    #: whether it only hands on keys of other layers
    alias: bool = False
    #: whether it reads a part of a larger thing, so that slices are pushed into it
    getter: bool = False


@dataclass
class _Scan:
    """Collects what tasks say; `functions` spares looking twice."""

    names: set[Any] = field(default_factory=set)
    inputs: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)
    effect: bool = False
    mutates: bool = False
    unknown: bool = False
    alias: bool = True
    getter: bool = False
    functions: dict[int, Any] = field(default_factory=dict)

    def task(self, name: Any, task: Any) -> None:
        self.names.add(name)
        needs = getattr(task, "dependencies", None)
        inputs = {admission.key_name(d) for d in needs} if needs else set()
        self.inputs |= inputs
        if type(task) is Alias or isinstance(task, TaskRef):
            if isinstance(task, TaskRef):
                self.inputs.add(admission.key_name(task.key))
            return
        self.alias = False
        effect = self.effect_of_functions(task)
        if effect is not None:
            self.effect = True
            if effect.mutates:
                self.mutates = True
                self.written |= inputs

    def effect_of_functions(self, task: Any) -> admission.Effect | None:
        """The first side effect that a function of a task has; notes what else they tell."""
        found = None
        for function in admission.task_functions(task):
            key = id(function)
            if key not in self.functions:
                # the function is remembered with it: an id is only good while it lives
                name = admission.function_name(function)
                self.functions[key] = function, admission.effect_of(name)
                self.unknown |= not _is_cheap(function)
                self.getter |= name in GETTERS
            found = found or self.functions[key][1]
        return found


def _is_cheap(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    if module is None:
        # ufuncs and methods of builtin types have none
        module = type(function).__module__
    if isinstance(function, type) or isinstance(function, operator.methodcaller):
        return True
    return module.partition(".")[0] in CHEAP and not module.startswith("numpy.linalg")


_known: dict[int, tuple[weakref.ref[Layer], LayerFacts]] = {}


def facts_of(name: str, layer: Layer) -> LayerFacts:
    """Facts of a layer.

    Parameters
    ----------
    name : str
        Its name in its graph.
    layer : Layer
    """
    key = id(layer)
    found = _known.get(key)
    if found is not None and found[0]() is layer:
        return found[1]
    facts = _find(name, layer)
    _known[key] = weakref.ref(layer, lambda _: _known.pop(key, None)), facts
    return facts


def _find(name: str, layer: Layer) -> LayerFacts:
    scan = _Scan()
    nkeys: int | None = None
    if isinstance(layer, Blockwise):
        task, literals = blockwise_parts(layer)
        scan.task(layer.output, task)
        # Functions given as arguments: map_blocks with block_info wraps the user's.
        scan.effect |= scan.effect_of_functions(literals) is not None
        # Its task depends on placeholders; the graph knows the layers.
        scan.written.clear()
        scan.inputs = set(_references(literals))
        nkeys = len(layer)
    elif isinstance(layer, MaterializedLayer):
        for key, task in layer.mapping.items():
            scan.task(admission.key_name(key), task)
        nkeys = len(layer.mapping)
    else:
        # Made when it is needed; only dask's own layers are of such kinds.
        scan.names.add(name)
        scan.alias = False
    return LayerFacts(
        names=frozenset(scan.names),
        nkeys=nkeys,
        reason=_reason(name, scan),
        wish=(layer.annotations or {}).get("cache"),
        inputs=frozenset(scan.inputs),
        written=frozenset(scan.written),
        mutates=scan.mutates,
        unknown=scan.unknown,
        alias=scan.alias,
        getter=scan.getter,
    )


def _references(literals: Iterable[Any]) -> Iterator[Any]:
    """Names of futures and keys among arguments."""
    for literal in literals:
        if isinstance(literal, TaskRef):
            yield admission.key_name(literal.key)
        elif hasattr(literal, "dependencies"):
            yield from (admission.key_name(d) for d in literal.dependencies)
        elif type(literal) in (list, tuple, set):
            yield from _references(literal)
        elif type(literal) is dict:
            yield from _references(literal.values())


def _reason(name: str, scan: _Scan) -> str | None:
    if scan.effect or any(admission.effect_of(n) for n in (name, *scan.names) if _text(n)):
        return admission.WRITES
    if not all(admission.has_token(n) for n in scan.names):
        return admission.NO_TOKEN
    return None


def _text(name: Key) -> bool:
    return isinstance(name, str)


@dataclass
class GraphFacts:
    """What is known of the layers of one HighLevelGraph."""

    #: {name of a layer: facts}
    layers: dict[str, LayerFacts]
    #: {name of a layer or key that may not be kept: reason}
    denied: dict[Any, str]
    #: names of layers and keys that the user wants kept
    lifted: set[Any]


def graph_facts(hlg: HighLevelGraph, trusted: Container[Any]) -> GraphFacts:
    """Judge a HighLevelGraph by its layers.

    Parameters
    ----------
    hlg : HighLevelGraph
    trusted : container of str
        Names outside the graph that may be depended on.
    """
    layers = {name: facts_of(name, layer) for name, layer in hlg.layers.items()}
    inside = set().union(*(f.names for f in layers.values())) if layers else set()
    denied: dict[Any, str] = {}
    lifted: set[Any] = set()
    for name, facts in layers.items():
        if facts.wish is True:
            lifted.update(facts.names, (name,))
        elif facts.wish is False:
            denied[name] = admission.NOT_KEPT
        elif facts.reason:
            denied[name] = facts.reason
        elif any(n not in inside and n not in trusted for n in facts.inputs):
            denied[name] = admission.UNKNOWN_INPUT
    if denied:
        admission.spread(denied, hlg.dependents.get, lifted)
    for name, reason in list(denied.items()):
        for own in layers[name].names:
            denied.setdefault(own, reason)
    _deny_written(hlg, layers, denied)
    return GraphFacts(layers, denied, lifted)


def _deny_written(hlg: HighLevelGraph, layers: dict[str, LayerFacts], denied: dict) -> None:
    """What a writer may change in place must be its own."""
    for name, facts in layers.items():
        if facts.reason != admission.WRITES:
            continue
        written = set(facts.written)
        if facts.mutates:
            written |= set(hlg.dependencies[name])
        for source in written:
            denied.setdefault(source, admission.WRITTEN)
