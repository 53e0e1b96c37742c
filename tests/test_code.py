"""Results of old code are gone when the code is edited."""

from __future__ import annotations

import importlib
import operator
import os
import sys
import tempfile
from datetime import timedelta
from types import SimpleNamespace

import dask
import dask.array as da
import helpers
import numpy as np
import pandas as pd
import pytest
from distributed import WorkerPlugin, wait
from helpers import ran

from cachingclient import Client

META = np.empty((0,))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that can be edited: call it with its new text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "edited_" + tmp_path.name.replace("-", "_")
    path = tmp_path / f"{name}.py"
    versions = iter(range(1, 100))

    def edit(text):
        path.write_text(text)
        # The same second and size would be taken for the same file.
        os.utime(path, ns=(0, next(versions) * 10**9))
        importlib.invalidate_caches()
        if name in sys.modules:
            return importlib.reload(sys.modules[name])
        return importlib.import_module(name)

    yield edit
    sys.modules.pop(name, None)


def test_reloaded_function(keen, module):
    m = module("def f(block):\n    return block + 1\n")
    assert da.ones(4, chunks=2).map_blocks(m.f, meta=META).sum().compute() == 8
    # A result that somebody still holds is used again, as in plain dask.
    helpers.forgotten(keen)
    m = module("def f(block):\n    return block + 2\n")
    assert da.ones(4, chunks=2).map_blocks(m.f, meta=META).sum().compute() == 12
    assert da.ones(4, chunks=2).map_blocks(m.f, meta=META).max().compute() == 3


def test_reloaded_constant_and_helper(keen, module):
    text = "BASE = {}\ndef help(v):\n    return v * {}\ndef f(v):\n    return BASE + help(v)\n"
    m = module(text.format(10, 2))
    assert dask.delayed(m.f, pure=True)(1).compute() == 12
    helpers.forgotten(keen)
    m = module(text.format(20, 2))
    assert dask.delayed(m.f, pure=True)(1).compute() == 22
    helpers.forgotten(keen)
    m = module(text.format(20, 3))
    assert dask.delayed(m.f, pure=True)(1).compute() == 23
    helpers.forgotten(keen)
    assert keen.submit(m.f, 1, pure=True).result() == 23


def test_unchanged_reload_keeps_what_is_kept(keen, module):
    text = "import helpers\ndef f(v):\n    helpers.count()\n    return v + 1\n"
    m = module(text)
    assert dask.delayed(m.f, pure=True)(1).compute() == 2
    helpers.forgotten(keen)
    m = module("# a comment moves the lines\n" + text)
    assert dask.delayed(m.f, pure=True)(1).compute() == 2
    assert ran() == 1


def test_redefined_in_a_notebook(keen):
    namespace = {"__name__": "__main__"}
    values = []
    for step in (1, 2):
        exec(f"def f(block):\n    return block + {step}\n", namespace)
        x = da.ones(4, chunks=2).map_blocks(namespace["f"], meta=META)
        values.append(float(x.sum().compute()))
    assert values == [8, 12]


def test_changed_global_while_another_result_is_alive(keen):
    # As in a notebook: its functions travel with the globals that they use. The scheduler knows
    # all that the mean was made of, by the tasks as they were.
    namespace = {"__name__": "__main__", "FACTOR": 1}
    exec("def scaled(block):\n    return block * FACTOR\n", namespace)
    x = da.ones(4, chunks=2).map_blocks(namespace["scaled"], meta=META)
    mean = keen.compute(x.mean())
    assert (mean.result(), x.sum().compute()) == (1, 4)
    helpers.wait_until(lambda: len(keen.futures) == 1)
    namespace["FACTOR"] = 2
    with helpers.logged("distributed.scheduler") as messages:
        assert [x.max().compute(), x.sum().compute(), x.sum().compute()] == [2, 8, 8]
    assert not messages
    del mean
    helpers.forgotten(keen)
    assert [x.mean().compute(), x.sum().compute()] == [2, 8]


