"""Two questions about the same files: the second reads what nobody has read, and no more."""

from __future__ import annotations

import dask
import pandas as pd
import pytest
import utils_frames
from helpers import INPROC, KEEN, count, forgotten, ran, validate, wait_until
from utils_frames import FILES, read_since, same, table

import cachingclient
from cachingclient import internals

#: dask's own code for parquet
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

PDF = table()
OTHER = pd.DataFrame({"k": range(5), "w": [x * 10.0 for x in range(5)]})


def clean(df):
    count()
    return df.assign(b=df.b.fillna(0) + 1)


def ask_merge(f):
    return f.merge(OTHER, on="k").w.sum()


#: {name: (question, columns that it needs)}
QUESTIONS = {
    "sum a": (lambda f: f.a.sum(), "a"),
    "max a": (lambda f: f.a.max(), "a"),
    "mean b": (lambda f: f.b.mean(), "b"),
    "count b": (lambda f: f.b.count(), "b"),
    "std x": (lambda f: f.x.std(), "x"),
    "a of few": (lambda f: f[f.a > 150].a.sum(), "a"),
    "b of few": (lambda f: f[f.a > 150].b.sum(), "ab"),
    "b by k": (lambda f: f.groupby("k").b.mean(), "bk"),
    "a by k": (lambda f: f.groupby("k").a.sum(), "ak"),
    "a by j and k": (lambda f: f.groupby(["j", "k"]).a.max(), "ajk"),
    "words": (lambda f: f.s.value_counts(), "s"),
    "long words": (lambda f: f.s.str.len().sum(), "s"),
    "upper": (lambda f: f.s.str.upper().nunique(), "s"),
    "x + y": (lambda f: (f.x + f.y).sum(), "xy"),
    "assigned": (lambda f: f.assign(z=f.x * 2).z.max(), "x"),
    "hours": (lambda f: f.t.dt.hour.max(), "t"),
    "two columns": (lambda f: f[["a", "x"]].sum(), "ax"),
    "order": (lambda f: f[["x", "a"]].max(), "ax"),
    "one column": (lambda f: f[["a"]].min(), "a"),
    "merge": (ask_merge, "k"),
    "gaps": (lambda f: f.b.isna().sum(), "b"),
    "distinct": (lambda f: f[["j", "k"]].drop_duplicates(), "jk"),
    "largest": (lambda f: f.nlargest(3, "x")[["x", "a"]], "ax"),
    "frame": (lambda f: f, "abkjstxy"),
    "rows": (lambda f: f[f.k == 2], "abkjstxy"),
}
PAIRS = [
    ("sum a", "max a"),
    ("sum a", "mean b"),
    ("sum a", "two columns"),
    ("sum a", "b of few"),
    ("sum a", "frame"),
    ("mean b", "count b"),
    ("mean b", "gaps"),
    ("mean b", "b by k"),
    ("b by k", "a by k"),
    ("b by k", "mean b"),
    ("b by k", "a by j and k"),
    ("b by k", "rows"),
    ("a by j and k", "a by k"),
    ("a by j and k", "sum a"),
    ("a by j and k", "distinct"),
    ("a by j and k", "merge"),
    ("a of few", "b of few"),
    ("b of few", "a of few"),
    ("b of few", "mean b"),
    ("b of few", "x + y"),
    ("words", "long words"),
    ("words", "upper"),
    ("words", "frame"),
    ("upper", "sum a"),
    ("x + y", "assigned"),
    ("x + y", "std x"),
    ("x + y", "largest"),
    ("assigned", "order"),
    ("hours", "sum a"),
    ("hours", "rows"),
    ("two columns", "order"),
    ("order", "two columns"),
    ("order", "one column"),
    ("one column", "sum a"),
    ("one column", "order"),
    ("merge", "b by k"),
    ("merge", "distinct"),
    ("distinct", "a by j and k"),
    ("largest", "sum a"),
    ("largest", "b of few"),
    ("frame", "sum a"),
    ("frame", "b by k"),
    ("frame", "rows"),
    ("frame", "order"),
    ("rows", "hours"),
    ("rows", "frame"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    top = tmp_path_factory.mktemp("frames")
    utils_frames.write(top, PDF)
    return top


@pytest.fixture(scope="module")
def shared():
    """One client for all pairs."""
    with dask.config.set(KEEN):
        with cachingclient.Client(**INPROC) as client:
            yield client


@pytest.fixture
def one(shared, monkeypatch):
    """That client, with nothing kept."""
    forgotten(shared)
    # What still runs may be kept after it.
    wait_until(lambda: not any(shared.processing().values()))
    shared.cache.clear()
    utils_frames.counting(monkeypatch)
    read_since()
    yield shared
    validate(shared)


def ask(f, name):
    """Ask a question, and compare the answer with that of pandas."""
    question, _ = QUESTIONS[name]
    lazy = question(f)
    read_since()  # what dask itself has a look at
    same(lazy.compute(), question(PDF))
    return read_since()


def columns(name):
    return set(QUESTIONS[name][1])


@pytest.mark.parametrize("first, second", PAIRS)
def test_csv_is_parsed_once(one, files, first, second):
    f = utils_frames.read_csv(files)
    assert ask(f, first) == FILES
    assert ask(f, second) == 0


def how(f, name):
    """How dask reads files for a question: files at once, filters of pyarrow, and columns."""
    question, _ = QUESTIONS[name]
    lazy = internals.as_computed(question(f))
    kinds = internals.frame_kinds()
    (reader,) = lazy.find_operations((kinds.ReadParquet, kinds.FusedIO))
    inner = reader.operand("_expr") if isinstance(reader, kinds.FusedIO) else reader
    return FILES // reader.npartitions, str(inner.operand("filters")), set(inner.columns)


@pytest.mark.parametrize("read", ["read_parquet", "read_arrow"])
@pytest.mark.parametrize("first, second", PAIRS)
def test_columns_of_parquet_are_read_once(one, files, first, second, read):
    f = getattr(utils_frames, read)(files)
    at_once, filters, known = how(f, first)
    later, other_filters, wanted = how(f, second)
    assert ask(f, first) == FILES * len(known)
    # What was read several files at once, or filtered, is read once more if it is wanted otherwise.
    again = at_once not in (1, later) or filters != other_filters
    assert ask(f, second) == FILES * len(wanted if again else wanted - known)


@pytest.mark.parametrize("first, second", PAIRS)
def test_readers_of_users(one, files, first, second):
    f = utils_frames.from_map(files)
    assert ask(f, first) == FILES
    assert ask(f, second) == (0 if columns(second) <= columns(first) else FILES)
    # By now all that was asked for has been read together.
    assert ask(f, first) == ask(f, second) == 0


@pytest.mark.parametrize("read", ["from_map_all", "from_delayed"])
@pytest.mark.parametrize("first, second", PAIRS[::4])
def test_readers_that_read_all(one, files, first, second, read):
    f = getattr(utils_frames, read)(files)
    assert ask(f, first) == FILES
    assert ask(f, second) == 0


@pytest.mark.parametrize("read", ["read_csv", "read_parquet", "from_map_all", "from_delayed"])
@pytest.mark.parametrize("first, second", PAIRS[::4])
def test_users_functions_run_once(one, files, first, second, read):
    f = getattr(utils_frames, read)(files)
    f = f.map_partitions(clean, meta=clean(f._meta))
    want = clean(PDF)
    for name, calls in ((first, f.npartitions), (second, 0)):
        question, _ = QUESTIONS[name]
        lazy = question(f)
        ran()
        same(lazy.compute(), question(want))
        assert ran() == calls
