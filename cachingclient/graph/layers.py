"""What is known of one layer of a HighLevelGraph, found once and remembered while it lives."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer

from cachingclient.admission import (
    NOT_KEPT,
    UNKNOWN_INPUT,
    WRITTEN,
    Rules,
    key_name,
)
from cachingclient.arguments import givens
from cachingclient.inspection import Given, impurity
from cachingclient.inspection.given import may_decide
from cachingclient.internals import Alias, TaskRef, blockwise_arguments, blockwise_parts, is_rechunk
from cachingclient.judging import spread
from cachingclient.tasks import Looks, Weakly, function_name, is_cheap, task_functions

#: Functions that dask.array pushes slices into.
GETTERS = frozenset({"getter", "getter_nofancy", "getter_inline", "getitem"})
#: Of most layers: a dict for each of thousands is work for the garbage collector.
NO_GIVENS: Mapping[int, Given] = {}


@dataclass(slots=True)
class LayerFacts:
    """What one layer says of itself."""

    #: names of its keys
    names: frozenset[Any]
    #: whether nothing is known of its tasks, because they are not made yet
    closed: bool = False
    #: names of the functions that it calls
    functions: frozenset[str] = frozenset()
    #: those of them whose code can be looked at
    users: Weakly = Weakly(())
    #: {id of such a function: what the first of its tasks gives to it}
    givens: Mapping[int, Given] = field(default_factory=lambda: NO_GIVENS)
    #: the user's word on it: ``annotate(cache=...)``
    wish: bool | None = None
    #: names that its tasks depend on, as far as its tasks tell
    inputs: frozenset[Any] = frozenset()
    #: whether it holds an object to read from, or sends all data to other workers: nobody knows
    #: how fast that is
    foreign: bool = False
    #: whether it only hands on keys of other layers
    alias: bool = False
    #: whether it reads a part of a larger thing, so that slices are pushed into it
    getter: bool = False

    @property
    def unknown(self) -> bool:
        """Whether it calls functions of unknown cost."""
        return self.foreign or len(self.users) > 0

    @property
    def data(self) -> bool:
        """Whether it does nothing: its tasks are values."""
        return not (self.functions or self.alias or self.closed)


@dataclass
class _Scan:
    """Collects what tasks say."""

    names: set[Any] = field(default_factory=set)
    inputs: set[Any] = field(default_factory=set)
    #: {id: (function, its name)}: an id is only good while the function lives
    functions: dict[int, tuple[Any, str]] = field(default_factory=dict)
    givens: Mapping[int, Given] = field(default_factory=lambda: NO_GIVENS)
    alias: bool = True

    def task(self, name: Any, task: Any, literals: Iterable[Any] = (), args: Any = None) -> None:
        self.names.add(name)
        if isinstance(task, TaskRef):
            self.inputs.add(key_name(task.key))
            return
        if type(task) is tuple and task and not callable(task[0]):
            # a key of another layer, as dask wrote aliases once
            self.inputs.add(key_name(task))
            return
        self.inputs.update(key_name(d) for d in getattr(task, "dependencies", ()))
        if type(task) is not Alias:
            self.alias = False
            # Functions given as arguments too: map_blocks with block_info wraps the user's. And
            # all at once: a function may call methods of what it is given.
            before = len(self.functions)
            self.look_for_functions([task, *literals] if literals else task)
            if len(self.functions) > before:
                self.note_givens(task, args, before)

    def look_for_functions(self, task: Any) -> None:
        for function in task_functions(task):
            if id(function) not in self.functions:
                self.functions[id(function)] = function, function_name(function)

    def note_givens(self, task: Any, args: Any, before: int) -> None:
        """Note what is given to functions that are new, if that may decide anything."""
        new = islice(self.functions.values(), before, None)
        if any(not is_cheap(f) and may_decide(f) and impurity(f) for f, _ in new):
            functions = [function for function, _ in self.functions.values()]
            self.givens = {**givens(task, args, functions), **self.givens}

    def facts(self, layer: Layer, closed: bool = False) -> LayerFacts:
        functions = frozenset(name for _, name in self.functions.values())
        return LayerFacts(
            names=frozenset(self.names),
            closed=closed,
            functions=functions,
            users=Weakly(f for f, _ in self.functions.values() if not is_cheap(f)),
            givens=self.givens,
            wish=(layer.annotations or {}).get("cache"),
            inputs=frozenset(self.inputs),
            alias=self.alias,
            getter=not GETTERS.isdisjoint(functions),
        )


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
    if isinstance(layer, Blockwise):
        task, literals = blockwise_parts(layer)
        scan.task(layer.output, task, literals, blockwise_arguments(layer))
        # Its task depends on placeholders; the graph knows the layers.
        scan.inputs = set(_references(literals))
        return scan.facts(layer)
    if isinstance(layer, MaterializedLayer):
        for key, task in layer.mapping.items():
            scan.task(key_name(key), task)
        found = scan.facts(layer)
        found.foreign = len(layer.mapping) == 1 and _is_foreign(task)
        return found
    # Made when it is needed; only dask's own layers are of such kinds.
    scan.names.add(name)
    scan.alias = False
    found = scan.facts(layer, closed=True)
    found.foreign = is_rechunk(layer)
    return found


def _is_foreign(task: Any) -> bool:
    """Whether a task is an object to read from: a store, a file."""
    value = getattr(task, "value", task)
    module = type(value).__module__.partition(".")[0]
    return hasattr(value, "__getitem__") and module not in ("builtins", "numpy", "dask")


def _references(literals: Iterable[Any]) -> Iterator[Any]:
    """Names of futures and keys among arguments."""
    for literal in literals:
        if isinstance(literal, TaskRef):
            yield key_name(literal.key)
        elif hasattr(literal, "dependencies"):
            yield from (key_name(d) for d in literal.dependencies)
        elif type(literal) in (list, tuple, set):
            yield from _references(literal)
        elif type(literal) is dict:
            yield from _references(literal.values())


@dataclass
class GraphFacts:
    """What is known of the layers of one HighLevelGraph."""

    #: {name of a layer: facts}
    layers: dict[str, LayerFacts]
    #: {name of a layer or key that may not be kept: reason}
    denied: dict[Any, str]
    #: names of layers and keys that the user wants kept
    lifted: set[Any]


def graph_facts(hlg: HighLevelGraph, trusted: Container[Any], rules: Rules = Rules()) -> GraphFacts:
    """Judge a HighLevelGraph by its layers.

    Parameters
    ----------
    hlg : HighLevelGraph
    trusted : container of str
        Names outside the graph that may be depended on.
    rules : Rules
        What the configuration says.
    """
    layers = {name: facts_of(name, layer) for name, layer in hlg.layers.items()}
    inside = {n for f in layers.values() for n in f.names}
    lifted = {n for name, f in layers.items() if f.wish is True for n in (name, *f.names)}
    denied: dict[Any, str] = {}
    looks = Looks()
    for name, facts in layers.items():
        if name not in lifted and (reason := _reason(facts, inside, trusted, rules, looks)):
            denied[name] = reason
    if denied:
        spread(denied, hlg.dependents.get, lifted)
    for name, reason in list(denied.items()):
        for own in layers[name].names:
            denied.setdefault(own, reason)
    _deny_written(hlg, layers, rules, denied)
    return GraphFacts(layers, denied, lifted)


def _reason(
    facts: LayerFacts,
    inside: Container[Any],
    trusted: Container[Any],
    rules: Rules,
    looks: Looks,
) -> str | None:
    if facts.wish is False:
        return NOT_KEPT
    for name in facts.names:
        if reason := rules.reason(name, facts.functions, lambda: _impurity(facts, looks)):
            return reason
    if any(n not in inside and n not in trusted for n in facts.inputs):
        return UNKNOWN_INPUT
    return None


def _impurity(facts: LayerFacts, looks: Looks) -> str | None:
    return looks.impurity(facts.users, lambda: facts.givens)


def _deny_written(
    hlg: HighLevelGraph, layers: dict[str, LayerFacts], rules: Rules, denied: dict[Any, str]
) -> None:
    """What a writer may change in place must be its own."""
    for name, facts in layers.items():
        effect = rules.effect(name, facts.functions)
        if effect is not None and effect.mutates:
            for source in (*hlg.dependencies[name], *facts.inputs):
                denied.setdefault(source, WRITTEN)