def test_what_is_held_of_old_code_is_asked_after_the_new(keen):
    # The same names mean another thing each: what is held is used where it is asked for itself.
    namespace = {"__name__": "__main__", "FACTOR": 1}
    exec("def scaled(block):\n    return block * FACTOR\n", namespace)
    x = da.ones(4, chunks=2).map_blocks(namespace["scaled"], meta=META)
    held = (x + 1).persist()
    wait(held)
    namespace["FACTOR"] = 2
    assert (x + 1).max().compute() == 3
    helpers.wait_until(lambda: len(keen.futures) == 2)
    assert held.max().compute() == 2


def test_changed_global_where_the_new_graph_shows_the_same_keys(keen):
    namespace = {"__name__": "__main__", "FACTOR": 1}
    exec("def scaled(block):\n    return block * FACTOR\n", namespace)
    x = da.ones(4, chunks=2).map_blocks(namespace["scaled"], meta=META)
    mean = keen.compute(x.mean())
    assert mean.result() == 1
    namespace["FACTOR"] = 2
    assert x.compute().tolist() == [2, 2, 2, 2]
    namespace["FACTOR"] = 3
    both = dask.delayed(sum, pure=True)([x.min(), x.max()])
    assert both.compute() == 6
    assert mean.result() == 1, "what somebody holds stays as it is"


class Scale:
    """Settings that a notebook keeps in a class."""

    factor = 1

    def __call__(self, block):
        return block * self.factor


def scaled_by_class(block):
    return block * Scale.factor


def test_changed_constant_of_a_class(keen, monkeypatch):
    for function in (Scale(), scaled_by_class):
        x = da.ones(4, chunks=2).map_blocks(function, meta=META)
        for factor in (1, 2, 3):
            monkeypatch.setattr(Scale, "factor", factor)
            assert [x.sum().compute(), x.max().compute()] == [4 * factor, factor]
            helpers.forgotten(keen)


def test_answers_are_told_apart_by_the_settings_they_had(keen, module):
    """One that is held is asked for again, after another question has seen the new settings."""
    settings = module("FACTOR = 1\ndef scaled(block):\n    return block * FACTOR\n")
    x = da.ones(4, chunks=2).map_blocks(settings.scaled, meta=META)
    y = da.ones(6, chunks=2).map_blocks(settings.scaled, meta=META)
    with Client(keen.cluster, set_as_default=False) as other:
        held = keen.compute(x.sum())
        assert held.result() == 4
        for factor in (2, 3):
            settings.FACTOR = factor
            assert y.max().compute(scheduler=keen) == factor
            assert keen.compute(x.sum()).result() == 4 * factor
            assert other.compute(x.sum()).result() == 4 * factor
        assert held.result() == 4


def test_an_answer_is_the_same_beside_others(keen, module):
    settings = module("RATE = 1\ndef one(b):\n    return b + 1\ndef two(b):\n    return b * RATE\n")
    x = da.ones(4, chunks=2).map_blocks(settings.one, meta=META)
    y = da.ones(4, chunks=2).map_blocks(settings.two, meta=META)
    alone = keen.compute(x.sum())
    together, other = keen.compute([x.sum(), y.sum()])
    assert alone.key == together.key
    assert keen.gather([alone, together, other]) == [8, 8, 4]
    settings.RATE = 2
    again, changed = keen.compute([x.sum(), y.sum()])
    assert again.key == alone.key and changed.key != other.key
    assert keen.gather([again, changed, other]) == [8, 8, 4]


@pytest.mark.parametrize("made", ["once", "anew"])
@pytest.mark.parametrize("ask", [lambda x: x, lambda x: x.max()])
def test_settings_that_change_from_question_to_question(keen, module, ask, made):
    """What was answered last may still be wanted, as far as anybody has heard."""
    settings = module("FACTOR = 0\ndef scaled(block):\n    return block * FACTOR\n")

    def build():
        return da.ones(4, chunks=2).map_blocks(settings.scaled, meta=META)

    x = build()
    for factor in range(1, 21):
        settings.FACTOR = factor
        asked = ask(x if made == "once" else build())
        assert np.ravel(asked.compute())[0] == factor


