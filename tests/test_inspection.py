"""A static look at functions: what is found in them, what is not, and when they are the same."""

from __future__ import annotations

import asyncio
import csv
import dis
import importlib
import io
import itertools
import json
import logging
import operator
import os
import pickle
import random
import secrets
import shelve
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import uuid
import zipfile
from contextlib import closing, contextmanager
from datetime import date, datetime
from functools import (
    cached_property,
    lru_cache,
    partial,
    partialmethod,
    singledispatch,
    singledispatchmethod,
    wraps,
)
from pathlib import Path
from random import random as r
from types import ModuleType, SimpleNamespace

import cloudpickle
import dask
import distributed
import numpy as np
import numpy.random as npr
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from helpers import name_of
from numpy.random import normal

from cachingclient.inspection import Given, fingerprint, holders, impurity

logger = logging.getLogger(__name__)
counter = 0
RATE = 3.0
CONFIG = {"level": 1}
FUNCTIONS = {"a": abs}
generator = np.random.default_rng(0)

# --------------------------------------------------------------------------------------- impure


def noise(x):
    return x + np.random.normal(size=x.shape)


def calls_noise(x):
    return noise(x) * 2


def local_import(x):
    import random

    return x * random.random()


def local_from(x):
    from time import time as now

    return x + now()


def local_dotted(x):
    import numpy.random as nr

    return nr.rand(3) + x


def local_alias(x):
    draw = np.random.standard_normal
    return draw(3) + x


def in_lambda(xs):
    return sorted(xs, key=lambda x: random.random())


def in_comprehension(xs):
    return [x + r() for x in xs]


def in_inner(x):
    import random as rnd

    def inner():
        return rnd.gauss(0, 1)

    return inner() + x


def in_class_body(x):
    class Local:
        made = time.time()

    return Local.made + x


def handed_on(xs):
    return list(map(uuid.uuid4, xs))


def in_branch(x, log=False):
    for i in range(3):
        try:
            x = x + i
        except ValueError:
            with open("log.txt", "a") as f:
                f.write("x")
        finally:
            x = x * 2
    return x


def open_mode(path, x):
    with open(path, mode="wb") as f:
        pickle.dump(x, f)


def append_mode(path):
    return open(path, "a+")


def sets_global(x):
    global counter
    counter += 1
    return x


def make_counter():
    n = 0

    def count(x):
        nonlocal n
        n += 1
        return x

    return count


def make_closure(function):
    def inner(x):
        return function(x)

    return inner


def timed(function):
    @wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@timed
def decorated(x):
    return x * random.random()


@lru_cache
def memoised(x):
    return x * random.random()


def unloaded(url):
    import requests

    return requests.get(url).text


def unloaded_client(key):
    from boto3 import client

    return client("s3").get_object(Key=key)


def recursive(x):
    return other_half(x) if x else time.time()


def other_half(x):
    return recursive(x - 1)


class Model:
    scale = 2

    def __init__(self, rate=1):
        self.rate = rate

    def noisy(self, x):
        return x + self.draw()

    def draw(self):
        return np.random.rand()

    def quiet(self, x):
        return x * self.scale + self.time(x)

    def time(self, x):
        return x

    @property
    def stamp(self):
        return time.time()

    def reads_property(self, x):
        return x, self.stamp


class Noisy(Model):
    def __call__(self, x):
        return self.noisy(x)


class Quiet(Model):
    def __call__(self, x):
        return self.quiet(x)


def makes_model(x):
    return Model().noisy(x)


model = Model()


def uses_model(x):
    return model.noisy(x)


def keyword_default(x, key=random.random):
    return key() + x


IMPURE = [
    (noise, "noise uses random numbers (numpy.random.normal)"),
    (calls_noise, "calls_noise calls noise, which uses random numbers (numpy.random.normal)"),
    (lambda x: npr.normal() + x, "a lambda uses random numbers (numpy.random.normal)"),
    (lambda x: normal(x), "numpy.random.normal"),
    (lambda x: np.random.seed(0), "numpy.random.seed"),
    (lambda x: np.random.default_rng().normal(), "numpy.random.default_rng without a seed"),
    (lambda x: np.random.default_rng(None).normal(), "without a seed"),
    (lambda x: np.random.RandomState().rand(), "without a seed"),
    (lambda x: random.Random().random(), "random.Random without a seed"),
    (lambda x: random.SystemRandom().random(), "random.SystemRandom"),
    (lambda x: generator.normal(), "random generator that lives on between calls (generator)"),
    (lambda x: r() + x, "random.random"),
    (lambda x: random.choice(x), "random.choice"),
    (lambda x: secrets.token_hex(4), "secrets.token_hex"),
    (lambda x: os.urandom(4), "os.urandom"),
    (local_import, "local_import uses random numbers (random.random)"),
    (local_from, "local_from reads the clock (time.time)"),
    (local_dotted, "numpy.random.rand"),
    (local_alias, "numpy.random.standard_normal"),
    (in_lambda, "random.random"),
    (in_comprehension, "random.random"),
    (in_inner, "random.gauss"),
    (in_class_body, "time.time"),
    (in_branch, "open(..., 'a')"),
    (handed_on, "handed_on makes unique ids (uuid.uuid4)"),
    (lambda df: df.sample(3), ".sample without random_state"),
    (lambda df: df.sample(frac=0.1, replace=True), ".sample without random_state"),
    (lambda df: df[["a"]].dropna().sample(n=3, random_state=None), ".sample without"),
    (lambda d: d.rvs(size=3), ".rvs without random_state"),
    (lambda: datetime.now(), "reads the clock (datetime.now)"),
    (lambda: datetime.utcnow(), "datetime.utcnow"),
    (lambda: date.today(), "date.today"),
    (lambda: pd.Timestamp.now(), "Timestamp.now"),
    (lambda: pd.Timestamp("now"), "Timestamp('now')"),
    (lambda: np.datetime64("now"), "datetime64('now')"),
    (lambda: time.time_ns(), "time.time_ns"),
    (lambda: time.perf_counter(), "time.perf_counter"),
    (lambda: time.monotonic(), "time.monotonic"),
    (lambda: time.localtime(), "time.localtime"),
    (lambda: time.strftime("%Y"), "time.strftime"),
    (lambda: uuid.uuid1(), "uuid.uuid1"),
    (lambda: os.environ["HOME"], "reads the environment (os.environ)"),
    (lambda: os.environ.get("HOME"), "os.environ"),
    (lambda: os.getenv("HOME"), "os.getenv"),
    (lambda: os.getpid(), "os.getpid"),
    (unloaded, "unloaded talks to the network (requests)"),
    (unloaded_client, "talks to the network (boto3)"),
    (lambda u: urllib.request.urlopen(u), "urllib.request"),
    (lambda: socket.create_connection(("a", 1)), "talks to the network (socket)"),
    (lambda c: subprocess.run(c), "runs other programs (subprocess.run)"),
    (lambda c: os.system(c), "os.system"),
    (open_mode, "open_mode writes files (open(..., 'wb'))"),
    (append_mode, "open(..., 'a+')"),
    (lambda p: io.open(p, "x"), "open(..., 'x')"),
    (lambda p: Path(p).open("w"), "open(..., 'w')"),
    (lambda p: p.open(mode="w"), "open(..., 'w')"),
    (lambda p: Path(p).write_text("x"), ".write_text"),
    (lambda p: Path(p).rename("x"), ".rename"),
    (lambda p: p.unlink(), ".unlink"),
    (lambda f: f.write("x"), ".write"),
    (lambda df: df.to_csv("x.csv"), ".to_csv"),
    (lambda df: df.to_csv(path_or_buf="x.csv"), ".to_csv"),
    (lambda df: df.to_parquet("x"), ".to_parquet"),
    (lambda df: df.to_sql("t", con=None), ".to_sql"),
    (lambda ds: ds.to_zarr("x"), ".to_zarr"),
    (lambda x: np.save("x", x), "writes files (numpy.save)"),
    (lambda x: np.savez("x", x), "numpy.savez"),
    (lambda f: f.savefig("x"), ".savefig"),
    (lambda x, f: pickle.dump(x, f), "pickle.dump"),
    (lambda x, f: json.dump(x, f), "json.dump"),
    (lambda p: os.remove(p), "os.remove"),
    (lambda p: os.makedirs(p), "os.makedirs"),
    (lambda p: shutil.rmtree(p), "shutil.rmtree"),
    (sets_global, "sets_global changes a global (counter)"),
    (make_counter(), "count changes a global (n)"),
    (make_closure(noise), "inner calls noise, which uses random numbers"),
    (make_closure(random.gauss), "random.gauss"),
    (decorated, "random.random"),
    (memoised, "memoised uses random numbers (random.random)"),
    (recursive, "time.time"),
    (other_half, "other_half calls recursive, which reads the clock"),
    (Model().noisy, "noisy calls draw, which uses random numbers (numpy.random.rand)"),
    (Model().reads_property, "time.time"),
    (Noisy(), "__call__ calls noisy, which calls draw, which uses random numbers"),
    (makes_model, "makes_model calls noisy"),
    (uses_model, "uses_model calls noisy"),
    (keyword_default, "random.random"),
    (partial(noise, 3), "noise uses random numbers"),
    (partial(map, noise), "noise uses random numbers"),
    (partial(partial(np.random.normal, 3), 3), "numpy.random.normal"),
    (np.vectorize(lambda x: x * random.random()), "a lambda uses random numbers"),
    (time.time, "time reads the clock (time.time)"),
    (np.random.normal, "normal uses random numbers (numpy.random.normal)"),
    (random.random, "random uses random numbers (random.random)"),
    (random.randint, "random.randint"),
    (np.random.default_rng(0).normal, "numpy.random.normal"),
    (datetime.now, "datetime.now"),
    (uuid.uuid4, "uuid.uuid4"),
    (np.save, "numpy.save"),
]

