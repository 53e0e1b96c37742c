"""No question gives a wrong row: random sessions over the same files, against pandas."""

from __future__ import annotations

import random

import dask
import pandas as pd
import pytest
import utils_frames
from helpers import INPROC, KEEN, forgotten, validate
from utils_frames import same, table

import cachingclient

#: dask's own code for parquet
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")
SEEDS = range(6)
STEPS = 10
NUMBERS = ["a", "b", "k", "j", "x", "y"]
KEYS = ["k", "j", "s"]
OTHER = pd.DataFrame({"k": range(5), "w": [x * 10.0 for x in range(5)]})
READERS = ["read_csv", "read_parquet", "read_arrow", "from_map", "from_map_all", "from_delayed"]


def shift(df, by):
    return df.assign(x=df.x + by)


def flag(df):
    return df.assign(y=df.y.where(df.k > 1, -1.0))


class Session:
    """Draws questions: each is asked of dask and of pandas."""

    def __init__(self, seed, top):
        self.random = random.Random(seed)
        self.lazy = getattr(utils_frames, self.random.choice(READERS))(top)
        self.pandas = table()
        self.base = self.lazy, self.pandas

    def some(self, names, most=3):
        return self.random.sample(names, self.random.randint(1, most))

    def step(self):
        """Change the frame that is asked."""
        if self.random.random() < 0.3:
            self.lazy, self.pandas = self.base
        change = self.random.choice(
            [
                lambda f: f,
                lambda f: f,
                lambda f: f[f.a > low],
                lambda f: f[(f.k == 2) | (f.x < 0.5)],
                lambda f: apply(f, shift, number),
                lambda f: apply(f, flag),
                lambda f: f.assign(y=f.x * 2 + f.b),
                lambda f: f.dropna(subset=["b"]),
                lambda f: f.merge(OTHER, on="k").drop(columns="w"),
            ]
        )
        low, number = self.random.choice([20, 90, 150]), self.random.choice([1, 2])
        if len(self.pandas) > 0:
            self.lazy, self.pandas = change(self.lazy), change(self.pandas)

    def question(self):
        key, number = self.random.choice(KEYS), self.random.choice(NUMBERS)
        columns, keys = self.some(NUMBERS), self.some(KEYS, 2)
        how = self.random.choice(["sum", "max", "count", "mean"])
        return self.random.choice(
            [
                lambda f: getattr(f[number], how)(),
                lambda f: getattr(f.groupby(key)[number], how)(),
                lambda f: getattr(f.groupby(keys)[columns], how)(),
                lambda f: f[columns].max(),
                lambda f: f[columns],
                lambda f: f[key].value_counts(),
                lambda f: f[keys].drop_duplicates(),
                lambda f: f.set_index("a")[columns].sum() if "a" not in columns else f.a.sum(),
                lambda f: f[f.t.dt.hour > 12][number].count(),
                lambda f: f.s.str.upper().nunique(),
                lambda f: f,
            ]
        )


def apply(f, function, *args):
    if isinstance(f, pd.DataFrame):
        return function(f, *args)
    return f.map_partitions(function, *args, meta=function(f._meta, *args))


def answer(client, lazy, rng, held=()):
    """What a computation gives, whichever way it is started."""
    way = rng.choice(["compute", "compute", "client", "persist", "optimize", "several", "head"])
    if way == "client":
        return client.compute(lazy).result()
    if way == "persist":
        persisted = lazy.persist()
        if isinstance(held, list):
            # Somebody holds keys of some computations while others go on.
            held[:] = [*held[-2:], persisted]
        return persisted.compute()
    if way == "optimize":
        return lazy.optimize().compute()
    if way == "several":
        first, second = dask.compute(lazy, lazy)
        same(first, second)
        return first
    if way == "head" and getattr(lazy, "ndim", 0) == 2:
        assert len(lazy.head(3, npartitions=-1)) <= 3
    return lazy.compute()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    top = tmp_path_factory.mktemp("frames")
    utils_frames.write(top, table())
    return top


@pytest.fixture(scope="module")
def shared():
    with dask.config.set(KEEN):
        with cachingclient.Client(**INPROC) as client:
            yield client
            validate(client)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_session(shared, files, seed):
    session = Session(seed, files)
    held = []
    for _ in range(STEPS):
        session.step()
        if len(session.pandas) == 0:
            session.lazy, session.pandas = session.base
        question = session.question()
        got = answer(shared, question(session.lazy), session.random, held)
        same(got, question(session.pandas))
        if session.random.random() < 0.2:
            names = [entry.name for entry in shared.cache.entries()]
            if names:
                # A part is lost: what is left of others is used in part.
                shared.cache.clear(session.random.choice(names)[:12])
    held.clear()
    forgotten(shared)


def test_a_smaller_limit_loses_no_row(files):
    """Frames that do not fit are kept in part."""
    with dask.config.set(KEEN):
        with cachingclient.Client(**INPROC, cache_limit="20 kB") as client:
            for seed in (100, 101):
                session = Session(seed, files)
                for _ in range(STEPS):
                    session.step()
                    if len(session.pandas) == 0:
                        session.lazy, session.pandas = session.base
                    question = session.question()
                    same(question(session.lazy).compute(), question(session.pandas))
            validate(client)
