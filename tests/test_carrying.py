"""Schedulers and workers that do not have the package are given it."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import utils_bare
from helpers import KEEN
from utils_bare import LACKING, serving

from cachingclient import Client

META = np.empty((0,))
NOTHING: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def keen():
    with dask.config.set(KEEN):
        yield


def build():
    return da.ones(40, chunks=10).map_blocks(utils_bare.slow, dtype="f8", meta=META)


def ran(client):
    """How often the workers have called it."""
    return sum(client.run(utils_bare.calls).values())


def lacked(address):
    with distributed.Client(address, set_as_default=False) as plain:
        return [plain.run_on_scheduler(utils_bare.absent), *plain.run(utils_bare.absent).values()]


@pytest.mark.parametrize(
    "scheduler, worker",
    [(LACKING, LACKING), (LACKING, NOTHING), (NOTHING, LACKING)],
    ids=["both", "scheduler", "worker"],
)
def test_who_lacks_the_package_is_given_it(scheduler, worker):
    with serving("scheduler", lacking=scheduler) as address:
        with serving("worker", address, lacking=worker):
            found = lacked(address)
            assert [bool(f) for f in found] == [bool(scheduler), bool(worker)]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with Client(address) as client:
                    x = build()
                    assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
                    assert ran(client) == 4
                    assert client.cache.info().hits
                    assert "slow" in str(client.cache.entries())
                    keys, off = client.run_on_scheduler(utils_bare.check)
                    assert keys and not off
                # The next one finds it there.
                with Client(address) as client:
                    assert build().sum().compute() == 80
                    assert ran(client) == 4
            # It is imported as itself, and brings nothing else.
            assert lacked(address) == [[n for n in f if n != "cachingclient"] for f in found]


def test_a_policy_that_needs_more_than_the_package():
    with serving("scheduler") as address, serving("worker", address):
        with dask.config.set({"cachingclient.policy": "cachey"}):
            with pytest.warns(UserWarning, match="no package cachey: the policy is group") as told:
                client = Client(address)
        assert len(told) == 1
        with client:
            x = build()
            assert (x.sum().compute(), x.sum().compute()) == (80, 80)
            assert ran(client) == 4


def test_a_scheduler_that_refuses_is_given_nothing():
    blocked = {"distributed.scheduler.blocked-handlers": ["register_scheduler_plugin"]}
    with serving("scheduler", config=blocked) as address, serving("worker", address):
        with pytest.warns(UserWarning, match="blocked-handlers") as told:
            client = Client(address)
        assert len(told) == 1
        with client, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [build().sum().compute() for _ in range(2)] == [80, 80]
            assert ran(client) == 8
        assert all("cachingclient" in found for found in lacked(address))