# ----------------------------------------------------------------------------------------- pure


def local_names(time, random, open, sample):
    uuid = time + random
    requests = [open, sample]
    return uuid, requests, time.time, random.random, open.now


def local_module_name(df):
    random = df.mean()
    socket = random + 1
    return random.random(3) + socket


def seeded(x, seed):
    rng = np.random.default_rng(seed)
    state = np.random.RandomState(seed=3)
    legacy = random.Random(3)
    values = rng.normal(size=3), rng.permutation(x), state.rand(), legacy.random()
    return values, legacy.sample(x, 2), rng.choice(x), legacy.shuffle(x)


def reads(path):
    with open(path) as f, io.open(path, "rb") as g, Path(path).open("r") as h:
        return f.read(), g.read(), h.read(), Path(path).read_text(), np.load(path)


def talks(x):
    print("random", x)
    logger.info("time %s", x)
    logging.warning("open")
    sys.stdout.write("x")
    sys.stderr.write("x")
    return x


def texts(df):
    df = df.to_frame().to_csv(index=False), df.to_json(orient="records"), df.to_html()
    return df, df.to_numpy(), df.to_dict(), df.to_list(), df.to_string(), df.to_timestamp()


def in_memory(df):
    buffer = io.BytesIO()
    np.save(buffer, df)
    df.to_parquet(buffer)
    pickle.dump(df, buffer)
    with io.StringIO() as text:
        text.write("x")
        df.to_csv(text)
        return text.getvalue(), buffer.getvalue()


def inner_counter(xs):
    n = 0

    def count(x):
        nonlocal n
        n += 1
        return x

    return [count(x) for x in xs], n


def scientific(x, n=3, *, axis=0):
    kernel = np.ones(n) / n
    smooth = np.apply_along_axis(lambda v: np.convolve(v, kernel, mode="same"), axis, x)
    smooth[smooth < 0] = np.nan
    return np.nanmean(smooth, axis=axis, keepdims=True) + np.fft.rfft(x).real.sum()


def framed(df):
    df = df.assign(day=df["time"].dt.floor("D"), t=pd.to_datetime(df.date, unit="s"))
    df["x"] = df.x.replace({1: 2}).rename("y").astype("float64").to_numpy()
    g = df.groupby(["day"], as_index=False).agg(x=("x", "mean"), n=("x", "size"))
    return g.merge(df, how="left").sort_values("day").to_xarray()


def fit(estimator, x):
    estimator.coef_ = x.mean()
    return estimator


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def sleeps(x):
    time.sleep(0.1)
    return x


async def coroutine(x):
    async with x as y:
        return await y


def generates(xs):
    for x in xs:
        yield from (x, x)


PURE = [
    *(local_names, local_module_name, seeded, reads, talks, texts, in_memory, inner_counter),
    *(scientific, framed, fit, even, odd, sleeps, coroutine, generates),
    lambda x: x + 1,
    lambda row: row["time"] + row["random"],
    lambda x: ("random", "np.random.normal", "open", "w"),
    lambda x: json.dumps(x) + json.loads(x),
    lambda x: pickle.dumps(x),
    lambda x: datetime(2020, 1, 1).isoformat() + x.strftime("%Y"),
    lambda x: datetime.fromtimestamp(x),
    lambda x: time.strftime("%Y", x) + time.gmtime(x),
    lambda x: pd.Timestamp("2020-01-01") + x,
    lambda x: np.datetime64("2020-01-01"),
    lambda x: uuid.uuid5(uuid.NAMESPACE_DNS, x),
    lambda x: urllib.parse.urlencode(x),
    lambda x: os.path.join(x, "b"),
    lambda x: x.sample(3, random_state=1),
    lambda x: x.sample(frac=0.1, seed=3),
    lambda rng, xs: rng.sample(xs, 3),
    lambda d: d.rvs(size=3, random_state=3),
    lambda x: np.random.default_rng(x),
    lambda x: np.random.Generator(np.random.PCG64(3)).normal(),
    lambda x: x.flags.writeable,
    lambda x: x.setflags(write=False),
    lambda x: x.to_datetime().to_pandas().to_series(),
    lambda x: x.to_datetime64() + x.to_pylist() + x.to_tuples() + x.to_pydatetime(),
    lambda x: (3).to_bytes(2, "big") + x.to_crs("epsg:4326"),
    lambda x: x.rename(columns={}).replace("a", "w"),
    lambda x, open: open("a", "w"),
    lambda x: RATE * x + CONFIG["level"],
    lambda x: [FUNCTIONS["a"](y) for y in x],
    partial(scientific, n=3),
    partial(operator.add, 3),
    operator.methodcaller("mean"),
    operator.itemgetter("time"),
    Model().quiet,
    Model.quiet,
    Model,
    Quiet(),
    timed(scientific),
    lru_cache(scientific),
    make_closure(scientific),
    make_closure(3),
    np.vectorize(abs),
    np.sin,
    np.mean,
    np.linalg.svd,
    pd.to_datetime,
    pd.DataFrame.to_numpy,
    len,
    str.join,
    "".join,
    dict,
    time.sleep,
    json.dumps,
    np.random.default_rng,
    None,
    3,
    "random.random",
    [random.random],
    object(),
    random,
]


