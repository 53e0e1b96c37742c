"""Which names of a graph may be kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from dask.typing import Key
from dask.utils import funcname

from cachingclient.admission import (
    GIVEN,
    P2P,
    UNKNOWN_INPUT,
    UNSHARED,
    UPSTREAM,
    WRITTEN,
    Rules,
    is_unshared,
    key_name,
)
from cachingclient.arguments import calls, given_inside, givens
from cachingclient.familiar import Familiar
from cachingclient.inspection.objects import is_holder
from cachingclient.tasks import (
    MANY_PARTS,
    Looks,
    function_name,
    fused_into,
    is_barrier,
    is_p2p,
    parts_of,
    task_functions,
)


class Verdict(NamedTuple):
    """Which names of a graph may be kept."""

    #: names that may
    allowed: set[Any]
    #: {name that may not: reason}
    denied: dict[Any, str]
    #: {name of a source: names that were made of it}
    readers: dict[Any, set[Any]]
    #: {name: names of the tasks that it was fused into}
    wholes: dict[Any, set[Any]]

    def refused(self, reason: str) -> Verdict:
        """The same, with nothing allowed.

        Examples
        --------
        >>> Verdict({"a"}, {"b": "not pure"}, {}, {}).refused("stale").denied
        {'a': 'stale', 'b': 'not pure'}
        """
        denied = {**dict.fromkeys(self.allowed, reason), **self.denied}
        return self._replace(allowed=set(), denied=denied)


def judge(
    graph: Mapping[Key, Any],
    trusted: Container[Any] = (),
    denied: Mapping[Any, str] | None = None,
    lifted: Container[Any] = (),
    rules: Rules = Rules(),
    sources: Callable[[Any], Iterable[Any]] = lambda name: (),
    given: bool = False,
) -> Verdict:
    """Judge the names of a low-level graph.

    Parameters
    ----------
    graph : mapping
        {key: task}; tasks know their `dependencies`.
    trusted : container
        Names outside the graph that may be depended on.
    denied : mapping
        {name: reason} that somebody else found already.
    lifted : container
        Names to keep although they say of themselves that they are not pure.
    rules : Rules
        What the configuration says.
    sources : callable
        Sources that a name was made of, as far as known.
    given : bool
        Whether users may have named single tasks: not where `Client.submit` or `map` made the keys.

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> x, y = "x-" + 32 * "0", "y-" + 32 * "0"
    >>> judge({x: Task(x, abs, 1), y: Task(y, abs, TaskRef("fixed"))}).denied[y]
    'made of a future that nobody called pure'
    """
    found = _Findings(graph, denied or {}, lifted, rules, given)
    for key, task in graph.items():
        found.look(key, task)
    for source in found.outside - found.names:
        if source not in trusted:
            for name in found.dependents[source]:
                found.deny(name, UNKNOWN_INPUT)
    for part, names in found.wholes.items():
        for name in names if part in found.reasons else ():
            found.deny(name, UPSTREAM)
    spread(found.reasons, found.dependents.get, lifted)
    reasons = {n: r for n, r in found.reasons.items() if n in found.names}
    local = {n: r for n, r in found.local.items() if n in found.names}
    allowed = found.names - reasons.keys() - local.keys()
    return Verdict(allowed, {**local, **reasons}, found.readers(sources), found.wholes)


class _Findings:
    """What is found in one graph, task by task."""

    def __init__(
        self,
        graph: Mapping[Key, Any],
        denied: Mapping[Any, str],
        lifted: Container[Any],
        rules: Rules,
        given: bool,
    ) -> None:
        self.graph = graph
        self.lifted = lifted
        self.rules = rules
        self.given = given
        #: {name: why neither it nor what depends on it may be kept}
        self.reasons: dict[Any, str] = dict(denied)
        #: {name: why it may not be kept itself}
        self.local: dict[Any, str] = {}
        self.names: set[Any] = set()
        #: {name: names that depend on it}
        self.dependents: dict[Any, set[Any]] = {}
        #: names that are depended on, and not in the graph
        self.outside: set[Any] = set()
        #: {name: names of the fused tasks that it is a part of}
        self.wholes: dict[Any, set[Any]] = {}
        self._mutators: set[Any] = set()
        self._looks = Looks()
        #: {name of a task, or of a part of one: why it may not be kept, None if nothing is known}
        self._parts: dict[Any, str | None] = {}
        #: {the same: what was looked at}
        self._familiar: dict[Any, Familiar] = {}
        #: {name: what was fused into its last task}
        self._fused: dict[Any, Any] = {}

    def deny(self, name: Any, reason: str) -> None:
        if name not in self.lifted:
            self.reasons.setdefault(name, reason)

    def look(self, key: Key, task: Any) -> None:
        name = key_name(key)
        if name not in self.names:
            self.names.add(name)
            if is_p2p(task) and not self._follows_barrier(task):
                self.local[name] = P2P
            elif is_unshared(name):
                self.local[name] = UNSHARED
            elif self.given and is_named(key, task):
                self.deny(name, GIVEN)
        if is_barrier(task):
            self.local.update(dict.fromkeys(_handed_over(task, self.graph), P2P))
        self._look_inside(name, task)
        if self._mutators and (name in self._mutators or self._mutates(name, task)):
            self.local.update(dict.fromkeys(_handed_over(task, self.graph), WRITTEN))
        self._note_dependencies(name, task)

    def _look_inside(self, name: Any, task: Any) -> None:
        fused = fused_into(task)
        if fused is None:
            self._look_at(name, name, task)
            return
        given = [*task.args[1:], *task.kwargs.values()]
        if self._fused.get(name) is not fused:
            self._fused[name] = fused
            for part, inner in parts_of(name, task):
                if part is not name:
                    self.wholes.setdefault(part, set()).add(name)
                self._look_at(name, part, inner)
            given.extend(given_inside(fused))
        if given:
            self._look_at(name, name, given, lambda: self._calls(task) or given)

    def _calls(self, task: Any) -> list[Any]:
        """Tasks that were fused into one, with all that they are given."""
        return [call for key, call in calls(task) if key_name(key) not in self.lifted]

    def _look_at(
        self, name: Any, part: Any, task: Any, whole: Callable[[], Any] | None = None
    ) -> None:
        """Look at a part of a task, or at what it is given, where it has something new in it."""
        familiar = self._familiar.get(part)
        if familiar is None:
            familiar = self._familiar[part] = Familiar()
        if not familiar.meet(task):
            self._parts[part] = self._parts.get(part) or self._reason(
                part, whole() if whole else task
            )
        if (reason := self._parts.get(part)) is not None:
            self.deny(name, reason)

    def _follows_barrier(self, task: Any) -> bool:
        """Whether a task is an output of a P2P shuffle."""
        return not is_barrier(task) and any(
            is_barrier(self.graph.get(key)) for key in task.dependencies
        )

    def readers(self, sources: Callable[[Any], Iterable[Any]]) -> dict[Any, set[Any]]:
        """Names that were made of sources: fused with them, or depending on them."""
        here = {*self.names, *self.wholes, *self.dependents}
        made_of = {n: set(s) for n in here if (s := sources(n))}
        spread_sources(made_of, lambda n: (*self.wholes.get(n, ()), *self.dependents.get(n, ())))
        found: dict[Any, set[Any]] = {}
        for name, of_name in made_of.items():
            for source in of_name if name in self.names else ():
                found.setdefault(source, set()).add(name)
        return found

    def _reason(self, part: Any, task: Any) -> str | None:
        handed = list(self._handed(task))
        functions = list(task_functions([task, *handed] if handed else task))
        names = [function_name(f) for f in functions]
        effect = self.rules.effect(part, names)
        if effect is not None and effect.mutates:
            self._mutators.add(part)
        if part in self.lifted:
            return None
        return self.rules.reason(part, names, lambda: self._impurity(functions, task))

    def _impurity(self, functions: list[Any], task: Any) -> str | None:
        return self._looks.impurity(functions, lambda: givens(task, functions=functions))

    def _handed(self, task: Any) -> Iterator[Any]:
        """Objects that a task gets from tasks that are nothing else, to call methods of them."""
        for key in islice(getattr(task, "dependencies", ()), MANY_PARTS):
            value = getattr(self.graph.get(key), "value", None)
            if is_holder(value):
                yield value

    def _mutates(self, name: Any, task: Any) -> bool:
        return any(part in self._mutators for part, _ in parts_of(name, task))

    def _note_dependencies(self, name: Any, task: Any) -> None:
        for dependency in task.dependencies:
            source = key_name(dependency)
            if source is not name and source != name:
                self.dependents.setdefault(source, set()).add(name)
                if dependency not in self.graph:
                    self.outside.add(source)


def is_named(key: Key, task: Any) -> bool:
    """Whether the key of a task was made up by a user: it is no token of what the task does.

    dask names single tasks (delayed functions) after their functions; its own parts do as they
    like. Keys of collections are tuples, or belong to these parts.

    Examples
    --------
    >>> from dask._task_spec import Task
    >>> is_named("run-1", Task("run-1", abs, 1)), is_named("abs-1", Task("abs-1", abs, 1))
    (True, False)
    """
    if not isinstance(key, str) or key.startswith("finalize-"):
        return False
    function = getattr(task, "func", None)
    if function is None:
        # Arrays and their sources have names of their own.
        value = getattr(task, "value", None)
        return value is not None and not (
            hasattr(value, "shape") or key.startswith(f"{type(value).__name__}-")
        )
    module = getattr(function, "__module__", None) or ""
    if module.startswith("dask.") and module != "dask.utils":
        return False
    return not key.startswith((f"{funcname(function)}-", f"{function_name(function)}-"))


def _handed_over(task: Any, graph: Mapping[Key, Any]) -> Iterator[Any]:
    """Names of what a task gets, through tasks that only hand on."""
    work = list(task.dependencies)
    while work:
        key = work.pop()
        yield key_name(key)
        if (target := getattr(graph.get(key), "target", None)) is not None:
            work.append(target)


def spread_sources(
    made_of: dict[Any, set[Any]], dependents: Callable[[Any], Iterable[Any] | None]
) -> None:
    """Hand on, in place, of what names were made to what depends on them.

    Parameters
    ----------
    made_of : dict
        {name: its sources}
    dependents : callable
        Names that depend on a name.

    Examples
    --------
    >>> made_of = {"a": {"file"}}
    >>> spread_sources(made_of, {"a": ["b"], "b": ["c"], "c": []}.get)
    >>> made_of["c"]
    {'file'}
    """
    work = deque(made_of)
    while work:
        name = work.popleft()
        of_name = made_of[name]
        for dependent in dependents(name) or ():
            known = made_of.setdefault(dependent, set())
            if not of_name <= known:
                known |= of_name
                work.append(dependent)


def spread(
    reasons: dict[Any, str],
    dependents: Callable[[Any], Iterable[Any] | None],
    lifted: Container[Any] = (),
) -> None:
    """Deny, in place, what depends on something that is denied."""
    work = deque(reasons)
    while work:
        for name in dependents(work.popleft()) or ():
            if name not in reasons and name not in lifted:
                reasons[name] = UPSTREAM
                work.append(name)
