"""What a user's function makes of a dataframe's partitions is computed once."""

from __future__ import annotations

import time

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from helpers import count, forgotten, ran, started, watch

#: dask's own code for parquet
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")
PARTITIONS = 4
PDF = pd.DataFrame(
    {
        "a": np.arange(400.0),
        "b": np.arange(400.0) * 2,
        "k": np.arange(400) % 3,
        "j": np.arange(400) % 4,
    }
)


def clean(df):
    count()
    time.sleep(0.05)
    return df.assign(b=df.b + 1)


CLEAN = PDF.assign(b=PDF.b + 1)


def from_pandas(tmp_path):
    return dd.from_pandas(PDF, npartitions=PARTITIONS)


def read_csv(tmp_path):
    if not any(tmp_path.iterdir()):
        for i, part in enumerate(np.array_split(np.arange(len(PDF)), PARTITIONS)):
            PDF.iloc[part].to_csv(tmp_path / f"{i}.csv", index=False)
    return dd.read_csv(str(tmp_path / "*.csv"))


def _write_parquet(tmp_path):
    if not any(tmp_path.iterdir()):
        for i, part in enumerate(np.array_split(np.arange(len(PDF)), PARTITIONS)):
            PDF.iloc[part].to_parquet(tmp_path / f"{i}.parquet", index=False)


def read_parquet(tmp_path):
    _write_parquet(tmp_path)
    return dd.read_parquet(tmp_path)


def read_parquet_arrow(tmp_path):
    _write_parquet(tmp_path)
    return dd.read_parquet(tmp_path, filesystem="arrow")


class Build:
    """Makes the same cleaned frame each time that it is called."""

    def __init__(self, source, tmp_path):
        self.source, self.tmp_path = source, tmp_path
        # dask may read several small files as one partition
        self().b.sum().compute(scheduler="sync")
        self.partitions = ran()
        assert self.partitions > 1

    def __call__(self):
        return self.source(self.tmp_path).map_partitions(clean, meta=PDF.iloc[:0])


@pytest.fixture(params=[from_pandas, read_csv, read_parquet, read_parquet_arrow])
def build(request, tmp_path):
    return Build(request.param, tmp_path)


#: Where the source makes no difference.
few = pytest.mark.parametrize("build", [from_pandas, read_csv], indirect=True)


def same(got, want):
    pd.testing.assert_series_equal(
        got.sort_index(), want.sort_index(), check_dtype=False, check_index_type=False
    )


def ask_all(f):
    same(f.groupby("k").b.mean().compute(), CLEAN.groupby("k").b.mean())
    same(f.groupby("j").b.sum().compute(), CLEAN.groupby("j").b.sum())
    rows = f[f.a > 350].compute()
    same(rows.b.reset_index(drop=True), CLEAN.b[CLEAN.a > 350].reset_index(drop=True))
    assert f.b.mean().compute() == pytest.approx(CLEAN.b.mean())


def test_two_groupings_a_filter_and_a_mean(client, build):
    ask_all(build())
    assert ran() == build.partitions


@few
def test_asked_again(client, build):
    f = build()
    ask_all(f)
    ran()
    ask_all(f)
    assert ran() == 0


@few
def test_filtered_frame(client, build):
    f = build()
    f = f[f.a > 2]
    want = CLEAN[CLEAN.a > 2]
    same(f.groupby("k").b.mean().compute(), want.groupby("k").b.mean())
    same(f.groupby("j").b.sum().compute(), want.groupby("j").b.sum())
    same(f.k.value_counts().compute(), want.k.value_counts())
    assert len(f) == len(want)
    assert ran() == build.partitions


def test_built_anew(client, build):
    assert build().b.mean().compute() == pytest.approx(CLEAN.b.mean())
    ran()
    assert build().a.max().compute() == 399
    assert build().b.mean().compute() == pytest.approx(CLEAN.b.mean())
    assert ran() == 0


def test_repeat_of_a_final_result_runs_nothing(client, build):
    f = build()
    want = CLEAN.groupby("k").b.mean()
    same(f.groupby("k").b.mean().compute(), want)
    forgotten(client)
    watch(client)
    same(f.groupby("k").b.mean().compute(), want)
    assert started == []
    assert ran() == build.partitions


@few
def test_several_at_once(client, build):
    f = build()
    by_k, by_j, total = dask.compute(f.groupby("k").b.mean(), f.groupby("j").b.sum(), f.b.sum())
    same(by_k, CLEAN.groupby("k").b.mean())
    same(by_j, CLEAN.groupby("j").b.sum())
    assert total == CLEAN.b.sum()
    assert len(f.compute()) == len(CLEAN)
    assert ran() == build.partitions


@few
def test_disabled_runs_all(client, build):
    f = build()
    assert f.b.sum().compute() == CLEAN.b.sum()
    forgotten(client)
    assert ran() == build.partitions
    with client.cache.disabled():
        assert f.b.sum().compute() == CLEAN.b.sum()
    assert ran() == build.partitions


@few
def test_persisted_then_asked(client, build):
    p = build().persist()
    ask_all(p)
    assert ran() == build.partitions


def merged():
    f = dd.from_pandas(PDF, npartitions=PARTITIONS).map_partitions(clean, meta=PDF.iloc[:0])
    other = PDF[["a", "j"]].rename(columns={"j": "i"})
    want = CLEAN.merge(other, on="a")
    return f, f.merge(dd.from_pandas(other, npartitions=3), on="a"), want


def test_merge_and_shuffle(client):
    f, m, want = merged()
    for _ in range(2):
        assert m.b.sum().compute() == want.b.sum()
        same(m.groupby("i").b.sum().compute(), want.groupby("i").b.sum())
        same(f.set_index("j").b.compute().sort_values(), CLEAN.set_index("j").b.sort_values())
        forgotten(client)


def test_merge_of_what_was_shuffled_in_part(client):
    """A part of a shuffle's output is no use for another shuffle of the same data."""
    f, m, want = merged()
    assert len(m.partitions[0].compute()) > 0
    assert m.b.sum().compute() == want.b.sum()
    client.cache.clear("hashjoin")
    assert m.b.max().compute() == want.b.max()
    same(m.groupby("i").b.mean().compute(), want.groupby("i").b.mean())


@pytest.mark.parametrize("kind", ["merge", "set_index"])
def test_what_is_internal_to_a_shuffle_is_not_kept(client, kind):
    """Its values say nothing: the data is in the shuffle, which ends with the computation."""
    f, m, _ = merged()
    (m if kind == "merge" else f.set_index("j")).b.sum().compute()
    assert client.cache.info().keys > 0
    names = [entry.name for entry in client.cache.entries()]
    assert [name for name in names if "transfer" in name or "barrier" in name] == []