# ------------------------------------------------------------- what is given, and what objects hold


NO_SEED = None
SEED = 3


def seeded_noise(x, seed=None):
    return x + np.random.default_rng(seed).normal(size=x.shape)


def state_noise(x, *, state=None):
    return x + np.random.RandomState(seed=state).rand()


def seed_or_generator(x, rng=None, seed=None):
    if rng is None:
        rng = np.random.default_rng(seed)
    return x + rng.normal()


def gives_a_generator(x):
    return seed_or_generator(x, rng=np.random.default_rng(2))


def gives_neither(x):
    return seed_or_generator(x)


def seed_beside_a_scale(x, scale=None, seed=None):
    if scale is None:
        scale = 1
    return x + scale * np.random.default_rng(seed).normal()


def gives_a_scale(x):
    return seed_beside_a_scale(x, scale=2)


def seed_or_other(x, seed=None, other=None):
    return x + np.random.default_rng(seed or other).normal()


def gives_a_seed(x):
    return seed_or_other(x, 3)


def seed_of_none(x, seed=None):
    seed = 1 if seed is None else seed
    return x + np.random.default_rng(seed).normal()


def replaced_seed(x, seed=None):
    if seed is None:
        seed = 3
    return x + np.random.default_rng(seed).normal()


def hands_seed_on(x, seed=None):
    return seeded_noise(x, seed)


def sampled(df, n=3, seed=None):
    return df.sample(n, random_state=seed)


@timed
def timed_noise(x, seed=None):
    return seeded_noise(x, seed=seed)


class Seeded:
    def __init__(self, seed=None):
        self.seed = seed

    def __call__(self, x):
        return x + random.Random(self.seed).random()


class SeedsItself:
    def __init__(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def draw(self, x):
        return x + self.rng.normal()


class Slotted:
    __slots__ = ("seed",)

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, x):
        return np.random.default_rng(self.seed).normal() + x


def make_seeded(seed):
    def inner(x):
        return np.random.default_rng(seed).normal() + x

    return inner


class Clock:
    def draw(self, x):
        return x + time.time()

    def plain(self, x):
        return x

    def __call__(self, x):
        return self.draw(x)


class Double:
    def draw(self, x):
        return 2 * x

    def __call__(self, x):
        return self.draw(x)


class Pipe:
    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class Draws(Pipe):
    def __call__(self, x):
        return [step.draw(x) for step in self.steps]


class Holder:
    def __init__(self, inner):
        self.inner = inner
        self.myself = self

    def __call__(self, x):
        return self.inner.draw(x)

    def run(self, x):
        return self(x)


class Makes(Holder):
    def __init__(self):
        super().__init__(Double())
        self.other = Clock()

    def __call__(self, x):
        return self.other.draw(x)

    def quiet(self, x):
        return self.other.plain(x)


class Calls(Holder):
    def __call__(self, x):
        return self.inner(x, seed=3)


class Twice(Holder):
    def __init__(self, inner):
        super().__init__(inner)
        self.other = inner

    def __call__(self, x):
        return super().__call__(x) + super(Twice, self).run(x)


class Later(Clock):
    def run(self, x):
        return super().draw(x)

    def other(self, x):
        return super().plain(x)


class Marked:
    def _draw(self, x, unit):
        return x + time.time()

    def _scale(self, x, unit):
        return x * unit

    now = partialmethod(_draw, unit=1)
    scaled = partialmethod(_scale, unit=1)

    @cached_property
    def start(self):
        return time.time()

    @cached_property
    def size(self):
        return 3

    @singledispatchmethod
    def of(self, x):
        return x

    @of.register
    def _(self, x: int):
        return x + time.time()


marked = Marked()


def make_clock():
    return Clock()


def make_double():
    double = Double()
    return double


CLOCKS, DOUBLES = {"a": [Clock()], "b": abs}, {"a": [Double()], "b": abs}
DRAWS = {"a": noise}
BUILTINS = [abs, random.random]


def through_clocks(x):
    return [clock(x) for clock in CLOCKS["a"]]


def defaults_of_functions(x, functions=(noise, abs)):
    return [function(x) for function in functions]


@np.errstate(all="ignore")
def quietly_noisy(x):
    return x + random.random()


@np.errstate(all="ignore")
def quietly(x):
    return x + 1


@contextmanager
def clocked():
    yield time.time()


@contextmanager
def plainly():
    yield 3


@plainly()
def decorated_by_context(x):
    return noise(x)


def uses_context(x):
    with clocked() as now:
        return x + now


def uses_plain_context(x):
    with plainly() as n:
        return x + n


@singledispatch
def dispatched(x):
    return x


@dispatched.register
def _(x: int):
    return x + random.random()


@singledispatch
def dispatched_plainly(x):
    return x


class Table:
    def __init__(self, read):
        self.read = read

    def __getitem__(self, key):
        return self.read()

    def __add__(self, other):
        return self.read()

    def __repr__(self):
        return f"{time.time()}"


stamps, counts = Table(time.time), Table(int)


