"""What a result is worth: a contract for each policy, and what cachey's score is corrected for."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import pytest

from cachingclient.policy import KEY_OVERHEAD, CacheyPolicy, GroupPolicy, LRUPolicy, make_policy
from cachingclient.policy.cachey import LARGEST_BASE
from cachingclient.policy.group import BROKEN, DEAD, FIRST, LARGEST_DECAY, MARGIN, PAST, REMEMBERED

#: Seconds between two requests.
STEP = 20.0


def put(policy, key, paid: float, nbytes: int) -> None:
    """Keep a key that was computed, and is a layer of its own."""
    policy.computed(str(key), paid, nbytes)
    policy.put(key, str(key), paid, nbytes)


def later(policy) -> None:
    """A graph is submitted, some time after the last one."""
    policy.now = getattr(policy, "now", 0.0) + STEP
    policy.request(policy.now)


def order(policy) -> list:
    return list(policy.least_valuable())


def take(policy, n: int) -> list:
    """The first keys that may go, as a caller gets them that stops when it has enough."""
    found = []
    for key in policy.least_valuable():
        if len(found) == n:
            break
        found.append(key)
    return found


class PolicyTestMixin:
    """What a ledger needs of a policy; `make` gives a new one."""

    def make(self, halflife: int = 100):
        raise NotImplementedError

    def test_a_new_policy_has_nothing_to_offer(self):
        assert order(self.make()) == []

    def test_of_equals_the_one_asked_for_last_is_worth_more(self):
        policy = self.make()
        for key in "abc":
            put(policy, key, 1.0, 5000)
        for key in "bca":
            later(policy)
            policy.touch(key)
        assert order(policy) == ["b", "c", "a"]

    def test_unknown_keys_are_not_touched(self):
        policy = self.make()
        policy.touch("stranger")
        assert order(policy) == []
        with pytest.raises(KeyError):
            policy.score("stranger")

    def test_a_forgotten_key_is_gone(self):
        policy = self.make()
        for key in "abc":
            put(policy, key, 1.0, 5000)
        policy.forget("b")
        policy.forget("b")
        policy.forget("never seen")
        policy.touch("b")
        assert order(policy) == ["a", "c"]
        with pytest.raises(KeyError):
            policy.score("b")

    def test_reading_changes_nothing(self):
        policy = self.make()
        for i in range(20):
            put(policy, i, float(i), 5000)
        before = [policy.score(i) for i in range(20)]
        policy.estimate("a new one", 1.0, 1)
        order(policy)
        take(policy, 3)
        assert [policy.score(i) for i in range(20)] == before
        assert order(policy) == list(range(20))

    def test_stopping_half_way_loses_nothing(self):
        policy = self.make()
        for i in range(20):
            put(policy, i, float(i), 5000)
        for n in range(25):
            assert take(policy, n) == list(range(min(n, 20)))
        assert order(policy) == list(range(20))

    def test_an_error_half_way_loses_nothing(self):
        policy = self.make()
        for i in range(20):
            put(policy, i, float(i), 5000)
        with pytest.raises(ZeroDivisionError):
            for key in policy.least_valuable():
                1 / (7 - key)
        assert order(policy) == list(range(20))

    def test_keys_need_not_be_comparable(self):
        policy = self.make()
        keys = ["a", ("a", 0), 3, None, frozenset(), ("a", "b", 1)]
        for key in keys:
            put(policy, key, 1.0, 5000)
        assert order(policy) == keys

    def test_equals_go_in_the_order_in_which_they_came(self):
        policy = self.make()
        for i in range(50):
            put(policy, i, 1.0, 5000)
        assert order(policy) == list(range(50))

    def test_what_is_spared_is_left_out(self):
        policy = self.make()
        for i in range(6):
            put(policy, i, float(i + 1), 5000)
        assert list(policy.least_valuable(spare={"0", "3"})) == [1, 2, 4, 5]
        assert order(policy) == list(range(6))

    def test_some_keys_are_ranked_as_all_are(self):
        policy = self.make()
        for i in range(40):
            put(policy, i, float((i * 7) % 40 + 1), 5000)
            later(policy)
        want = order(policy)
        assert policy.ranked(want) == want
        some = {3, 5, 8, 13, 21}
        assert policy.ranked(some) == [k for k in want if k in some]
        assert policy.ranked([]) == []

    def test_a_successor_knows_what_its_predecessor_knew(self):
        old, new = self.make(), self.make()
        for i in range(5):
            put(old, i, float(i + 1), 5000)
        later(old)
        old.touch(0)
        if new.inherit(old):
            assert order(new) == order(old)
            assert [new.score(i) for i in range(5)] == [old.score(i) for i in range(5)]

    def test_number_of_keys(self):
        policy = self.make()
        for i in range(5):
            put(policy, i, 1.0, 5000)
        put(policy, 3, 1.0, 5000)
        policy.forget(4)
        assert len(policy) == 4 and "4 keys" in repr(policy)


class ValuingMixin(PolicyTestMixin):
    """The same of policies that weigh seconds against bytes."""

    def test_seconds_make_valuable(self):
        policy = self.make()
        for key, paid in {"dear": 10.0, "cheap": 0.1, "middle": 1.0}.items():
            put(policy, key, paid, 5000)
        assert order(policy) == ["cheap", "middle", "dear"]
        assert policy.score("cheap") < policy.score("middle") < policy.score("dear")

    def test_bytes_make_less_valuable(self):
        policy = self.make()
        for key, nbytes in {"small": 10**4, "large": 10**8, "middle": 10**6}.items():
            put(policy, key, 1.0, nbytes)
        assert order(policy) == ["large", "middle", "small"]

    def test_seconds_per_byte_decide(self):
        policy = self.make()
        put(policy, "dear but huge", 100.0, 10**9)
        put(policy, "cheap but small", 1.0, 10**5)
        assert order(policy) == ["dear but huge", "cheap but small"]

    def test_what_is_asked_for_often_is_worth_more(self):
        policy = self.make()
        for key in "abc":
            put(policy, key, 1.0, 5000)
        for _ in range(3):
            later(policy)
            policy.touch("a")
        later(policy)
        policy.touch("c")
        assert order(policy) == ["b", "c", "a"]

    def test_frequency_of_long_ago_fades(self):
        policy = self.make(halflife=10)
        put(policy, "once popular", 1.0, 5000)
        for _ in range(5):
            later(policy)
            policy.touch("once popular")
        for _ in range(100):
            later(policy)
        put(policy, "new", 1.0, 5000)
        assert order(policy) == ["once popular", "new"]

    def test_an_estimate_is_the_score_that_a_new_key_gets(self):
        policy = self.make()
        for _ in range(50):
            later(policy)
        estimate = policy.estimate("a new one", 2.0, 12345)
        put(policy, "a", 2.0, 12345)
        assert policy.score("a") == pytest.approx(estimate)

    def test_touches_within_a_request_do_not_age_others(self):
        # A large graph is one request, not thousands.
        policy = self.make()
        put(policy, "a", 1.0, 5000)
        for i in range(2000):
            put(policy, i, 1e-9, 5000)
            policy.touch(i)
        put(policy, "b", 1.0, 5000)
        assert policy.score("a") == pytest.approx(policy.score("b"))

    @pytest.mark.parametrize("nbytes", [0, -1, -KEY_OVERHEAD, -(10**9)])
    def test_no_bytes_are_no_trouble(self, nbytes):
        policy = self.make()
        put(policy, "nothing", 1.0, nbytes)
        put(policy, "worthless", 0.0, nbytes)
        assert order(policy) == ["worthless", "nothing"]
        assert math.isfinite(policy.score("nothing")) and policy.score("nothing") > 0
        assert policy.estimate("a new one", 1.0, nbytes) > 0


class TestCacheyPolicy(ValuingMixin):
    def make(self, halflife: int = 100) -> CacheyPolicy:
        return CacheyPolicy(halflife)

    def test_a_million_touches_stay_finite_and_ordered(self):
        # cachey's own base overflows after a million touches: then nothing is admitted.
        policy = self.make()
        put(policy, "touched", 1.0, 5000)
        put(policy, "not touched", 1.0, 5000)
        for _ in range(1_000_000):
            policy.touch("touched")
        assert math.isfinite(policy.score("touched"))
        assert order(policy) == ["not touched", "touched"]
        assert policy.estimate("a new one", 1.0, 5000) == pytest.approx(policy.score("not touched"))

    def test_a_million_requests_stay_finite_and_ordered(self):
        policy = self.make()
        put(policy, "old", 1.0, 5000)
        put(policy, "asked for", 1.0, 5000)
        for i in range(1_000_000):
            later(policy)
            if not i % 100:
                policy.touch("asked for")
        put(policy, "worthless", 0.0, 5000)
        put(policy, "new", 1.0, 5000)
        scores = [policy.score(key) for key in ("old", "asked for", "new")]
        assert all(map(math.isfinite, scores)) and scores[1] > 0
        assert order(policy)[-1] == "asked for" or order(policy)[-1] == "new"
        assert policy.score("worthless") == 0
        assert policy.estimate("a new one", 1.0, 5000) == pytest.approx(policy.score("new"))
        assert policy._scorer._base <= LARGEST_BASE * 2

    def test_a_request_counts_half_after_the_halflife(self):
        # As cachey approximates it: (1 + log(2) / n) ** n is 2 for large n.
        policy = self.make(halflife=1000)
        put(policy, "a", 1.0, 5000)
        for _ in range(1000):
            later(policy)
        assert policy.score("a") / policy.estimate("a new one", 1.0, 5000) == pytest.approx(
            0.5, rel=1e-3
        )

    def test_scaling_down_changes_no_order(self):
        policy = self.make(halflife=1)
        steps = math.ceil(math.log(LARGEST_BASE) / math.log(policy._growth))
        for _ in range(steps - 20):
            later(policy)
        for i in range(10):
            put(policy, i, 1.0, 5000)
            later(policy)
        before = policy._scorer._base
        for _ in range(20):
            later(policy)
        assert policy._scorer._base < before
        assert order(policy) == list(range(10))
        policy.touch(0)
        assert order(policy) == [*range(1, 10), 0]

    def test_forgetting_drops_all_state(self):
        policy = self.make()
        for i in range(5000):
            put(policy, i, 1.0, 5000)
            policy.touch(i)
            policy.forget(i)
        put(policy, "last", 1.0, 5000)
        scorer = policy._scorer
        assert set(scorer.cost) == set(scorer.time) == {"last"}
        assert set(policy._scores) == set(policy._order) == {"last"}
        assert len(policy._heap) <= 64 + 4

    def test_touching_unknown_keys_leaves_no_trace(self):
        policy = self.make()
        policy.touch("stranger")
        assert not policy._scorer.cost and not policy._scorer.time

    def test_the_heap_is_bounded(self):
        policy = self.make()
        for i in range(10):
            put(policy, i, 1.0, 5000)
        for i in range(10_000):
            policy.touch(i % 10)
            assert len(policy._heap) <= 64 + 4 * 10

    def test_the_heap_is_bounded_while_keys_come_and_go(self):
        policy = self.make()
        for i in range(3000):
            put(policy, i, 1.0, 5000)
            policy.forget(i - 20)
            take(policy, 3)
            assert len(policy._heap) <= 64 + 4 * 21

    def test_a_key_weighs_at_least_what_it_costs_the_scheduler(self):
        policy = self.make()
        assert policy.estimate("a new one", 1.0, 0) == 1.0 / KEY_OVERHEAD

    def test_a_key_put_twice_counts_once(self):
        policy, once = self.make(), self.make()
        put(policy, "a", 9.0, 5000)
        put(policy, "a", 1.0, 5000)
        put(once, "a", 1.0, 5000)
        assert order(policy) == ["a"]
        assert policy.score("a") == once.score("a")

    def test_a_forgotten_key_comes_back_without_its_past(self):
        policy = self.make()
        put(policy, "a", 1.0, 5000)
        put(policy, "b", 1.0, 5000)
        for _ in range(10):
            policy.touch("a")
        policy.forget("a")
        put(policy, "a", 1.0, 5000)
        assert policy.score("a") == pytest.approx(policy.score("b"))

    @pytest.mark.parametrize("halflife", [2, 10, 100])
    def test_as_a_list_of_all_that_happened_would_have_it(self, halflife):
        # Sum over all requests, computed from scratch in logarithms: no scaling, no heap.
        seed = random.randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)
        policy, model, now = self.make(halflife), {}, 0
        growth = math.log1p(math.log(2) / halflife)
        for _ in range(2000):
            key, event = rng.randrange(30), rng.random()
            if event < 0.3:
                paid, nbytes = rng.uniform(0.01, 100), rng.randrange(10**6)
                put(policy, key, paid, nbytes)
                model[key] = paid / (nbytes + KEY_OVERHEAD), [now]
            elif event < 0.6:
                policy.touch(key)
                if key in model:
                    model[key][1].append(now)
            elif event < 0.8:
                for _ in range(4):
                    later(policy)
                now += 4
            elif event < 0.9:
                policy.forget(key)
                model.pop(key, None)
            else:
                take(policy, rng.randrange(5))
        want = {
            key: cost * sum(math.exp(growth * (t - now)) for t in times)
            for key, (cost, times) in model.items()
        }
        ratios = [policy.score(key) / want[key] for key in want]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))
        assert order(policy) == sorted(want, key=policy.score)


class TestLRUPolicy(PolicyTestMixin):
    def make(self, halflife: int = 100) -> LRUPolicy:
        return LRUPolicy()

    def test_seconds_count_for_nothing(self):
        policy = self.make()
        for key, paid in {"dear": 100.0, "cheap": 0.1}.items():
            put(policy, key, paid, 5000)
        policy.touch("cheap")
        assert order(policy) == ["dear", "cheap"]
        assert policy.estimate("new", 0.0, 10**9) > policy.score("cheap")


def keep(policy, name, n=4, paid=1.0, nbytes=9000, request=None, alive=None, parts=0) -> None:
    """Compute and keep the keys of a group."""
    for i in range(n):
        policy.computed(name, paid, nbytes, request, alive, parts)
        policy.put((name, i), name, paid, nbytes)


class TestGroupPolicy(ValuingMixin):
    def make(self, halflife: int = 100) -> GroupPolicy:
        return GroupPolicy(tau=halflife * STEP / math.log(2))

    def test_a_request_counts_half_after_its_halflife(self):
        policy = GroupPolicy(tau=600)
        policy.request(0.0)
        put(policy, "a", 1.0, 5000)
        policy.request(600 * math.log(2))
        assert policy.score("a") == pytest.approx(policy.estimate("new", 1.0, 5000) / 2)

    def test_it_fades_with_time_and_not_with_what_happens(self):
        busy, idle = GroupPolicy(), GroupPolicy()
        for policy, steps in ((busy, 1000), (idle, 1)):
            policy.request(0.0)
            put(policy, "a", 1.0, 5000)
            for i in range(1, steps + 1):
                policy.request(100.0 * i / steps)
                if policy is busy:
                    put(policy, i, 1e-9, 5000)
        assert busy.score("a") == pytest.approx(idle.score("a"))

    def test_keys_of_a_group_score_alike(self):
        policy = self.make()
        keep(policy, "a", paid=1.0, request=1)
        keep(policy, "b", paid=2.0, request=1)
        policy.touch(("a", 2), request=2)
        assert len({policy.score(("a", i)) for i in range(4)}) == 1
        assert policy.score(("a", 0)) == pytest.approx(policy.score(("b", 0)))

    def test_inside_a_group_the_longest_unneeded_goes_first(self):
        policy = self.make()
        keep(policy, "a", request=1)
        for i in (2, 0):
            policy.touch(("a", i), request=2)
        assert order(policy) == [("a", i) for i in (1, 3, 2, 0)]

    def test_a_request_counts_once_for_a_group_however_many_keys_it_needs(self):
        many, one = self.make(), self.make()
        for policy, n in ((many, 4), (one, 1)):
            keep(policy, "a", request=1)
            for i in range(n):
                policy.touch(("a", i), request=2)
        assert many.score(("a", 0)) == one.score(("a", 0))

    def test_an_older_request_that_overlaps_does_not_count_again(self):
        policy = self.make()
        keep(policy, "a", request=2)
        before = policy.score(("a", 0))
        policy.computed("a", 1.0, 9000, request=1)
        policy.touch(("a", 0), request=1)
        assert policy.score(("a", 0)) == before

    def test_what_was_evicted_is_remembered(self):
        policy = self.make()
        for request in range(5):
            policy.computed("popular", 1.0, 5000, request)
        policy.put("popular", "popular", 1.0, 5000)
        policy.forget("popular")
        policy.computed("popular", 1.0, 5000, request=6)
        assert policy.estimate("popular", 1.0, 5000) * MARGIN == pytest.approx(
            6 * policy.estimate("new", 1.0, 5000)
        )

    def test_what_nothing_alive_needs_is_worth_less_and_comes_back(self):
        policy = self.make()
        policy.living("a", True)  # nothing is known of it yet
        keep(policy, "a", request=1)
        before = policy.score(("a", 0))
        policy.living("a", False)
        assert policy.score(("a", 0)) == pytest.approx(before * DEAD)
        policy.living("a", True)
        assert policy.score(("a", 0)) == before
        policy.living("a", False)
        policy.living("a", None)
        assert policy.score(("a", 0)) == before

    def test_what_is_held_is_asked_for_again(self):
        """The first request for it counts more, where somebody tells what is held."""
        policy = self.make()
        keep(policy, "held", request=1, alive=True)
        assert policy.score(("held", 0)) == pytest.approx(FIRST * self.blind().score(("held", 0)))

    def blind(self):
        policy = self.make()
        keep(policy, "held", request=1)
        return policy

    def test_a_request_for_a_part_counts_as_much_less(self):
        policy = self.make()
        policy.living("other", True)
        for n in range(4):
            policy.computed("x", 1.0, 100, request=1, alive=True)
            policy.put(("x", n), "x", 1.0, 100)
        before = policy.score(("x", 0))
        policy.touch(("x", 0), request=2)
        assert policy.score(("x", 0)) == pytest.approx(before * (FIRST + 1 / 4) / FIRST)
        for n in range(1, 4):
            policy.touch(("x", n), request=2)
        assert policy.score(("x", 0)) == pytest.approx(before * (FIRST + 1) / FIRST)

    def test_unknown_is_not_dead(self):
        policy = self.make()
        policy.living("other", True)
        for name, alive in {"unknown": None, "alive": True, "dead": False}.items():
            keep(policy, name, request=1, alive=alive)
        scores = {name: policy.score((name, 0)) for name in ("unknown", "alive", "dead")}
        assert scores["unknown"] == scores["alive"] == pytest.approx(scores["dead"] / DEAD)

    def test_requests_fade_slower_as_soon_as_somebody_tells_what_is_alive(self):
        policies = GroupPolicy(), GroupPolicy()
        for policy in policies:
            policy.request(0.0)
            put(policy, "a", 1.0, 5000)
        policies[0].living("stranger", True)
        ratios = []
        for policy in policies:
            policy.request(100.0)
            ratios.append(policy.score("a") / policy.estimate("new", 1.0, 5000))
        assert ratios[0] > ratios[1]

    def test_half_a_shuffle_is_worth_little(self):
        policy = self.make()
        keep(policy, "shuffle", request=1, parts=4)
        whole = policy.score(("shuffle", 0))
        policy.forget(("shuffle", 0))
        assert policy.score(("shuffle", 1)) == pytest.approx(whole * BROKEN)
        policy.put(("shuffle", 0), "shuffle", 1.0, 9000)
        assert policy.score(("shuffle", 1)) == whole
        policy.lacks("shuffle")
        assert policy.score(("shuffle", 1)) == pytest.approx(whole * BROKEN)

    def test_half_of_anything_else_is_worth_half(self):
        policy = self.make()
        keep(policy, "a", request=1)
        before = policy.score(("a", 1))
        policy.forget(("a", 0))
        policy.lacks("a")
        assert policy.score(("a", 1)) == before

    def test_what_a_window_leaves_behind_goes_before_what_is_in_it(self):
        policy = self.make()
        for request in range(10):
            policy.computed("days", 1.0, 9000, request)
            policy.put(("days", request + 3), "days", 1.0, 9000)
            for i in range(3):
                policy.touch(("days", request + i), request)
        assert order(policy)[0] == ("days", 3)
        assert policy.score(("days", 3)) == pytest.approx(PAST * policy.score(("days", 12)))
        policy.touch(("days", 3), request=10)
        assert policy.score(("days", 3)) == policy.score(("days", 12))

    def test_of_what_comes_round_nothing_is_past(self):
        policy = self.make()
        keep(policy, "all", n=20, request=0)
        for request in range(1, 200):
            policy.touch(("all", request % 20), request)
        assert len({policy.score(("all", i)) for i in range(20)}) == 1

    def test_a_year_of_requests_stays_finite_and_ordered(self):
        policy = GroupPolicy(tau=10.0)
        put(policy, "old", 1.0, 5000)
        for day in range(365):
            policy.request(day * 86400.0)
            put(policy, "asked for", 1.0, 5000)
        put(policy, "new", 1.0, 5000)
        assert policy.score("old") < 1e-100 < policy.score("asked for")
        assert all(math.isfinite(policy.score(k)) for k in order(policy))
        assert order(policy)[0] == "old"
        assert policy._weight <= math.exp(LARGEST_DECAY)

    def test_a_clock_that_is_set_back_ages_nothing(self):
        policy = GroupPolicy()
        policy.request(1000.0)
        put(policy, "a", 1.0, 5000)
        before = policy.score("a")
        policy.request(0.0)
        assert policy.score("a") == before

    def test_state_is_bounded(self):
        policy = self.make()
        keep(policy, "kept", n=50)
        for i in range(3 * REMEMBERED):
            policy.computed(f"passing {i}", 1.0, 5000)
        assert len(policy._groups) <= REMEMBERED + 2
        for i in range(5000):
            policy.touch(("kept", i % 50))
            assert len(policy._heap) <= 64 + 8
        assert len(policy) == 50

    def test_more_groups_than_are_remembered_can_be_kept(self):
        policy = self.make()
        for i in range(REMEMBERED + 500):
            put(policy, i, 1.0, 5000)
        assert len(policy) == len(order(policy)) == REMEMBERED + 500

    def test_as_a_list_of_all_that_happened_would_have_it(self):
        seed = random.randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)
        tau, now, request = 300.0, 0.0, 0
        policy = GroupPolicy(tau)
        groups: dict = defaultdict(lambda: {"times": [], "last": -1, "run": [], "sizes": []})
        kept: set = set()
        for _ in range(3000):
            key, event = (rng.choice("abcdef"), rng.randrange(5)), rng.random()
            group = groups[key[0]]
            if event < 0.3:
                now += rng.expovariate(1 / 100)
                request += 1
                policy.request(now)
            elif event < 0.6:
                paid, nbytes = rng.uniform(0.01, 10), rng.randrange(10**6)
                if group["last"] < request:
                    group["times"].append(now)
                    group["last"], group["run"] = request, []
                group["run"].append(paid)
                group["sizes"].append(nbytes + KEY_OVERHEAD)
                # What is scored after each power of two is scored after all of them here.
                while len(group["run"]) & (len(group["run"]) - 1):
                    policy.computed(key[0], paid, nbytes, request)
                    group["run"].append(paid)
                    group["sizes"].append(nbytes + KEY_OVERHEAD)
                policy.computed(key[0], paid, nbytes, request)
                policy.put(key, key[0], paid, nbytes)
                kept.add(key)
            elif event < 0.8:
                policy.forget(key)
                kept.discard(key)
            elif key in kept:
                if group["last"] < request:
                    group["times"].append(now)
                    group["last"] = request
                policy.touch(key, request)
        for key in kept:
            group = groups[key[0]]
            requests = sum(math.exp((t - now) / tau) for t in group["times"])
            mean = sum(group["run"]) / len(group["run"])
            want = requests * mean / (sum(group["sizes"]) / len(group["sizes"]))
            ratio = policy.score(key) / want
            assert ratio == pytest.approx(1) or ratio == pytest.approx(PAST)
        assert set(order(policy)) == kept
        scores = [policy.score(key) for key in order(policy)]
        assert scores == sorted(scores)


@pytest.mark.parametrize("name", ["group", "cachey", "lru"])
def test_policies_by_their_names(name):
    policy = make_policy(name, 7)
    put(policy, "a", 1.0, 100)
    assert order(policy) == ["a"]
    assert type(policy).__name__.lower() == f"{name}policy"
