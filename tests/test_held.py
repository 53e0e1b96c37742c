"""Which steps of dataframe expressions somebody still holds is told by counting references."""

from __future__ import annotations

import gc

import dask
import dask.dataframe as dd
import helpers
import numpy as np
import pandas as pd
import pytest
from dask.base import collections_to_expr

import cachingclient
from cachingclient.frames import held


def absolute(df):
    return df[["a", "b"]].abs()


@pytest.fixture
def frame():
    gc.collect()  # what other tests have left behind may hold nodes
    rows = np.arange(40)
    table = pd.DataFrame({"a": rows, "b": rows % 7, "t": pd.date_range("2020", periods=40)})
    return dd.from_pandas(table, npartitions=4)


@pytest.fixture
def numbers(frame):
    """All columns are asked for: steps keep their names."""
    return dd.from_pandas(frame.compute(scheduler="sync")[["a", "b"]], npartitions=4)


@pytest.fixture
def files(tmp_path, frame):
    frame.to_parquet(tmp_path / "files")
    return dd.read_parquet(tmp_path / "files")


def choose(df, options):
    return df


def table_of(frame):
    return frame.compute(scheduler="sync")


def told(*collections):
    """What is told of a computation of collections, by the beginnings of names."""
    expr = collections_to_expr(collections).optimize(fuse=False)
    return {name.split("-")[0]: alive for name, alive in held.alive(expr).alive.items()}


def test_temporary_steps_are_needed_by_the_answer_alone(files):
    # Not within an assert: pytest holds all that is between.
    found = told(((files.a - files.b) / 2).mean())
    assert found == {"sub": False, "truediv": False}


def test_where_a_step_is_held_nobody_can_tell(files):
    clean = files[files.a > 5]
    found = told(clean.b.mean())
    assert set(found.values()) == {None}
    del clean
    found = told(files[files.a > 5].b.mean())
    assert set(found.values()) == {False}


def test_a_step_that_is_held_and_sent_as_it_is(numbers):
    doubled = numbers * 2
    total = doubled.sum()
    expr = collections_to_expr([total]).optimize(fuse=False)
    steps = held.alive(expr)
    assert steps.held == {doubled.expr._name: doubled.expr}
    assert steps.alive[doubled.expr._name] is True


def test_reading_is_no_step(files):
    columns, reread = files[["a", "b"]], files.a
    found = told((files.a - files.b).mean())
    assert found == {"sub": False}
    assert told(columns.sum()) == told(reread.sum()) == {}


def test_what_was_asked_for_may_be_in_a_variable(files):
    difference = files.a - files.b
    assert told(difference) == {}
    assert told(difference.max()) == {"sub": None}


def test_several_at_once(files):
    found = told((files.a - files.b).max(), (files.a - files.b).min())
    assert found == {"sub": False}
    clean = files[files.a > 5]
    found = told(files.a, (files.a - files.b).min())
    assert found == {"sub": None}, clean


def test_nothing_is_told_of_functions_of_users_and_of_shuffles(files):
    found = told(files.map_partitions(absolute).a.sum())
    assert found == {"getitem": False}
    found = told(files.merge(files, on="b", shuffle_method="tasks", broadcast=False).a_x.sum())
    assert found and not any("shuffle" in name or "transfer" in name for name in found)


@pytest.mark.parametrize(
    "ask",
    [
        lambda df: df.t.dt.hour.value_counts(),
        lambda df: df[["a", "b"]].describe(),
        lambda df: df.assign(r=df.a / 2).groupby("b").r.mean(),
        lambda df: df.groupby("b").a.sum().nlargest(3),
        lambda df: df[(df.a > 3) & (df.b > 1)].groupby("b").a.max(),
        lambda df: dd.concat([df.a + 1, df.b + 1]).sum(),
    ],
    ids=["accessor", "describe", "assign", "nlargest", "filter", "concat"],
)
def test_what_nodes_know_of_each_other_does_not_count(files, ask):
    # Twice: computing leaves cached properties behind, some of which close over their node.
    for _ in range(2):
        found = told(ask(files))
        assert set(found.values()) <= {False}
        ask(files).compute(scheduler="sync")


def test_too_many_nodes_are_not_looked_at(files, monkeypatch):
    monkeypatch.setattr(held, "MANY", 3)
    found = told((files.a - files.b).mean())
    assert found == {"sub": None}


def test_what_contains_itself(client, frame):
    """dask tokenizes it, so that it may be in any operand."""
    options = [1]
    options.append(options)
    chosen = frame.map_partitions(choose, options, meta=frame._meta)
    assert chosen.a.sum().compute() == sum(range(40))
    assert (frame.a - frame.b).max().compute() == 39 - 39 % 7


def test_odd_names_of_columns(client):
    table = pd.DataFrame({"__closure__": range(8), "operands": range(8), "_name": range(8)})
    odd = dd.from_pandas(table, npartitions=2) + 1
    odd._meta  # is remembered by its node
    expr = collections_to_expr([total := odd.sum()]).optimize(fuse=False)
    assert held.alive(expr).alive, total


def test_an_error_costs_no_more_than_the_hint(client, files, monkeypatch):
    def fail(most):
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(held, "live_frames", fail)
    assert (files.a - files.b).mean().compute() == table_of(files).eval("a - b").mean()
    assert client.cache.info().keys
    assert told((files.a - files.b).mean()) == {}


def test_a_frame_may_be_asked_for_beside_what_is_made_of_it(files):
    clean = files[files.a > 5]
    found = told(clean, clean.b.sum())
    assert set(found.values()) == {None}


def test_of_other_collections_nothing_is_told():
    x = dask.array.ones(4, chunks=2)
    assert held.alive(collections_to_expr([x + 1])) == held.Steps({}, {})


# -- with a scheduler -------------------------------------------------------------


def is_told(client, name, expected):
    """Wait until the scheduler was told this of steps whose names begin so."""
    books = client.cluster.scheduler.plugins["cachingclient"].books

    def found():
        return {books.alive.get(n) for n in list(books.seen) if n.startswith(f"{name}-")}

    # An answer that is kept may be there before the scheduler has listened to the end.
    helpers.wait_until(lambda: found() == {expected})


@pytest.fixture
def client():
    with dask.config.set(helpers.KEEN), cachingclient.Client(**helpers.INPROC) as client:
        yield client
        helpers.validate(client)


def test_the_scheduler_hears_of_it(client, files):
    (files.a - files.b).mean().compute()
    is_told(client, "sub", False)
    difference = files.a - files.b
    # Of the same name: that only the answer needs it is not true any more.
    difference.mean().compute()
    is_told(client, "sub", None)


def test_a_step_that_was_held_and_is_gone(client, numbers):
    doubled = numbers * 2
    doubled.sum().compute()
    is_told(client, "mul", True)
    del doubled
    numbers.a.sum().compute()
    is_told(client, "mul", False)


def test_what_was_told_is_shown(client, numbers):
    (numbers * 2).sum().compute()
    (entry,) = client.cache.entries("mul")
    assert entry.why == "nothing alive needs it"
