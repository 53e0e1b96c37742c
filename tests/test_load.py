"""What a worker's memory leaves for kept results: the decisions alone."""

from __future__ import annotations

import math

import pytest

from cachingclient.scheduler.load import AHEAD, FADING, Load, Sizes, Thresholds, thresholds_of

MB = 10**6


@pytest.fixture
def load():
    """A worker of 1000 MB whose process uses 200 MB when idle."""
    load = Load(Thresholds.of(1000 * MB, target=0.6, spill=0.7, pause=0.8), nthreads=1)
    load.read(process=200 * MB, managed=0, spilled=0, now=0)
    return load


def test_thresholds_lie_below_what_the_worker_acts_on():
    marks = Thresholds.of(1000, 0.6, 0.7, 0.8)
    assert (marks.managed, marks.process) == (550, 600)


@pytest.mark.parametrize(
    "target, spill, pause, managed, process",
    [
        (False, 0.7, 0.8, math.inf, 600),
        (0.6, False, 0.8, 550, 700),
        (0.6, 0.9, 0.8, 550, 700),
        (False, False, False, math.inf, math.inf),
    ],
)
def test_thresholds_that_are_switched_off(target, spill, pause, managed, process):
    marks = Thresholds.of(1000, target, spill, pause)
    assert (marks.managed, marks.process) == (managed, process)


def test_no_limit_no_thresholds():
    load = Load(thresholds_of({"target": 0.6, "spill": 0.7, "pause": 0.8}, None), 1)
    load.read(process=10**15, managed=0, spilled=0, now=0)
    assert load.excess(10**15, now=0) == 0


def test_enough_memory(load):
    assert load.excess(400 * MB, now=0) == 0


def test_process(load):
    assert load.excess(450 * MB, now=0) == 50 * MB


def test_target_is_what_counts_where_the_process_is_small(load):
    load.read(process=10 * MB, managed=0, spilled=0, now=0)
    load.read(process=10 * MB, managed=0, spilled=0, now=1000)
    assert load.excess(570 * MB, now=1000) == 20 * MB


def test_nothing_is_counted_twice_between_two_readings(load):
    """What is let go is missing from the scheduler's count at once, not from the last reading."""
    load.read(process=700 * MB, managed=500 * MB, spilled=0, now=1)
    assert load.excess(500 * MB, now=1) == 100 * MB
    assert load.excess(400 * MB, now=1) == 0


def test_memory_that_is_not_given_back(load):
    """Freed, but still the process's: the worker would spill, so it counts."""
    load.read(process=650 * MB, managed=100 * MB, spilled=0, now=1)
    assert load.excess(100 * MB, now=1) == 50 * MB


def test_process_of_several_workers_says_nothing(load):
    load.alone = False
    load.read(process=5000 * MB, managed=0, spilled=0, now=1)
    assert load.excess(500 * MB, now=1) == 0
    assert load.excess(600 * MB, now=1) == 50 * MB


def test_what_is_on_disk_is_not_in_memory(load):
    load.read(process=300 * MB, managed=800 * MB, spilled=700 * MB, now=1)
    assert load.unmanaged == 200 * MB
    assert load.excess(800 * MB, now=1) == 0


def test_readings_that_overlap_are_never_negative(load):
    load.read(process=100 * MB, managed=300 * MB, spilled=0, now=1)
    assert load.unmanaged == 0


def test_peaks_are_remembered_and_fade(load):
    load.read(process=600 * MB, managed=0, spilled=0, now=1)
    load.read(process=200 * MB, managed=0, spilled=0, now=2)
    assert load.remembered(1) == 600 * MB
    assert load.remembered(1 + FADING) == 400 * MB
    assert load.excess(250 * MB, now=1 + FADING) == 50 * MB
    assert load.remembered(1 + 30 * FADING) == pytest.approx(200 * MB, abs=1)


def test_lower_peaks_do_not_hide_higher_ones(load):
    load.read(process=600 * MB, managed=0, spilled=0, now=1)
    load.read(process=300 * MB, managed=0, spilled=0, now=2)
    assert load.remembered(2) > 550 * MB


def test_hidden_bytes_are_let_go_once(load):
    """Objects of which dask sees nothing: only the next reading tells that they are gone."""
    load.read(process=700 * MB, managed=0, spilled=0, now=1)
    assert load.excess(0, now=1) == 100 * MB
    load.gave(120 * MB)
    assert load.excess(0, now=1) == 0
    load.read(process=650 * MB, managed=0, spilled=0, now=2)
    assert load.excess(0, now=2) == 50 * MB


def test_what_comes(load):
    load.expect("a", 30 * MB)
    load.expect("b", 10 * MB)
    assert load.coming == 40 * MB
    load.arrived("a")
    load.arrived("a")
    load.arrived("never sent")
    assert load.coming == 10 * MB
    load.expect("b", 20 * MB)
    assert load.coming == 20 * MB
    assert load.excess(390 * MB, now=0) == 10 * MB


def test_not_everything_comes_at_once(load):
    for i in range(1000):
        load.expect(i, 10 * MB)
    assert load.coming == AHEAD * 10 * MB
    for i in range(1000):
        load.arrived(i)
    assert load.coming == 0


def test_tolerance(load):
    assert load.excess(450 * MB, now=0, tolerance=60 * MB) == 0
    assert load.excess(500 * MB, now=0, tolerance=60 * MB) == 100 * MB


def test_sizes_follow_what_is_seen():
    sizes = Sizes()
    assert sizes.expected("f", 5) == 5
    for _ in range(20):
        sizes.ran("f", 1000)
    assert sizes.expected("f", 5) == 1000
    for _ in range(20):
        sizes.ran("f", 0)
    assert sizes.expected("f", 5) < 10


def test_sizes_are_bounded(monkeypatch):
    monkeypatch.setattr(Sizes, "REMEMBERED", 3)
    sizes = Sizes()
    for i in range(10):
        sizes.ran(f"f{i}", 100)
    assert [i for i in range(10) if sizes.expected(f"f{i}", 0)] == [7, 8, 9]
