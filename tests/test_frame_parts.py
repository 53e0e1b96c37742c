"""Parts of the rewriting of dataframes, each for itself: no scheduler, no client."""

from __future__ import annotations

import operator

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import utils_frames
from utils_frames import table
from utils_graphs import Submission

from cachingclient import internals
from cachingclient.frames import serving
from cachingclient.frames.canonical import Identities
from cachingclient.frames.data import Stash, data_of, pack
from cachingclient.frames.fusing import fuse
from cachingclient.frames.index import Family, FrameIndex
from cachingclient.frames.leaves import CSV, MAP, PARQUET, Families, leaf_of, readers
from cachingclient.internals import Alias, Task, TaskRef

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

PDF = table()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    top = tmp_path_factory.mktemp("frames")
    utils_frames.write(top, PDF)
    return top


class Leaves:
    """Leaves as a scheduler sees them."""

    def __init__(self):
        self.families = Families()
        self.index = FrameIndex()
        self.said = {}
        self.identities = Identities(self.leaf, self.index.identities)

    def expr(self, lazy):
        expr = internals.as_computed(lazy)
        for _, node in readers(expr):
            self.said[internals.expr_name(node)] = self.families.reader(node)
        return expr

    def leaf(self, node):
        said = self.said.get(internals.expr_name(node))
        return None if said is None else leaf_of(node, said)

    def leaves(self, lazy):
        return [leaf for node in self.expr(lazy).walk() if (leaf := self.leaf(node)) is not None]

    def identity(self, lazy):
        """Identity of what is computed, without the task that puts partitions together."""
        root = self.expr(lazy).operands[0]
        if type(root).__name__ == "RepartitionToFewer":
            root = root.frame
        return self.identities.of(root)


# -- families ----------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["read_csv", "read_parquet", "read_arrow", "from_map"])
def test_leaves_of_the_same_files_are_of_one_family(files, reader):
    leaves = Leaves()
    f, again = (getattr(utils_frames, reader)(files) for _ in range(2))
    lazies = [f.a.sum(), f[["x", "b"]].sum(), f, f.head(2, compute=False), again.x.max()]
    found = [leaf for lazy in lazies for leaf in leaves.leaves(lazy)]
    assert len({leaf.family for leaf in found}) == 1
    kinds = {"read_csv": CSV, "from_map": MAP}
    assert {leaf.kind for leaf in found} == {kinds.get(reader, PARQUET)}
    assert found[0].columns == ("a",)


def test_other_files_filters_and_options_are_other_families(files):
    leaves = Leaves()
    path = str(files / "csv" / "*.csv")
    lazies = [
        dd.read_csv(path),
        dd.read_csv(path, dtype={"a": "f8"}),
        dd.read_csv(str(files / "csv" / "1.csv")),
        utils_frames.read_parquet(files),
        dd.read_parquet(files / "parquet", filters=[("a", ">", 3)]),
        utils_frames.read_arrow(files),
    ]
    assert len({leaf.family for lazy in lazies for leaf in leaves.leaves(lazy)}) == len(lazies)


def test_filters_in_any_order_are_the_same(files):
    leaves = Leaves()
    conditions = [("a", ">", 3), ("k", "==", 1)]
    lazies = [
        dd.read_parquet(files / "parquet", filters=[order])
        for order in (conditions, conditions[::-1])
    ]
    assert len({leaf.family for lazy in lazies for leaf in leaves.leaves(lazy)}) == 1


# -- identities --------------------------------------------------------------------


def double(df):
    return df * 2


def pair(df, other):
    return df


def numbered(df, partition_info=None):
    return df


def test_a_part_has_the_identity_of_the_whole(files):
    leaves = Leaves()
    f = utils_frames.read_csv(files)[["a", "x"]]
    whole = leaves.identity(f.map_partitions(double))
    part = leaves.identity(f.partitions[2].map_partitions(double))
    assert part.token == whole.token
    assert list(part.parts) == [whole.parts[2]]
    assert leaves.identity(f.map_partitions(np.sqrt)).token != whole.token


def test_what_knows_the_number_of_its_partition_is_no_part(files):
    leaves = Leaves()
    f = utils_frames.from_map_all(files)
    whole = leaves.identity(f.map_partitions(numbered, meta=f._meta))
    part = leaves.identity(f.partitions[2].map_partitions(numbered, meta=f._meta))
    assert part.token != whole.token


def test_a_single_partition_is_used_with_all_of_another(files):
    leaves = Leaves()
    f = utils_frames.from_map_all(files)
    small = dd.from_pandas(PDF.iloc[:5], npartitions=1)
    other = dd.from_pandas(PDF.iloc[:6], npartitions=1)

    def both(f, g):
        return leaves.identity(f.map_partitions(pair, g, meta=f._meta, align_dataframes=False))

    assert both(f, small).token == both(f.partitions[1], small).token != both(f, other).token
    # The first partition of something larger is something else than that alone.
    larger = dd.from_pandas(PDF, npartitions=4)
    assert both(f.partitions[0], larger.partitions[0]) == both(f, larger)._replace(parts=(0,))
    assert both(f.partitions[1], larger.partitions[0]).token != both(f, larger).token
    assert both(f.partitions[1], larger.partitions[0]).token != both(f, small).token


