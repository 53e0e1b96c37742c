"""Why something is kept, or not: for a person to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dask.core import flatten
from dask.typing import Key

from cachingclient import internals
from cachingclient.admission import STALE, Rules, key_name
from cachingclient.graph.barriers import graphs_of, protect, size_of
from cachingclient.graph.plan import Plan
from cachingclient.judging import judge
from cachingclient.tables import (
    Column,
    as_html,
    as_text,
    bytes_text,
    number_text,
    seconds_text,
    short_name,
)

REUSED = "reused"
IN_PART = "reused in part"
WOULD = "would be kept"
NOT = "not kept"
FUSED = "fused"
NEEDLESS = "not needed"
_BY_CACHE = (REUSED, IN_PART, WOULD, NEEDLESS)

#: Why nothing is, where the user said so.
DISABLED = "inside of cache.disabled()"


class Row(NamedTuple):
    """What is to be said of one layer."""

    #: name of the layer
    name: str
    #: "reused", "reused in part", "would be kept", "not kept", "fused" (a part of others), or
    #: "not needed" (what is made of it is kept)
    status: str
    #: keys that the computation needs of it
    keys: int
    #: keys that are kept
    kept: int
    #: why not, or what else there is to know
    why: str = ""
    #: bytes of the keys that are kept
    nbytes: int = 0
    #: seconds of task time that their hits have avoided
    saved: float = 0.0
    #: how often they were used in place of computing them
    hits: int = 0


class Explanation(tuple[Row, ...]):
    """Rows, one a layer; shown as a table.

    Examples
    --------
    >>> slow = Row("slow-0123", "reused", 4, 4, nbytes=2048, saved=1.5, hits=8)
    >>> print(Explanation([slow, Row("mine", "not kept", 1, 0, "it has no token")]))
    layer        kept     bytes   saved  hits  status
    slow-0123  4 of 4  2.00 kiB  1.50 s     8  reused
    mine       0 of 1                          not kept: it has no token
    """

    def __str__(self) -> str:
        return as_text(_EXPLANATION, self, EMPTY)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(_EXPLANATION, self, EMPTY)

    def without_cache(self, why: str) -> Explanation:
        """The same where nothing is kept, nor used that is.

        Parameters
        ----------
        why : str
        """
        return Explanation(
            row._replace(status=NOT, why=why) if row.status in _BY_CACHE else row for row in self
        )


#: What is said of a graph without tasks.
EMPTY = "nothing to compute"

_EXPLANATION = [
    Column("layer", lambda r: short_name(r.name), right=False, full=lambda r: r.name),
    Column("kept", lambda r: f"{r.kept:,} of {r.keys:,}"),
    Column("bytes", lambda r: bytes_text(r.nbytes)),
    Column("saved", lambda r: seconds_text(r.saved)),
    Column("hits", lambda r: number_text(r.hits)),
    Column("status", lambda r: f"{r.status}: {r.why}" if r.why else r.status, right=False),
]


async def explain(
    plan: Plan,
    trusted: Any,
    lifted: Any,
    rules: Rules,
    remarks: Mapping[Any, str],
    ask: Callable[[list[str]], Awaitable[Mapping[str, Mapping[str, Any]]]],
    kept_of: Callable[[list[Key]], Awaitable[Iterable[Key]]],
    choose: Callable[[Mapping[str, list[str]], Mapping[str, int]], Awaitable[Iterable[str]]],
) -> Explanation:
    """Explain a planned computation, without running any of it.

    Parameters
    ----------
    plan : Plan
    trusted : container of str
        Names outside its graph that may be depended on.
    lifted : container of str
        Names that the user wants kept.
    rules : Rules
        What the configuration says.
    remarks : mapping
        {name: what there is to say of the sources that it reads}
    ask : callable
        Asks the scheduler for what it knows of names.
    kept_of : callable
        Asks it which of some keys are kept.
    choose : callable
        Asks it for the layers that would get a barrier, by what needs them and their sizes.
    """
    dependents: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for _, hlg in graphs_of(plan.expr):
        dependents.update((n, list(following)) for n, following in hlg.dependents.items())
        sizes.update((n, size_of(layer)) for n, layer in hlg.layers.items())
    visible = set(await choose(dependents, sizes))
    graph = internals.as_graph(protect(plan.expr, visible).__dask_graph__())
    verdict = judge(
        graph,
        trusted,
        plan.denied,
        lifted,
        rules,
        lambda name: {name} & remarks.keys(),
        given=True,
    )
    told = {n: remarks[s] for s, names in verdict.readers.items() for n in names} | {**remarks}
    counts = Counter(str(key_name(k)) for k in graph)
    hidden = {n: size for n, size in _layers(plan) if n not in counts}
    known = await ask([*counts, *hidden])
    # Some keys of a layer may be kept, and others needed.
    some = [k for k in graph if known.get(str(key_name(k)), {}).get("kept")]
    kept = set(await kept_of(some)) if some else set()
    usable = {k for k in kept if key_name(k) not in verdict.denied}
    needed = {str(n) for n in _needed(graph, flatten(plan.expr.__dask_keys__()), usable)}
    here = Counter(str(key_name(k)) for k in kept)

    def row(name: str, keys: int, reason: str | None, kept: int) -> Row:
        return _row(name, keys, kept, reason, known.get(name, {}), told.get(name, ""))

    rows = [
        (
            row(n, c, verdict.denied.get(n), here[n])
            if n in needed or here[n]
            else Row(n, NEEDLESS, c, 0, "what is made of it is kept")
        )
        for n, c in counts.items()
    ]
    rows += [
        row(n, size, plan.denied.get(n) or FUSED, known.get(n, {}).get("kept", 0))
        for n, size in hidden.items()
    ]
    return Explanation(rows)


def _needed(graph: Mapping[Key, Any], outputs: Iterable[Key], usable: Container[Key]) -> set[Any]:
    """Names that a walk from the outputs meets, where it ends at what is kept."""
    work = list(outputs)
    seen = set(work)
    while work:
        key = work.pop()
        if key in graph and key not in usable:
            new = graph[key].dependencies - seen
            seen |= new
            work.extend(new)
    return {key_name(key) for key in seen}


def _layers(plan: Plan) -> Iterator[tuple[str, int]]:
    for _, hlg in graphs_of(plan.expr):
        for name, layer in hlg.layers.items():
            yield str(name), len(layer)


def _row(
    name: str, keys: int, kept: int, reason: str | None, known: Mapping[str, Any], remark: str
) -> Row:
    if remark.endswith("changed") and reason in (None, FUSED):
        return Row(name, WOULD, keys, 0, remark)
    if kept and (reason is None or reason == FUSED):
        status = REUSED if kept >= keys else IN_PART
        more = {field: known.get(field, 0) for field in ("nbytes", "saved", "hits")}
        return Row(name, status, keys, min(kept, keys), **more)
    if reason == FUSED:
        return Row(name, FUSED, keys, kept, known.get("why") or "part of the layers that follow")
    if reason is not None:
        return Row(name, NOT, keys, kept, reason)
    if taken := known.get("taken"):
        text = "columns of " + ", ".join(map(short_name, taken))
        return Row(name, IN_PART if known["lacks"] else REUSED, keys, kept, text)
    if (why := known.get("why")) and why != STALE:
        return Row(name, NOT, keys, kept, why)
    return Row(name, WOULD, keys, kept, remark)
