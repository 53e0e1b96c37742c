"""Audits: what is used from the cache is computed again, and compared."""

from __future__ import annotations

import dask
import dask.array as da
import helpers
import numpy as np
import pandas as pd
import pytest
from helpers import ran

from cachingclient import Client
from cachingclient.worker.compare import difference

META = np.empty((0,))


@pytest.fixture
def auditing():
    """A client that keeps everything and looks at every use of it."""
    settings = {**helpers.KEEN, "cachingclient.audit": 1.0}
    with dask.config.set(settings):
        with Client(**helpers.INPROC) as client:
            yield client
            helpers.validate(client)


def slow(block):
    helpers.count()
    return block + 1


#: too large for a setting that is looked at
drift = np.zeros(100_000)


class Drifting:
    """Gives another result each time, which its code does not show."""

    def __dask_tokenize__(self):
        return "drifting"

    def __call__(self, block):
        drift[0] += 1
        return block + drift[0]


def test_equal_results_stay(auditing):
    x = da.zeros(8, chunks=2).map_blocks(slow, meta=META)
    assert (x.sum().compute(), x.mean().compute()) == (8, 1)
    helpers.wait_until(lambda: auditing.cache.info().audits == 4)
    assert ran() == 8
    info = auditing.cache.info()
    assert info.differing == 0 and info.keys > 4
    helpers.forgotten(auditing)
    auditing.cache.clear()
    helpers.wait_until(lambda: not auditing.cluster.scheduler.tasks)


def test_different_results_are_dropped_and_not_kept_again(auditing, errors_of_ours):
    x = da.zeros(4, chunks=4).map_blocks(Drifting(), token="drift", meta=META)
    first = x.sum().compute()
    assert x.mean().compute() * 4 == first
    helpers.wait_until(lambda: auditing.cache.info().differing >= 1)
    helpers.wait_until(lambda: not auditing.cache.entries("drift"))
    assert any("drift" in message for message in errors_of_ours)
    errors_of_ours.clear()
    before = drift[0]
    x.max().compute()
    x.min().compute()
    helpers.wait_until(lambda: drift[0] >= before + 2)
    assert not auditing.cache.entries("drift")
    assert "audit" in str(auditing.cache.explain(x.std()))
    errors_of_ours.clear()


def test_off_by_default(client):
    x = da.zeros(8, chunks=2).map_blocks(slow, meta=META)
    assert (x.sum().compute(), x.sum().compute()) == (8, 8)
    assert client.cache.info().audits == 0


@pytest.mark.parametrize(
    "one, other, same",
    [
        (1, 1, True),
        (1, 1.0, False),
        (np.array([1, np.nan]), np.array([1, np.nan]), True),
        (np.array([1.0]), np.array([2.0]), False),
        (np.zeros(2), np.zeros(3), False),
        (pd.DataFrame({"a": [1, None]}), pd.DataFrame({"a": [1, None]}), True),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]}), False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": [1]}, {"a": [2]}, False),
    ],
)
def test_difference(one, other, same):
    assert (difference(one, other) == 0) == same
