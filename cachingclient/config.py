"""Settings: defaults from ``cachingclient.yaml``, changed as any other dask setting."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.config
import distributed  # noqa: F401 - brings its own settings
import yaml
from dask.utils import parse_bytes, parse_timedelta

from cachingclient.admission import Rules
from cachingclient.policy import POLICIES

#: Larger limits than this are a slip of the pen, not a cluster.
LARGEST_LIMIT = 2**60

# Not by its path: the package may have been carried here, and be no folder.
_yaml = pkgutil.get_data("cachingclient", "cachingclient.yaml")
DEFAULTS: dict[str, Any] = yaml.safe_load(_yaml or b"")
dask.config.update_defaults(DEFAULTS)


def _hide_frames() -> None:
    """The code of a computation, as the scheduler shows it, is the user's and not ours."""
    key = "distributed.diagnostics.computations.ignore-modules"
    ignored = dask.config.get(key, default=None)
    if isinstance(ignored, list):
        ours = [m for m in ("cachingclient", "wrapt") if m not in ignored]
        dask.config.set({key: [*ignored, *ours]})


_hide_frames()


def parse_limit(value: Any, name: str = "cache_limit") -> float:
    """Read a limit for the bytes that may be kept.

    Parameters
    ----------
    value : int, float or str
        0 (off), a share of the cluster's memory (0 < value <= 1), bytes, or a
        text such as ``"2 GiB"``.
    name : str
        What the value is called in an error.

    Returns
    -------
    float
        0, a share up to 1, or bytes above 1.

    Raises
    ------
    TypeError, ValueError
        If the value is no limit; the message says ``name``.

    Examples
    --------
    >>> parse_limit("2 GiB")
    2147483648
    >>> parse_limit(0.2)
    0.2
    >>> parse_limit(-1)
    Traceback (most recent call last):
        ...
    ValueError: cache_limit must lie between 0 and 1 EiB, got -1
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"{name} must be a number or a text such as '2 GiB', got {value!r}")
    number = _parse_text(value, name) if isinstance(value, str) else value
    if number != number or not 0 <= number <= LARGEST_LIMIT:
        raise ValueError(f"{name} must lie between 0 and 1 EiB, got {value!r}")
    return number


def _parse_text(text: str, name: str) -> float:
    try:
        # Environment variables arrive as text: "0.2" is a share, as 0.2 is.
        return float(text)
    except ValueError:
        pass
    try:
        if not text.strip()[:1].isdigit():
            raise ValueError(text)  # dask reads "" and "B" as one byte
        return parse_bytes(text)
    except (ValueError, OverflowError) as e:
        raise ValueError(f"{name} must be a number or a text such as '2 GiB', got {text!r}") from e


def _seconds(value: Any, name: str) -> float:
    try:
        number = parse_timedelta(value, default="s")
    except (ValueError, TypeError, LookupError, AttributeError) as e:
        raise ValueError(f"{name} must be a time such as '5ms', got {value!r}") from e
    if isinstance(value, bool) or number is None or not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a time such as '5ms', got {value!r}")
    return float(number)


def _share(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a share between 0.0 and 1.0, got {value!r}")
    return float(value)


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
    return value


def _bytes(value: Any, name: str) -> float:
    number = parse_limit(value, name)
    if number <= 1:
        raise ValueError(f"{name} must be bytes or a text such as '2 GiB', got {value!r}")
    return number


def _switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(v and isinstance(v, str) for v in value):
        raise ValueError(f"{name} must be a list of texts, got {value!r}")
    return tuple(value)


def _policy(value: Any, name: str) -> str:
    if not isinstance(value, str) or value not in POLICIES:
        raise ValueError(f"{name} must be one of {', '.join(sorted(POLICIES))}, got {value!r}")
    return value


@dataclass(frozen=True)
class Settings:
    """What the configuration said when the client was made; times in seconds."""

    cache_limit: float
    min_cost: float
    policy: str
    halflife: int
    barriers: bool
    first_sight_overhead: float
    task_overhead: float
    recent_keys: int
    lease_time: float
    idle_time: float
    never: tuple[str, ...]
    always: tuple[str, ...]
    effects: tuple[str, ...]
    impure: bool
    source_lifetime: float
    share_sources: bool
    checksums: tuple[str, ...]
    audit: float
    scheduler_memory: float
    hints: bool

    @property
    def rules(self) -> Rules:
        """What the settings say of what may be kept."""
        return Rules(self.never, self.always, self.effects, self.impure)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "cache-limit": parse_limit,
    "min-cost": _seconds,
    "policy": _policy,
    "halflife": _count,
    "barriers": _switch,
    "first-sight-overhead": _seconds,
    "task-overhead": _seconds,
    "recent-keys": _count,
    "lease-time": _seconds,
    "idle-time": _seconds,
    "never": _texts,
    "always": _texts,
    "effects": _texts,
    "impure": _switch,
    "source-lifetime": _seconds,
    "share-sources": _switch,
    "checksums": _texts,
    "audit": _share,
    "scheduler-memory": _bytes,
    "hints": _switch,
}


def read_settings(cache_limit: Any = None) -> Settings:
    """Read all settings, and refuse what makes no sense.

    Parameters
    ----------
    cache_limit : int, float or str, optional
        Takes the place of ``cachingclient.cache-limit``.

    Raises
    ------
    TypeError, ValueError
        Names the argument or the configuration key.

    Examples
    --------
    >>> read_settings("1 GiB").cache_limit
    1073741824
    """
    _refuse_unknown(dask.config.get("cachingclient", default={}))
    values = {
        # The full dotted name finds the spelling of an environment variable too.
        key.replace("-", "_"): read(dask.config.get(f"cachingclient.{key}"), f"cachingclient.{key}")
        for key, read in _READERS.items()
    }
    if cache_limit is not None:
        values["cache_limit"] = parse_limit(cache_limit)
    return Settings(**values)


def _refuse_unknown(found: Any) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"cachingclient must be a table of settings, got {found!r}")
    for key in found:
        if str(key).replace("_", "-") not in _READERS:
            raise ValueError(
                f"cachingclient.{key} is no setting; there are: {', '.join(sorted(_READERS))}"
            )
