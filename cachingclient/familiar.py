"""Tasks of one layer are mostly alike: a look at one tells of all that hold no more than it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

from cachingclient.internals import Alias, DataNode, Task
from cachingclient.tasks import MANY_PARTS, holds_nothing

#: Parts of a task after which it counts as new: it may contain itself.
MANY_INSIDE = 10_000


class Familiar:
    """Functions that tasks of one layer hold, and types of objects that may have some.

    Examples
    --------
    >>> from cachingclient.internals import TaskRef
    >>> familiar = Familiar()
    >>> [familiar.meet(Task(f, map, f, TaskRef("x"))) for f in (abs, abs, len, abs)]
    [False, True, False, True]
    """

    __slots__ = ("_met",)

    def __init__(self) -> None:
        # Ids are good for as long as their tasks live: while one graph is looked at.
        self._met: set[Any] = set()

    def meet(self, task: Any) -> bool:
        """Note a task, or what it is given; returns whether all that it holds was met before."""
        before = len(self._met)
        todo, left = [task], MANY_INSIDE
        while todo:
            part = todo.pop()
            kind: Any = type(part)
            if kind is Alias or holds_nothing(kind):
                continue
            left -= 1
            if not left:
                return False
            if kind is DataNode:
                todo.append(part.value)
            elif kind is Task:
                todo.append(part.func)
                todo += islice(part.args, MANY_PARTS)
                todo += part.kwargs.values()
            elif hasattr(part, "dependencies"):
                todo += (getattr(part, "func", None), getattr(part, "value", None))
                todo += islice(getattr(part, "args", None) or (), MANY_PARTS)
                todo += (getattr(part, "kwargs", None) or {}).values()
            elif kind is tuple or kind is list or kind is set:
                todo += islice(part, MANY_PARTS)
            elif isinstance(part, Mapping):
                todo += part.values()
            elif kind is partial:
                todo += (part.func, *part.args, *part.keywords.values())
            else:
                self._met.add(id(part) if callable(part) else kind)
        return len(self._met) == before