HELPERS = {
    "function": ("def g(b):\n    return b + {}\n", "g(b)"),
    "method": ("class A:\n    def go(self, b):\n        return b + {}\n", "A().go(b)"),
    "cached": ("import functools\n@functools.lru_cache\ndef g():\n    return {}\n", "b + g()"),
    "lambda": ("g = lambda b: b + {}\n", "g(b)"),
    "closure": ("def make(k):\n    return lambda b: b + k\ng = make({})\n", "g(b)"),
    "property": ("class A:\n    @property\n    def p(self):\n        return {}\n", "b + A().p"),
    "dispatch": ("def g(b):\n    return b + {}\nGO = {{'g': g}}\n", "GO['g'](b)"),
    "vectorized": (
        "import numpy as np\ndef g(v):\n    return v + {}\nu = np.vectorize(g, otypes=['f8'])\n",
        "u(b)",
    ),
    "factory": (
        "class A:\n    def go(self, b):\n        return b + {}\ndef make():\n    return A()\n",
        "make().go(b)",
    ),
    "number": ("import numpy as np\nk = np.float64({})\n", "b + k"),
}


@pytest.mark.parametrize("name", HELPERS)
def test_reloaded_helper(keen, module, name):
    source, call = HELPERS[name]
    text = f"{source}def f(b):\n    return {call}\n"
    alive = da.ones(4, chunks=2).map_blocks(module(text.format(1)).f, meta=META)
    assert alive.max().compute() == 2
    helpers.forgotten(keen)
    for step in (2, 3):
        m = module(text.format(step))
        assert alive.max().compute() == 1 + step, "the old collection"
        helpers.forgotten(keen)
        rebuilt = da.ones(4, chunks=2).map_blocks(m.f, meta=META)
        assert rebuilt.max().compute() == 1 + step, "the same, built again"
        helpers.forgotten(keen)


def test_reload_that_changes_nothing_keeps_what_an_old_collection_has(keen, module):
    text = "import helpers\ndef f(b):\n    helpers.count()\n    return b + 1\n"
    alive = da.ones(4, chunks=2).map_blocks(module(text).f, meta=META)
    assert [alive.max().compute(), ran()] == [2, 2]
    module("# moved\n" + text)
    assert [alive.min().compute(), ran()] == [2, 0]


STEPS = """
class Pipeline:
    def __init__(self, steps):
        self.steps = steps
    def __call__(self, b):
        for step in self.steps:
            b = step(b)
        return b

class Add:
    def __call__(self, b):
        return b + {}
"""


def test_class_of_what_a_callable_object_holds(keen, module):
    for step in (1, 2, 3):
        m = module(STEPS.format(step))
        x = da.ones(4, chunks=2).map_blocks(m.Pipeline([m.Add()]), meta=META)
        assert x.max().compute() == 1 + step
        assert x.min().compute() == 1 + step
        helpers.forgotten(keen)


class Options:
    """Settings that a user keeps in an object."""

    def __init__(self, rate):
        self.rate = rate


@pytest.mark.parametrize(
    "value, use",
    [
        (lambda n: np.float64(n), "k"),
        (lambda n: np.array([n]), "k[0]"),
        (lambda n: timedelta(seconds=n), "k.total_seconds()"),
        (lambda n: SimpleNamespace(rate=n), "k.rate"),
        (lambda n: Options(n), "k.rate"),
        (lambda n: {"a": {"b": {"c": {"d": n}}}}, "k['a']['b']['c']['d']"),
        (lambda n: [0] * 100 + [n], "k[-1]"),
        (lambda n: pd.Series([n]), "k[0]"),
    ],
)
def test_changed_setting(keen, value, use):
    namespace = {"__name__": "__main__"}
    exec(f"import helpers\ndef f(b):\n    helpers.count()\n    return b + {use}\n", namespace)
    namespace["k"] = value(0)
    x = da.ones(4, chunks=2).map_blocks(namespace["f"], meta=META)
    for n in (1, 2, 3):
        namespace["k"] = value(n)
        assert [x.max().compute(), x.min().compute(), ran()] == [1 + n, 1 + n, 2]
        namespace["k"] = value(n)
        assert [x.sum().compute(), ran()] == [4 + 4 * n, 0], "another one that is equal"
        helpers.forgotten(keen)


def test_attribute_changed_in_place(keen):
    options = Options(1)
    x = da.ones(4, chunks=2).map_blocks(lambda b: b + options.rate, meta=META)
    for n in (1, 2, 3):
        options.rate = n
        assert [x.max().compute(), x.max().compute()] == [1 + n, 1 + n]
        helpers.forgotten(keen)