IMPURE += [
    (seeded_noise, "seeded_noise uses random numbers (numpy.random.default_rng without a seed)"),
    (state_noise, "numpy.random.RandomState without a seed"),
    (lambda x: random.Random(NO_SEED).random(), "random.Random without a seed"),
    (lambda df: df.sample(3, random_state=NO_SEED), ".sample without random_state"),
    (sampled, ".sample without random_state"),
    (hands_seed_on, "hands_seed_on calls seeded_noise, which uses random numbers"),
    (lambda x: seeded_noise(x), "a lambda calls seeded_noise"),
    (lambda x: seeded_noise(x, None), "a lambda calls seeded_noise"),
    (lambda x: seeded_noise(x, seed=NO_SEED), "a lambda calls seeded_noise"),
    (lambda x: seeded_noise(x, 3) + seeded_noise(x), "a lambda calls seeded_noise"),
    (lambda xs: list(map(seeded_noise, xs)), "a lambda calls seeded_noise"),
    (lambda x: np.vectorize(seeded_noise)(x), "a lambda calls seeded_noise"),
    (partial(seeded_noise, seed=None), "without a seed"),
    (timed_noise, "without a seed"),
    (Seeded(), "__call__ uses random numbers (random.Random without a seed)"),
    (Slotted(None), "numpy.random.default_rng without a seed"),
    (lambda x: SeedsItself().draw(x), "a lambda calls __init__, which uses random numbers"),
    (SeedsItself(3).draw, "draws from a random generator that lives on between calls (rng)"),
    (make_seeded(None), "numpy.random.default_rng without a seed"),
    (Pipe(abs, Clock()), "__call__ calls __call__, which calls draw, which reads the clock"),
    (Pipe(noise), "__call__ calls noise"),
    (Draws(Clock()), "__call__ calls draw, which reads the clock"),
    (Holder(Clock()), "__call__ calls draw, which reads the clock"),
    (Holder(Clock()).run, "run calls __call__, which calls draw"),
    (Holder(SimpleNamespace(draw=noise)), "__call__ calls noise"),
    (Twice(Clock()), "time.time"),
    (Later().run, "run calls draw, which reads the clock"),
    (lambda x: Clock()(x), "a lambda calls __call__, which calls draw"),
    (lambda x: Makes()(x), "a lambda calls __call__, which calls draw, which reads the clock"),
    (lambda x: make_clock().draw(x), "a lambda calls"),
    (lambda x: marked.now(x), "a lambda calls _draw, which reads the clock"),
    (marked.now, "_draw reads the clock"),
    (lambda x: Marked().start, "a lambda calls start, which reads the clock"),
    (lambda x: marked.start, "a lambda calls start, which reads the clock"),
    (lambda x: marked.of(x), "time.time"),
    (through_clocks, "through_clocks calls __call__, which calls draw, which reads the clock"),
    (defaults_of_functions, "defaults_of_functions calls noise"),
    (lambda x: DRAWS["a"](x), "a lambda calls noise"),
    (lambda x: [f() for f in BUILTINS], "random.random"),
    (make_closure(Pipe(Pipe(Clock()))), "time.time"),
    (quietly_noisy, "quietly_noisy uses random numbers (random.random)"),
    (lambda x: quietly_noisy(x), "a lambda calls quietly_noisy"),
    (decorated_by_context, "decorated_by_context calls noise"),
    (uses_context, "uses_context calls clocked, which reads the clock"),
    (dispatched, "random.random"),
    (lambda x: dispatched(x), "random.random"),
    (np.vectorize(Clock()), "time.time"),
    (lambda x: stamps["a"], "a lambda calls __getitem__"),
    (lambda x: 1 + stamps, "time.time"),
    (gives_neither, "gives_neither calls seed_or_generator"),
    (gives_a_scale, "gives_a_scale calls seed_beside_a_scale"),
]

PURE += [
    *(replaced_seed, quietly, uses_plain_context, dispatched_plainly),
    *(gives_a_generator, gives_a_seed, seed_of_none),
    lambda x: seeded_noise(x, 3),
    lambda x: seeded_noise(x, seed=SEED),
    lambda x, seed: seeded_noise(x, seed),
    lambda x: hands_seed_on(x, 3) + timed_noise(x, 3) + timed_noise(x, seed=3),
    lambda xs: [partial(seeded_noise, seed=3)(x) for x in xs],
    lambda df: df.apply(seeded_noise, seed=3) + df.apply(seeded_noise, args=(3,)),
    lambda df: df.sample(3, random_state=SEED),
    lambda df: sampled(df, seed=3),
    lambda x: random.Random(SEED).random(),
    lambda x: SeedsItself(3),
    lambda x: isinstance(x, SeedsItself) or SeedsItself.__name__,
    lambda x: np.vectorize(seeded_noise)(x, seed=3) + np.vectorize(seeded_noise)(x, 3),
    lambda x: Seeded(3)(x),
    partial(seeded_noise, seed=3),
    partial(timed_noise, seed=3),
    partial(state_noise, state=3),
    Seeded(3),
    Slotted(3),
    make_seeded(3),
    Pipe(abs, Double(), Pipe(scientific)),
    Draws(Double()),
    Holder(Double()),
    Holder(Double()).run,
    Holder(SimpleNamespace(draw=scientific)),
    Calls(seeded_noise),
    Twice(Double()),
    Later().other,
    Clock().plain,
    lambda x: Double()(x),
    lambda x: Makes().quiet(x),
    lambda x: make_double().draw(x),
    lambda x: make_clock().plain(x),
    lambda x: marked.scaled(x) + marked.size,
    marked.scaled,
    lambda x: [double.draw(x) for double in DOUBLES["a"]],
    lambda x: counts["a"] + counts,
    make_closure(Pipe(Pipe(Double()))),
    np.vectorize(Double()),
]


@pytest.mark.parametrize("function, text", IMPURE, ids=[text for _, text in IMPURE])
def test_impure(function, text):
    for _ in range(2):
        assert text in impurity(function)


@pytest.mark.parametrize("function", PURE, ids=name_of)
def test_pure(function):
    for _ in range(2):
        assert impurity(function) is None


def passes_anything_on(x, *args, **kwargs):
    return seeded_noise(x, *args, **kwargs)


GIVEN = [
    *(seeded_noise, state_noise, sampled, hands_seed_on, timed_noise, passes_anything_on),
    *(Seeded, SeedsItself, partial(seeded_noise), partial(passes_anything_on, seed=None)),
]


@pytest.mark.parametrize("function", GIVEN, ids=name_of)
def test_given_seed(function):
    name = "state" if function is state_noise else "seed"
    # who makes a callable only keeps its seed
    draws = function is not Seeded
    for _ in range(2):
        for given in (Given(), Given((), frozenset([(name, False)]))):
            assert (impurity(function, given) is not None) == draws
        for given in (Given((), frozenset([(name, True)])), Given(rest=True)):
            if getattr(function, "keywords", {}).get(name, name) is not None or not given.rest:
                assert impurity(function, given) is None
    if function is hands_seed_on:
        assert impurity(function, Given((True, True))) is None
        assert impurity(function, Given((True, False))) is not None


def test_what_is_given_is_looked_at_once():
    from cachingclient.inspection.impure import _impurity

    before = len(_impurity.entries)
    for name in ("a", "b", "c"):
        impurity(scientific, Given((True, True), frozenset([(name, True)])))
        impurity(Seeded(name))
    assert len(_impurity.entries) <= before + 2


def test_objects_that_are_changed():
    class Changing:
        def __init__(self, function):
            self.function = function

        def __call__(self, x):
            return self.function(x)

    changing, functions, settings = Changing(abs), {"a": abs}, SimpleNamespace(seed=3)

    def reads(x):
        return functions["a"](x) + changing(x) + np.random.default_rng(settings.seed).normal()

    for function in (changing, changing.__call__, reads):
        assert impurity(function) is None
        changing.function = noise
        assert "noise" in impurity(function)
        changing.function = abs
        assert impurity(function) is None
    functions["a"] = noise
    assert "noise" in impurity(reads)
    functions["a"] = scientific
    assert impurity(reads) is None
    settings.seed = None
    assert "without a seed" in impurity(reads)


