"""The simulator of `benchmarks/policies`: sessions are what they say; nobody beats the bound."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cachingclient.policy import POLICIES, GroupPolicy, LRUPolicy, make_policy

BENCHMARKS = Path(__file__).parent.parent / "benchmarks" / "policies"
MODULES = ("generators", "simulator", "bound", "baselines")


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def chain(simulator, asks):
    """x -> y of two chunks of 100 bytes each, and sums of y of hardly any."""
    tasks = {}
    for i in range(2):
        tasks["x", i] = simulator.Task("x", (), 3.0, 100)
        tasks["y", i] = simulator.Task("y", (("x", i),), 1.0, 100)
    for n in range(asks):
        tasks["sum", n] = simulator.Task(f"sum-{n}", (("y", 0), ("y", 1)), 0.5, 1)
    asked = [simulator.Ask(20.0 * n, [("sum", n)]) for n in range(asks)]
    return simulator.Session("chain", tasks, asked)


def test_work_of_a_session_by_hand():
    import simulator

    session = chain(simulator, 3)
    assert simulator.plain_work(session) == 3 * 8.5
    assert simulator.working_set(session) == 400
    for name in POLICIES:
        assert simulator.run(session, make_policy(name), 0).work == 3 * 8.5
        assert simulator.run(session, make_policy(name), 10_000).work == 8.5 + 2 * 0.5


def test_the_bound_of_a_session_by_hand():
    pytest.importorskip("scipy")
    import bound
    import simulator

    found = bound.Bound(chain(simulator, 3))
    assert found.work(0) == pytest.approx(3 * 8.5)
    assert found.work(10_000) == pytest.approx(8.5 + 2 * 0.5)
    # One of two chunks of y: half of what they cost is spent again.
    assert found.work(100) == pytest.approx(8.5 + 2 * (4 + 0.5))


@pytest.mark.parametrize("which", range(10))
def test_sessions_are_made_alike_and_no_policy_beats_the_bound(which):
    pytest.importorskip("scipy")
    import bound
    import generators
    import simulator

    make = generators.GENERATORS[which]
    session = make(1)
    assert session == make(1) and session != make(2)
    limit = 0.05 * simulator.working_set(session)
    least = bound.Bound(session).work(limit)
    plain = simulator.plain_work(session)
    for name in POLICIES:
        assert least - 1e-6 <= simulator.run(session, make_policy(name), limit).work <= plain


def test_what_is_in_a_variable_is_alive_and_then_it_is_not():
    import generators

    user = generators.User("test", 0)
    x = user.variables["x"] = user.map(user.source(), seconds=1, nbytes=100)
    user.compute(user.reduce(x))
    assert user.asks[-1].alive[x] is True and user.asks[-1].alive["source-1"] is False
    del user.variables["x"]
    user.compute(user.source())
    assert user.asks[-1].alive == {x: False}


def test_a_greedy_baseline_that_is_not_in_the_product():
    import baselines
    import generators
    import simulator

    session = generators.one_off_scans(0)
    limit = 0.05 * simulator.working_set(session)
    works = [
        simulator.run(session, policy, limit).work
        for policy in (GroupPolicy(), baselines.GDSF(), LRUPolicy())
    ]
    assert works == sorted(works)
