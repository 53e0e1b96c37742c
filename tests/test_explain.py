"""Why something is kept or not, in a user's words."""

from __future__ import annotations

import time

import dask
import dask.array as da
import dask.dataframe as dd
import helpers
import numpy as np
import pandas as pd
import pytest
from helpers import ran

from cachingclient import Client

META = np.empty((0,))


def slow(block):
    helpers.count()
    return block + 1


def row(client, collection, prefix):
    (found,) = [r for r in client.cache.explain(collection) if r.name.startswith(prefix)]
    return found


def build():
    return da.zeros(8, chunks=2).map_blocks(slow, meta=META)


def test_would_be_kept_then_reused(keen):
    x = build()
    assert row(keen, x.sum(), "slow")[1:4] == ("would be kept", 4, 0)
    x.sum().compute()
    assert row(keen, x.mean(), "slow")[1:4] == ("reused", 4, 4)
    assert row(keen, x.sum(), "finalize").status == "reused"
    assert ran() == 4, "explaining runs nothing"


def test_disabled(keen):
    x = build()
    x.sum().compute()
    with keen.cache.disabled():
        found = row(keen, x.mean(), "slow")
        assert found[1:5] == ("not kept", 4, 4, "inside of cache.disabled()")
        assert row(keen, x.sum(), "finalize").status == "not kept"
    assert row(keen, x.mean(), "slow").status == "reused"


def test_in_part(keen):
    x = build()
    x[:4].sum().compute()
    assert row(keen, x.sum(), "slow")[1:4] == ("reused in part", 4, 2)


@pytest.mark.parametrize(
    "make, prefix, why",
    [
        (lambda: dask.delayed(sum)([1, 2]), "sum", "not pure: pass pure=True"),
        (lambda: dask.delayed(sum, pure=True)([1], dask_key_name="mine"), "mine", "no token"),
        (
            lambda: dd.from_pandas(pd.DataFrame({"a": [1]}), 1).to_parquet("x", compute=False),
            "toparquetdata",
            "writes something",
        ),
        (
            lambda: dask.delayed(abs, pure=True)(dask.delayed(sum)([1])),
            "abs",
            "depends on something that is not kept",
        ),
    ],
)
def test_reasons(keen, make, prefix, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # to_parquet makes its folder at once
    found = row(keen, make(), prefix)
    assert found.status == "not kept" and why in found.why


def test_annotated(keen):
    with dask.annotate(cache=False):
        x = build()
    rows = [r for r in keen.cache.explain(x + 1) if r.name == x.name]
    assert [r.status for r in rows] == ["not kept"] and "cache=False" in rows[0].why


def test_too_cheap():
    with dask.config.set({**helpers.KEEN, "cachingclient.min-cost": "10s"}):
        with Client(**helpers.INPROC) as client:
            x = build()
            x.sum().compute()
            assert "min-cost" in row(client, x.mean(), "slow").why


def test_passing():
    """Parts of a reduction are kept when it is computed again, or where they cost a lot."""

    def slow(block):
        time.sleep(0.02)
        return block

    def partials(client):
        return [e for e in client.cache.entries("sum-") if e.name.startswith("sum-partial")]

    with dask.config.set({"cachingclient.min-cost": "60ms"}):
        with Client(**helpers.INPROC) as client:
            ones = da.ones(16, chunks=1)
            total = ones.map_blocks(slow, dtype=float, meta=np.empty(0)).sum(split_every=4)
            assert total.compute() == 16
            helpers.forgotten(client)
            assert client.cache.entries("sum-") and not partials(client)
            refused = client.cluster.scheduler.plugins["cachingclient"].books.refused
            whys = [why for name, why in refused.items() if name.startswith("sum-partial")]
            assert any("nothing that is held needs it" in why for why in whys)
            client.cache.clear()
            assert total.compute() == 16
            helpers.forgotten(client)
            assert partials(client)


def test_no_room():
    with dask.config.set(helpers.KEEN):
        with Client(**helpers.INPROC, cache_limit=10) as client:
            x = build()
            x.sum().compute()
            assert "no room" in row(client, x.mean(), "slow").why


def test_table_is_readable(keen):
    x = build()
    x.sum().compute()
    lines = str(keen.cache.explain(x.std())).splitlines()
    assert lines[0].split() == ["layer", "kept", "bytes", "saved", "hits", "status"]
    assert any("slow" in line and "reused" in line for line in lines)


def test_without_a_cache():
    with Client(**helpers.INPROC, cache_limit=0) as client:
        found = client.cache.explain(build().sum())
        assert {r.status for r in found} == {"not kept", "fused"}
        assert {r.why for r in found if r.status == "not kept"} == {
            "Nothing is kept: cache_limit is 0."
        }


def test_what_is_no_collection(keen):
    with pytest.raises(TypeError, match="collection"):
        keen.cache.explain(5)


def test_what_is_not_needed(keen):
    """What follows is kept: nothing below it is looked at."""
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(8.0)}), npartitions=2)
    total = frame.map_partitions(slow, meta={"a": "f8"}).a.sum()
    total.compute()
    keen.cache.clear("slow")
    assert row(keen, total, "sum-tree").status == "reused"
    assert row(keen, total, "slow").status == "not needed"
    assert row(keen, total, "frompandas")[1:4] == ("reused", 2, 2)


def test_columns_of_another_frame(keen, tmp_path):
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_csv(tmp_path / "0.csv", index=False)
    time.sleep(0.05)
    frame = dd.read_csv(tmp_path / "*.csv")
    assert row(keen, frame.a.sum(), "read-csv").status == "would be kept"
    frame.a.sum().compute()
    found = row(keen, frame.b.sum(), "read-csv")
    assert found.status == "reused" and found.why.startswith("columns of read-csv-")
    assert frame.b.sum().compute() == 7


def test_files_that_dask_reads_statistics_of(keen, tmp_path):
    """It computes them when it optimizes: not on the event loop."""
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(tmp_path / "0.parquet")
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(tmp_path / "1.parquet")
    time.sleep(0.05)
    frame = dd.read_parquet(tmp_path, filesystem="arrow")
    assert row(keen, frame.a.sum(), "sum-tree").status == "would be kept"


def test_other_parts_of_what_is_needed_are_kept(keen):
    x = build()
    y = (x + 1).map_blocks(slow, meta=META)
    y[:4].sum().compute()
    rows = {r.name: r for r in keen.cache.explain(y[4:].sum())}
    assert (rows[y.name].status, rows[y.name].keys, rows[y.name].kept) == ("would be kept", 2, 0)
    assert "not needed" not in {r.status for r in rows.values()}
    y.sum().compute()
    rows = {r.name: r for r in keen.cache.explain(y[4:].max())}
    assert (rows[y.name].status, rows[y.name].keys, rows[y.name].kept) == ("reused", 2, 2)
