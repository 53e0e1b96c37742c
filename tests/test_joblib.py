"""joblib on a cluster: scikit-learn searches as with a plain client, and nothing of it is kept."""

from __future__ import annotations

import dask
import distributed
import helpers
import numpy as np
import pytest
from helpers import INPROC, KEEN, count, ran

from cachingclient import Client, caching

joblib = pytest.importorskip("joblib")


@pytest.fixture(params=["plain", "client", "caching"])
def client(request):
    with dask.config.set(KEEN):
        if request.param == "client":
            with Client(**INPROC) as client:
                yield client
                helpers.validate(client)
        else:
            with distributed.Client(**INPROC) as client:
                if request.param == "plain":
                    yield client
                else:
                    with caching(client):
                        yield client
                helpers.validate(client)


def square(n):
    count()
    return n * n


def weigh(values, n):
    count("weigh")
    return float(values.sum()) * n


def nested(n):
    with joblib.parallel_config(backend="dask"):
        return sum(joblib.Parallel()(joblib.delayed(square)(n + i) for i in range(3)))


def fail(n):
    raise ValueError(f"no {n}")


def all_of(function, values):
    with joblib.parallel_config(backend="dask"):
        return joblib.Parallel()(joblib.delayed(function)(n) for n in values)


def test_each_call_runs(client):
    for _ in range(2):
        assert all_of(square, range(12)) == [n * n for n in range(12)]
    assert ran() == 24
    assert helpers.held(client) == []


def test_data_that_is_scattered(client):
    values = np.arange(1000.0)
    for scatter in (None, [values]):
        with joblib.parallel_config(backend="dask", scatter=scatter):
            calls = (joblib.delayed(weigh)(values, n) for n in range(4))
            assert joblib.Parallel()(calls) == [values.sum() * n for n in range(4)]
        # changed in place, as users do
        values += 1
    assert ran() == 8
    assert helpers.held(client) == []


def test_calls_inside_of_calls(client):
    assert all_of(nested, range(4)) == [sum((n + i) ** 2 for i in range(3)) for n in range(4)]
    assert ran() == 12


def test_an_error_is_the_users(client):
    with pytest.raises(ValueError, match="no 0"):
        all_of(fail, [0])
    assert all_of(square, [3]) == [9]


def test_collections_beside_it_are_kept(client):
    total = dask.delayed(sum, pure=True)([dask.delayed(square, pure=True)(n) for n in range(3)])
    assert total.compute() == 5
    first = ran()
    assert first == 3
    assert all_of(square, range(3)) == [0, 1, 4]
    assert ran() == 3
    assert total.compute() == 5
    assert ran() == (0 if "cachingclient" in helpers.look(client)["plugins"] else 3)


def test_a_search_over_a_grid(client):
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(120, 6, random_state=0)
    grid = {"C": [0.01, 0.1, 1.0]}
    known = GridSearchCV(LogisticRegression(), grid, cv=3).fit(x, y)
    helpers.watch(client)
    batches = []
    for _ in range(2):
        helpers.started.clear()
        search = GridSearchCV(LogisticRegression(), grid, cv=3, n_jobs=-1)
        with joblib.parallel_config(backend="dask"):
            search.fit(x, y)
        for scores in ("mean_test_score", "split0_test_score", "rank_test_score"):
            assert np.array_equal(search.cv_results_[scores], known.cv_results_[scores])
        assert search.best_params_ == known.best_params_
        assert np.array_equal(search.predict(x), known.predict(x))
        batches.append(sum("fit_and_score" in str(key) for key in helpers.started))
    # all of them run each time
    assert batches[0] == batches[1] > 0
    assert helpers.held(client) == []
