"""What a result is worth: a contract for each policy, and what cachey's score is corrected for."""

from __future__ import annotations

import math
import random

import pytest

from cachingclient.policy import KEY_OVERHEAD, LARGEST_BASE, CacheyPolicy


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

    def test_seconds_make_valuable(self):
        policy = self.make()
        for key, paid in {"dear": 10.0, "cheap": 0.1, "middle": 1.0}.items():
            policy.put(key, paid, 5000)
        assert order(policy) == ["cheap", "middle", "dear"]
        assert policy.score("cheap") < policy.score("middle") < policy.score("dear")

    def test_bytes_make_less_valuable(self):
        policy = self.make()
        for key, nbytes in {"small": 10**4, "large": 10**8, "middle": 10**6}.items():
            policy.put(key, 1.0, nbytes)
        assert order(policy) == ["large", "middle", "small"]

    def test_seconds_per_byte_decide(self):
        policy = self.make()
        policy.put("dear but huge", 100.0, 10**9)
        policy.put("cheap but small", 1.0, 10**5)
        assert order(policy) == ["dear but huge", "cheap but small"]

    def test_what_is_asked_for_often_is_worth_more(self):
        policy = self.make()
        for key in "abc":
            policy.put(key, 1.0, 5000)
        for _ in range(3):
            policy.request(0)
            policy.touch("a")
        policy.request(0)
        policy.touch("c")
        assert order(policy) == ["b", "c", "a"]

    def test_of_equals_the_one_asked_for_last_is_worth_more(self):
        policy = self.make()
        for key in "abc":
            policy.put(key, 1.0, 5000)
        for key in "bca":
            policy.request(0)
            policy.touch(key)
        assert order(policy) == ["b", "c", "a"]

    def test_frequency_of_long_ago_fades(self):
        policy = self.make(halflife=10)
        policy.put("once popular", 1.0, 5000)
        for _ in range(5):
            policy.request(0)
            policy.touch("once popular")
        for _ in range(100):
            policy.request(0)
        policy.put("new", 1.0, 5000)
        assert order(policy) == ["once popular", "new"]

    def test_an_estimate_is_the_score_that_a_new_key_gets(self):
        policy = self.make()
        for _ in range(50):
            policy.request(0)
        estimate = policy.estimate(2.0, 12345)
        policy.put("a", 2.0, 12345)
        assert policy.score("a") == pytest.approx(estimate)

    def test_touches_within_a_request_do_not_age_others(self):
        # A large graph is one request, not thousands.
        policy = self.make()
        policy.put("a", 1.0, 5000)
        for i in range(2000):
            policy.put(i, 1e-9, 5000)
            policy.touch(i)
        policy.put("b", 1.0, 5000)
        assert policy.score("a") == pytest.approx(policy.score("b"))

    def test_unknown_keys_are_not_touched(self):
        policy = self.make()
        policy.touch("stranger")
        assert order(policy) == []
        with pytest.raises(KeyError):
            policy.score("stranger")

    def test_a_key_put_twice_counts_once(self):
        policy, once = self.make(), self.make()
        policy.put("a", 9.0, 5000)
        policy.put("a", 1.0, 5000)
        once.put("a", 1.0, 5000)
        assert order(policy) == ["a"]
        assert policy.score("a") == once.score("a")

    def test_a_forgotten_key_is_gone(self):
        policy = self.make()
        for key in "abc":
            policy.put(key, 1.0, 5000)
        policy.forget("b")
        policy.forget("b")
        policy.forget("never seen")
        policy.touch("b")
        assert order(policy) == ["a", "c"]
        with pytest.raises(KeyError):
            policy.score("b")

    def test_a_forgotten_key_comes_back_without_its_past(self):
        policy = self.make()
        policy.put("a", 1.0, 5000)
        policy.put("b", 1.0, 5000)
        for _ in range(10):
            policy.touch("a")
        policy.forget("a")
        policy.put("a", 1.0, 5000)
        assert policy.score("a") == pytest.approx(policy.score("b"))

    @pytest.mark.parametrize("nbytes", [0, -1, -KEY_OVERHEAD, -(10**9)])
    def test_no_bytes_are_no_trouble(self, nbytes):
        policy = self.make()
        policy.put("nothing", 1.0, nbytes)
        policy.put("worthless", 0.0, nbytes)
        assert order(policy) == ["worthless", "nothing"]
        assert math.isfinite(policy.score("nothing")) and policy.score("nothing") > 0
        assert policy.estimate(1.0, nbytes) > 0

    def test_reading_changes_nothing(self):
        policy = self.make()
        for i in range(20):
            policy.put(i, float(i), 5000)
        before = [policy.score(i) for i in range(20)]
        policy.estimate(1.0, 1)
        order(policy)
        take(policy, 3)
        assert [policy.score(i) for i in range(20)] == before
        assert order(policy) == list(range(20))

    def test_stopping_half_way_loses_nothing(self):
        policy = self.make()
        for i in range(20):
            policy.put(i, float(i), 5000)
        for n in range(25):
            assert take(policy, n) == list(range(min(n, 20)))
        assert order(policy) == list(range(20))

    def test_an_error_half_way_loses_nothing(self):
        policy = self.make()
        for i in range(20):
            policy.put(i, float(i), 5000)
        with pytest.raises(ZeroDivisionError):
            for key in policy.least_valuable():
                1 / (7 - key)
        assert order(policy) == list(range(20))

    def test_keys_need_not_be_comparable(self):
        policy = self.make()
        keys = ["a", ("a", 0), 3, None, frozenset(), ("a", "b", 1)]
        for key in keys:
            policy.put(key, 1.0, 5000)
        assert order(policy) == keys

    def test_equals_go_in_the_order_in_which_they_came(self):
        policy = self.make()
        for i in range(50):
            policy.put(i, 1.0, 5000)
        assert order(policy) == list(range(50))

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
                policy.put(key, paid, nbytes)
                model[key] = paid / (nbytes + KEY_OVERHEAD), [now]
            elif event < 0.6:
                policy.touch(key)
                if key in model:
                    model[key][1].append(now)
            elif event < 0.8:
                for _ in range(4):
                    policy.request(0)
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