def test_class_redefined_in_a_notebook(keen):
    namespace = {"__name__": "__main__"}
    cell = "class A:\n    def go(self, b):\n        return b + {}\n"
    exec("def make():\n    return A()\ndef f(b):\n    return make().go(b)\n", namespace)
    exec(cell.format(1), namespace)
    x = da.ones(4, chunks=2).map_blocks(namespace["f"], meta=META)
    for step in (1, 2, 3):
        exec(cell.format(step), namespace)
        assert x.max().compute() == 1 + step
        helpers.forgotten(keen)


def test_path_set_anew_is_watched(keen, tmp_path):
    paths = [str(tmp_path / f"{name}.npy") for name in "ab"]
    namespace = {"__name__": "__main__", "np": np, "P": paths[0]}
    exec("def f(b):\n    return b + np.load(P)\n", namespace)
    for path in paths:
        np.save(path, 1)
    x = da.ones(4, chunks=2).map_blocks(namespace["f"], meta=META)
    assert x.max().compute() == 2
    helpers.forgotten(keen)
    namespace["P"] = paths[1]
    assert x.max().compute() == 2
    helpers.forgotten(keen)
    np.save(paths[1], 2)
    assert x.max().compute() == 3


def adder(k):
    def add(block):
        helpers.count()
        return block + k

    return add


def test_functions_of_the_same_code_do_not_push_each_other_out(keen):
    arrays = [da.ones(4, chunks=2).map_blocks(adder(k), meta=META) for k in (1, 2)]
    for _ in range(2):
        assert [x.max().compute() for x in arrays] == [2, 3]
    assert ran() == 4
    assert da.ones(4, chunks=2).map_blocks(adder(1), meta=META).min().compute() == 2
    assert ran() == 0


def slow(block):
    helpers.count()
    return block + 1


def test_uploaded_file(keen, tmp_path):
    x = da.ones(4, chunks=2).map_blocks(slow, meta=META)
    assert (x.sum().compute(), x.mean().compute(), ran()) == (8, 2, 2)
    path = tmp_path / "uploaded_helper.py"
    path.write_text("value = 1\n")
    keen.upload_file(str(path))
    assert keen.cache.info().keys == 0
    assert (x.sum().compute(), ran()) == (8, 2)


class Environment(WorkerPlugin):
    """Stands for one that installs packages."""

    name = "environment"


def test_changed_worker_plugins(keen):
    x = da.ones(4, chunks=2).map_blocks(slow, meta=META)
    assert x.sum().compute() == 8
    assert keen.cache.info().keys > 0
    keen.register_plugin(Environment())
    assert keen.cache.info().keys == 0
    assert x.sum().compute() == 8
    keen.unregister_worker_plugin("environment")
    assert keen.cache.info().keys == 0


# -- what the code shows --------------------------------------------------------------


def rolls(block):
    helpers.count()
    return block + np.random.default_rng().normal()


def seeded(block):
    helpers.count()
    return block + np.random.default_rng(3).normal()


def logged(value, path):
    helpers.note(path)
    return value + 1


def test_impure_function_runs_each_time(keen):
    x = da.ones(4, chunks=2).map_blocks(rolls, meta=META)
    assert x.sum().compute() != x.sum().compute()
    assert ran() == 4
    assert x.mean().compute() != x.mean().compute()
    assert ran() == 4
    assert "random" in str(keen.cache.explain(x.sum()))
    assert keen.cache.entries("rolls") == []


def test_seeded_function_is_kept(keen):
    x = da.ones(4, chunks=2).map_blocks(seeded, meta=META)
    assert x.sum().compute() == x.sum().compute()
    x.mean().compute()
    assert ran() == 2


def test_impure_function_that_is_called_pure(keen):
    for _ in range(2):
        keen.submit(rolls, 1.0, pure=True).result()
        helpers.forgotten(keen)
        dask.delayed(rolls, pure=True)(1.0).compute()
        helpers.forgotten(keen)
    assert ran() == 4


