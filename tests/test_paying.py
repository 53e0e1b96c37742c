"""What was paid for a key: nothing twice, and only what its own request spent."""

from __future__ import annotations

import random

import pytest

from cachingclient.paying import Payments


def test_own_time_and_that_of_what_it_needs():
    payments = Payments()
    payments.submitted(["a", "b"])
    assert payments.ran("a", "a", 2.0) == 2.0
    assert payments.ran("b", "b", 1.0, [("a", 1)]) == 3.0


def test_what_is_shared_is_split():
    payments = Payments()
    payments.submitted(["a", "b", "c"])
    payments.ran("a", "a", 2.0)
    assert payments.ran("b", "b", 1.0, [("a", 2)]) == payments.ran("c", "c", 1.0, [("a", 2)]) == 2


def test_what_was_there_before_was_paid_for_before():
    payments = Payments()
    payments.submitted(["a"])
    payments.ran("a", "a", 9.0)
    payments.submitted(["b"])
    assert payments.ran("b", "b", 1.0, [("a", 1)]) == 1.0


def test_two_clients_that_overlap():
    # Both need a; b's own request began before all of a, that of c in the middle.
    payments = Payments()
    payments.submitted(["a", "b"])
    payments.ran(("a", 0), "a", 1.0)
    payments.submitted(["a", "c"])
    payments.ran(("a", 1), "a", 1.0)
    both = [(("a", 0), 2), (("a", 1), 2)]
    assert payments.ran("b", "b", 0.5, both) == 1.5
    assert payments.ran("c", "c", 0.5, both) == 1.0


def test_stacked_diamonds_cost_what_was_spent():
    payments = Payments()
    payments.submitted(["x", "left", "right"])
    payments.ran(("x", 0), "x", 1.0)
    for i in range(20):
        for side in ("left", "right"):
            payments.ran((side, i), side, 0.5, [(("x", i), 2)])
        paid = payments.ran(("x", i + 1), "x", 0.0, [(("left", i), 1), (("right", i), 1)])
        assert paid == pytest.approx(1.0 + i + 1)


def test_no_more_than_the_request_has_spent():
    # The scheduler does not know by how many the result of a task is shared any more.
    payments = Payments()
    payments.submitted(["x", "y"])
    payments.ran("x", "x", 1.0)
    for i in range(5):
        assert payments.ran(("y", i), "y", 0.0, [("x", 0), ("x", 0)]) == 1.0


def test_forgotten_keys_leave_nothing():
    payments = Payments()
    payments.submitted(["a"])
    payments.ran("a", "a", 1.0)
    payments.forgotten("a")
    payments.forgotten("a")
    assert not payments
    assert payments.ran("b", "a", 1.0, [("a", 1)]) == 1.0


def test_a_name_that_nobody_submitted():
    payments = Payments()
    assert payments.request("stranger") == 0
    assert payments.ran("stranger", "stranger", 1.0) == 1.0


def test_results_of_a_random_graph_cost_what_was_spent():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    payments = Payments()
    payments.submitted(["x"])
    needs = {i: sorted(set(rng.choices(range(i), k=3))) if i else [] for i in range(100)}
    sharers = {i: sum(i in of for of in needs.values()) for i in needs}
    seconds = {i: rng.random() for i in needs}
    paid = {
        i: payments.ran(i, "x", seconds[i], [(d, sharers[d]) for d in of])
        for i, of in needs.items()
    }
    results = [i for i, n in sharers.items() if not n]
    assert sum(paid[i] for i in results) == pytest.approx(sum(seconds.values()))
