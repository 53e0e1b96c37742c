"""Which layers belong to collections that the user still holds.

A collection's graph holds the layers of all that it was computed from, and dask
collections share these objects. So a layer that is in more graphs than each of
the layers that need it, is needed by some collection that is alive and does not
need them: counting references tells, without looking through namespaces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any


class _Probe:
    """Stands for a layer in the self-check."""


def references_count() -> bool:
    """Whether this interpreter counts references as the rule needs.

    Examples
    --------
    >>> references_count()
    True
    """
    try:
        graph = {"source": _Probe(), "result": _Probe()}
        temporary = {**graph}
        dead = alive(graph, {"source": {"result"}})
        held = {"source": graph["source"]}
        living = alive(graph, {"source": {"result"}})
        return not dead and living == {"source"} and len(held) < len(temporary)
    except Exception:
        return False


def alive(
    layers: Mapping[str, Any],
    dependents: Mapping[str, Iterable[str]],
    ignored: Mapping[int, int] = {},
) -> set[str]:
    """Layers that some living collection needs, while it does not need what follows them.

    Parameters
    ----------
    layers : mapping
        {name: layer object}
    dependents : mapping
        {name: names of the layers that need it}
    ignored : mapping
        {id of a layer: how many references to it don't count}

    Examples
    --------
    >>> x, total = [], []
    >>> alive({"x": x, "sum": total}, {"x": {"sum"}})
    set()
    >>> y = x
    >>> alive({"x": x, "sum": total}, {"x": {"sum"}})
    {'x'}
    """
    counts = {name: sys.getrefcount(layers[name]) for name in layers}
    if ignored:
        counts = {name: n - ignored.get(id(layers[name]), 0) for name, n in counts.items()}
    found = set()
    for name, count in counts.items():
        followers = [counts[d] for d in dependents.get(name) or () if d in counts]
        if followers and count > max(followers):
            found.add(name)
    return found


#: Where this is false nothing is known of what is alive.
KNOWN = references_count()