def test_annotation_and_setting_lift_what_the_code_shows(keen):
    with dask.annotate(cache=True):
        x = da.ones(4, chunks=2).map_blocks(rolls, meta=META)
    assert x.sum().compute() == x.sum().compute()
    assert ran() == 2
    with dask.config.set({**helpers.KEEN, "cachingclient.impure": True}):
        with Client(**helpers.INPROC) as client:
            y = da.ones(6, chunks=2).map_blocks(rolls, meta=META)
            assert y.sum().compute() == y.sum().compute()
            assert client.submit(rolls, 2.0).result() == client.submit(rolls, 2.0).result()
            assert ran() == 4


def test_log_of_a_helper_is_no_effect(keen, tmp_path):
    path = str(tmp_path / "log")
    for _ in range(2):
        assert dask.delayed(logged, pure=True)(1, path).compute() == 2
        helpers.forgotten(keen)
    assert helpers.noted(path) == 2 or helpers.noted(path) == 1


OUT = os.path.join(tempfile.gettempdir(), f"cachingclient-test-{os.getpid()}")


class Job:
    """Something that a constructor does."""

    def __init__(self, path):
        helpers.count()
        with open(path, "w") as f:
            f.write("done")


def put(value):
    helpers.count()
    with open(OUT, "w") as f:
        f.write(str(value))
    return value


def listing(block, folder):
    helpers.count()
    return block + len(os.listdir(folder))


def test_constructors_vectorized_functions_and_methods_are_looked_at(keen, tmp_path):
    path = str(tmp_path / "out")
    x = da.ones(2, chunks=2)
    questions = [
        (dask.delayed(Job, pure=True)(path), 1),
        (x.map_blocks(np.vectorize(put), dtype="f8", meta=META).sum(), 2),
        (da.frompyfunc(put, 1, 1)(x).sum(), 2),
    ]
    for question, calls in questions:
        for _ in range(2):
            question.compute()
            helpers.forgotten(keen)
            assert ran() >= calls


class Sink:
    """What a user hands to his functions to write with."""

    def run(self, block):
        helpers.count()
        with open(OUT, "w") as f:
            f.write("done")
        return block

    def look(self, block):
        helpers.count()
        return block


def test_object_that_writes_is_looked_at(keen):
    x = da.ones(2, chunks=2)
    for _ in range(2):
        assert x.map_blocks(lambda block, s: s.run(block), Sink(), meta=META).sum().compute() == 2
    assert ran() == 2
    for _ in range(2):
        assert x.map_blocks(lambda block, s: s.look(block), Sink(), meta=META).sum().compute() == 2
    assert ran() == 1, "this method writes nothing"


def test_writing_method_is_found_behind_a_methodcaller(keen, tmp_path):
    path = str(tmp_path / "out")
    write = dask.delayed(operator.methodcaller("tofile", path), pure=True)
    for _ in range(2):
        dask.delayed(lambda nothing: 1, pure=True)(write(np.ones(3))).compute()
        helpers.forgotten(keen)
        assert os.path.exists(path)
        os.remove(path)


def test_what_looks_at_folders_runs_again(keen, tmp_path):
    x = da.zeros(2, chunks=2).map_blocks(listing, str(tmp_path), meta=META)
    assert x.sum().compute() == 0
    (tmp_path / "new").touch()
    assert x.sum().compute() == 2


# -- what the configuration says ------------------------------------------------------


def push_rows(block):
    helpers.count()
    return block + 1


@pytest.mark.parametrize(
    "settings, runs",
    [
        ({}, 2),
        ({"effects": ["push_*"]}, 4),
        ({"never": ["push"]}, 4),
        ({"never": ["sum"]}, 2),
    ],
)
def test_rules(settings, runs):
    settings = {f"cachingclient.{k}": v for k, v in settings.items()}
    with dask.config.set({**helpers.KEEN, **settings}):
        with Client(**helpers.INPROC):
            x = da.ones(4, chunks=2).map_blocks(push_rows, meta=META)
            assert (x.sum().compute(), x.mean().compute()) == (8, 2)
            assert ran() == runs


def test_always():
    with dask.config.set({**helpers.KEEN, "cachingclient.always": ["rolls"]}):
        with Client(**helpers.INPROC):
            x = da.ones(4, chunks=2).map_blocks(rolls, meta=META)
            assert x.sum().compute() == x.sum().compute()
            assert ran() == 2
