"""Tools that run workflows name tasks themselves: a name is the user's, whatever it looks like."""

from __future__ import annotations

import os
from uuid import uuid4

import dask
import distributed
import helpers
import pytest
from distributed import LocalCluster, fire_and_forget
from helpers import INPROC, KEEN, count, forgotten, ran, wait_until

from cachingclient import Client, caching

#: Looks as if a token named its content.
RUN = "run-" + "0123456789abcdef" * 2


def one(value):
    count()
    return "one", value


def two(value):
    count()
    return "two", value


class Tool(distributed.Client):
    """Runs steps of a flow under names of its own, as tools for workflows do."""

    def submit(self, func, *args, key=None, pure=True, **kwargs):
        args = [self._payload(value) for value in args]
        key = key or f"{func.__name__}-{uuid4().hex}"
        return super().submit(func, *args, key=key, pure=pure, **kwargs)

    def _payload(self, value):
        return super().submit(_same, value, pure=False, key=f"payload-{uuid4().hex}")

    def step(self, func, *args, **kwargs):
        return super().submit(func, *args, **kwargs)

    def steps(self, func, *args, **kwargs):
        return super().map(func, *args, **kwargs)


class CachingTool(Tool, Client):
    """The same, made with the caching client."""


def _same(value):
    count("payload")
    return value


@pytest.fixture(params=["client", "caching"])
def keen(request):
    """A client of either kind that keeps even what is cheap."""
    with dask.config.set(KEEN):
        if request.param == "client":
            with Client(**INPROC) as client:
                yield client
                helpers.validate(client)
        else:
            with distributed.Client(**INPROC) as client, caching(client):
                yield client
                helpers.validate(client)


@pytest.fixture(params=["client", "caching"])
def tool(request):
    """A tool's own client."""
    with dask.config.set(KEEN):
        if request.param == "client":
            with CachingTool(**INPROC) as client:
                yield client
                helpers.validate(client)
        else:
            with Tool(**INPROC) as client, caching(client):
                yield client
                helpers.validate(client)


def value_of(client, ask, *args, **kwargs):
    """What a method gives; nothing of it is held on to."""
    value = client.gather(ask(*args, **kwargs))
    forgotten(client)
    return value


@pytest.mark.parametrize("key", ["run", RUN, RUN[4:], (RUN, 0), f"one-{RUN[4:]}"])
@pytest.mark.parametrize("said", [{}, {"pure": True}, {"pure": False}])
def test_another_function_under_the_same_key(keen, key, said):
    for function, name in ((one, "one"), (two, "two"), (one, "one")):
        assert value_of(keen, keen.submit, function, 1, key=key, **said) == (name, 1)
    assert ran() == 3
    assert helpers.held(keen) == []


@pytest.mark.parametrize("said", [{}, {"pure": True}])
def test_another_value_under_the_same_key(keen, said):
    for value in (1, 2):
        assert value_of(keen, keen.submit, one, value, key=RUN, **said) == ("one", value)


def test_while_its_future_lives_a_key_is_what_it_is(keen):
    """As in plain dask."""
    first = keen.submit(one, 1, key=RUN, pure=True)
    assert keen.submit(two, 2, key=RUN, pure=True).result() == first.result() == ("one", 1)


@pytest.mark.parametrize("how", [{}, {"batch_size": 2}])
def test_keys_of_a_map(keen, how):
    keys = [f"run-{n}" + RUN[5:] for n in range(3)]
    for function, name in ((one, "one"), (two, "two")):
        got = value_of(keen, keen.map, function, range(3), key=keys, pure=True, **how)
        assert got == [(name, n) for n in range(3)]
    assert ran() == 6
    assert helpers.held(keen) == []


def test_a_beginning_of_keys_is_no_name(keen):
    for _ in range(2):
        assert value_of(keen, keen.map, one, [1], key="mine", pure=True) == [("one", 1)]
    assert ran() == 1


def test_what_is_made_of_such_a_key_is_not_kept(keen):
    for function, name in ((one, "one"), (two, "two")):
        made = keen.submit(function, 1, key=RUN, pure=True)
        assert keen.submit(repr, made, pure=True).result() == repr((name, 1))
        del made
        forgotten(keen)
    assert helpers.held(keen) == []


def test_delayed_functions_under_a_name(keen):
    for function, name in ((one, "one"), (two, "two"), (one, "one")):
        step = dask.delayed(function, pure=True)(1, dask_key_name=RUN)
        after = dask.delayed(repr, pure=True)(step)
        assert value_of(keen, keen.compute, after) == repr((name, 1))
        assert value_of(keen, keen.compute, step) == (name, 1)
        assert value_of(keen, keen.get, {RUN: (function, 1)}, RUN, sync=False) == (name, 1)
        assert ran() == 3
    assert helpers.held(keen) == []
    assert "given" in str(keen.cache.explain(step)) if hasattr(keen, "cache") else True


