"""Tasks that take the same seconds each time, and add them up; imported by workers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

KB = 1000

#: Seconds of all tasks that ran in this process.
slept = [0.0]


def make(block: Any, seconds: float, kilobytes: int, seed: int) -> Any:
    """A chunk made of nothing."""
    time.sleep(seconds)
    slept[0] += seconds
    return np.full(kilobytes * KB // 8, seed, dtype="f8")


def derive(block: Any, seconds: float, kilobytes: int, seed: int) -> Any:
    """A chunk made of another one."""
    return make(block, seconds, kilobytes, block[0] + seed)


def total() -> float:
    """Seconds since this process was started."""
    return slept[0]
