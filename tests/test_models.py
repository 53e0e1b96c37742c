"""Instances of users' classes that tasks and users change are kept as they were computed."""

from __future__ import annotations

import dask
import helpers
import pytest

from cachingclient import Client


class Model:
    """Learns in place, as those of scikit-learn do."""

    def __init__(self):
        self.weights = [0]

    def fit(self, value):
        self.weights.append(value)
        return self


class Table(dict):
    """A container of a class of its own."""


def fit(value):
    helpers.count()
    return Model().fit(value)


def table():
    return Table(a=[1])


def more(model, value):
    return model.fit(value)


@pytest.mark.parametrize("how", [helpers.INPROC, helpers.PROCESS])
def test_model(how):
    with dask.config.set(helpers.KEEN), Client(**how) as client:
        model = dask.delayed(fit, pure=True)(1)
        assert model.compute().weights == [0, 1]
        assert dask.delayed(more, pure=True)(model, 5).compute().weights == [0, 1, 5]
        helpers.forgotten(client)
        got = model.compute()
        assert got.weights == [0, 1]
        got.fit(7)
        del got
        helpers.forgotten(client)
        assert model.compute().weights == [0, 1]
        assert client.cache.info().hits > 0


def test_container_of_a_users_class():
    with dask.config.set(helpers.KEEN), Client(**helpers.INPROC) as client:
        lazy = dask.delayed(table, pure=True)()
        lazy.compute()["a"].append(2)
        helpers.forgotten(client)
        assert lazy.compute() == {"a": [1]}
