"""Computations that are sent again, where something kept was lost on the way."""

from __future__ import annotations

import pytest

from cachingclient.pending import LOST, Job, PendingJobs


class Sent(list):
    """Notes what was sent in which way."""

    def way(self, name: str):
        def send(keys):
            self.append((name, list(keys)))
            return name

        return send

    def job(self, keys, *names: str) -> Job:
        return Job(keys, [self.way(name) for name in names])


def anyone(key) -> bool:
    return True


def nobody(key) -> bool:
    return False


def test_a_job_is_sent_in_its_first_way():
    sent, jobs = Sent(), PendingJobs()
    assert jobs.send(sent.job(["x", "y"], "empty", "pruned", "plain")) == "empty"
    assert sent == [("empty", ["x", "y"])]


def test_each_loss_takes_the_next_way():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "empty", "pruned", "plain"))
    assert jobs.lost(["x"], LOST, anyone) == []
    assert jobs.lost(["x"], LOST, anyone) == []
    assert sent == [("empty", ["x"]), ("pruned", ["x"]), ("plain", ["x"])]


def test_after_the_last_way_it_is_cancelled_indeed():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "pruned", "plain"))
    assert jobs.lost(["x"], LOST, anyone) == []
    assert jobs.lost(["x"], LOST, anyone) == ["x"]
    assert len(jobs) == 0 and len(sent) == 2


def test_keys_of_one_job_are_sent_again_together():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x", "y", "z"], "pruned", "plain"))
    assert jobs.lost(["x", "z"], LOST, anyone) == []
    assert sent[1:] == [("plain", ["x", "z"])]


def test_jobs_are_sent_again_each_for_itself():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "one", "one again"))
    jobs.send(sent.job(["y"], "two", "two again"))
    assert jobs.lost(["x", "y", "stranger"], LOST, anyone) == ["stranger"]
    assert sent[2:] == [("one again", ["x"]), ("two again", ["y"])]


def test_what_was_in_memory_once_is_not_sent_again():
    sent, jobs = Sent(), PendingJobs()
    job = sent.job(["x", "y"], "pruned", "plain")
    jobs.send(job)
    jobs.arrived(job.number)
    jobs.done("x")
    jobs.done("never seen")
    assert jobs.lost(["x", "y"], LOST, anyone) == ["x"]
    assert sent[1:] == [("plain", ["y"])]


@pytest.mark.parametrize("reason", ["the user said so", None])
def test_what_is_cancelled_for_another_reason_stays_cancelled(reason):
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "pruned", "plain"))
    assert jobs.lost(["x"], reason, anyone) == ["x"]
    assert len(jobs) == 0 and len(sent) == 1


def test_what_nobody_waits_for_is_not_sent_again():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "pruned", "plain"))
    assert jobs.lost(["x"], LOST, nobody) == []
    assert len(jobs) == 0 and len(sent) == 1


def test_a_job_with_one_way_is_not_remembered():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "plain"))
    assert len(jobs) == 0


def test_a_job_is_remembered_before_it_is_sent():
    # The answer may come in another thread before the call returns.
    jobs, seen = PendingJobs(), []
    jobs.send(Job(["x"], [lambda keys: seen.append(len(jobs)), lambda keys: None]))
    assert seen == [1]


def test_a_job_that_could_not_be_sent_is_forgotten():
    def fails(keys):
        raise OSError("closed")

    jobs = PendingJobs()
    with pytest.raises(OSError):
        jobs.send(Job(["x", "y"], [fails, fails]))
    assert len(jobs) == 0


def test_clear_forgets_all():
    sent, jobs = Sent(), PendingJobs()
    jobs.send(sent.job(["x"], "pruned", "plain"))
    jobs.clear()
    assert jobs.lost(["x"], LOST, anyone) == ["x"]
    assert len(sent) == 1


def test_word_of_an_earlier_job_of_the_same_key_does_not_end_this_one():
    jobs = PendingJobs()
    job = Job(["x"], [lambda keys: None, lambda keys: "again"])
    jobs.send(job)
    assert jobs.early("x") is job
    jobs.done("x")
    assert "x" in jobs
    jobs.arrived(job.number)
    assert jobs.early("x") is None
    jobs.done("x")
    assert "x" not in jobs


def test_jobs_that_nobody_waits_for_are_swept(monkeypatch):
    monkeypatch.setattr("cachingclient.pending.MANY_JOBS", 2)
    jobs = PendingJobs()
    for key in "abc":
        jobs.send(Job([key], [lambda keys: None, lambda keys: None]))
    jobs.sweep(lambda key: key == "b")
    assert [key for key in "abc" if key in jobs] == ["b"]