def test_a_map_whose_keys_are_no_list(keen):
    for function, name in ((one, "one"), (two, "two")):
        assert value_of(keen, keen.map, function, [1], key=(RUN,), pure=True) == [(name, 1)]
    assert helpers.held(keen) == []


def test_functions_of_dask_under_a_name(keen):
    for function, name in ((one, "one"), (two, "two")):
        step = dask.delayed(dask.utils.apply)(function, [1], dask_key_name=RUN)
        assert value_of(keen, keen.compute, step) == (name, 1)


def test_data_under_a_name(keen):
    for value in ("a", "b"):
        made = dask.delayed(repr, pure=True)(dask.delayed([value], name=RUN))
        assert value_of(keen, keen.compute, made) == repr([value])


def test_what_is_made_of_a_future_under_a_name(keen):
    for function, name in ((one, "one"), (two, "two")):
        step = keen.compute(dask.delayed(function)(1, dask_key_name=RUN))
        made = keen.submit(repr, step, pure=True)
        assert made.result() == repr((name, 1))
        del step, made
        forgotten(keen)


def test_delayed_functions_under_names_of_dask(keen):
    for _ in range(2):
        step = dask.delayed(one, pure=True)(1)
        assert value_of(keen, keen.compute, dask.delayed(step)[1].bit_length()) == 1
        assert value_of(keen, keen.compute, step + ()) == ("one", 1)
    assert ran() == 1


def test_a_key_that_is_given_is_kept_where_that_is_wished(keen):
    for _ in range(2):
        with dask.annotate(cache=True):
            assert value_of(keen, keen.submit, one, 1, key=RUN) == ("one", 1)
    assert ran() == 1


# -- tools with clients of their own ----------------------------------------------------------


def test_a_tool_runs_each_step(tool):
    for said in ({}, {"pure": True}):
        for _ in range(2):
            assert value_of(tool, tool.submit, one, 1, **said) == ("one", 1)
    assert ran() == 8
    assert helpers.held(tool) == []


def test_a_tool_that_goes_past_its_own_submit(tool):
    """Its parent calls everything pure that nobody says a word on."""
    for _ in range(2):
        assert value_of(tool, tool.step, one, 1) == ("one", 1)
        assert value_of(tool, tool.steps, two, [1, 2]) == [("two", 1), ("two", 2)]
    assert ran() == 6
    assert helpers.held(tool) == []


def test_collections_of_a_tool_are_kept(tool):
    total = dask.delayed(sum, pure=True)([dask.delayed(_same, pure=True)(n) for n in range(3)])
    for _ in range(2):
        assert value_of(tool, tool.compute, total) == 3
    assert ran() == 3


def test_retries(tool, tmp_path):
    """A run that fails at first is tried again, and each run by itself."""
    path = str(tmp_path / "calls")
    for run in range(2):
        attempts = value_of(tool, tool.submit, _fails_first, path, key=f"{RUN}{run}", retries=1)
        assert attempts == 2 * (run + 1)
    with pytest.raises(OSError, match="attempt 5"):
        tool.submit(_fails_first, path, key=RUN).result()
    assert helpers.held(tool) == []


def _fails_first(path):
    helpers.note(path)
    attempt = helpers.noted(path)
    if attempt % 2:
        raise OSError(f"attempt {attempt}")
    return attempt


def test_fire_and_forget_runs_each_time(tool, tmp_path):
    path = str(tmp_path / "calls")
    for run in (1, 2):
        fire_and_forget(tool.submit(helpers.note, path, key=RUN))
        wait_until(lambda: helpers.noted(path) == run)
        forgotten(tool)
        wait_until(lambda: not helpers.look(tool)["tasks"])
    assert os.path.exists(path)


def test_two_clients_under_one_key():
    """The second asks for another function, when the first has let go of its future."""
    with dask.config.set(KEEN), LocalCluster(**INPROC) as cluster:
        with Client(cluster, set_as_default=False) as first:
            with Client(cluster, set_as_default=False) as second:
                assert value_of(first, first.submit, one, 1, key=RUN, pure=True) == ("one", 1)
                wait_until(lambda: not helpers.look(first)["tasks"])
                assert value_of(second, second.submit, two, 1, key=RUN, pure=True) == ("two", 1)
                helpers.validate(second)
