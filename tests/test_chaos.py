"""Sessions in which workers are killed and clients come and go: nobody may notice.

A seed that fails is replayed by

    PYTHONPATH=.:tests python -m chaos --seed 3

which also plays it three times with plain clients and says whose fault it is. More of them, with
kills by the clock: `benchmarks/chaos.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos import acts
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
    assert all(callable(getattr(acts, s.act)) for s in steps)


def test_the_same_seed_draws_the_same_session():
    assert draw(3, 50) == draw(3, 50) != draw(4, 50)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_what_is_known_is_what_dask_computes(kind):
    for n in range(2):
        for m in range(len(QUESTIONS[kind].asks)):
            lazy, known = QUESTIONS[kind].ask(QUESTIONS[kind].make(n), n, m)
            assert equal(lazy.compute(scheduler="sync"), known)
            other = QUESTIONS[kind].known(n + 1)
            assert not equal(QUESTIONS[kind].known(n), other)
