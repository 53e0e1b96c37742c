"""How kept results would be computed, packed: the scheduler need not know all their tasks.

A recipe holds the tasks of one or more kept results down to their beginnings, or down to
other kept results that have a recipe of their own. It costs some ten bytes a task, where
the scheduler's own books take kilobytes.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.typing import Key
from distributed.protocol.pickle import dumps, loads

from cachingclient.admission import key_name

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

#: Bytes up to which a recipe is packed tightly; what is larger holds data, and that would
#: take seconds for nothing.
TIGHT = 2**20


class Recipe:
    """Tasks, packed.

    Parameters
    ----------
    tasks : mapping
        {key: task}
    annotations : mapping
        {key: its annotations}
    links : iterable of Recipe
        Where it goes on.
    """

    __slots__ = ("_packed", "_tight", "length", "links", "names", "sharers", "__weakref__")

    def __init__(
        self,
        tasks: Mapping[Key, Any],
        annotations: Mapping[Key, Any],
        links: Iterable[Recipe] = (),
    ) -> None:
        pickled = dumps((_in_order(tasks), dict(annotations)))
        self._tight = len(pickled) <= TIGHT
        self._packed = lzma.compress(pickled, preset=0) if self._tight else _loosely(pickled)
        #: tasks in it
        self.length = len(tasks)
        self.links = tuple(links)
        #: names of its tasks
        self.names = frozenset(map(key_name, tasks))
        #: results that it is of
        self.sharers = 1

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return len(self._packed)

    def unpack(self) -> tuple[dict[Key, Any], dict[Key, Any]]:
        """Its tasks, and their annotations."""
        packed = self._packed
        tasks, annotations = loads(lzma.decompress(packed) if self._tight else _loose(packed))
        return tasks, annotations


def _in_order(tasks: Mapping[Key, Any]) -> dict[Key, Any]:
    """Tasks layer by layer, and by their numbers: a third less is left when that is packed."""
    layers: dict[Any, list[Any]] = {}
    for key in tasks:
        layers.setdefault(key_name(key), []).append(key)
    for keys in layers.values():
        with suppress(TypeError):  # what is no number cannot be compared with one
            keys.sort()
    return {key: tasks[key] for keys in layers.values() for key in keys}


def _loosely(pickled: bytes) -> bytes:
    return zlib.compress(pickled, 1)


def _loose(packed: bytes) -> bytes:
    return zlib.decompress(packed)


def linked(recipes: Iterable[Recipe]) -> Iterator[Recipe]:
    """Recipes, and all that they go on in, the nearest first."""
    work = list(dict.fromkeys(recipes))
    seen = set(work)
    for recipe in work:
        yield recipe
        for link in recipe.links:
            if link not in seen:
                seen.add(link)
                work.append(link)


class Draft:
    """The tasks of a recipe, not packed yet.

    Parameters
    ----------
    recipe_of : callable
        Recipe of a key, if it has one.
    is_kept : callable
        Whether a key is kept: it can share the recipe.
    """

    def __init__(
        self, recipe_of: Callable[[Key], Recipe | None], is_kept: Callable[[Key], bool]
    ) -> None:
        self._recipe_of = recipe_of
        self._is_kept = is_kept
        self.tasks: dict[Key, Any] = {}
        self.annotations: dict[Key, Any] = {}
        self.links: dict[Recipe, None] = {}
        #: {kept key: its state}
        self.kept: dict[Key, TaskState] = {}
        #: whether its tasks are all that it needs: an actor is more than a task
        self.complete = True

    def add(self, ts: TaskState) -> None:
        """Add all that a key is computed from; runs on the event loop."""
        work = [ts]
        while work:
            task = work.pop()
            key, spec = task.key, task.run_spec
            if key in self.tasks:
                continue
            recipe = self._recipe_of(key)
            if recipe is not None:
                self.links[recipe] = None
                continue
            if spec is None:
                continue  # a client sent it: there is nothing that it could be computed from
            self.complete = self.complete and not task.actor
            self.tasks[key] = spec
            if task.annotations:
                self.annotations[key] = dict(task.annotations)
            if self._is_kept(key):
                self.kept[key] = task
            work.extend(task.dependencies)

    def pack(self) -> Recipe:
        """Pack it; runs in another thread."""
        return Recipe(self.tasks, self.annotations, self.links)


class Assembled(NamedTuple):
    """A graph."""

    tasks: dict[Key, Any]
    #: {kind of annotation: {key: value}}
    annotations: dict[str, dict[Key, Any]]
    #: keys that it depends on
    outside: set[Key]


def assemble(
    keys: Collection[Key], recipes: Iterable[Recipe], is_there: Callable[[Key], bool]
) -> Assembled:
    """Make a graph that computes keys.

    Parameters
    ----------
    keys : collection
    recipes : iterable of Recipe
        Of these keys.
    is_there : callable
        Whether a key need not be computed again.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> first = Recipe({"x": Task("x", int), "y": Task("y", abs, TaskRef("x"))}, {})
    >>> second = Recipe({"z": Task("z", abs, TaskRef("y"))}, {}, [first])
    >>> sorted(assemble(["z"], [second], lambda key: False).tasks)
    ['x', 'y', 'z']
    >>> graph = assemble(["z"], [second], {"x"}.__contains__)
    >>> sorted(graph.tasks), graph.outside
    (['y', 'z'], {'x'})
    """
    library = _Library(recipes)
    graph = Assembled({}, {}, set())
    work = list(keys)
    while work:
        key = work.pop()
        if key in graph.tasks or key in graph.outside:
            continue
        found = None if key not in keys and is_there(key) else library.find(key)
        if found is None:
            graph.outside.add(key)
            continue
        graph.tasks[key], said = found
        for kind, value in said.items():
            graph.annotations.setdefault(kind, {})[key] = value
        work.extend(graph.tasks[key].dependencies)
    return graph


class _Library:
    """Recipes, unpacked as far as they are needed."""

    def __init__(self, recipes: Iterable[Recipe]) -> None:
        self._closed = linked(recipes)
        self._open: list[tuple[dict[Key, Any], dict[Key, Any]]] = []

    def find(self, key: Key) -> tuple[Any, dict[str, Any]] | None:
        for tasks, said in self._shelf():
            if key in tasks:
                return tasks[key], said.get(key, {})
        return None

    def _shelf(self) -> Iterator[tuple[dict[Key, Any], dict[Key, Any]]]:
        yield from self._open
        for recipe in self._closed:
            self._open.append(recipe.unpack())
            yield self._open[-1]
