"""The client's memory of keys that are kept."""

from __future__ import annotations

from cachingclient.recent import RecentKeys


def test_knows_only_what_is_kept():
    recent = RecentKeys(10)
    recent.kept(["a", ("b", 0)])
    assert recent.knows(["a"]) and recent.knows([("b", 0), "a"])
    assert not recent.knows(["a", "c"])


def test_no_keys_are_not_known():
    # An empty graph for nothing would be an answer to no question.
    recent = RecentKeys(10)
    recent.kept(["a"])
    assert recent.knows([]) is False


def test_forgets_what_is_dropped():
    recent = RecentKeys(10)
    recent.kept(["a", "b"])
    recent.dropped(["a", "never seen"])
    assert not recent.knows(["a"]) and recent.knows(["b"])
    recent.clear()
    assert len(recent) == 0 and not recent.knows(["b"])


def test_the_least_recent_goes_first():
    recent = RecentKeys(3)
    recent.kept(["a", "b", "c"])
    assert recent.knows(["a"])  # asking makes it recent
    recent.kept(["d"])
    assert [k for k in "abcd" if recent.knows([k])] == ["a", "c", "d"]


def test_keeping_again_makes_recent():
    recent = RecentKeys(2)
    recent.kept(["a", "b"])
    recent.kept(["a"])
    recent.kept(["c"])
    assert not recent.knows(["b"]) and recent.knows(["a", "c"])


def test_a_question_half_known_makes_nothing_recent():
    recent = RecentKeys(2)
    recent.kept(["a", "b"])
    assert not recent.knows(["a", "z"])
    recent.kept(["c"])
    assert not recent.knows(["a"])


def test_never_remembers_more_than_maxsize():
    recent = RecentKeys(5)
    recent.kept([f"x-{i}" for i in range(100)])
    assert len(recent) == 5 and recent.knows(["x-99"])
