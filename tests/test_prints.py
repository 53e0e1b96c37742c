"""Digests of functions follow the settings, classes and objects that the functions use."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections import deque, namedtuple
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import name_of

from cachingclient.inspection import fingerprint


def run(source, namespace=None):
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    exec(source, namespace)
    return namespace


def make_closure(value):
    return lambda x: value


class Shade(Enum):
    RED = 1
    BLUE = 2


Pair = namedtuple("Pair", "a b")


@dataclass
class Options:
    rate: float = 1.0
    more: object = None


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate


class Keyed(dict):
    pass


def ring(value):
    """Something that holds itself."""
    options = Options(value)
    options.more = [options]
    return options


SETTINGS = [
    (1, 1.0),
    (np.float64(1), np.float64(2)),
    (np.datetime64("2020-01-01"), np.datetime64("2020-01-02")),
    (date(2020, 1, 1), date(2020, 1, 2)),
    (datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc)),
    (timedelta(1), timedelta(2)),
    (Decimal("1.0"), Decimal("1.00")),
    (Fraction(1, 2), Fraction(1, 3)),
    (Shade.RED, Shade.BLUE),
    (re.compile(300 * "x"), re.compile(300 * "x", re.I)),
    (slice(1, 2), slice(1, 3)),
    (Path("a"), Path("b")),
    (Pair(1, 2), Pair(1, 3)),
    (SimpleNamespace(a=[1]), SimpleNamespace(a=[2])),
    (Options(1.0), Options(2.0)),
    (Slotted(1), Slotted(2)),
    (Keyed(a=1), Keyed(a=2)),
    (deque([1]), deque([2])),
    ({1, (2, "a")}, {1, (2, "b")}),
    (ring(1), ring(2)),
    ({"a": {"b": {"c": {"d": {"e": 1}}}}}, {"a": {"b": {"c": {"d": {"e": 2}}}}}),
    (list(range(1000)), list(range(999)) + [0]),
    ({i: i for i in range(100)}, {i: i or 1 for i in range(100)}),
    ("x" * 100_000, "x" * 100_000 + "y"),
    (10**5_000, 10**5_000 + 1),
    (np.arange(3), np.arange(3.0)),
    (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    (np.add, np.subtract),
    (pd.Series([1.0, 2.0]), pd.Series([1.0, 3.0])),
    (pd.Series(["a"]), pd.Series(["b"])),
    (pd.Series([1], index=[1]), pd.Series([1], index=[2])),
    (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})),
    (pd.Timestamp("2020"), pd.Timestamp("2021")),
    (partial(name_of, 1), partial(name_of, 2)),
    ([partial(max, key=len)], [partial(max, key=abs)]),
    ([list(range(9_999)), {"a": 1}], [list(range(9_999)), {"a": 2}]),
    (Options(more=np.arange(1_000_000)), Options(2.0, more=np.arange(1_000_000))),
]


@pytest.mark.parametrize("old, new", SETTINGS, ids=lambda value: type(value).__name__)
def test_settings(old, new):
    cells = run("def f(x): return SETTING")
    prints = []
    for value in (old, new, old, copy.deepcopy(old)):
        cells["SETTING"] = value
        prints.append(fingerprint(cells["f"]))
        assert fingerprint(cells["f"]) == prints[-1]
    assert prints[0] != prints[1]
    assert prints[0] == prints[2] == prints[3]


@pytest.mark.parametrize(
    "change",
    [
        lambda options: setattr(options, "rate", 2.0),
        lambda options: setattr(options.more, "rate", 2.0),
        lambda options: setattr(options.more.more[0]["a"], "rate", 2.0),
    ],
)
def test_settings_changed_in_place(change):
    options = Options(more=Options(more=({"a": Options()},)))
    by_default = lambda x, options=options: options  # noqa: E731
    by_keyword = lambda x, *, options=options: options  # noqa: E731
    functions = [make_closure(options), by_default, by_keyword]
    before = [fingerprint(f) for f in functions]
    assert before == [fingerprint(f) for f in functions]
    change(options)
    assert not set(before) & {fingerprint(f) for f in functions}


@pytest.mark.parametrize(
    "value",
    [
        list(range(5_000)),
        [list(range(100)) for _ in range(100)],
        np.zeros(100_000),
        pd.Series(range(10_000)),
        {"a": "x" * 1_000_000},
        np.random.default_rng(),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_setting_is_none_each_time(value):
    cells = run("def f(x): return SETTING", {"__name__": "__main__", "SETTING": value})
    before = fingerprint(cells["f"])
    for _ in range(20):
        assert fingerprint(cells["f"]) == before


HELD = """
class Step:
    rate = 1
    @property
    def a(self): return 1
    def run(self, x): return helper(x)
    def __getitem__(self, i): return 10

