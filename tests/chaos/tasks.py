"""What tasks of a chaos session run; imported by its name in every worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd


def same(value: Any) -> Any:
    return value


def bump(value: Any, n: int = 1) -> Any:
    return value + n


def double(value: Any) -> Any:
    return value * 2


def neighbours(block: np.ndarray) -> np.ndarray:
    """Sum with the rows above and below."""
    return block + np.roll(block, 1, axis=0) + np.roll(block, -1, axis=0)


def total(*values: Any) -> Any:
    return sum(np.sum(v) for v in values)


def total_of(values: Iterable[Any]) -> Any:
    return sum(np.sum(v) for v in values)


def is_odd(value: int) -> bool:
    return value % 2 == 1


def table(n: int, rows: int = 24) -> pd.DataFrame:
    """A frame whose numbers are whole: sums of them don't depend on their order."""
    i = np.arange(rows)
    return pd.DataFrame({"a": i * (n + 2) % 5, "b": (i * 7 % 11).astype("f8")})


def grow(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(b=frame.b + frame.a)


def rows(n: int) -> np.ndarray:
    return np.arange(4.0) + n


def fail(block: Any, text: str) -> Any:
    raise ValueError(text)


def fatal(value: Any, path: str, call: int) -> Any:
    """Kill the worker that runs this, the nth time that it is called with a file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"x")
    calls = os.lseek(file, 0, os.SEEK_CUR)
    os.close(file)
    if calls == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return value + 1
