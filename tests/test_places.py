"""Where kept keys are, and what each worker may hold."""

from __future__ import annotations

import random

import pytest

from cachingclient.ledger import LIMIT, PRESSURE, Ledger
from cachingclient.places import Places
from cachingclient.policy import CacheyPolicy

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


@pytest.fixture
def ledger():
    ledger = Ledger(CacheyPolicy(100), 2000)
    ledger.resize(2000, {A: 1000, B: 1000})
    return ledger


def test_replicas_count_where_they_are():
    places = Places()
    places.add("x", 10, [A])
    places.came("x", B)
    places.came("x", B)
    assert (places.held(A), places.held(B)) == (10, 10)
    places.went("x", A)
    places.went("x", A)
    assert (places.held(A), places.held(B)) == (0, 10)
    assert dict(places.at(B)) == {"x": 10}
    places.forget("x")
    places.came("x", A)
    assert (places.held(A), places.held(B)) == (0, 0)
    assert not places.at(A)


def test_kept_again_with_another_size():
    places = Places()
    places.add("x", 10, [A, B])
    places.add("x", 30, [B])
    assert (places.held(A), places.held(B)) == (0, 30)


def test_moved():
    places = Places()
    places.add("x", 10, [A])
    places.add("y", 5, [B])
    places.moved(A, {"y", "not kept"})
    assert (places.held(A), places.held(B)) == (5, 5)


def test_sums_are_right_after_many_changes():
    rng = random.Random(1)
    places, truth = Places(), {}
    for _ in range(3000):
        key, address, nbytes = rng.randrange(20), rng.choice([A, B, C]), rng.randrange(100)
        what = rng.randrange(4)
        if what == 0:
            places.add(key, nbytes, [address])
            truth[key] = nbytes, {address}
        elif what == 1:
            places.came(key, address)
            if key in truth:
                truth[key][1].add(address)
        elif what == 2:
            places.went(key, address)
            if key in truth:
                truth[key][1].discard(address)
        else:
            places.forget(key)
            truth.pop(key, None)
        for address in (A, B, C):
            here = {k: n for k, (n, where) in truth.items() if address in where}
            assert dict(places.at(address)) == here
            assert places.held(address) == sum(here.values())


def test_share_makes_room_on_its_worker_alone(ledger):
    ledger.offer("cheap elsewhere", "n", paid=0.1, nbytes=900, where=[B])
    ledger.offer("cheap here", "n", paid=0.2, nbytes=400, where=[A])
    ledger.offer("dear here", "n", paid=9.0, nbytes=500, where=[A])
    assert ledger.offer("new", "n", paid=1.0, nbytes=200, where=[A]) == (True, ["cheap here"])
    assert ledger.places.held(A) == 700
    assert ledger.evicted == {LIMIT: 1} and ledger.evicted_bytes == {LIMIT: 400}


def test_a_small_part_is_sorted_in_place_of_all(ledger):
    ledger.resize(10**6, {A: 10**6, B: 1000})
    for i in range(100):
        ledger.offer(("a", i), "a", paid=0.001, nbytes=10, where=[A])
    for i in range(4):
        ledger.offer(("b", i), "b", paid=1.0 + i, nbytes=250, where=[B])
    assert ledger.offer("new", "n", paid=5.0, nbytes=300, where=[B]) == (True, [("b", 0), ("b", 1)])


def test_both_limits_are_kept_at_once(ledger):
    ledger.resize(1500, {A: 1000, B: 1000})
    ledger.offer("a", "n", paid=1.0, nbytes=800, where=[A])
    ledger.offer("b", "n", paid=2.0, nbytes=700, where=[B])
    assert ledger.offer("new", "n", paid=9.0, nbytes=500, where=[B]) == (True, ["b"])
    assert ledger.offer("newer", "n", paid=9.0, nbytes=500, where=[B]) == (True, ["a"])
    assert ledger.currsize == ledger.places.held(B) == 1000


def test_nothing_goes_for_what_cannot_fit(ledger):
    ledger.offer("a", "n", paid=1.0, nbytes=800, where=[A])
    assert ledger.offer("new", "n", paid=99.0, nbytes=1001, where=[A]) == (False, [])
    assert ledger.offer("new", "n", paid=0.001, nbytes=900, where=[A]) == (False, [])
    assert ledger.offer("new", "n", 99.0, 900, may_evict=False, where=[A]) == (False, [])
    assert set(ledger.kept) == {"a"} and not ledger.evicted


def test_a_replica_must_fit_on_each_of_its_workers(ledger):
    ledger.offer("a", "n", paid=9.0, nbytes=800, where=[B])
    assert ledger.offer("new", "n", paid=1.0, nbytes=300, where=[A, B]) == (False, [])


def test_workers_come_and_go(ledger):
    ledger.offer("a", "n", paid=1.0, nbytes=500, where=[A])
    ledger.offer("b", "n", paid=2.0, nbytes=400, where=[A])
    assert ledger.resize(2000, {A: 600, B: 700, C: 700}) == ["a"]
    assert ledger.places.held(A) == 400


def test_relief_takes_the_least_valuable_and_no_more(ledger):
    for i, paid in enumerate([3.0, 1.0, 2.0]):
        ledger.offer(i, "n", paid=paid, nbytes=100, where=[A])
    assert ledger.relieve(list(ledger.places.at(A)), 150) == [1, 2]
    assert ledger.evicted == {PRESSURE: 2} and ledger.evicted_bytes == {PRESSURE: 200}
    assert ledger.evictions == 2
    assert ledger.relieve([0], 0) == []
    assert set(ledger.kept) == {0}
