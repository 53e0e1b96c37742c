"""Tasks that take no time of their own become part of those that need them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from dask.typing import Key

from cachingclient.admission import key_name
from cachingclient.internals import Alias, GraphNode, Task
from cachingclient.tasks import is_p2p

#: Tasks that one which copies nothing may become a part of.
MOST_COPIES = 3


def fuse(
    graph: dict[Key, GraphNode], minor: Mapping[Key, bool], outputs: Container[Key]
) -> dict[Key, GraphNode]:
    """Fuse minor tasks into what needs them.

    Parameters
    ----------
    graph : dict
        {key: task}
    minor : mapping
        {key of a minor task: whether it may be done several times}
    outputs : container
        Keys that must stay.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> graph = {
    ...     "x": Task("x", int),
    ...     "y": Task("y", abs, TaskRef("x")),
    ...     "z": Task("z", abs, TaskRef("y")),
    ... }
    >>> sorted(fuse(graph, {"y": False}, ["z"]))
    ['x', 'z']
    """
    inner = {k for k in minor if k in graph and k not in outputs}
    if not inner:
        return graph
    dependents: dict[Key, set[Key]] = {k: set() for k in inner}
    for key, task in graph.items():
        for dependency in task.dependencies & inner:
            dependents[dependency].add(key)
    fusing = _Fusing(graph, minor, inner, dependents)
    groups: dict[Key, list[Key]] = {}
    for key in inner:
        for root in fusing.roots(key):
            groups.setdefault(root, []).append(key)
    fused = {k: t for k, t in graph.items() if k not in fusing.gone}
    for root, keys in groups.items():
        fused[root] = _fused(graph, root, keys)
    return fused


class _Fusing:
    """Finds what minor tasks become a part of."""

    def __init__(
        self,
        graph: Mapping[Key, GraphNode],
        minor: Mapping[Key, bool],
        inner: Container[Key],
        dependents: Mapping[Key, set[Key]],
    ) -> None:
        self.graph, self.minor = graph, minor
        self.inner, self.dependents = inner, dependents
        #: keys that become a part of others
        self.gone: set[Key] = set()
        self._roots: dict[Key, frozenset[Key]] = {}
        self._closed: dict[Any, bool] = {}

    def roots(self, key: Key) -> frozenset[Key]:
        """Keys that a minor one becomes a part of; none if it stays."""
        if key not in self._roots:
            found: set[Key] = set()
            for dependent in self.dependents[key]:
                further = self.roots(dependent) if dependent in self.inner else frozenset()
                found |= further or {dependent}
            most = MOST_COPIES if self.minor[key] else 1
            if not 0 < len(found) <= most or any(map(self._is_closed, found)):
                found = set()
            else:
                self.gone.add(key)
            self._roots[key] = frozenset(found)
        return self._roots[key]

    def _is_closed(self, key: Key) -> bool:
        """Whether a task has to stay as it is: those of shuffles are known to their plugins."""
        name, task = key_name(key), self.graph[key]
        if name not in self._closed:
            self._closed[name] = type(task) not in (Task, Alias) or is_p2p(task)
        return self._closed[name]


def _fused(graph: Mapping[Key, GraphNode], root: Key, keys: list[Key]) -> GraphNode:
    task = graph[root]
    tasks = [graph[k] for k in keys]
    if type(task) is not Alias:
        tasks.append(task)
    elif len(tasks) == 1:
        return tasks[0].substitute({}, key=root)
    return Task.fuse(*tasks, key=root)
