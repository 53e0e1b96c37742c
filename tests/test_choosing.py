"""Barriers are set where they save more than they cost, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split

from cachingclient.graph.barriers import candidates, size_of
from cachingclient.graph.choosing import GUESSED, Candidates, Estimate, choose, merged
from cachingclient.graph.layers import graph_facts
from cachingclient.scheduler.durations import COUNTED, RECENT, Durations
from cachingclient.scheduler.overhead import LEAST, MOST, WINDOW, Overhead

PLENTY = 1e6


class Known:
    """What a scheduler has learnt: nothing, if nothing else is said."""

    def __init__(self, seen=(), pinned=(), costs=None, guesses=None, shares=None, overhead=0.004):
        self.seen, self.pinned = set(seen), set(pinned)
        self.costs, self.guesses, self.shares = costs or {}, guesses or {}, shares or {}
        self.task_overhead = overhead

    def was_seen(self, name):
        return name in self.seen

    def is_pinned(self, name):
        return name in self.pinned

    def estimate(self, name):
        if name in self.costs:
            return Estimate(self.costs[name], True)
        return Estimate(self.guesses[name], False) if name in self.guesses else None

    def share(self, name, nkeys):
        return self.shares.get(name, 1.0)


# -- which layers may get one ------------------------------------------------------


def user(block):
    return block + 1


def other(block):
    return block * 3


def abs_user(block):
    return abs(block)


def write_block(block):
    return block


def make(chunks: int = 5) -> da.Array:
    return da.ones((10, 10), chunks=chunks).map_blocks(user)


def chosen(collection, alive=None, affordable=PLENTY, known=Known()) -> list[str]:
    """Layers that get a barrier, by the beginning of their names; all are alive by default."""
    hlg = collection.__dask_graph__()
    living = {n for n in hlg.layers if alive is None or key_split(n) in alive}
    facts = graph_facts(hlg, ())
    found = candidates(hlg, facts, hlg.dependents, living)
    names = choose(
        replace(found, affordable=affordable),
        hlg.dependents,
        lambda name: size_of(hlg.layers[name]),
        facts.denied,
        known,
    )
    return sorted(map(key_split, names))


def test_a_users_function_that_is_alive_gets_a_barrier():
    assert chosen(make().sum(), ["user"]) == ["user"]


def test_what_is_not_alive_gets_none():
    assert chosen(make().sum(), []) == []


def test_dasks_own_work_gets_none():
    x = da.ones((10, 10), chunks=5)
    assert chosen((x + 1).T.reshape(100)[3:].sum()) == []


def test_what_stands_directly_on_a_users_function_gets_one():
    assert chosen((make() + 1).sum(), ["add"]) == ["add"]
    assert chosen((make() + 1 - 2).sum(), ["sub"]) == []


def test_on_a_users_function_that_gets_its_own_only_that_does():
    assert chosen((make() + 1).sum(), ["user", "add"]) == ["user"]


def test_through_layers_that_only_hand_on():
    parts = [da.from_delayed(dask.delayed(user, pure=True)(i), (4,), float) for i in range(2)]
    x = da.concatenate(parts)
    assert chosen((x + 1).sum(), ["concatenate"]) == ["concatenate"]


def test_outputs_get_none():
    assert chosen(make()) == []


def test_of_a_linear_chain_the_last_gets_one():
    x = da.ones((10, 10), chunks=5).map_blocks(user).map_blocks(other).map_blocks(abs_user)
    assert chosen(x.sum(), ["user", "other", "abs_user"]) == ["abs_user"]
    assert chosen(x.sum(), ["user", "other"]) == ["other"]
    assert chosen(x.sum(), ["user"]) == ["user"]


def test_both_sides_of_a_fork_get_one():
    x = make()
    both = x.map_blocks(other) + x.map_blocks(abs_user)
    assert chosen(both.sum()) == ["abs_user", "other", "user"]


def test_denied_layers_get_none():
    with dask.annotate(cache=False):
        x = make()
    assert chosen(x.sum(), ["user"]) == []
    assert chosen(da.ones(4, chunks=2).map_blocks(write_block).sum(), ["write_block"]) == []


def test_a_wish_is_enough():
    with dask.annotate(cache=True):
        x = da.ones((10, 10), chunks=5) + 1
    assert chosen(x.sum(), []) == ["add"]


def test_no_more_than_can_be_afforded():
    total = make(chunks=5).sum() + make(chunks=2).map_blocks(other).sum()
    names = ["other", "user"]
    assert chosen(total, names) == ["other", "user"]
    # The cheapest first, so that one too large takes nothing away from the others.
    assert chosen(total, names, affordable=10) == ["user"]
    assert chosen(total, names, affordable=3) == []


def test_loads_that_slices_are_pushed_into_get_none():
    with dask.annotate(cache=True):
        x = da.from_array(np.ones((10, 10)), chunks=5, lock=True)
    assert "array" not in chosen(x[:2].sum())
    assert "array" not in chosen(x[::2][:2].sum())
    assert "array" in chosen((x + 1).sum())


class Store:
    """Somebody's object to read from."""

    shape, dtype, ndim = (10, 10), np.dtype("f8"), 2

    def __getitem__(self, index):
        return np.ones(self.shape)[index]