class TestCacheyPolicy(PolicyTestMixin):
    def make(self, halflife: int = 100) -> CacheyPolicy:
        return CacheyPolicy(halflife)

    def test_a_million_touches_stay_finite_and_ordered(self):
        # cachey's own base overflows after a million touches: then nothing is admitted.
        policy = self.make()
        policy.put("touched", 1.0, 5000)
        policy.put("not touched", 1.0, 5000)
        for _ in range(1_000_000):
            policy.touch("touched")
        assert math.isfinite(policy.score("touched"))
        assert order(policy) == ["not touched", "touched"]
        assert policy.estimate(1.0, 5000) == pytest.approx(policy.score("not touched"))

    def test_a_million_requests_stay_finite_and_ordered(self):
        policy = self.make()
        policy.put("old", 1.0, 5000)
        policy.put("asked for", 1.0, 5000)
        for i in range(1_000_000):
            policy.request(0)
            if not i % 100:
                policy.touch("asked for")
        policy.put("worthless", 0.0, 5000)
        policy.put("new", 1.0, 5000)
        scores = [policy.score(key) for key in ("old", "asked for", "new")]
        assert all(map(math.isfinite, scores)) and scores[1] > 0
        assert order(policy)[-1] == "asked for" or order(policy)[-1] == "new"
        assert policy.score("worthless") == 0
        assert policy.estimate(1.0, 5000) == pytest.approx(policy.score("new"))
        assert policy._scorer._base <= LARGEST_BASE * 2

    def test_a_request_counts_half_after_the_halflife(self):
        # As cachey approximates it: (1 + log(2) / n) ** n is 2 for large n.
        policy = self.make(halflife=1000)
        policy.put("a", 1.0, 5000)
        for _ in range(1000):
            policy.request(0)
        assert policy.score("a") / policy.estimate(1.0, 5000) == pytest.approx(0.5, rel=1e-3)

    def test_scaling_down_changes_no_order(self):
        policy = self.make(halflife=1)
        steps = math.ceil(math.log(LARGEST_BASE) / math.log(policy._growth))
        for _ in range(steps - 20):
            policy.request(0)
        for i in range(10):
            policy.put(i, 1.0, 5000)
            policy.request(0)
        before = policy._scorer._base
        for _ in range(20):
            policy.request(0)
        assert policy._scorer._base < before
        assert order(policy) == list(range(10))
        policy.touch(0)
        assert order(policy) == [*range(1, 10), 0]

    def test_forgetting_drops_all_state(self):
        policy = self.make()
        for i in range(5000):
            policy.put(i, 1.0, 5000)
            policy.touch(i)
            policy.forget(i)
        policy.put("last", 1.0, 5000)
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
            policy.put(i, 1.0, 5000)
        for i in range(10_000):
            policy.touch(i % 10)
            assert len(policy._heap) <= 64 + 4 * 10

    def test_the_heap_is_bounded_while_keys_come_and_go(self):
        policy = self.make()
        for i in range(3000):
            policy.put(i, 1.0, 5000)
            policy.forget(i - 20)
            take(policy, 3)
            assert len(policy._heap) <= 64 + 4 * 21

    def test_a_key_weighs_at_least_what_it_costs_the_scheduler(self):
        policy = self.make()
        assert policy.estimate(1.0, 0) == 1.0 / KEY_OVERHEAD