def test_objects_that_hold_each_other():
    inner = Holder(None)
    inner.inner = Pipe(*(Holder(inner) for _ in range(200)), {"a": [inner]})
    assert impurity(inner) is None
    inner.inner.steps.insert(0, Holder(Clock()))
    assert "time.time" in impurity(Pipe(inner.inner))


def _picklable(functions):
    for function in functions:
        try:
            yield function, cloudpickle.dumps(function)
        except Exception:
            pass


def test_functions_that_travelled_by_value_get_the_same_answers():
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        travelled = list(_picklable([*(f for f, _ in IMPURE), *PURE]))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert len(travelled) > 100
    for function, data in travelled:
        # by reference, without what its class body uses, with a wrapper that is the user's now
        if function not in (memoised, in_class_body, uses_context):
            assert impurity(pickle.loads(data)) == impurity(function)


def test_xarray():
    xr = pytest.importorskip("xarray")
    assert impurity(lambda ds: xr.concat([ds.mean("time"), ds.sel(time="2020")], "x")) is None
    assert impurity(lambda ds: ds.to_array().to_dataset("x").to_dataframe()) is None
    assert ".to_netcdf" in impurity(lambda ds: ds.to_netcdf("x.nc"))


def run(source, namespace=None):
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    exec(source, namespace)
    return namespace


def test_helper_redefined_in_a_notebook():
    cells = run("def helper(x): return x\ndef f(x): return helper(x)")
    f, before = cells["f"], fingerprint(cells["f"])
    assert impurity(f) is None
    for _ in range(5):
        run("import random\ndef helper(x): return random.random()", cells)
        assert impurity(f) == "f calls helper, which uses random numbers (random.random)"
        assert fingerprint(f) != before
        run("def helper(x): return x", cells)
        assert impurity(f) is None
        assert fingerprint(f) == before


def test_helper_that_appears_or_becomes_a_value_later():
    cells = run("def f(x): return helper(x)")
    assert impurity(cells["f"]) is None
    run("from time import time as helper", cells)
    assert impurity(cells["f"]) == "f reads the clock (time.time)"
    cells["helper"] = 3
    assert impurity(cells["f"]) is None
    del cells["helper"]
    assert impurity(cells["f"]) is None


def test_builtin_shadowed_later():
    cells = run("def f(x): return open(x, 'w')")
    assert "open" in impurity(cells["f"])
    run("def open(*args): return args", cells)
    assert impurity(cells["f"]) is None


def test_code_replaced_in_place():
    """As IPython's autoreload does."""
    cells = run("import time\ndef f(x): return x\ndef g(x): return time.time()\nh = lambda: f(1)")
    f, h = cells["f"], cells["h"]
    assert impurity(f) is None and impurity(h) is None
    before = fingerprint(h)
    f.__code__ = cells["g"].__code__
    assert "time.time" in impurity(f)
    assert "time.time" in impurity(h)
    assert fingerprint(h) != before


def test_closure_changed():
    cells = run(
        "def make():\n"
        "    inner = abs\n"
        "    def f(x): return inner(x)\n"
        "    def change(new):\n"
        "        nonlocal inner\n"
        "        inner = new\n"
        "    return f, change\n"
        "f, change = make()"
    )
    f, change = cells["f"], cells["change"]
    before = fingerprint(f)
    assert impurity(f) is None
    change(random.random)
    assert "random.random" in impurity(f)
    assert fingerprint(f) != before
    assert "changes a global (inner)" in impurity(change)


def test_method_changed():
    cells = run(
        "class M:\n    def a(self): return self.b()\n    def b(self): return 1\n"
        "f = lambda x: M().a()"
    )
    f, before = cells["f"], fingerprint(cells["f"])
    assert impurity(f) is None
    cells["M"].b = lambda self: random.random()
    assert "random.random" in impurity(f)
    assert fingerprint(f) != before


SOURCE = "RATE = 3\nTABLE = {'a': [1, 2]}\ndef h(x): return x + RATE\ndef f(x): return h(x), TABLE"


@pytest.mark.parametrize(
    "old, new",
    [
        ("x + RATE", "x - RATE"),
        ("RATE = 3", "RATE = 4"),
        ("RATE = 3", "RATE = 3.0"),
        ("[1, 2]", "[1, 3]"),
        ("return h(x), TABLE", "return h(x), TABLE, 1"),
        ("def f(x):", "def f(x, y=1):"),
    ],
)
def test_edited_module(write_module, old, new):
    before = fingerprint(write_module(SOURCE).f)
    assert len(before) == 32
    after = fingerprint(write_module(SOURCE.replace(old, new)).f)
    assert after != before
    assert fingerprint(write_module(SOURCE).f) == before


def test_edited_default(write_module):
    before = fingerprint(write_module("def f(x, y=1, *, z=2): return x").f)
    assert fingerprint(write_module("def f(x, y=2, *, z=2): return x").f) != before
    assert fingerprint(write_module("def f(x, y=1, *, z=3): return x").f) != before


WRAPPED = [
    "@np.errstate(all='ignore')\ndef f(x): return x + 1",
    "@contextlib.contextmanager\ndef f(): yield 1",
    "@functools.singledispatch\ndef f(x): return 1",
    "@functools.singledispatch\ndef f(x): pass\n@f.register\ndef _(x: int): return 1",
    "@functools.lru_cache\ndef f(x): return 1",
    "class M:\n  @functools.cached_property\n  def a(self): return 1\ndef f(x): return M().a",
    "class M:\n  def a(self): return 1\n  b = functools.partialmethod(a)\ndef f(x): M().b()",
    "class M:\n  def a(self): return 1\nclass N(M):\n  def a(self): return super().a()\n"
    "def f(x): return N().a()",
    "class M:\n  def __call__(self): return 1\ndef f(x): return M()()",
]


@pytest.mark.parametrize("source", WRAPPED)
def test_edited_behind_a_wrapper(write_module, source):
    source = "import contextlib, functools, numpy as np\n" + source
    for use in ("g = f", "def g(x): return f(x)"):
        before = fingerprint(write_module(f"{source}\n{use}").g)
        assert len(before) == 32
        assert fingerprint(write_module(f"{source.replace('1', '2')}\n{use}").g) != before
        assert fingerprint(write_module(f"{source}\n{use}").g) == before


def test_function_that_uses_an_edited_module(write_module):
    module = write_module(SOURCE)

    def direct(x):
        return module.f(x)

    def imported(x):
        from edited_module import f

        return f(x)

    for function in (direct, imported, partial(direct, 1), make_closure(direct)):
        write_module(SOURCE)
        before = fingerprint(function)
        assert impurity(function) is None
        write_module(SOURCE.replace("x + RATE", "__import__('time') or x"))
        assert fingerprint(function) != before
        write_module("import time\n" + SOURCE.replace("x + RATE", "time.time()"))
        assert "time.time" in impurity(function)


