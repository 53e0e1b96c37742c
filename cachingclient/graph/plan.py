"""How a client sends one computation."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from dask.highlevelgraph import HighLevelGraph
from dask.typing import Key

from cachingclient.admission import UNNAMED, UPSTREAM, is_unshared
from cachingclient.config import Settings
from cachingclient.graph import barriers, finalize, liveness
from cachingclient.graph.choosing import Candidates, merged
from cachingclient.graph.layers import GraphFacts, graph_facts
from cachingclient.graph.shown import only_shown
from cachingclient.internals import Expr, HLGExpr, expr_name


@dataclass
class Plan:
    """A computation, rewritten."""

    expr: Expr
    #: {key that the user asked for: key that is sent}
    renamed: dict[Key, Key]
    #: {name that may not be kept: reason}
    denied: dict[Any, str]
    #: names that the user wants kept
    lifted: set[Any]
    #: {name of a layer: whether a living collection needs it}
    alive: dict[str, bool | None]
    #: layers that may get a barrier
    candidates: Candidates


def make_plan(
    expr: Expr,
    settings: Settings,
    trusted: Container[Any],
    said: Any,
    cancelled: Container[Any] = (),
) -> Plan:
    """Rewrite a computation, so that what it shares with others is visible.

    Parameters
    ----------
    expr : Expr
        As it arrives at the client.
    settings : Settings
    trusted : container of str
        Names outside its graph that may be depended on.
    said
        How to compute it: workers, resources, retries and the like.
    cancelled : container
        Keys of final results that must not be used again.
    """
    graphs = list(barriers.graphs_of(expr))
    facts = [graph_facts(hlg, trusted, settings.rules) for _, hlg in graphs]
    denied: dict[Any, str] = {}
    lifted: set[Any] = set()
    for of_graph in facts:
        denied.update(of_graph.denied)
        lifted |= of_graph.lifted
    alive, candidates = _candidates(graphs, facts, settings)
    new, renamed = finalize.rename(expr, lambda name: name not in denied, said, cancelled)
    _deny_random_names(graphs, renamed, trusted, denied)
    return Plan(new, renamed, denied, lifted, alive, candidates)


def _candidates(
    graphs: list[tuple[HLGExpr, HighLevelGraph]], facts: list[GraphFacts], settings: Settings
) -> tuple[dict[str, bool | None], Candidates]:
    alive: dict[str, bool | None] = {}
    found = []
    ignored = only_shown() if liveness.KNOWN else {}
    for (_, hlg), of_graph in zip(graphs, facts):
        dependents = hlg.dependents  # made anew each time that it is asked for
        # What is asked for is in the user's hands.
        living = {n for n in hlg.layers if not dependents.get(n)}
        if liveness.KNOWN:
            named = liveness.alive(hlg.layers, dependents, ignored)
            alive.update((n, n in named) for n in hlg.layers if dependents.get(n))
            living |= named
        if settings.barriers:
            found.append(barriers.candidates(hlg, of_graph, dependents, living))
    affordable = settings.first_sight_overhead / max(settings.task_overhead, 1e-6)
    return alive, merged(found, affordable)


def _deny_random_names(
    graphs: list[tuple[HLGExpr, HighLevelGraph]],
    renamed: Container[Any],
    trusted: Container[Any],
    denied: dict[Any, str],
) -> None:
    """Names that plain dask gave to final results look like tokens, and never come back."""
    reason = UPSTREAM if denied else UNNAMED
    for expr, hlg in graphs:
        for name in (expr_name(expr), *hlg.layers):
            if str(name).startswith(finalize.PREFIX) and name not in renamed:
                if name not in trusted and not is_unshared(name):
                    denied.setdefault(name, reason)