def test_stores_get_none_and_what_is_read_of_them_does():
    x = da.from_array(Store(), chunks=5)
    held = ["original-array", "array", "getitem"]
    assert chosen(x.sum(), held) == ["array"]
    for question in (x[:2].sum(), x[:2], x[1:][:2].max()):
        assert chosen(question, held) == []


def test_slices_of_what_is_no_load_do():
    x = make()
    image = dask.delayed(user, pure=True)
    stack = da.stack([da.from_delayed(image(i), (4, 4), float) for i in range(2)])
    assert chosen(stack[0, 1].sum(), ["stack"]) == ["stack"]
    assert chosen(x[1:][:, :3].sum(), ["user"]) == ["user"]


# -- which of them get one ---------------------------------------------------------


LINE = {"a": {"b"}, "b": {"c"}, "c": {"end"}, "end": set()}
TEN = {"a": 10, "b": 10, "c": 10, "end": 2}


def line(known, denied=(), affordable=100, **sets):
    found = Candidates(affordable=affordable, **{k: frozenset(v) for k, v in sets.items()})
    return choose(found, LINE, TEN.__getitem__, denied, known)


def test_what_pays_must_be_alive_or_seen():
    slow = {"b": 1.0}
    assert line(Known(costs=slow)) == set()
    assert line(Known(costs=slow), alive="b") == {"b"}
    assert line(Known(costs=slow, seen="b")) == {"b"}


def test_seen_with_all_that_follows_is_no_frontier():
    slow = dict.fromkeys("abc", 1.0)
    assert line(Known(costs=slow, seen="abc")) == {"c"}
    assert line(Known(costs=slow, seen=["a", "b", "c", "end"])) == set()


def test_what_costs_more_than_it_saves():
    assert line(Known(costs={"b": 0.007}), alive="b") == set()
    assert line(Known(costs={"b": 0.009}), alive="b") == {"b"}
    assert line(Known(costs={"b": 0.009}, overhead=0.005), alive="b") == set()


def test_the_part_that_fits_the_limit_must_pay():
    known = Known(costs={"b": 0.1}, shares={"b": 0.1})
    assert line(known, alive="b") == {"b"}
    known = Known(costs={"b": 0.1}, shares={"b": 0.01})
    assert line(known, alive="b") == set()


def test_pinned_and_annotated_at_any_price():
    assert line(Known(pinned="b", costs={"b": 0.0})) == {"b"}
    assert line(Known(), wanted="a") == {"a"}
    assert line(Known(), wanted="a", affordable=0) == {"a"}


def test_what_was_measured_is_no_first_sight():
    every = dict.fromkeys("abc", 1.0)
    assert line(Known(costs=every), alive="abc", unknown="abc", affordable=0) == set("abc")
    assert line(Known(costs=dict.fromkeys("abc", 0.0)), alive="abc", unknown="abc") == set()


def test_first_sight():
    assert line(Known(), alive="abc", unknown="abc") == {"c"}
    assert line(Known(), alive="abc", unknown="ab") == {"b"}
    assert line(Known(), alive="a", unknown="abc") == {"a"}
    assert line(Known(), unknown="abc") == set()
    assert line(Known(seen="b"), unknown="b") == set()
    assert line(Known(), alive="b", unknown="b", affordable=9) == set()


def test_first_sight_before_a_measured_one():
    assert line(Known(costs={"c": 1.0}), alive="abc", unknown="abc") == {"c"}


def test_known_by_function_alone():
    guess = Known(guesses={"b": 1.0})
    assert line(guess, alive="b", unknown="b", affordable=9) == {"b"}
    assert line(guess, alive="b", unknown="b", affordable=9 / GUESSED) == set()
    # nothing of dask's own
    assert line(guess, alive="b") == set()
    assert line(Known(guesses={"b": 0.0}), alive="b", unknown="b") == set()


def test_blocked_and_denied_layers():
    slow = Known(costs=dict.fromkeys("abc", 1.0), pinned="a")
    assert line(slow, alive="abc", blocked="ab") == {"c"}
    assert line(slow, alive="abc", denied="ac") == {"b"}


