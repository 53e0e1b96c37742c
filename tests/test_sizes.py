"""Sizes of values of which dask sees the outermost object only."""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof

from cachingclient.worker.sizes import MANY, measure

MB = 10**6


class Opaque:
    def __init__(self, *values):
        self.values = values


class Slotted:
    __slots__ = ("value", "missing")

    def __init__(self, value):
        self.value = value


class Honest:
    def __sizeof__(self):
        return 5 * MB


def array():
    return np.zeros(MB // 8)


@pytest.mark.parametrize(
    "value, size",
    [
        (Opaque(array()), MB),
        (Opaque(Opaque(array()), {"a": [array()]}), 2 * MB),
        (Slotted(array()), MB),
        ([Opaque(array()) for _ in range(6)], 6 * MB),
        ({i: Opaque(array()) for i in range(6)}, 6 * MB),
        (deque([array(), array()]), 2 * MB),
        ([Opaque(array()) for _ in range(100)], 100 * MB),
    ],
    ids=lambda v: type(v).__name__,
)
def test_hidden_bytes_are_found(value, size):
    assert sizeof(value) < size / 10 or isinstance(value, deque)
    found = measure(value)
    assert found.whole
    assert size <= found.nbytes < 1.1 * size + 10_000


def test_object_arrays():
    value = np.empty(10, dtype=object)
    for i in range(10):
        value[i] = "x" * MB + str(i)
    assert sizeof(value) < 1000
    assert 10 * MB <= measure(value).nbytes < 11 * MB


@pytest.mark.parametrize(
    "value",
    [1, 1.5, "text", b"bytes", None, np.zeros(10), np.float64(1), Honest(), len]
    + [pd.DataFrame({"dtype": ["a"]}), pd.Series(["a"], dtype=object), pd.Index([1])],
    ids=lambda v: type(v).__name__,
)
def test_dask_is_believed(value):
    assert measure(value) is None


def test_shared_parts_count_once():
    shared = array()
    assert measure([shared] * 10).nbytes < 1.1 * MB
    assert measure(Opaque(shared, shared)).nbytes < 1.1 * MB


def test_cycles_end():
    value = Opaque()
    value.itself = value
    assert measure(value).nbytes < 10_000


def test_deep_values_end():
    value = None
    for _ in range(sys.getrecursionlimit() // 2):
        value = Opaque(value)
    assert measure(value).nbytes < MB


def test_large_values_end():
    looked = []

    class Counted:
        @property
        def __dict__(self):
            looked.append(1)
            return {}

    measure([[Counted() for _ in range(20)] for _ in range(20)] * 50)
    assert len(looked) <= MANY


def test_what_cannot_be_looked_into_is_told():
    import re

    assert not measure([re.compile("a").scanner("a")]).whole


class Counting:
    def __len__(self):
        self.asked = True
        return 1

    def __sizeof__(self):
        return 5


@pytest.mark.parametrize(
    "value, delicate",
    [
        (Counting(), True),
        ([Opaque(Counting())], True),
        ({"i": iter([1])}, True),
        (Opaque(map(abs, [1])), True),
        ([i for i in range(3)], False),
        ([(i for i in range(3))], False),  # cannot be copied
        ([range(3), {}.items(), Opaque(1)], False),
    ],
)
def test_what_changes_when_it_is_read_is_found(value, delicate):
    assert measure(value).delicate is delicate
