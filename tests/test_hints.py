"""A word on what would help, once, and not to those who want none."""

from __future__ import annotations

import warnings

import dask
import distributed
import helpers
import numpy as np
import pytest
from dask.cache import Cache as LocalCache
from distributed import LocalCluster
from helpers import KEEN, wait_until

from cachingclient import Client, caching, hints
from cachingclient.hints import A_LOT, Regrets
from cachingclient.scheduler.overview import current

META = np.empty((0,))
KB = 2**10


def evicted(regrets, seconds=1.0, keys=100, name="slow-0", nbytes=KB, limit=None):
    for key in range(keys):
        regrets.no_room((name, key), name, nbytes)
        regrets.ran((name, key), seconds, limit)


def always(nbytes):
    return lambda: nbytes


# -- what is worth a word ---------------------------------------------------------


def test_nothing_to_say_at_first():
    assert Regrets().hint(KB, always(2**40)) is None


def test_a_little_work_is_not_worth_a_word():
    regrets = Regrets()
    evicted(regrets, seconds=A_LOT / 100 - 0.01)
    assert regrets.hint(KB, always(2**40)) is None
    evicted(regrets, seconds=1.0, keys=1)
    assert "1m 0s spent again on slow" in regrets.hint(KB, always(2**40))


def test_what_ran_first_or_had_gone_for_another_reason_does_not_count():
    regrets = Regrets()
    for key in range(100):
        regrets.ran(key, 100.0)
    assert regrets.hint(KB, always(2**40)) is None


def test_a_key_that_goes_again_and_again_needs_its_room_once():
    regrets = Regrets()
    for _ in range(5):
        evicted(regrets, keys=100)
    assert regrets.hint(300 * KB, always(2**40)).endswith("raise cache_limit to 440 kiB")


def test_the_worst_is_named():
    regrets = Regrets()
    evicted(regrets, name="a-0")
    evicted(regrets, name="read-csv-0", seconds=7.2)
    assert regrets.hint(KB, always(2**40)).startswith("12m 0s spent again on read-csv, ")


def test_advice_that_was_followed_is_not_given_again():
    regrets = Regrets()
    evicted(regrets, limit=300 * KB)
    for limit in (300, 350):
        assert regrets.hint(limit * KB, always(2**40)).endswith("raise cache_limit to 440 kiB")
    assert regrets.hint(440 * KB, always(2**40)) is None
    evicted(regrets, limit=440 * KB)
    assert regrets.hint(440 * KB, always(2**40)).endswith("raise cache_limit to 594 kiB")


def test_what_does_not_fit_into_the_memory_is_not_advised():
    regrets = Regrets()
    evicted(regrets)
    said = regrets.hint(KB, always(150 * KB))
    assert "raise" not in said and "memory is too small" in said and "pin" in said


# -- how it is said ---------------------------------------------------------------


def slow(x):
    helpers.count()
    return np.zeros(KB) + x


@pytest.fixture
def a_little_is_a_lot(monkeypatch):
    monkeypatch.setattr(hints, "A_LOT", 1e-9)
    with dask.config.set({**KEEN, "cachingclient.cache-limit": 3 * 8 * KB}):
        yield


def too_much(client, first=0):
    """More than there is room for, twice."""
    for _ in range(2):
        for n in range(first, first + 12):
            client.submit(slow, n, pure=True).result()
            client.submit(abs, n, pure=True).result()


def report(dask_scheduler):
    current(dask_scheduler).reporter.report()


def told(recorded):
    return [str(w.message) for w in recorded if "spent again" in str(w.message)]


def test_each_client_hears_it_once(a_little_is_a_lot):
    with LocalCluster(**helpers.INPROC) as cluster:
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            with Client(cluster) as one, Client(cluster) as two:
                too_much(one)
                wait_until(lambda: len(told(recorded)) == 2)
                assert one._session.hinted and two._session.hinted
                said = told(recorded)[0]
                assert "spent again on slow, for lack of room: raise cache_limit to " in said
                assert one.cache.info().recomputed > 0
                too_much(one, first=20)
                one.run_on_scheduler(report)
                assert "spent again" in one._repr_html_()
            assert len(told(recorded)) == 2


def test_hints_can_be_switched_off(a_little_is_a_lot):
    with dask.config.set({"cachingclient.hints": False}), LocalCluster(**helpers.INPROC) as cluster:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Client(cluster) as client, LocalCache(1e6):
                too_much(client)
                assert current(cluster.scheduler).ledger.regrets.hint(1, always(2**50))
                client.run_on_scheduler(report)
                assert client.submit(abs, -1).result() == 1
                assert not client._session.hinted
                assert "Cache" in client._repr_html_()
                assert "for lack of room" not in client._repr_html_()


def test_what_the_panel_has_shown_needs_no_warning(a_little_is_a_lot, monkeypatch):
    with LocalCluster(**helpers.INPROC) as cluster, warnings.catch_warnings():
        warnings.simplefilter("error")
        with Client(cluster) as client:
            reporter = current(cluster.scheduler).reporter
            reporter.stop()
            too_much(client)
            assert "for lack of room: raise cache_limit to" in client._repr_html_()
            client.run_on_scheduler(report)
            assert client.submit(abs, -1).result() == 1


def test_following_the_hint_helps(a_little_is_a_lot):
    with Client(**{**helpers.INPROC, "n_workers": 1}) as client:
        too_much(client)
        ledger = current(client.cluster.scheduler).ledger
        limit = ledger.regrets.hint(ledger.limit, always(2**40)).split("cache_limit to ")[1]
        client.cache.resize(limit)
        assert ledger.regrets.hint(ledger.limit, always(2**40)) is None
        too_much(client)
        helpers.ran()
        too_much(client)
        assert helpers.ran() == 0


# -- dask's own cache -------------------------------------------------------------


def noted(recorded):
    return [w for w in recorded if "dask.cache.Cache does nothing" in str(w.message)]


@pytest.mark.parametrize("way", ["registered before", "registered after", "entered"])
def test_a_local_cache_beside_a_distributed_client(way):
    local = LocalCache(1e6)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        try:
            if way == "registered before":
                local.register()
            with Client(**helpers.INPROC) as client:
                if way == "registered after":
                    local.register()
                if way == "entered":
                    with local:
                        client.submit(abs, -1).result()
                for _ in range(2):
                    assert client.submit(abs, -2).result() == 2
        finally:
            if way != "entered":
                local.unregister()
    assert len(noted(recorded)) == 1


def test_a_local_cache_beside_a_client_inside_caching():
    with LocalCluster(**helpers.INPROC) as cluster:
        with distributed.Client(cluster) as client, LocalCache(1e6):
            with caching(client), pytest.warns(UserWarning, match="dask.cache.Cache does nothing"):
                assert client.submit(abs, -2).result() == 2
