"""What is kept, how much of it, and what has to go for what."""

from __future__ import annotations

import random

import pytest

from cachingclient.ledger import REMEMBERED, Ledger
from cachingclient.policy import POLICIES, CacheyPolicy, make_policy


def make(limit: int = 1000) -> Ledger:
    return Ledger(CacheyPolicy(100), limit)


def filled(limit: int = 1000, **worth: float) -> Ledger:
    """A ledger with keys of a tenth of its limit, each a layer of its own."""
    ledger = make(limit)
    for key, paid in worth.items():
        assert ledger.offer(key, key, paid, limit // 10) == (True, [])
    return ledger


def check(ledger: Ledger) -> None:
    """What must be true at any time."""
    kept = ledger.kept
    assert ledger.currsize == sum(k.nbytes for k in kept.values())
    by_name: dict = {}
    for key, of_key in kept.items():
        by_name.setdefault(of_key.name, set()).add(key)
    assert dict(ledger.names) == by_name
    in_order = list(ledger.policy.least_valuable())
    assert len(in_order) == len(set(in_order)) and set(in_order) == set(kept)
    for name, keys in by_name.items():
        assert ledger.number(name) == len(keys)
        assert ledger.paid(name) == pytest.approx(sum(kept[k].paid for k in keys))


# -- offers ------------------------------------------------------------------------


def test_keeps_what_fits():
    ledger = make()
    assert ledger.offer("a", "layer", paid=1.0, nbytes=400, tasks=7) == (True, [])
    assert ledger.offer("b", "layer", paid=1.0, nbytes=600) == (True, [])
    assert "a" in ledger and "c" not in ledger
    assert ledger.currsize == 1000 and ledger.evictions == 0
    assert (ledger.kept["a"].tasks, ledger.kept["b"].tasks) == (7, 0)
    check(ledger)


def test_a_dearer_newcomer_takes_the_place_of_the_least_valuable():
    ledger = filled(a=3.0, b=1.0, c=2.0)
    assert ledger.offer("new", "new", paid=50.0, nbytes=800) == (True, ["b"])
    assert set(ledger.kept) == {"a", "c", "new"} and ledger.evictions == 1
    check(ledger)


def test_only_as_many_go_as_have_to():
    ledger = filled(**{f"k{i}": 1.0 + i for i in range(10)})
    assert ledger.offer("new", "new", paid=500.0, nbytes=250) == (True, ["k0", "k1", "k2"])
    check(ledger)


def test_a_cheaper_newcomer_is_refused_and_nothing_goes():
    ledger = filled(a=3.0, b=1.0)
    assert ledger.offer("new", "new", paid=0.001, nbytes=900) == (False, [])
    assert set(ledger.kept) == {"a", "b"} and ledger.evictions == 0
    check(ledger)


def test_nothing_goes_for_a_newcomer_that_would_not_fit_then():
    # The cheap one is worth less than the newcomer, the dear one is not: evicting only the
    # first would make no room, and lose it for nothing.
    ledger = make()
    ledger.offer("cheap", "cheap", paid=0.1, nbytes=100)
    ledger.offer("dear", "dear", paid=100.0, nbytes=900)
    assert ledger.offer("new", "new", paid=5.0, nbytes=500) == (False, [])
    assert set(ledger.kept) == {"cheap", "dear"} and ledger.evictions == 0
    check(ledger)


def test_a_newcomer_larger_than_the_limit_evicts_nothing():
    ledger = filled(a=0.001, b=0.002)
    assert ledger.offer("new", "new", paid=1e9, nbytes=1001) == (False, [])
    assert set(ledger.kept) == {"a", "b"}
    check(ledger)


def test_equals_do_not_push_each_other_out():
    # A scan over a large array would otherwise keep only its last blocks, for nobody.
    ledger = filled(**{f"k{i}": 1.0 for i in range(10)})
    before = set(ledger.kept)
    for i in range(20):
        assert ledger.offer(f"new{i}", "new", paid=1.0, nbytes=100) == (False, [])
    assert set(ledger.kept) == before
    check(ledger)


def test_equals_go_for_a_better_one_and_never_the_better_for_an_equal():
    ledger = filled(better=2.0, **{f"k{i}": 1.0 for i in range(9)})
    ok, victims = ledger.offer("new", "new", paid=1.5, nbytes=100)
    assert ok and victims == ["k0"]
    assert ledger.offer("newer", "new", paid=1.0, nbytes=100) == (False, [])
    assert "better" in ledger and "new" in ledger
    check(ledger)


def test_a_newcomer_of_no_worth_pushes_nothing_out():
    ledger = filled(**{f"k{i}": 0.0 for i in range(10)})
    assert ledger.offer("new", "new", paid=0.0, nbytes=100) == (False, [])
    check(ledger)


def test_where_nothing_may_go_only_what_fits_is_kept():
    ledger = filled(a=0.001)
    assert ledger.offer("fits", "x", 1.0, 800, may_evict=False) == (True, [])
    assert ledger.offer("does not", "x", 1e6, 200, may_evict=False) == (False, [])
    assert set(ledger.kept) == {"a", "fits"} and ledger.evictions == 0
    check(ledger)


def test_a_key_offered_again_counts_once_and_as_it_is_now():
    ledger = make()
    ledger.offer("a", "old", paid=1.0, nbytes=700)
    ledger.hit(["a"])
    assert ledger.offer("a", "new", paid=2.0, nbytes=300) == (True, [])
    kept = ledger.kept["a"]
    assert (kept.name, kept.nbytes, kept.paid, kept.hits) == ("new", 300, 2.0, 0)
    assert ledger.currsize == 300 and ledger.number("old") == 0 and ledger.evictions == 0
    check(ledger)


def test_a_key_offered_again_that_is_refused_is_kept_no_more():
    # Its old size and worth are no longer true.
    ledger = filled(a=1.0)
    assert ledger.offer("a", "a", paid=1.0, nbytes=2000) == (False, [])
    assert "a" not in ledger and ledger.currsize == 0
    check(ledger)


def test_nothing_is_kept_within_no_limit():
    ledger = make(limit=0)
    assert ledger.offer("a", "a", paid=1.0, nbytes=1) == (False, [])
    check(ledger)


def test_keys_of_no_bytes_need_no_room():
    ledger = filled(**{f"k{i}": 1.0 for i in range(10)})
    assert ledger.offer("nothing", "n", paid=0.5, nbytes=0) == (True, [])
    assert ledger.currsize == 1000
    check(ledger)


# -- limits ------------------------------------------------------------------------


def test_a_smaller_limit_lets_the_least_valuable_go():
    ledger = filled(a=3.0, b=1.0, c=2.0, d=4.0)
    assert ledger.resize(250) == ["b", "c"]
    assert set(ledger.kept) == {"a", "d"}
    assert (ledger.limit, ledger.evictions) == (250, 2)
    check(ledger)


def test_a_larger_limit_lets_nothing_go():
    ledger = filled(a=3.0, b=1.0)
    assert ledger.resize(10**9) == []
    assert ledger.offer("new", "new", 0.1, 10**8) == (True, [])
    check(ledger)


def test_no_limit_at_all_empties():
    ledger = filled(a=3.0, b=1.0)
    assert set(ledger.resize(0)) == {"a", "b"}
    assert ledger.currsize == 0 and not ledger.names
    check(ledger)


def test_over_limit_is_nothing_within_the_limit():
    ledger = filled(**{f"k{i}": 1.0 for i in range(10)})
    assert ledger.over_limit() == [] and ledger.evictions == 0


# -- counters ----------------------------------------------------------------------


def test_hits_are_counted_with_the_seconds_that_they_saved():
    ledger = filled(a=3.0, b=1.5)
    ledger.hit(["a", "b"])
    ledger.hit(["a"])
    ledger.hit([])
    assert (ledger.hits, ledger.saved) == (3, 7.5)
    assert (ledger.kept["a"].hits, ledger.kept["b"].hits) == (2, 1)


def test_hits_make_more_valuable():
    ledger = filled(a=1.0, b=1.0)
    ledger.hit(["a"])
    assert ledger.resize(100) == ["b"]


def test_a_hit_on_what_is_not_kept_is_an_error():
    with pytest.raises(KeyError):
        filled(a=1.0).hit(["b"])


def test_what_runs_again_is_counted_as_recomputed():
    ledger = make()
    ledger.ran("a", 2.0)
    ledger.ran("b", 3.0)
    assert (ledger.misses, ledger.recomputed) == (2, 0)
    ledger.ran("a", 2.5)
    ledger.ran("a", 1.0)
    assert (ledger.misses, ledger.recomputed) == (4, 3.5)


def test_recomputation_is_told_after_an_eviction_too():
    ledger = filled(a=1.0)
    ledger.ran("a", 1.0)
    ledger.resize(0)
    ledger.ran("a", 1.0)
    assert ledger.recomputed == 1.0


def test_what_ran_is_remembered_within_bounds_and_the_oldest_goes():
    ledger = make()
    ledger.ran("old", 1.0)
    ledger.ran("asked again", 1.0)
    for times in range(1, 5):
        for i in range(REMEMBERED // 2):
            ledger.ran((times, i), 1.0)
        ledger.ran("asked again", 1.0)
        assert ledger.recomputed == times
    ledger.ran("old", 1.0)
    assert ledger.recomputed == times


# -- looking up --------------------------------------------------------------------


def layers() -> Ledger:
    ledger = make()
    for name in ("sum-1", "sum-2", "mean-1"):
        for i in range(2):
            ledger.offer((name, i), name, paid=1.0, nbytes=10)
    return ledger


def test_matching_finds_layers_by_the_beginning_of_their_name():
    ledger = layers()
    assert set(ledger.matching("sum")) == {(f"sum-{i}", j) for i in (1, 2) for j in (0, 1)}
    assert set(ledger.matching("sum-2")) == {("sum-2", 0), ("sum-2", 1)}
    assert ledger.matching("um") == []
    assert set(ledger.matching()) == set(ledger.matching("")) == set(ledger.kept)


def test_of_names_finds_whole_layers():
    ledger = layers()
    assert set(ledger.of_names(["sum-1", "stranger"])) == {("sum-1", 0), ("sum-1", 1)}
    assert ledger.of_names(["sum"]) == []
    check(ledger)  # asking for strangers must leave no entries


def test_asking_for_unknown_layers_leaves_no_trace():
    ledger = layers()
    assert ledger.number("stranger") == 0 and ledger.paid("stranger") == 0
    ledger.forget("stranger")
    check(ledger)


def test_paid_is_the_sum_over_the_kept_keys_of_a_layer():
    ledger = layers()
    assert ledger.paid("sum-1") == 2.0
    ledger.forget(("sum-1", 0))
    assert ledger.paid("sum-1") == 1.0
    assert ledger.number("sum-1") == 1


def test_forgetting_is_no_eviction():
    ledger = layers()
    ledger.forget(("sum-1", 0))
    ledger.forget(("sum-1", 0))
    assert ledger.evictions == 0 and ledger.currsize == 50
    check(ledger)


# -- anything ----------------------------------------------------------------------


def brute_force(ledger: Ledger, name: str, paid: float, nbytes: int) -> list | None:
    """What goes for a newcomer, found by looking at all keys; None: it is not kept."""
    if nbytes > ledger.limit:
        return None
    worth = ledger.policy.estimate(name, paid, nbytes)
    missing = ledger.currsize + nbytes - ledger.limit
    victims = []
    for other in ledger.policy.ranked(ledger.kept):
        if missing <= 0:
            break
        if ledger.policy.score(other) < worth and ledger.kept[other].name not in ledger.pinned:
            victims.append(other)
            missing -= ledger.kept[other].nbytes
    return None if missing > 0 else victims


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("turn", range(4))
def test_random_events(turn, policy):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    ledger = Ledger(make_policy(policy, 10), limit=rng.randrange(1, 5000))
    ledger.pinned = {"n4"}
    evictions, now, request = 0, 0.0, 0
    for _ in range(600):
        event = rng.random()
        key = f"n{rng.randrange(5)}", rng.randrange(12)
        if event < 0.6 and key[0] != "n4" or event < 0.1:
            paid, nbytes = rng.choice([0, rng.uniform(0, 10)]), rng.choice([0, rng.randrange(1500)])
            may_evict = rng.random() < 0.8
            alive, parts = rng.choice([None, True, False]), rng.choice([0, 0, 5])
            ledger.forget(key)
            before = set(ledger.kept)
            # It is told of now, so that what it is worth can be asked for, and not again.
            ledger.policy.computed(key[0], paid, nbytes, request, alive, parts)
            ledger.policy.computed = lambda *args: None
            want = brute_force(ledger, key[0], paid, nbytes)
            ok, victims = ledger.offer(
                key, key[0], paid, nbytes, 0, may_evict, alive, request=request, parts=parts
            )
            del ledger.policy.computed
            evictions += len(victims)
            if key[0] != "n4" and may_evict:
                assert (ok, victims) == (want is not None, want or [])
            assert ok is (key in ledger)
            assert set(ledger.kept) - {key} == before - set(victims)
            assert len(set(victims)) == len(victims) and set(victims) <= before
            assert not any(name == "n4" for name, _ in victims)
            assert not victims or (ok and may_evict)
            assert ok is False or ledger.currsize <= ledger.limit
        elif event < 0.75 and ledger.kept:
            now += rng.choice([0, 1, 1000])
            request += 1
            ledger.policy.request(now)
            for name in ("n0", "n1"):
                ledger.policy.living(name, rng.choice([None, True, False]))
            ledger.hit(rng.sample(sorted(ledger.kept), rng.randrange(len(ledger.kept))), request)
        elif event < 0.85:
            ledger.forget(key)
        elif event < 0.9:
            some = [k for k in sorted(ledger.kept) if rng.random() < 0.5]
            need = rng.uniform(0, 2000)
            nbytes_of = {k: ledger.kept[k].nbytes for k in some}
            gone = ledger.relieve(some, need)
            evictions += len(gone)
            assert set(gone) <= set(some)
            assert sum(nbytes_of[k] for k in gone) >= min(need, sum(nbytes_of.values()))
        else:
            evictions += len(ledger.resize(rng.randrange(5000)))
            unpinned = [k for k in ledger.kept if k[0] != "n4"]
            assert ledger.currsize <= ledger.limit or not unpinned
        assert ledger.evictions == evictions
        check(ledger)


@pytest.mark.parametrize("old", sorted(POLICIES))
@pytest.mark.parametrize("new", sorted(POLICIES))
def test_a_successor_goes_on(old, new):
    ledger, successor = Ledger(make_policy(old), 1000), Ledger(make_policy(new), 1000)
    ledger.policy.request(1.0)
    for name, paid in {"popular": 1.0, "cheap": 0.5, "dear": 50.0}.items():
        ledger.offer(name, name, paid, 200, request=1)
    for i in range(5):
        ledger.policy.request(10.0 + i)
        ledger.hit(["popular"], request=2 + i)
    successor.succeed(ledger)
    check(successor)
    assert (successor.currsize, successor.hits) == (600, 5)
    if old == new or "lru" not in (old, new):
        assert list(successor.policy.least_valuable()) == list(ledger.policy.least_valuable())
    successor.policy.request(20.0)
    successor.hit(["cheap"], request=7)
    assert len(successor.resize(400)) == 1
    check(successor)


# -- places ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_goes_for_a_newcomer_is_on_its_worker(policy):
    ledger = Ledger(make_policy(policy), 10_000)
    ledger.resize(10_000, {"a": 1000, "b": 1000})
    for i in range(20):
        where = ["a"] if i < 10 else ["b"]
        assert ledger.offer(i, f"layer-{i}", 1.0 + i % 10, 100, where=where)[0]
    ok, victims = ledger.offer("new", "new", 99.0, 150, where=["b"])
    assert ok and victims == [10, 11]
    check(ledger)


# -- scans -------------------------------------------------------------------------


def scan(ledger: Ledger, names: list, passes: int, seconds: float = 20.0) -> float:
    """Hit rate of passes over chunks of 100 bytes, after the first; seconds between requests."""
    hits = asked = request = 0
    for turn in range(passes):
        for i, name in enumerate(names):
            request += 1
            ledger.policy.request(seconds * request)
            asked += bool(turn)
            if (name, i) in ledger:
                hits += bool(turn)
                ledger.hit([(name, i)], request)
            else:
                ledger.offer((name, i), name, 1.0, 100, request=request)
    return hits / asked


@pytest.mark.parametrize("layers, seconds", [(1, 0.0), (1, 20.0), (1, 3600.0), (110, 0.1)])
def test_a_cyclic_scan_of_a_little_too_much_hits(layers, seconds):
    names = [f"layer-{i % layers}" for i in range(110)]
    assert scan(Ledger(make_policy("group"), 100 * 100), names, 10, seconds) >= 0.6
    assert scan(Ledger(make_policy("lru"), 100 * 100), names, 10, seconds) == 0


def test_a_pass_over_what_does_not_fit_does_not_flush_what_is_useful():
    ledger = Ledger(make_policy("group"), 100 * 100)
    useful = [f"useful-{i % 3}" for i in range(60)]
    assert scan(ledger, useful, 3) == 1
    before = set(ledger.kept)
    ledger.policy.request(20.0 * 181)
    for i in range(1000):
        ledger.offer(("scan", i), "scan", 1.0, 100, request=1000)
    assert before <= set(ledger.kept)
    assert ledger.number("scan") == 40


def caught(chunks: int) -> float:
    """Share of seconds that need not be spent, of a session cut into so many chunks a layer."""
    ledger, rng = Ledger(make_policy("group"), 100_000_000), random.Random(3)
    saved = spent = 0.0
    layers = [(f"layer-{i}", rng.uniform(1, 100), rng.uniform(1e6, 6e7)) for i in range(12)]
    for request in range(150):
        ledger.policy.request(20.0 * request)
        name, seconds, nbytes = layers[min(rng.randrange(12), rng.randrange(12))]
        there = [(name, i) for i in range(chunks) if (name, i) in ledger]
        ledger.hit(there, request)
        saved += seconds * len(there) / chunks
        for i in range(chunks):
            if (name, i) not in ledger:
                spent += seconds / chunks
                ledger.offer(
                    (name, i), name, seconds / chunks, int(nbytes / chunks), 0, request=request
                )
    return saved / (saved + spent)


def test_a_session_cut_into_more_chunks_is_caught_as_well():
    assert caught(40) == pytest.approx(caught(1), abs=0.05)
    assert caught(400) == pytest.approx(caught(40), abs=0.05)
    assert caught(40) > 0.5
