"""Data that a client scatters, and whose names tell all that it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import distributed
from dask.typing import Key
from distributed.client import futures_of

from cachingclient.admission import has_token

#: Types whose values are told by their token alone. Others may stand for something outside,
#: as texts do that are paths of files, and objects that read when they are asked.
PLAIN = frozenset(
    {
        "builtins.bool",
        "builtins.complex",
        "builtins.float",
        "builtins.int",
        "numpy.ndarray",
        "pandas.DataFrame",
        "pandas.Series",
        "pandas.core.frame.DataFrame",
        "pandas.core.series.Series",
    }
)

_SIGNATURE = inspect.signature(distributed.Client.scatter)


def is_plain(value: Any) -> bool:
    """Whether equal tokens of a value mean equal values, whatever happens outside.

    Examples
    --------
    >>> is_plain(3), is_plain("data.csv")
    (True, False)
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    # Arrays of objects hold what others may change.
    return name in PLAIN and not getattr(getattr(value, "dtype", None), "hasobject", False)


def trustworthy(data: Any, scattered: Any) -> Iterator[Key]:
    """Keys of scattered data that name their content.

    Parameters
    ----------
    data
        What was scattered.
    scattered
        The futures that came of it.
    """
    if type(data) is dict:  # its keys are names that the user gave
        return
    values: Iterable[Any] = data if type(data) in (list, tuple, set, frozenset) else [data]
    if all(is_plain(value) for value in values):
        for future in futures_of(scattered):
            if has_token(future.key):
                yield future.key


def is_named_by_content(args: Any, kwargs: Any) -> bool:
    """Whether `Client.scatter` is asked to name data by its content.

    Examples
    --------
    >>> is_named_by_content(([1],), {}), is_named_by_content(([1],), {"hash": False})
    (True, False)
    """
    try:
        bound = _SIGNATURE.bind(None, *args, **kwargs)
    except TypeError:
        return False  # the user hears of it from the client
    return bound.arguments.get("hash", True) is True


def scatter(
    plain: Callable[..., Any],
    args: Any,
    kwargs: Any,
    trust: Callable[[Iterable[Key]], Any],
) -> Any:
    """Scatter data, and tell which keys name their content.

    Parameters
    ----------
    plain : callable
        The client's own method.
    args, kwargs
        What it is called with.
    trust : callable
        Told of the keys.
    """
    scattered = plain(*args, **kwargs)
    if _on_worker() or not is_named_by_content(args, kwargs):
        return scattered
    data = args[0] if args else kwargs["data"]
    # A future can be awaited too, for its result.
    if isinstance(scattered, distributed.Future) or not inspect.isawaitable(scattered):
        trust(trustworthy(data, scattered))
        return scattered

    async def when_done() -> Any:
        done = await scattered
        trust(trustworthy(data, done))
        return done

    return when_done()


def _on_worker() -> bool:
    """Whether this runs in a task, which shares what it scatters with its worker."""
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
