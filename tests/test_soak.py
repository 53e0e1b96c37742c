"""A few seconds of the soak; ten minutes of it: `benchmarks/soak.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import soak as soaking  # noqa: E402

SECONDS = 5


@pytest.mark.timeout(600)
def test_nothing_is_left():
    """In a process of its own: what others have left is none of its business."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--minutes", str(SECONDS / 60)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left: none" in done.stdout and "faults: none" in done.stdout


# -- that it would notice ------------------------------------------------------------------


def test_a_thread_that_is_left_is_noticed():
    before = soaking.anything()
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="forgotten-17")
    thread.start()
    try:
        assert (soaking.anything() - before)["thread forgotten-"] == 1
    finally:
        go.set()
        thread.join()
    assert not soaking.wait_empty(lambda: (soaking.anything() - before)["thread forgotten-"], 10)


def test_an_open_file_is_noticed(tmp_path):
    before = soaking.anything()
    with open(tmp_path / "open", "w"):
        found = soaking.anything() - before
        assert any(
            "open" in what and str(tmp_path.name).rstrip("0123456789") in what for what in found
        )


def test_a_wrong_answer_is_noticed():
    soak = soaking.Soak(0, 0)
    with soak.noting("compute"):
        soaking.check(4, 5)
    with soak.noting("compute"):
        soaking.check(5, 5)
    assert soak.faults == ["compute: Wrong: 4 in place of 5"]
    assert soak.acts["compute"] == 2


def test_what_stays_is_noticed():
    soak = soaking.Soak(0, 0)
    soak._left(lambda: ["x"], "task on the scheduler", 0.1)
    soak._left(lambda: [], "task on the scheduler", 0.1)
    assert soak.faults == ["1 x task on the scheduler, such as ['x']"]
