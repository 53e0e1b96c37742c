"""A dask that is not what `cachingclient.internals` knows: the cache is left out, with a word."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import json
import subprocess
import sys
import warnings

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from helpers import INPROC, KEEN, count

from cachingclient import CacheInfo, Client, caching, internals, telling

META = np.empty((0,))
SOURCE = ast.parse(inspect.getsource(internals))


@pytest.fixture(autouse=True)
def keep_everything():
    with dask.config.set(KEEN):
        yield


def slow(block):
    count()
    return block + 1


def build():
    return da.ones(40, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def check(client):
    """All that a client is for, with a word of what is missing if it is asked."""
    x = build()
    assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (80, 2, 80)
    assert client.submit(abs, -1, pure=True).result() == 1
    assert client.gather(client.map(abs, [-1, -2], pure=True)) == [1, 2]
    (data,) = client.scatter([5])
    assert client.submit(abs, data, pure=True).result() == 5
    first, second = client.compute(x.sum()), client.compute(x.sum())
    first.cancel()
    assert second.result() == 80
    kept = x.persist()
    assert kept.max().compute() == 2


@contextlib.contextmanager
def words():
    """What users are told by us."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught if w.filename == telling.__file__]


@pytest.fixture
def unknown():
    """What is lacking is found out anew, before and after."""
    internals.lacking.cache_clear()
    yield
    internals.lacking.cache_clear()


# -- names that are not there -----------------------------------------------------------------