def test_constant_changed_in_place(write_module):
    module = write_module(SOURCE)
    before = fingerprint(module.f)
    module.TABLE["a"].append(3)
    assert fingerprint(module.f) != before
    module.TABLE["a"].pop()
    assert fingerprint(module.f) == before
    module.RATE = 5
    assert fingerprint(module.f) != before


def test_lines_and_file_names_do_not_count(write_module):
    before = fingerprint(write_module(SOURCE).f)
    assert fingerprint(write_module("\n\n# moved\n" + SOURCE).f) == before
    assert fingerprint(write_module(SOURCE, "edited_other").f) == before


def test_fingerprints_are_the_same_in_every_process(write_module):
    source = SOURCE + "\ndef g(x): return x in {'a', 'b', 'c', 'd'}, f(x), [y for y in x]"
    module = write_module(source)
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import edited_module\nfrom cachingclient.inspection import fingerprint\n"
        "print(fingerprint(edited_module.g))"
    )
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert found.strip() == fingerprint(module.g)


@pytest.mark.parametrize("function", [len, np.sin, np.mean, json.dumps, dict, "".join, 3, None])
def test_no_fingerprint_of_what_is_installed(function):
    assert fingerprint(function) == ""


def test_fingerprint_of_what_wraps():
    whole = fingerprint(scientific)
    assert fingerprint(partial(scientific, n=3)) == whole
    assert fingerprint(Quiet()) == fingerprint(Quiet()) != fingerprint(Noisy())
    assert fingerprint(Model().quiet) != fingerprint(Model().noisy)


def hostile_objects(ran):
    """An object and a class that notice when their code runs."""

    def harm(self, *args):
        ran.append(args)
        raise AssertionError("code of the user has run")

    names = "__getattribute__ __call__ __eq__ __bool__ __len__ __iter__ __repr__".split()
    methods = {**dict.fromkeys(names, harm), "__class__": property(harm), "__hash__": None}
    meta = type("HostileMeta", (type,), {"__getattribute__": harm, "__eq__": harm})
    return type("Hostile", (), methods)(), meta("HostileClass", (), {"a": lambda self: 1})


def test_code_of_the_user_is_never_run():
    ran = []
    hostile, hostile_class = hostile_objects(ran)

    @timed
    def direct(x, y=hostile):
        return hostile.a.b(x) + y.c() + hostile + hostile_class.a(x)

    def closed(x):
        return direct(inner.a, inner())

    inner = hostile
    holder = SimpleNamespace(a=hostile)
    ran.clear()  # making a function compares and hashes nothing, pytest may
    for function in (hostile, hostile_class, direct, closed, partial(hostile, hostile), holder):
        for _ in range(2):
            assert impurity(function) is None
            assert isinstance(fingerprint(function), str)
    assert not ran


# ----------------------------------------------------------------- impure beside its pure twin

ROOT = Path("data")
UPTIME = "/proc/uptime"
shared = object.__new__(distributed.Variable)


def loop_time(x):
    loop = asyncio.get_running_loop()
    return loop.time() + x


def temporary_name(x):
    with tempfile.NamedTemporaryFile() as f:
        return f.name, x


def temporary_file(x):
    with tempfile.TemporaryFile() as f:
        return f.read(), x.name


def divided_path(p):
    p = ROOT / p
    p /= "part"
    return p.with_suffix(".csv").stat()


def named_path(p):
    p = ROOT / p
    p /= "part"
    return p.name.replace("a", "b"), p.read_text(), p.is_absolute(), (p / 2).mean()


def fills_zarr(p, x):
    z = zarr.open(p)
    z[:] = x


def reads_zarr(p, x):
    z = zarr.open(p, mode="r")
    y = z[:]
    y[0] = x
    return y


def fills_memmap(p, x):
    m = np.memmap(p, float)
    m[0] = x


def changes_copy(p, x):
    m = np.memmap(p, float, mode="c")
    m[0] = x
    return m


def inserts(path, rows):
    with sqlite3.connect(path) as con:
        con.cursor().execute("insert into t values (?)", rows)


def selects(path, rows):
    with sqlite3.connect(path) as con:
        return con.cursor().execute("select * from t where a = ?", rows).fetchall()


def in_database_in_memory(rows):
    con = sqlite3.connect(":memory:")
    con.execute("create table t(a)")
    con.executemany("insert into t values (?)", rows)
    con.commit()
    return con.execute("select max(a) from t").fetchone()


def archive_in_memory(name):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as f, closing(sqlite3.connect(":memory:")) as c:
        f.add(name)
        c.commit()
    return buffer.getvalue()


def parquet_in_memory(table):
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        return writer, sink.getvalue()


class Sink:
    def __setitem__(self, key, value):
        value.tofile("x")


sink = Sink()


def fills_sink(x):
    sink[0] = x


def fills_own(x):
    x["now"] = 1
    x.loc[:, "today"] = 2
    return x


def fills_shelf(p, x):
    with shelve.open(p) as shelf:
        shelf["x"] = x


def reads_shelf(p):
    with shelve.open(p, "r") as shelf:
        return shelf["x"]


def saves_model(model, path):
    import torch

    torch.save(model, path)


def loads_model(path):
    import torch

    return torch.load(path)


def writes_hdf(path):
    import h5py

    return h5py.File(path, "a")


def reads_hdf(path):
    import h5py

    return h5py.File(path, "r")["x"][:]


def dumps_joblib(path, x):
    import joblib

    joblib.dump(x, path)


def posts(url):
    import httpx

    return httpx.post(url)


def mails(text):
    import smtplib

    smtplib.SMTP("localhost").sendmail("a", "b", text)


class State:
    n = 0
    model = None


state, numbers, kept, log, answers = State(), itertools.count(), [], [], {}


def numbered(x):
    state.n += 1
    return x + state.n


def lazily_loaded(x):
    state.n += 1
    if state.model is None:
        state.model = abs
    return state.model(x)


def collects(x):
    kept.append(x)
    return sum(kept)


def logs_and_remembers(x):
    log.append(x)
    if x not in answers:
        answers[x] = x + 1
    return answers[x]


def counts_itself(xs):
    own, ids, found = State(), itertools.count(), []
    own.n += 1
    found.append(next(ids))
    return own.n, found.pop(), next(iter(xs))


def make_collecting():
    found = []

    def collect(x):
        found.append(x)
        return len(found)

    return collect


def uses_collecting(x):
    return make_collecting()(x)