def test_layers_whose_keys_cannot_be_protected():
    closed = Candidates(alive=frozenset("ab"), wanted=frozenset("b"))
    known = Known(costs={"a": 1.0})
    assert choose(closed, LINE, lambda name: 0, (), known) == set()


def test_what_is_asked_for_itself():
    known = Known(pinned=["end"])
    assert choose(Candidates(), LINE, lambda name: 2, (), known) == set()
    assert choose(Candidates(), LINE, lambda name: 1, (), known) == {"end"}


def test_barriers_switched_off():
    assert choose(merged([], 9), LINE, TEN.__getitem__, (), Known(pinned="abc")) == set()


def test_several_graphs_share_one_allowance():
    one = Candidates(alive=frozenset("a"), affordable=5)
    two = Candidates(unknown=frozenset("b"), wanted=frozenset("b"), affordable=5)
    both = merged([one, two], affordable=7)
    assert both == Candidates(frozenset(), *map(frozenset, "abb"), affordable=7)


# -- what is learnt ----------------------------------------------------------------


def test_a_layer_that_ran_by_itself():
    durations = Durations()
    for seconds in (1.0, 3.0):
        durations.ran("slow-1", seconds, nbytes=10)
    assert durations.estimate("slow-1") == Estimate(2.0, True)
    assert durations.nbytes("slow-1") == 10
    assert durations.nbytes("slow-2") is None


def test_a_fused_layer_costs_no_more_than_the_cheapest_it_is_in():
    durations = Durations()
    durations.consists({"slow-1": ["sum-1", "mean-1"], "add-1": ["sum-1"]})
    assert durations.estimate("slow-1") is None
    durations.ran("sum-1", 2.0)
    durations.ran("mean-1", 1.0)
    assert durations.estimate("slow-1") == Estimate(1.0, True)
    assert durations.estimate("add-1") == Estimate(2.0, True)
    assert durations.nbytes("slow-1") is None


def test_running_by_itself_says_more():
    durations = Durations()
    durations.consists({"slow-1": ["sum-1"]})
    durations.ran("sum-1", 2.0)
    durations.ran("slow-1", 0.5)
    assert durations.estimate("slow-1") == Estimate(0.5, True)


def test_another_layer_of_the_same_function():
    durations = Durations()
    durations.consists({"slow-1": ["sum-1"]})
    durations.ran("sum-1", 2.0)
    durations.ran("slow-2", 1.0)
    assert durations.estimate("slow-3") == Estimate(1.5, False)


def test_old_costs_fade():
    durations = Durations()
    durations.ran("slow-1", 1.0)
    for _ in range(5 * RECENT):
        durations.ran("slow-1", 0.0)
    estimate = durations.estimate("slow-1")
    assert estimate is not None and estimate.seconds < 0.02


def test_only_the_last_of_a_function_count():
    durations = Durations()
    durations.ran("slow-00", 100.0)
    for i in range(COUNTED):
        durations.ran(f"slow-1{i}", 1.0)
    assert durations.estimate("slow-99") == Estimate(1.0, False)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("cachingclient.scheduler.durations.REMEMBERED", 5)
    durations = Durations()
    for i in range(50):
        durations.consists({f"f{i}-0123": [f"sum-{i}"]})
        durations.ran(f"sum-{i}", 1.0)
        durations.ran(f"alone{i}-0", 1.0)
    assert durations.estimate("f49-0123") == Estimate(1.0, True)
    assert durations.estimate("f0-0123") is None
    assert all(len(table) <= 5 for table in vars(durations).values())


# -- what one more task costs ------------------------------------------------------


def ran(overhead, windows, each, busy=True, start=0.0):
    for i in range(windows * WINDOW + 1):
        overhead.ran(start + i * (0.01 + each) / 2, seconds=0.01, threads=2, busy=busy)


def test_threads_that_are_busy_lose_time_with_each_task():
    overhead = Overhead(0.004)
    ran(overhead, 3, each=0.002)
    assert overhead.seconds == pytest.approx(0.002)


def test_nothing_is_measured_while_there_is_little_to_do():
    overhead = Overhead(0.004)
    ran(overhead, 3, each=0.002, busy=False)
    assert overhead.seconds == 0.004


def test_windows_in_which_the_threads_waited_count_little():
    overhead = Overhead(0.004)
    for i, each in enumerate([0.03, 0.002, 0.04, 0.002, 0.03]):
        overhead.ran(0, 0, 2, busy=False)
        ran(overhead, 1, each, start=100.0 * i)
    assert overhead.seconds == pytest.approx(0.002)


def test_what_is_measured_is_kept_in_reason():
    overhead = Overhead(0.004)
    ran(overhead, 2, each=-0.002)
    assert overhead.seconds == LEAST
    overhead = Overhead(0.004)
    ran(overhead, 2, each=1.0)
    assert overhead.seconds == MOST