def imported() -> list[tuple[str, str]]:
    """Private names that are imported, with their modules."""
    (guarded,) = (node for node in SOURCE.body if isinstance(node, ast.Try))
    return [
        (str(node.module), alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


WITHOUT = """
import importlib, json, sys, warnings
import dask, dask.array as da, distributed
from distributed import LocalCluster

found = {}
with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
    for module, name in json.loads(sys.argv[1]):
        for loaded in [m for m in sys.modules if m.partition(".")[0] == "cachingclient"]:
            del sys.modules[loaded]
        module = importlib.import_module(module)
        value = vars(module).pop(name)
        try:
            import cachingclient.client
        finally:
            setattr(module, name, value)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with cachingclient.Client(cluster) as client:
                x = da.ones(40, chunks=10) + 1
                right = [x.sum().compute() for _ in range(2)] == [80, 80]
                right &= client.submit(abs, -1, pure=True).result() == 1
                right &= client.cache.info() == cachingclient.CacheInfo()
                html = client._repr_html_()
        texts = [str(w.message) for w in caught]
        found[f"{module.__name__}.{name}"] = [right, len(texts), name in str(texts), name in html]
print(json.dumps(found))
"""


@pytest.mark.parametrize("module, name", imported(), ids=[".".join(i) for i in imported()])
def test_names_that_are_imported(monkeypatch, module, name):
    spec = importlib.util.spec_from_file_location("internals_without", internals.__file__)
    without = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as m:
        m.delattr(importlib.import_module(module), name)
        spec.loader.exec_module(without)
    assert name in without.lacking() and dask.__version__ in without.lacking()
    # whatever other modules import of it
    assert [n for n in vars(internals) if not hasattr(without, n)] == []
    with pytest.raises(AttributeError):
        internals.no_such_name


def test_the_package_works_without_them():
    """All are absent from the first that is on."""
    names = imported()
    some = [names[0], names[len(names) // 2], names[-1]]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(some)],
        cwd=helpers.ROOT,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {f"{module}.{name}": [True, 1, True, True] for module, name in some}
    assert "Traceback" not in done.stderr


# -- methods ----------------------------------------------------------------------------------

METHODS = [(kind, name) for kind, methods in internals._METHODS.items() for name in methods]
IDS = [f"{kind.__name__}.{name}" for kind, name in METHODS]


@pytest.mark.parametrize("kind, name", METHODS, ids=IDS)
def test_methods_that_are_gone(monkeypatch, unknown, kind, name):
    assert internals.lacking() == ""
    internals.lacking.cache_clear()
    for base in kind.__mro__:
        if name in vars(base):
            monkeypatch.delattr(base, name)
    assert f"{kind.__name__} has no method {name}" in internals.lacking()
    assert dask.__version__ in internals.lacking()


OTHERS = [(kind, name) for kind, name in METHODS if internals._METHODS[kind][name]]


@pytest.mark.parametrize("kind, name", OTHERS, ids=[f"{k.__name__}.{n}" for k, n in OTHERS])
def test_methods_that_take_other_arguments(monkeypatch, unknown, kind, name):
    first = next(iter(inspect.signature(getattr(kind, name)).parameters.values()))
    other = inspect.Signature([first])
    monkeypatch.setattr(getattr(kind, name), "__signature__", other, raising=False)
    with words() as texts, Client(**INPROC) as client:
        check(client)
        assert client.cache.info() == CacheInfo()
        assert client.cache.entries() == []
        assert "cachingclient" not in helpers.look(client)["plugins"]
        assert f"{name} takes other arguments" in client._repr_html_()
    assert len(texts) == 1 and f"{name} takes other arguments" in texts[0]


def test_a_client_that_is_given_a_cache(monkeypatch):
    monkeypatch.setattr(internals, "lacking", lambda: "dask 2099.1.0 is not known to it: hooks")
    with distributed.Client(**INPROC) as client:
        before = dict(vars(client))
        with words() as texts:
            with caching(client) as cache:
                check(client)
                assert cache.info() == CacheInfo()
        assert len(texts) == 1 and "2099.1.0" in texts[0]
        assert vars(client).keys() == before.keys()


def test_nothing_is_said_where_nothing_is_wanted(monkeypatch):
    monkeypatch.setattr(internals, "lacking", lambda: "dask 2099.1.0 is not known to it: hooks")
    with words() as texts, Client(**INPROC, cache_limit=0) as client:
        check(client)
    assert texts == []


def test_a_scheduler_whose_dask_is_not_known(monkeypatch):
    """The client's own is."""
    asked = []

    def lacking():
        asked.append(1)
        return "dask 2099.1.0 is not known to it: hooks" if len(asked) > 1 else ""

    monkeypatch.setattr(internals, "lacking", lacking)
    with words() as texts, Client(**INPROC) as client:
        check(client)
        assert client.cache.info() == CacheInfo()
        assert "cachingclient" not in helpers.look(client)["plugins"]
    assert len(texts) == 1 and "2099.1.0" in texts[0]


# -- whatever fails -----------------------------------------------------------------------------

#: Don't touch dask, or only what `lacking` has looked at before anything is done.
HARMLESS = {"lacking", "hidden", "frame_kinds", "send"}
#: Where these fail what is read counts as unknown, and `explain` says so; or it is not known which
#: steps are held, and all may be.
EXPLAINED = {"other_operands", "live_frames"}
FUNCTIONS = sorted(
    name
    for name, function in vars(internals).items()
    if callable(function)
    and getattr(function, "__module__", "") == internals.__name__
    and not inspect.isclass(function)
    and not name.startswith("_")
    and name not in HARMLESS
)


LOGGERS = (
    "distributed.scheduler.cachingclient",
    "distributed.worker.cachingclient",
    "distributed.worker",  # says which plugin could not be set up
)


def replace(monkeypatch, name, new):
    """Put something in the place of a function of internals, wherever it was imported."""
    old = getattr(internals, name)
    for module in [m for n, m in sys.modules.items() if n.startswith("cachingclient")]:
        for attribute, value in list(vars(module).items()):
            if value is old:
                monkeypatch.setattr(module, attribute, new)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_whatever_fails_the_work_goes_on(monkeypatch, errors_of_ours, tmp_path, name):
    """An attribute may be gone, or mean something else: no list of names tells."""
    failed = []

    def fail(*args, **kwargs):
        failed.append(name)
        raise AttributeError("dask has changed")

    pd = pytest.importorskip("pandas")
    import dask.dataframe as dd

    pdf = pd.DataFrame({"a": range(8), "b": range(8)})
    for n in range(2):
        pdf[4 * n : 4 * n + 4].to_csv(tmp_path / f"{n}.csv", index=False)
    replace(monkeypatch, name, fail)
    with helpers.logged(*LOGGERS) as messages, words() as texts, Client(**INPROC) as client:
        check(client)
        for _ in range(2):
            frame = dd.read_csv(str(tmp_path / "*.csv"))
            assert frame.a.sum().compute() == 28
            assert frame.b.max().compute() == 7
        with dask.annotate(cache=False):
            assert build().sum().compute() == 80
        assert dask.delayed(abs, pure=True)(-4).compute() == 4
        client._repr_html_()
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.validate_state())
    errors_of_ours.clear()
    assert len(texts) <= 1, texts
    # Who shows the cache tells operators alone: nothing changes for users.
    assert bool(failed) <= bool(texts or messages or name in EXPLAINED)


# -- dataframes ---------------------------------------------------------------------------------


def frame_names() -> list[tuple[str, str]]:
    """Kinds of dataframe expressions that are imported, with the modules that they are in."""
    (function,) = (
        node
        for node in SOURCE.body
        if isinstance(node, ast.FunctionDef) and node.name == "_import_frame_kinds"
    )
    imports = [node for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
    modules = {
        alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names
    }
    return sorted(
        {
            (modules[node.value.id], node.attr)
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
    )


@pytest.fixture
def kinds_unknown():
    """The kinds are looked for anew, before and after."""
    for load in (internals._load_frame_kinds, internals._import_frame_kinds):
        load.cache_clear()
    yield
    for load in (internals._load_frame_kinds, internals._import_frame_kinds):
        load.cache_clear()


@pytest.mark.parametrize(
    "module, name", frame_names(), ids=[".".join(names) for names in frame_names()]
)
def test_kinds_of_dataframes(monkeypatch, kinds_unknown, module, name):
    pytest.importorskip("dask.dataframe")
    with words() as texts, monkeypatch.context() as m:
        m.delattr(importlib.import_module(module), name)
        assert internals.frame_kinds() is None
        assert internals.frame_kinds() is None
    assert len(texts) == 1 and name in texts[0] and dask.__version__ in texts[0]


def test_dataframes_of_unknown_kinds(monkeypatch, kinds_unknown, tmp_path):
    """The reads are not shared, and the rest is as ever."""
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    pd.DataFrame({"a": range(8), "b": range(8)}).to_csv(tmp_path / "x.csv", index=False)
    module = importlib.import_module("dask.dataframe.dask_expr._expr")
    with words() as texts, monkeypatch.context() as m:
        m.delattr(module, "PartitionsFiltered")
        assert internals.frame_kinds() is None
    assert len(texts) == 1
    with words() as texts, Client(**INPROC) as client:
        for _ in range(2):
            frame = dd.read_csv(str(tmp_path / "x.csv"))
            assert (frame.a.sum().compute(), frame.b.max().compute()) == (28, 7)
        assert len(frame) == 8
        check(client)
        assert client.cache.info().hits
        helpers.validate(client)
    assert texts == []
