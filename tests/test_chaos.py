"""Sessions in which workers are killed and clients come and go: nobody may notice.

A seed that fails is replayed by

    PYTHONPATH=.:tests python -m chaos --seed 3

which also plays it three times with plain clients and says whose fault it is. More of them, with
kills by the clock: `benchmarks/chaos.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import distributed
import helpers
import pytest
from chaos import asks, playing
from chaos.questions import QUESTIONS, equal
from chaos.steps import ASKS, EVENTS, Step, draw

ROOT = Path(__file__).parent.parent
SEED = 1
STEPS = 300


def session(*options):
    """Play in a process of its own: what hangs ends with it, whatever it holds on to."""
    found = subprocess.run(
        [sys.executable, "-m", "chaos", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    return found.returncode, found.stdout


@pytest.mark.timeout(1000)
def test_session():
    status, said = session("--seed", str(SEED), "--steps", str(STEPS))
    assert status == 0, said


def test_everything_happens_in_a_session():
    steps = draw(SEED, STEPS)
    assert len(steps) == STEPS
    assert {s.act for s in steps} == {*ASKS, *EVENTS, "empty", "restart"}
    assert {s.kind for s in steps} >= set(QUESTIONS)
    assert all(callable(playing.act_of(s.act)) for s in steps)


def test_the_same_seed_draws_the_same_session():
    assert draw(3, 50) == draw(3, 50) != draw(4, 50)


@pytest.fixture(scope="module")
def plain():
    """A client for what needs one: some shuffles do."""
    with distributed.Client(**helpers.INPROC) as client:
        yield client


@pytest.mark.parametrize("kind", QUESTIONS)
def test_what_is_known_is_what_dask_computes(plain, kind):
    for n in range(2):
        for m in range(len(QUESTIONS[kind].asks)):
            lazy, known = QUESTIONS[kind].ask(QUESTIONS[kind].make(n), n, m)
            assert equal(lazy.compute(), known)
            other = QUESTIONS[kind].known(n + 1)
            assert not equal(QUESTIONS[kind].known(n), other)


# -- that it would notice ------------------------------------------------------------------


class Idle:
    """A stage on which nothing happens."""


STEP = Step("compute", "blocks", 0, 0, 0)


def outcome_of(monkeypatch, act, messages=()):
    monkeypatch.setattr(asks, "compute", act)
    outcome = playing.Outcome()
    outcome.error = playing.attempt(Idle(), STEP, list(messages), outcome, seconds=0.05)
    return outcome


def test_what_works_is_no_failure(monkeypatch):
    assert outcome_of(monkeypatch, lambda stage, step: None).error == ""


def test_wrong_answers_are_noticed(monkeypatch):
    outcome = outcome_of(monkeypatch, lambda stage, step: asks.check(4, 5))
    assert outcome.sort == "chaos.asks.Wrong"
    assert "4 in place of 5" in outcome.error


def test_hanging_is_noticed(monkeypatch):
    def hang(stage, step):
        with contextlib.suppress(Exception):
            threading.Event().wait(60)

    assert outcome_of(monkeypatch, hang).sort == "hangs"


def test_errors_that_are_swallowed_are_noticed(monkeypatch):
    outcome = outcome_of(monkeypatch, lambda stage, step: None, ["The cache is switched off"])
    assert "switched off" in outcome.error


def test_our_errors_and_impossible_states_are_heard():
    with playing.errors() as messages:
        logging.getLogger("distributed.worker.cachingclient").error("ours")
        logging.getLogger("distributed.scheduler").error("somebody's")
        try:
            raise AssertionError("impossible")
        except AssertionError:
            logging.getLogger("distributed.core").exception("handler")
    assert [m.splitlines()[0] for m in messages] == ["ours", "handler"]


def test_a_task_that_kills_its_worker(tmp_path):
    code = f"from chaos.tasks import fatal\nfor _ in range(5): fatal(1, '{tmp_path}/n', 3)"
    for expected in (-signal.SIGKILL, 0):
        found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests")
        assert found.returncode == expected
    assert (tmp_path / "n").stat().st_size == 3 + 5