class Other(Step):
    def run(self, x): return super().run(x)

class Table:
    steps = {"other": Other}
    def __init__(self): self.step = Step()
    def __call__(self, x): return self.step.run(x)

def helper(x): return 100
def make(): return Step()
def adds(x, n): return x + n

STEPS = {"step": [Step()]}
FUNCTIONS = {"helper": helper}
PARTIAL = __import__("functools").partial(adds, n=1)
"""


@pytest.mark.parametrize(
    "code, old, new",
    [
        ("make().run(x)", "100", "101"),
        ("make().rate", "rate = 1", "rate = 2"),
        ("make().a", "self): return 1", "self): return 2"),
        ("make()[0]", "return 10", "return 11"),
        ("Table()(x)", "100", "101"),
        ("Other().run(x)", "100", "101"),
        ("Table.steps['other']().run(x)", "100", "101"),
        ("STEPS['step'][0].run(x)", "100", "101"),
        ("STEPS['step'][0].rate", "rate = 1", "rate = 2"),
        ("FUNCTIONS['helper'](x)", "100", "101"),
        ("PARTIAL(x)", "n=1", "n=2"),
        ("PARTIAL(x)", "x + n", "x - n"),
    ],
)
def test_what_is_behind_names(write_module, code, old, new):
    source = f"{HELD}\ndef f(x): return {code}\n"
    f = write_module(source).f
    before = fingerprint(f)
    assert fingerprint(write_module(source).f) == fingerprint(f) == before
    changed = write_module(source.replace(old, new)).f
    assert fingerprint(changed) == fingerprint(f) != before


def test_object_of_a_redefined_class():
    cells = run("class A:\n    def go(self): return 1\nheld = {'a': A()}\ndef f(x): return held")
    before = fingerprint(cells["f"])
    run("class A:\n    def go(self): return 2\nheld = {'a': A()}", cells)
    assert fingerprint(cells["f"]) != before


def test_deep_helpers():
    cells = run(
        "def f0(x): return x\n"
        + "".join(f"def f{i}(x): return f{i - 1}(x)\n" for i in range(1, 30))
    )
    before = fingerprint(cells["f29"])
    run("def f0(x): return -x", cells)
    assert fingerprint(cells["f29"]) != before


def test_digests_of_objects_are_the_same_in_every_process(write_module):
    source = (
        "import dataclasses, enum\n"
        "class E(enum.Enum):\n    A = 1\n    B = 2\n"
        "def g(x): return x\ndef h(x): return -x\n"
        "@dataclasses.dataclass\nclass D:\n    a: int = 1\n    s: object = None\n"
        "held = D(2, frozenset([E.A, E.B, g, h, len, 'x']))\n"
        "def f(x): return held, D, E"
    )
    module = write_module(source)
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import edited_module\nfrom cachingclient.inspection import fingerprint\n"
        "print(fingerprint(edited_module.f))"
    )
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert found.strip() == fingerprint(module.f)


def test_code_of_the_user_is_never_run():
    ran = []

    def harm(self, *args):
        ran.append(args)
        raise AssertionError("code of the user has run")

    names = "__getattribute__ __eq__ __bool__ __len__ __iter__ __repr__ __getitem__ keys items"
    methods = {**dict.fromkeys(names.split(), harm), "p": property(harm), "__hash__": None}
    for base in (object, dict, list, tuple, str, int, float, set):
        hostile = type("Hostile", (base,), dict(methods))()
        cells = run("def f(x, y=()): return SETTING", {"__name__": "__main__", "SETTING": hostile})
        cells["f"].__defaults__ = ([hostile],)
        assert len(fingerprint(cells["f"])) == len(fingerprint(cells["f"])) == 32
    assert not ran