TWINS = [
    (lambda: os.times(), "reads the clock (os.times)", lambda: os.sep),
    (loop_time, "reads the clock (asyncio.get_running_loop(...).time)", lambda x: x.time()),
    (
        lambda: pd.date_range(end="now", periods=3),
        "date_range('now')",
        lambda: pd.date_range("2020"),
    ),
    (lambda: pd.to_datetime(["now"]), "to_datetime('now')", lambda x: pd.to_datetime(x[["now"]])),
    (
        lambda: pd.DatetimeIndex(["2020", "a", "today"]),
        "('today')",
        lambda: pd.DatetimeIndex(["2020"]),
    ),
    (lambda: pd.Timestamp(ts_input="now"), "Timestamp('now')", lambda x: pd.Timestamp(x["now"])),
    (lambda: np.datetime64("today", "D"), "datetime64('today')", lambda x: x.split("now")),
    (lambda: pd.period_range("now", periods=2), "period_range('now')", lambda x: x.to_period("D")),
    (lambda: os.getcwd(), "reads the environment (os.getcwd)", lambda p: os.path.abspath(p)),
    (lambda: Path.cwd() / "a", "Path.cwd", lambda p: Path(p) / "a"),
    (lambda p: os.path.expandvars(p), "path.expandvars", lambda p: os.path.expanduser(p)),
    (lambda: open("/proc/uptime").read(), "(/proc/uptime)", lambda line: line.startswith("/proc/")),
    (lambda: open(UPTIME).read(), "(/proc/uptime)", lambda: os.path.join("/proc/", "a")),
    (lambda: Path("/sys/power/state").read_text(), "/sys/power/state", lambda: Path("/system")),
    (lambda: os.getuid(), "os.getuid", lambda: os.cpu_count()),
    (lambda: threading.get_ident(), "threading.get_ident", lambda: threading.Lock()),
    (lambda: threading.current_thread().name, "threading.current_thread", lambda t: t.name),
    (lambda: socket.gethostname(), "talks to the network (socket)", lambda x: x.gethostname()),
    (lambda: uuid.getnode(), "uuid.getnode", lambda x: uuid.UUID(x)),
    (lambda: dask.config.get("a"), "dask.config.get", lambda x: x.config.get("a")),
    (
        lambda: tempfile.mkdtemp(),
        "makes unique ids (tempfile.mkdtemp)",
        lambda: tempfile.gettempdir(),
    ),
    (lambda: tempfile.mkstemp(), "tempfile.mkstemp", lambda: tempfile.TemporaryDirectory()),
    (temporary_name, "makes unique ids (tempfile.NamedTemporaryFile(...).name)", temporary_file),
    (lambda: distributed.get_worker().name, "asks the cluster", lambda w: w.name),
    (lambda: distributed.Variable("a").get(), "asks the cluster", lambda: distributed.Lock("a")),
    (lambda: shared.get(), "asks the cluster", lambda x: x.get("shared")),
    (lambda: distributed.Queue("a").get(), "asks the cluster", lambda q: q.get()),
    (
        lambda: distributed.get_client().get_metadata("a"),
        "asks the cluster",
        lambda f, x: distributed.get_client().submit(f, x).result(),
    ),
    (lambda p: list(Path(p).iterdir()), "Path.iterdir", lambda p: list(Path(p).parts)),
    (lambda p: [q for q in p.iterdir()], "looks at the file system (.iterdir)", lambda p: p.iter()),
    (lambda p: Path(p).exists(), "looks at the file system (Path.exists)", lambda x: x.exists()),
    (lambda p: (Path(p) / "a").parent.is_dir(), "Path.is_dir", lambda p: Path(p).parent.name),
    (lambda: ROOT.stat(), "Path.stat", lambda: ROOT.stem),
    (divided_path, "Path.stat", named_path),
    (lambda p: sorted(ROOT.glob(p)), "Path.glob", lambda p: ROOT.match(p)),
    (lambda p: os.path.getsize(p), "path.getsize", lambda p: os.path.splitext(p)),
    (lambda p: os.readlink(p), "os.readlink", lambda p: os.path.normpath(p)),
    (lambda p: shutil.which(p), "shutil.which", lambda p: shutil.COPY_BUFSIZE),
    (lambda x: x.tofile("a"), "writes files (.tofile)", lambda x: x.tobytes()),
    (
        lambda p: np.memmap(p, dtype=float, mode="w+", shape=2),
        "memmap(..., 'w+')",
        lambda p: np.memmap(p, dtype=float, mode="r"),
    ),
    (
        lambda p: np.lib.format.open_memmap(p, mode="w+", shape=2),
        "open_memmap(..., 'w+')",
        lambda p: np.lib.format.open_memmap(p, mode="r"),
    ),
    (lambda p: np.memmap(p, float, "r+"), "memmap(..., 'r+')", lambda p: np.memmap(p, float, "c")),
    (fills_memmap, "writes files (numpy.memmap(...)[...] = ...)", changes_copy),
    (fills_zarr, "writes files (zarr.open(...)[...] = ...)", reads_zarr),
    (lambda p: zarr.open(p, shape=2), "zarr.open", lambda p: zarr.open(p)),
    (lambda p: zarr.open_group(p, mode="w"), "open_group(..., 'w')", lambda p: zarr.open_group(p)),
    (lambda p: zarr.zeros(3, store=p), "zarr.zeros", lambda: zarr.zeros(3)),
    (lambda p, x: zarr.array(x, store=p), "zarr.array", lambda x: zarr.array(x)),
    (lambda p: zarr.group(p), "zarr.group", lambda: zarr.group(zarr.storage.MemoryStore())),
    (
        lambda p, x: zarr.open_group(p).create_dataset("a", data=x),
        "zarr.open_group(...).create_dataset",
        lambda p: zarr.open_group(p).get("a"),
    ),
    (lambda p: tarfile.open(p, "w:gz"), "open(..., 'w:gz')", lambda p: tarfile.open(p, "r:xz")),
    (lambda p: tarfile.open(p, mode="x|bz2"), "open(..., 'x|bz2')", archive_in_memory),
    (lambda p: tarfile.open(p).extractall(p), ".extractall", lambda x: x.str.extractall("(a)")),
    (lambda p: zipfile.ZipFile(p, "a"), "ZipFile(..., 'a')", lambda p: zipfile.ZipFile(p)),
    (lambda p: zipfile.ZipFile(p).extract("a"), "ZipFile.extract", lambda x: x.str.extract("(a)")),
    (inserts, "writes to a database (.execute)", selects),
    (lambda con: con.commit(), "writes to a database (.commit)", in_database_in_memory),
    (lambda c, x: c.executemany("", x), ".executemany", lambda c, x: c.execute("with t as")),
    (lambda p: logging.FileHandler(p), "logging.FileHandler", lambda: logging.StreamHandler()),
    (lambda p: os.open(p, os.O_CREAT), "os.O_CREAT", lambda p: os.open(p, os.O_RDONLY)),
    (lambda p: os.fdopen(p, "w"), "fdopen(..., 'w')", lambda p: os.fdopen(p)),
    (lambda p, s: pq.ParquetWriter(p, s), "ParquetWriter", parquet_in_memory),
    (lambda p: pa.OSFile(p, "wb"), "OSFile(..., 'wb')", lambda p: pa.OSFile(p)),
    (lambda p: pd.ExcelWriter(p), "ExcelWriter", lambda: pd.ExcelWriter(io.BytesIO())),
    (lambda p: ROOT.joinpath(p).rename("b"), ".rename", lambda p: ROOT.name.replace(p, "b")),
    (lambda p: Path(p).chmod(0), "Path.chmod", lambda p: Path(p).as_posix()),
    (lambda p: subprocess.getoutput(p), "subprocess.getoutput", lambda: subprocess.PIPE),
    (fills_shelf, "writes to a database (shelve.open(...)[...] = ...)", reads_shelf),
    (saves_model, "torch.save", loads_model),
    (writes_hdf, "File(..., 'a')", reads_hdf),
    (posts, "talks to the network (httpx)", lambda x: x.post("a")),
    (mails, "talks to the network (smtplib)", lambda x: urllib.parse.quote(x)),
    (dumps_joblib, "joblib", lambda x: pickle.dumps(x)),
    (
        lambda p, x: csv.writer(open(p, "w")).writerow(x),
        "(..., 'w')",
        lambda p: csv.reader(open(p)),
    ),
    (lambda p, x: p.with_name("x").touch(), ".touch", lambda p: p.with_name("x")),
    (lambda p, x: np.savez_compressed(p, x), "savez_compressed", lambda p: np.load(p)["x"]),
    (lambda p, x: shutil.copyfile(p, x), "shutil.copyfile", lambda x: x.copy()),
    (numbered, "reads what earlier calls left behind (state.n)", lazily_loaded),
    (lambda x: (x, next(numbers)), "left behind (next(numbers))", counts_itself),
    (collects, "collects reads what earlier calls left behind (kept)", logs_and_remembers),
    (lambda: kept.pop(), "left behind (kept)", lambda: kept[-1]),
    (make_collecting(), "left behind (found)", uses_collecting),
    (fills_sink, "fills_sink calls __setitem__, which writes files (.tofile)", fills_own),
]


