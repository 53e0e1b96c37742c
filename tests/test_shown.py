"""What only Out, _ and the last traceback of an IPython shell hold does not count as alive."""

from __future__ import annotations

import builtins
import sys

import pytest
from dask.utils import key_split
from utils_graphs import asked

from cachingclient.config import read_settings
from cachingclient.graph import liveness
from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.plan import make_plan
from cachingclient.graph.shown import only_shown

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
Config = pytest.importorskip("traitlets.config").Config

SETUP = """
import dask, numpy as np, dask.array as da, dask.bag as db
def slow(block): return block + 1
def build(): return da.zeros(4, chunks=1).map_blocks(slow, dtype="f8", meta=np.empty(0))
"""


@pytest.fixture
def shell(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # IPython leaves a name alone that doctests and gettext set
    monkeypatch.delattr(builtins, "_", raising=False)
    hooks = sys.displayhook, sys.excepthook
    config = Config()
    config.HistoryManager.enabled = False
    shell = interactiveshell.InteractiveShell.instance(config=config)
    shell.run_cell(SETUP, store_history=True)
    yield shell
    interactiveshell.InteractiveShell.clear_instance()
    sys.displayhook, sys.excepthook = hooks
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def run(shell, *cells):
    for cell in cells:
        shell.run_cell(cell, store_history=True, silent=False)


def succeed(shell, cell):
    shell.run_cell(cell, store_history=True).raise_error()


def living(shell, question):
    """Layers of a question asked in a cell, that count as alive."""
    found = {}

    def plan(collection):
        expr = asked(collection).expr
        made = make_plan(expr, read_settings(), (), None)
        layers = [n for _, hlg in graphs_of(expr) for n in hlg.layers]
        found.update({key_split(n): made.alive.get(n) for n in layers})

    shell.user_ns["plan"] = plan
    succeed(shell, f"plan({question})")
    del shell.user_ns["plan"]
    assert found, "the cell failed"
    return {n for n, is_alive in found.items() if is_alive}


def test_what_was_shown_is_dead(shell):
    run(shell, "build()")
    assert len(shell.user_ns["Out"]) == 1
    assert living(shell, "_.sum()") == set()


def test_what_was_shown_long_ago_is_dead(shell):
    run(shell, "build()", "1", "2", "3", "4")
    assert living(shell, "Out[2].sum()") == set()


def test_what_was_shown_and_has_a_name_is_alive(shell):
    run(shell, "x = build()", "x")
    assert living(shell, "x.sum()") == {"slow"}
    run(shell, "del x")
    assert living(shell, "_3.sum()") == set()


def test_shown_twice(shell):
    run(shell, "x = build()", "x", "x", "[x, x]", "(x, {'a': x})", "del x")
    assert living(shell, "Out[3].sum()") == set()


def test_what_a_list_of_the_users_holds_is_alive(shell):
    run(shell, "keep = []", "x = build()", "keep.append(x)", "x", "del x")
    assert living(shell, "Out[5].sum()") == {"slow"}


def test_a_name_that_looks_like_history_is_alive(shell):
    run(shell, "_mine = build()", "_mine")
    assert living(shell, "_mine.sum()") == {"slow"}


def test_xarray(shell):
    pytest.importorskip("xarray")
    run(shell, "import xarray as xr", "xr.Dataset({'a': ('x', build())})", "0")
    assert living(shell, "Out[3].a.data.sum()") == set()
    run(shell, "xr.DataArray(build(), dims='x')", "0")
    assert living(shell, "Out[6].data.sum()") == set()
    run(shell, "ds = Out[3]")
    assert living(shell, "ds.a.data.sum()") == {"slow"}


def test_bags_and_delayed(shell):
    run(shell, "db.from_sequence([1, 2]).map(slow)", "dask.delayed(slow, pure=True)(1)")
    assert living(shell, "Out[2].sum()") == set()
    assert living(shell, "dask.delayed(slow, pure=True)(Out[3])") == set()
    run(shell, "b = Out[2]")
    assert "slow" in living(shell, "b.sum()")


def test_variables_of_the_last_traceback(shell):
    run(shell, "x = build()", "total = x.sum()", "def fail(y): raise ValueError('y', y)", "fail(x)")
    assert "y" in str(sys.last_value)
    assert living(shell, "total") == {"slow"}
    run(shell, "del x")
    assert living(shell, "total") == set()


def test_a_local_of_a_running_function_is_alive(shell):
    run(shell, "build()", "def ask():\n    y = build()\n    plan(y.sum())")
    shell.user_ns["Out"][99] = None
    found = []

    def plan(collection):
        made = make_plan(asked(collection).expr, read_settings(), (), None)
        found.extend(key_split(n) for n, is_alive in made.alive.items() if is_alive)

    shell.user_ns["plan"] = plan
    run(shell, "ask()")
    assert found == ["slow"]


def test_a_shell_that_cannot_be_looked_into(shell, monkeypatch):
    monkeypatch.delattr(shell, "displayhook")
    assert only_shown() == {}


def test_without_a_shell_nothing_is_ignored():
    assert only_shown() == {}
    assert liveness.KNOWN
