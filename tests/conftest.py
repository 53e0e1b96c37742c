"""Fixtures; the order of the imports matters."""

from __future__ import annotations

# Before anything of distributed.utils_test, which copies the configuration when it is imported
# and puts that copy back around each of its tests.
import cachingclient  # isort: skip

import importlib
import logging
import sys

import dask
import helpers
import pytest
from distributed.client import _get_global_client

from cachingclient.scheduler import detaching

# Runs other people's tests, see there.
collect_ignore = ["conformance"]

# Small graphs are packed too.
detaching.ROOM = 0

# Not in a fixture: distributed.utils_test puts back what it finds when it is imported.
dask.config.set({"distributed.scheduler.validate": True})


def pytest_configure(config):
    # Schedulers without a dashboard serve HTTP too, and other tests' clusters are about.
    config.addinivalue_line("filterwarnings", "ignore:(?s)Port 8787 is already in use")


@pytest.fixture(autouse=True)
def counters():
    """Nothing counted yet."""
    helpers.ran()
    helpers.started.clear()


@pytest.fixture(autouse=True)
def no_client_left():
    """Two clients, closed in the order in which they came, leave dask a scheduler that is gone."""
    yield
    if _get_global_client() is None:
        dask.config.config.pop("scheduler", None)


@pytest.fixture(autouse=True)
def errors_of_ours():
    """An error of ours is swallowed, so that the user's work goes on; a test must notice it."""
    with helpers.logged(
        "distributed.client.cachingclient",
        "distributed.scheduler.cachingclient",
        level=logging.ERROR,
    ) as messages:
        yield messages
    assert messages == []


@pytest.fixture
def client():
    """A caching client on workers of this process."""
    with cachingclient.Client(**helpers.INPROC) as client:
        yield client
        helpers.validate(client)


@pytest.fixture
def keen():
    """A client that keeps even what is cheap, so that the tests need not be slow."""
    with dask.config.set(helpers.KEEN):
        with cachingclient.Client(**helpers.INPROC) as client:
            yield client
            helpers.validate(client)


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module that is imported, or reloaded: call it with its text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = []

    def write(source, name="edited_module"):
        (tmp_path / f"{name}.py").write_text(source)
        names.append(name)
        importlib.invalidate_caches()
        if name in sys.modules:
            return importlib.reload(sys.modules[name])
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)
