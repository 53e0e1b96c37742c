"""What may ever be kept: tokens, purity, side effects, types.

Keeping is by permission. A key may be kept if its name ends in a token (so that
equal names mean equal content), if nothing that it was computed from lacks one,
and if neither it nor anything that it was computed from writes something.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

from dask.typing import Key

NO_TOKEN = "its key has no token"
WRITES = "writes files"
NOT_KEPT = "annotated with cache=False"
UNKNOWN_INPUT = "made of a future that nobody called pure"
UPSTREAM = "depends on something that is not kept"
P2P = "internal to a P2P shuffle"
WRITTEN = "handed to a writer that may change it in place"

_TOKEN = re.compile(r"(?:^|-)[0-9a-f]{32}$")


def key_name(key: Key) -> Any:
    """Name of the layer that a key belongs to.

    Examples
    --------
    >>> key_name(("x", 0, 1))
    'x'
    >>> key_name("y")
    'y'
    """
    return key[0] if type(key) is tuple and key else key


@lru_cache(10_000)
def has_token(name: Key) -> bool:
    """Whether a name identifies its content.

    Examples
    --------
    >>> has_token("sum-0123456789abcdef0123456789abcdef")
    True
    >>> has_token("sum-5b7c1f44-9cf4-4a83-8fb1-6c0c01c22222"), has_token("mine")
    (False, False)
    """
    return isinstance(name, str) and _TOKEN.search(name) is not None


class Effect(NamedTuple):
    """Names of layers and functions that do more than return a value."""

    #: what the names look like
    pattern: re.Pattern[str]
    #: whether the inputs may be changed in place, so that kept ones must not be handed over
    mutates: bool


def _effect(pattern: str, mutates: bool) -> Effect:
    return Effect(re.compile(pattern, re.IGNORECASE), mutates)


_FORMATS = (
    "avro|bigquery|clipboard|csv|deltalake|delta|database|disk|excel|feather|file|gbq|hdf5?|html"
    "|iceberg|json|latex|markdown|mongo|netcdf|npy|npz|orc|parquet|pickle|sql|stata|textfiles?"
    "|tiledb|tiff?|xml|zarr"
)
#: Conversions: they start as writers do, and only return a value.
_CONVERSIONS = (
    "array|arrow|backend|bag|dask|dask_array|dask_dataframe|dataarray|dataframe|dataset|datetime"
    "|delayed|device|dict|frame|index|item|items|legacy_dataframe|list|mask|numeric|numpy|pandas"
    "|period|pyarrow|pydatetime|records|series|sparse|string|timedelta|timestamp|tuple|unit|xarray"
)
_START = r"(?:^|[-_.:<>/])"

#: Extend by a line: the first pattern found in a name decides.
EFFECTS = (
    # dask.array and dask.bag only read what they write
    _effect(rf"{_START}(?:load[-_])?store(?:[-_]map|d)?(?:[-_.]|$)", mutates=False),
    _effect(rf"{_START}to[-_]?(?:textfiles?|zarr|npy)(?![a-z])", mutates=False),
    # DataFrame.to_parquet drops the index of its partitions in place; others may too
    _effect(rf"{_START}to[-_]?(?:{_FORMATS})(?:data|barrier|[-_.]|$)", mutates=True),
    _effect(rf"{_START}to_(?!(?:{_CONVERSIONS})(?:[-_.]|$))[a-z]", mutates=True),
    _effect(rf"{_START}(?:write|save|store|dump|upload|export|publish|send)", mutates=True),
)

#: How deep fused tasks and wrapped functions are looked into.
DEEP = 40
#: Longer lists in tasks are data: only their beginning is searched for functions.
MANY_PARTS = 100
#: Functions by which dask nests tasks do nothing by themselves (one is called `to_container`).
_MACHINERY = "dask._task_spec"

#: Types of values that cannot be read twice, or that stand for something outside.
_ONCE = re.compile(
    r"(?:^|\.)(?:NoneType|generator|async_generator|coroutine|Future|map|filter|zip|enumerate"
    r"|reversed|chain|islice|flatiter|socket|SSLSocket|Popen|Thread|Process"
    r"|\w*(?:[iI]terator|[rR]eader|[wW]riter|File|FileWrapper|IO|IOBase|IOWrapper)"
    r"|\w*(?:[cC]ursor|[cC]onnection|[lL]ock|Semaphore|Condition|Event|Barrier|Queue))$"
    r"|^itertools\.|^_io\."
)


@lru_cache(10_000)
def effect_of(name: str) -> Effect | None:
    """What a name of a layer or function says about side effects.

    Examples
    --------
    >>> effect_of("to-parquet-0123456789abcdef0123456789abcdef").mutates
    True
    >>> effect_of("write_rows") is None, effect_of("to_datetime") is None
    (False, True)
    """
    return next((e for e in EFFECTS if e.pattern.search(name)), None)


@lru_cache(1_000)
def readable_again(typename: str | None) -> bool:
    """Whether values of a type can be read more than once.

    Examples
    --------
    >>> readable_again("numpy.ndarray"), readable_again("generator")
    (True, False)
    """
    return typename is None or _ONCE.search(typename) is None


def function_name(function: Any) -> str:
    """Name by which a function is judged."""
    method = getattr(function, "method", None)  # dask.utils.methodcaller
    if isinstance(method, str):
        return method
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def unwrap(function: Any, depth: int = DEEP) -> Iterator[Any]:
    """A function and those that it wraps: partials, and functions given as arguments."""
    for inner in _wrapped(function) if depth else ():
        if callable(inner):
            yield from unwrap(inner, depth - 1)
    if not isinstance(function, partial) and getattr(function, "__module__", "") != _MACHINERY:
        yield function


def _wrapped(function: Any) -> Iterator[Any]:
    kind = type(function)
    if kind is partial or kind.__name__ == "curry":
        yield function.func
        yield from (*function.args, *function.keywords.values())
    elif kind.__name__ == "Compose":  # toolz
        yield from (function.first, *function.funcs)


def task_functions(task: Any, depth: int = DEEP) -> Iterator[Any]:
    """Functions that a task calls or hands on: through fusion, nesting and partials."""
    if not depth:
        return
    if type(task) is tuple and task and callable(task[0]):
        parts: Iterable[Any] = task
    elif type(task) in (list, tuple, set):
        parts = task
    elif callable(function := getattr(task, "func", None)) and hasattr(task, "dependencies"):
        parts = (function, *(task.args or ()), *(task.kwargs or {}).values())
    elif hasattr(task, "dependencies") and hasattr(task, "value"):  # a literal in a task
        parts = (task.value,)
    elif isinstance(task, Mapping):
        parts = task.values()
    else:
        return
    for part in islice(parts, MANY_PARTS):
        if hasattr(part, "dependencies") or type(part) in (tuple, list, set, dict):
            yield from task_functions(part, depth - 1)
        elif callable(part):
            yield from unwrap(part)


def task_effect(task: Any) -> Effect | None:
    """Side effect of a task, by the names of its functions."""
    for function in task_functions(task):
        if found := effect_of(function_name(function)):
            return found
    return None


def is_p2p(task: Any) -> bool:
    """Whether a task is internal to a P2P shuffle, whose parts are of no use alone."""
    if type(task).__name__ == "P2PBarrierTask":
        return True
    return any(
        (getattr(f, "__module__", None) or "").startswith("distributed.shuffle")
        for f in task_functions(task)
    )


class Verdict(NamedTuple):
    """Which names of a graph may be kept."""

    #: names that may
    allowed: set[Any]
    #: {name that may not: reason}
    denied: dict[Any, str]


def judge(
    graph: Mapping[Key, Any],
    trusted: Container[Any] = (),
    denied: Mapping[Any, str] | None = None,
    lifted: Container[Any] = (),
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

    Examples
    --------
    >>> from dask._task_spec import Task, TaskRef
    >>> x, y = "x-" + 32 * "0", "y-" + 32 * "0"
    >>> judge({x: Task(x, abs, 1), y: Task(y, abs, TaskRef("fixed"))}).denied[y]
    'made of a future that nobody called pure'
    """
    reasons: dict[Any, str] = dict(denied or {})
    local: dict[Any, str] = {}
    names: set[Any] = set()
    dependents: dict[Any, set[Any]] = {}
    outside: set[Any] = set()
    mutators: set[Any] = set()
    for key, task in graph.items():
        name = key_name(key)
        if name not in names:
            names.add(name)
            effect = effect_of(str(name)) or task_effect(task)
            if effect and effect.mutates:
                mutators.add(name)
            if is_p2p(task):
                local[name] = P2P
            if name not in lifted and (effect or not has_token(name)):
                reasons.setdefault(name, WRITES if effect else NO_TOKEN)
        if name in mutators:
            local.update(dict.fromkeys(_handed_over(task, graph), WRITTEN))
        for dependency in task.dependencies:
            source = key_name(dependency)
            if source is not name and source != name:
                dependents.setdefault(source, set()).add(name)
                if dependency not in graph:
                    outside.add(source)
    for source in outside - names:
        if source not in trusted:
            for name in dependents[source]:
                reasons.setdefault(name, UNKNOWN_INPUT)
    spread(reasons, dependents.get)
    reasons = {n: r for n, r in reasons.items() if n in names}
    return Verdict(names - reasons.keys() - local.keys(), {**local, **reasons})


def _handed_over(task: Any, graph: Mapping[Key, Any]) -> Iterator[Any]:
    """Names of what a task gets, through tasks that only hand on."""
    work = list(task.dependencies)
    while work:
        key = work.pop()
        yield key_name(key)
        if (target := getattr(graph.get(key), "target", None)) is not None:
            work.append(target)


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
