"""The sessions of `benchmarks/sessions`: all sides answer alike, and rows are told rightly."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import dask
import helpers
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SESSIONS = BENCHMARKS / "sessions"
NAMES = [
    "climate",
    "images",
    "rides",
    "learning",
    "logs",
    "pipeline",
    "dashboard",
    "oneoff",
]
#: What is in the extra `bench` and not in `test`; and they write by zarr 3
NEEDS = {"images": "scipy", "learning": "sklearn", "oneoff": "scipy"}
TINY = 0.001
#: How many there are of what takes time even if it is tiny
FEW = {"FILES": 2, "STATIONS": 2, "LOOKS": 2}


@pytest.fixture(autouse=True)
def path(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(SESSIONS))
    yield
    # Their names are short, and may be those of other benchmarks.
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(BENCHMARKS):
            del sys.modules[name]


def module(name):
    return importlib.import_module(name)


def test_all_sessions_are_tested():
    assert list(module("making").SESSIONS) == NAMES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_equal(name, tmp_path, monkeypatch):
    """A plain client, ours and the expert's persist give the same answers."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
        pytest.importorskip("zarr", minversion="3")
    one, making, sides = module("one"), module("making"), module("sides")
    for few, count in FEW.items():
        if hasattr(making.load(name), few):
            monkeypatch.setattr(making.load(name), few, count)
    persisted = []

    class Persisting(sides.Persisting):
        def __call__(self, x):
            persisted.append(x)
            return super().__call__(x)

    monkeypatch.setattr(sides, "Persisting", Persisting)
    folder = making.data(name, tmp_path, TINY)
    known = tmp_path / "answers"
    for side in ("plain", "ours", "persist"):
        row, answers = one.measure(name, side, folder, processes=False)
        assert one.compare(answers, known) == []
        assert set(row["each"]) == set(answers) and answers
        assert row["wall"] > 0 and row["memory"] > 0 and row["tasks"] > 0
    assert bool(persisted) == (name not in making.NO_REUSE)


def test_answers_that_differ_are_found(tmp_path):
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    one = module("one")
    answers = {
        "array": np.arange(4.0),
        "frame": pd.DataFrame({"a": [1.0, 2.0]}, index=["x", "y"]),
        "list": [("a", 1), ("b", 2)],
        "number": 3,
    }
    assert one.compare(answers, tmp_path / "known") == []
    again = {
        "array": np.arange(4.0) * (1 + 1e-14),
        "frame": answers["frame"][::-1],
        "list": list(answers["list"]),
        "number": np.int64(3),
    }
    assert one.compare(again, tmp_path / "known") == []
    other = {
        "array": np.arange(4.0) + 1e-3,
        "frame": answers["frame"] + 1,
        "list": [("a", 1), ("b", 3)],
        "number": 4,
    }
    assert one.compare(other, tmp_path / "known") == list(answers)
    assert one.compare({}, tmp_path / "known") == list(answers)


@pytest.mark.parametrize("least, runs", [(0.0, 1), (1e9, 2)])
def test_sketch_keeps_what_took_long(least, runs, monkeypatch):
    """A result that took longer than the limit is there for the next graph."""
    sides = module("sides")
    monkeypatch.setattr(sides, "LEAST", least)

    def slow():
        helpers.count()
        return 1

    def wanted(dask_scheduler, name):
        task = dask_scheduler.tasks.get("slow")
        return task is not None and name in {client.client_key for client in task.who_wants}

    with sides.cluster("sketch", processes=False) as place, place.client() as client:
        for _ in range(2):
            assert dask.delayed(slow)(dask_key_name="slow").compute() == 1
            helpers.wait_until(lambda: not client.run_on_scheduler(wanted, name=client.id))
    assert helpers.calls() == runs


def row(session, side, n, wall, different=(), **more):
    return {
        "session": session,
        "side": side,
        "round": n,
        "scale": 1,
        "wall": wall,
        "task_seconds": 2 * wall,
        "cpu": 2 * wall,
        "tasks": 10,
        "memory": 2**30,
        "different": list(different),
        "date": "2026-11-30",
        "machine": "a machine",
        **more,
    }