@pytest.mark.parametrize("function, text, twin", TWINS, ids=[text for _, text, _ in TWINS])
def test_impure_beside_its_pure_twin(function, text, twin):
    for _ in range(2):
        assert text in impurity(function)
        assert impurity(twin) is None


def test_lazy_modules_are_not_loaded():
    module = ModuleType("lazy_module")
    module.__getattr__ = lambda name: pytest.fail(name)
    assert impurity(lambda x: module.thing(x)) is None


MODULES = (
    "argparse ast asyncio collections concurrent.futures contextlib copy csv dataclasses dis email"
    " enum functools heapq inspect itertools logging operator pathlib re statistics string tarfile"
    " tempfile textwrap threading tokenize typing unittest.mock weakref zipfile"
)


def _callables(module):
    for thing in vars(module).values():
        if callable(thing):
            yield thing
            yield from vars(thing).values() if isinstance(thing, type) else ()


@pytest.mark.parametrize("name", MODULES.split())
def test_odd_objects_never_raise(name):
    module = importlib.import_module(name)
    for thing in _callables(module):
        for odd in (thing, partial(thing) if callable(thing) else thing):
            assert impurity(odd) is None or isinstance(impurity(odd), str)
            assert isinstance(fingerprint(odd), str)


@pytest.mark.parametrize("name", MODULES.split())
def test_any_bytecode_is_read(name):
    """Code of installed packages as if the user had written it."""
    from cachingclient.inspection.impure import _find
    from cachingclient.inspection.prints import _find as _digest_of

    for thing in _callables(importlib.import_module(name)):
        if type(thing) is type(_callables):
            text, _ = _find(thing, None)
            assert text is None or isinstance(text, str)
            assert len(_digest_of(thing, None)[0]) == 32


@pytest.mark.parametrize("name", MODULES.split())
def test_bytecode_is_read_as_dis_reads_it(name):
    from cachingclient.inspection import bytecode

    def codes(code):
        yield code
        for constant in code.co_consts:
            if isinstance(constant, type(code)):
                yield from codes(constant)

    compared = 0
    for thing in _callables(importlib.import_module(name)):
        for code in codes(thing.__code__) if type(thing) is type(_callables) else ():
            slow = [i for i in bytecode._slow(code) if i.opname != "EXTENDED_ARG"]
            for ours, theirs in zip(bytecode._fast(code), slow, strict=True):
                # dis has numbers and targets of jumps for values too, and names of keywords in 3.11
                if ours.value is not None and ours.opname != "KW_NAMES":
                    assert ours.value == theirs.value
                named = ours.opcode in {*dis.hasname, *dis.haslocal, *dis.hasfree}
                assert (ours.value is not None) >= named
                assert ours[:4] == theirs[:4] and ours.target == theirs.target
                compared += 1
    assert compared or name in ("asyncio", "itertools", "operator")


def test_nothing_is_kept_alive():
    import gc
    import weakref

    class Data:
        pass

    def make():
        data = Data()
        cells = run("def h(x): return h\ndef f(x): return data, h(x)", {"data": data})
        impurity(cells["f"])
        fingerprint(cells["f"])
        return weakref.ref(data), weakref.ref(cells["f"])

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_deep_and_wide_graphs_end():
    source = "".join(f"def f{i}(x): return f{i + 1}(x), g(x)\n" for i in range(300))
    cells = run(source + "def g(x): return f0\n" + "def f300(x): return x")
    assert impurity(cells["f0"]) is None
    assert fingerprint(cells["f0"])
    nested = len
    for _ in range(1000):
        nested = partial(map, nested)
    assert impurity(nested) is None


def test_travels_by_value():
    import cachingclient

    cloudpickle.register_pickle_by_value(cachingclient)
    try:
        look, digest = cloudpickle.loads(cloudpickle.dumps((impurity, fingerprint)))
    finally:
        cloudpickle.unregister_pickle_by_value(cachingclient)
    assert look is not impurity
    for function in (noise, scientific, uses_model):
        assert look(function) == impurity(function)
        assert digest(function) == fingerprint(function)


def test_caches_travel_empty():
    from cachingclient.inspection import impure, scope

    impurity(noise)
    assert not pickle.loads(pickle.dumps(scope._outlines))
    assert not cloudpickle.loads(cloudpickle.dumps(impure._impurity)).entries


class Cell:
    """One of many that know each other."""

    def __init__(self):
        self.others = []

    def energy(self):
        return sum(len(cell.others) for cell in self.others)


def test_objects_that_know_each_other_are_met_once(monkeypatch):
    cells = [Cell() for _ in range(60)]
    for cell in cells:
        cell.others = cells
    met = []
    monkeypatch.setattr(holders, "value_in", lambda thing, name: met.append(name))
    list(holders.reached(cells, frozenset(["energy", "others"])))
    monkeypatch.undo()
    assert 0 < len(met) <= 2 * holders.ALIKE
    assert len(list(holders.reached(cells, frozenset(["energy", "others"])))) <= 2 * holders.ALIKE
    assert len(list(holders.contents([[[abs] * 50] * 50] * 50))) <= holders.ITEMS + 100
    assert impurity(lambda: [cell.energy() for cell in cells]) is None