def test_a_selected_column_is_the_column_that_is_read(files):
    leaves = Leaves()
    f = utils_frames.read_csv(files)
    expr = leaves.expr(f[f.a > 1].a.sum())
    kinds = internals.frame_kinds()
    tokens = {leaves.identities.of(n).token for n in expr.find_operations(kinds.Projection)}
    (reader,) = leaves.leaves(f.a.sum())
    assert tokens == {leaves.identities.of(reader.node).token} or len(tokens) == 1


# -- serving -----------------------------------------------------------------------


def served(leaves, lazy, kept, **kwargs):
    (leaf,) = leaves.leaves(lazy)
    family = leaves.index.family(leaf.family)
    name = internals.expr_name(leaf.node)
    result = serving.serve(leaf, name, family, Submission(dict.fromkeys(kept)), **kwargs)
    serving.note(leaf, name, family)
    return leaf, name, result


def test_columns_come_from_several_frames(files):
    leaves = Leaves()
    f = utils_frames.read_parquet(files)
    leaf, a, result = served(leaves, f[["a"]].sum(), ())
    assert not result.tasks, "read as it was asked for"
    kept = {(a, n) for n in range(len(leaf.units))}
    leaf, both, result = served(leaves, f[["a", "x"]].sum(), kept)
    assert {key[0] for key in result.tasks} == {both, *result.read}
    for n in range(len(leaf.units)):
        task = result.tasks[both, n]
        new = (*result.read, n)
        assert task.dependencies == {(a, n), new}
        read = result.tasks[new]()
        assert list(read.columns) == ["x"]
        whole = task({(a, n): read.rename(columns={"x": "a"}), new: read})
        assert list(whole.columns) == ["a", "x"] and len(whole) == len(read)


def test_too_many_columns_are_not_asked_for_where_there_is_no_room(files):
    leaves = Leaves()
    (leaf,) = leaves.leaves(utils_frames.read_csv(files).a.sum())
    from dataclasses import replace

    view = Submission()
    view.limit = 1000
    leaf = replace(leaf, nbytes=1000)
    result = serving.serve(leaf, "x", Family(), view)
    # 250 bytes of text a file are 500 in memory
    assert sorted(key[1] for key in result.tasks if key[0] == "x") == [0]
    assert result.too_large


# -- fusing ------------------------------------------------------------------------


def chain():
    return {
        "w": Task("w", dict, a=1),
        "x": Task("x", operator.getitem, TaskRef("w"), "a"),
        "y": Task("y", operator.add, TaskRef("x"), 1),
        "z": Task("z", operator.mul, TaskRef("x"), 5),
    }


def values(graph, key):
    task = graph[key]
    return task({d: values(graph, d) for d in task.dependencies})


def test_a_selection_is_done_in_what_needs_it():
    graph = fuse(chain(), {"x": True}, ["y", "z"])
    assert sorted(graph) == ["w", "y", "z"]
    assert values(graph, "y") == 2 and values(graph, "z") == 5


def test_a_copy_is_made_once():
    graph = fuse(chain(), {"x": False}, ["y", "z"])
    assert sorted(graph) == ["w", "x", "y", "z"]


def test_what_was_asked_for_stays():
    assert "x" in fuse(chain(), {"x": True}, ["x", "y", "z"])


def test_an_alias_becomes_the_task():
    graph = {**chain(), "a": Alias("a", "y")}
    graph = fuse(graph, {"x": True, "y": False}, ["a", "z"])
    assert sorted(graph) == ["a", "w", "z"]
    assert values(graph, "a") == 2


# -- data --------------------------------------------------------------------------


def test_data_is_left_out_and_put_back():
    big = pd.DataFrame({"a": np.arange(100_000.0)})
    expr = internals.as_computed(dd.from_pandas(big, npartitions=2).a.sum())
    (token,) = data_of(expr)
    packed = pack(expr, {token})
    assert len(packed) < 20_000 < len(pack(expr, ()))
    stash = Stash(1e6)
    assert stash.unpack(packed) is None
    stash.keep(expr)
    again = stash.unpack(packed)
    assert again._name == expr._name
    stash.clear()
    assert len(stash) == stash.nbytes == 0 and stash.unpack(packed) is None


def test_the_oldest_data_goes_first():
    stash = Stash(1.7e6)
    exprs = [
        internals.as_computed(
            dd.from_pandas(pd.DataFrame({"a": np.arange(1e5) + n}), npartitions=1)
        )
        for n in range(3)
    ]
    for expr in exprs:
        stash.keep(expr)
    there = [token in stash for expr in exprs for token in data_of(expr)]
    assert there == [False, True, True]