@pytest.fixture
def measured():
    """Two sessions and one without reuse, in three rounds."""
    walls = {
        "a": {"plain": 20.0, "ours": 4.0, "persist": 4.0},
        "b": {"plain": 20.0, "ours": 10.0, "persist": 8.0},
        "once": {"plain": 10.0, "ours": 10.1, "persist": 10.0},
    }
    return [
        row(session, side, n, wall * (1 + n / 10))
        for n in range(3)
        for session, sides in walls.items()
        for side, wall in sides.items()
    ]


def test_summary(measured):
    """Geometric means leave out what has no reuse."""
    tables = module("tables")
    text = tables.summary(measured, {"a": "the first"}, {"once"})
    lines = text.splitlines()
    (first,) = [line for line in lines if line.startswith("the first")]
    assert first.split() == [
        *("the first 22.0 4.4 5.00 (5.00-5.00) - - 5.00 (5.00-5.00)".split()),
        *("10 / 10".split()),
    ]
    (means,) = [line for line in lines if line.startswith("**geometric")]
    assert "3.16 (3.16-3.16)" in means and "3.54 (3.54-3.54)" in means
    assert "ours has 0.89 (0.89-0.89) of the speed of persist" in text
    assert "All answers are equal" in text and "2026-11-30: a machine" in text
    assert tables.missed(measured, {"once"}) == ["ours has 0.89 of the speed of persist, not 0.9"]


def test_what_is_wrong_is_told(measured):
    """Wrong answers, failures, and sessions that take longer are not lost in a mean."""
    tables = module("tables")
    for found in measured:
        if found["session"] == "once" and found["side"] == "ours":
            found["wall"] *= 1.02
    measured.append(row("b", "ours", 2, 5.0, different=["sum"]))
    failed = row("a", "sketch", 0, 1.0)
    del failed["wall"]
    measured.append({**failed, "error": "KeyError"})
    text = tables.summary(measured, {}, {"once"})
    assert "Answers are equal, but for a with sketch, b with ours." in text
    assert [line.split()[0] for line in text.splitlines() if "differ" in line] == ["b"]
    told = tables.missed(measured, {"once"})
    assert "b: answers of ours differ" in told
    assert [line for line in told if line.startswith("once takes 1.030")]


def test_table_of_a_session(measured):
    tables = module("tables")
    lines = tables.session("a", [r for r in measured if r["session"] == "a"]).splitlines()
    ours = next(line for line in lines if line.startswith("ours"))
    wanted = "ours 4.40 (4.00-4.80) 5.00 (5.00-5.00) 8.8 (8.0-9.6) 8.8 (8.0-9.6) 10 (10-10)"
    assert ours.split() == f"{wanted} 1024 (1024-1024) equal".split()


def test_readme_has_the_table_between_its_marks(measured):
    tables = module("tables")
    text = "before\n\n.. sessions-table-begin\n\nold\n\n.. sessions-table-end\n\nafter\n"
    once = tables.put(text, "new")
    assert once == "before\n\n.. sessions-table-begin\n\nnew\n\n.. sessions-table-end\n\nafter\n"
    assert tables.put(once, "new") == once
    with pytest.raises(ValueError, match="no place"):
        tables.put("before", "new")


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    """What was measured is not measured again; what was cut off while it was written is."""
    run = module("run")
    ran = []

    def one(name, side, folder, scale, answers):
        if len(ran) == 5:
            raise KeyboardInterrupt
        ran.append((name, side))
        return {"wall": 1.0, "task_seconds": 1.0, "tasks": 1, "memory": 1, "different": []}

    monkeypatch.setattr(run, "one", one)
    monkeypatch.setattr(run.making, "data", lambda *args: None)
    out = tmp_path / "rows"
    command = ["run.py", "--out", str(out), "--rounds", "2", "--only", "a", "b"]
    command += ["--sides", "plain", "ours"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        run.main()
    out.write_text(out.read_text()[:-20])
    before, ran[:] = ran[:], []
    run.main()
    assert len(before) == 5 and ran[0] == before[-1] and len(ran) == 4
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    wanted = {(name, side, n) for name in "ab" for side in ("plain", "ours") for n in range(2)}
    assert {(r["session"], r["side"], r["round"]) for r in rows} == wanted and len(rows) == 8


def test_each_side_is_first_in_turn():
    rows = module("rows")
    sides = ["x", "y", "z"]
    plan = list(rows.plan(["a", "b"], sides, 3))
    assert len(set(plan)) == len(plan) == 18
    firsts = [plan[n] for n in range(0, 18, 3)]
    assert {side for name, side, _ in firsts if name == "a"} == set(sides)
