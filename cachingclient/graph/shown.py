"""What only an interactive shell's history holds: having been shown once is no life.

IPython keeps all that a cell ever returned in ``Out``, ``_``, ``__``, ``___`` and ``_N``, and the
variables of the functions in the last traceback. What is held by nothing else is found by counting
references: an object is dead if all references to it are known to come from there, or from other
dead objects.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph

#: References to an object that is in a local variable, and counted.
_COUNTING = 2
#: A frame that was asked for its variables holds them twice, before Python 3.13.
_IN_FRAME = 2 if sys.version_info < (3, 13) else 1
#: Frames of a traceback that are looked at.
FRAMES = 100

#: {module: its classes of collections that have their HighLevelGraph as ``dask``}
_COLLECTIONS = {
    "dask.array": ("Array",),
    "dask.bag": ("Bag", "Item"),
    "dask.delayed": ("Delayed",),
}


def only_shown() -> dict[int, int]:
    """References to layers that don't count, by the id of the layer.

    Examples
    --------
    Outside IPython there are none.

    >>> only_shown()
    {}
    """
    shell = _shell()
    if shell is None:
        return {}
    try:
        return references_of_dead(Counter(map(id, _history(shell))), lambda: _history(shell))
    except Exception:
        return {}  # nothing is known then: more counts as alive than is


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if get is not None else None


def _history(shell: Any) -> Iterator[Any]:
    """What the history holds, each as often as it holds it."""
    names = shell.user_ns
    yield from names.get("_oh", {}).values()
    for table in (names, shell.user_ns_hidden):
        for name, value in table.items():
            if name in ("_", "__", "___") or (name[:1] == "_" and name[1:].isdigit()):
                yield value
    hook = vars(shell.displayhook)
    yield from (hook[name] for name in ("_", "__", "___") if name in hook)
    yield getattr(shell.last_execution_result, "result", None)
    yield from _traceback(names)


def _traceback(names: Mapping[str, Any]) -> Iterator[Any]:
    """Variables of the functions in the last traceback."""
    error = getattr(sys, "last_value", None)
    yield from getattr(error, "args", ())
    step = getattr(error, "__traceback__", None)
    for _ in range(FRAMES):
        if step is None:
            return
        frame = step.tb_frame
        if frame.f_globals is not frame.f_locals and frame.f_locals is not names:
            for value in tuple(frame.f_locals.values()):
                yield from [value] * _IN_FRAME
        step = step.tb_next


def references_of_dead(known: Counter[int], roots: Any) -> dict[int, int]:
    """References to layers by objects that nothing else holds.

    Parameters
    ----------
    known : Counter
        How often the history holds an object, by its id.
    roots : callable
        Yields the objects; a function, so that no reference is held meanwhile.
    """
    kinds = _kinds()
    waiting: list[Any] = []
    seen: set[int] = set()
    for thing in roots():
        if id(thing) not in seen and _may_hold(thing, kinds):
            seen.add(id(thing))
            waiting.append(thing)
    thing = None
    times = Counter(map(id, waiting))
    ignored: Counter[int] = Counter()
    while waiting:
        thing = waiting.pop()
        times[id(thing)] -= 1
        if sys.getrefcount(thing) - _COUNTING - times[id(thing)] != known[id(thing)]:
            continue
        if isinstance(thing, HighLevelGraph):
            layers = thing.layers
            if sys.getrefcount(layers) - _COUNTING == 1:
                ignored.update(map(id, layers.values()))
            continue
        children = [c for c in _children(thing, kinds) if _may_hold(c, kinds)]
        for child in children:
            known[id(child)] += 1
            times[id(child)] += 1
        waiting += children
        # what holds references while others are counted
        child = None
        del children
    return dict(ignored)


def _kinds() -> tuple[Any, ...]:
    found = []
    for module, names in _COLLECTIONS.items():
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(k for k in found if isinstance(k, type))


def _may_hold(thing: Any, kinds: tuple[Any, ...]) -> bool:
    return isinstance(thing, (*kinds, list, tuple, dict, HighLevelGraph)) or _is_xarray(thing)


def _is_xarray(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] == "xarray"


def _children(thing: Any, kinds: tuple[Any, ...]) -> Iterable[Any]:
    if isinstance(thing, kinds):
        return [thing.dask]
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple)):
        return list(thing)
    name = type(thing).__name__
    if name == "Dataset":
        return list(thing.variables.values())
    if name == "DataArray":
        return [thing.variable, *thing.coords.variables.values()]
    if getattr(thing, "chunks", None) is not None:  # xarray.Variable
        return [thing.data]
    return []
