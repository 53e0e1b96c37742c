"""Graphs are rewritten: what is shared becomes visible, what is kept is left out."""

from __future__ import annotations

import gc
import pickle
import random
import weakref
from functools import partial

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask._task_spec import DataNode
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import key_split
from utils_graphs import asked, judged, opened

from cachingclient.admission import NOT_KEPT, UPSTREAM, WRITES, WRITTEN, key_name
from cachingclient.config import read_settings
from cachingclient.graph import barriers, finalize, layers, liveness
from cachingclient.graph.barriers import BarrierOptimizer, collapse_aliases, protect
from cachingclient.graph.layers import facts_of, graph_facts
from cachingclient.graph.plan import make_plan
from cachingclient.graph.pruning import prune_graph, prune_layers, prune_tasks
from cachingclient.internals import Alias, Task, TaskRef, as_computed, as_graph


def user(block, *args, **kwargs):
    return block + 1


def other(block):
    return block * 3


def abs_user(block):
    return abs(block)


def write_block(block):
    return block


def make(chunks: int = 5) -> da.Array:
    return da.ones((10, 10), chunks=chunks).map_blocks(user)


def hlg_of(*collections) -> HighLevelGraph:
    return HighLevelGraph.merge(*[c.__dask_graph__() for c in collections])


def the(prefix: str, names) -> str:
    """The name that starts so."""
    (name,) = (n for n in names if key_split(n) == prefix)
    return name


# -- liveness ----------------------------------------------------------------------

# Each scenario computes outside of an assert: pytest's rewriting holds what is in one.


def living(*collections) -> list[str]:
    hlg = hlg_of(*collections)
    return sorted(key_split(name) for name in liveness.alive(hlg.layers, hlg.dependents))


def test_this_interpreter_counts_as_the_rule_needs():
    assert liveness.references_count() is True and liveness.KNOWN


GLOBAL = None


def scenario_global():
    global GLOBAL
    GLOBAL = make()
    try:
        return living((GLOBAL + 1).sum())
    finally:
        GLOBAL = None


def scenario_temporaries():
    return living((make() + 1).sum())


def scenario_local():
    z = make()
    return living(z.std())


def scenario_chain():
    x = make()
    y = x + 1
    return living((y * 2).mean())


def scenario_middle():
    x = make()
    y = x + 1
    del x
    return living((y * 2).mean())


def scenario_attribute():
    class Holder:
        pass

    holder = Holder()
    holder.a = make()
    return living(holder.a.max())


def scenario_list():
    held = [make()]
    return living(held[0].min())


def scenario_dict():
    held = {"a": {"b": make()}}
    return living(held["a"]["b"].min())


def scenario_closure():
    c = make()

    def get():
        return c

    return living(get().sum())


def scenario_partial():
    call = partial(lambda x: x.sum(), make())
    return living(call())


def scenario_argument():
    def total(x):
        return living(x.sum())

    return total(make())


def scenario_generator():
    def session():
        x = make()
        yield living(x.sum())
        yield living(x.max())

    it = session()
    next(it)
    return next(it)


def scenario_xarray():
    ds = xr.Dataset({"u": (("a", "b"), make())})
    return living(ds.u.mean())


def scenario_xarray_groupby():
    ds = xr.Dataset({"u": (("a", "b"), make())})
    return living(ds.u.groupby(xr.DataArray(np.arange(10) // 5, dims="a", name="g")).mean())


def scenario_rebound():
    w = make()
    w = w + 1
    w = w * 2
    return living(w.sum())


def scenario_result_kept():
    w = make()
    s = w.sum()
    return living(s)


def scenario_result_used():
    w = make()
    s = w.sum()
    return living(s + 1)


def scenario_siblings():
    w = make()
    y1 = w + 1
    y2 = w * 3
    del w
    return living(y1.sum()), y2 is None


def scenario_several_of_a_temporary():
    x = make()
    several = [x.sum(), x.mean()]
    del x
    return living(*several)


def scenario_rechunk():
    v = make()
    q = v.rechunk((2, 10))
    return living((q + 1).sum())


def scenario_overlap():
    v = make()
    return living(v.map_overlap(other, depth=1).sum())


def scenario_bag():
    b = db.from_sequence(range(4), npartitions=2).map(user)
    return living(b.filter(None).sum())


def scenario_delayed():
    d = dask.delayed(user)(1)
    e = dask.delayed(other)(d)
    return living(dask.delayed(abs)(e))


def scenario_persisted():
    k = make()
    p = k.persist(scheduler="sync")
    return living(p.sum())


def scenario_optimized():
    k = make()
    dask.optimize(k.sum())
    return living(k.mean())


def scenario_unpickled():
    u = pickle.loads(pickle.dumps(make()))
    return living(u.sum())


def scenario_loop():
    base = make()
    results = [(base + i).sum() for i in range(5)]
    return living(results[0])


def scenario_traceback():
    def fails():
        held = make()
        raise ValueError(held.sum())

    try:
        fails()
    except ValueError as e:
        saved = e
    return living(make().sum()), saved is None


def scenario_computed_and_deleted():
    m = make()
    m.sum().compute(scheduler="sync")
    graph = m.mean().dask
    del m
    return sorted(map(key_split, liveness.alive(graph.layers, graph.dependents)))


@pytest.mark.parametrize(
    ("scenario", "alive"),
    [
        (scenario_global, ["user"]),
        (scenario_temporaries, []),
        (scenario_local, ["user"]),
        (scenario_chain, ["add", "user"]),
        (scenario_middle, ["add"]),
        (scenario_attribute, ["user"]),
        (scenario_list, ["user"]),
        (scenario_dict, ["user"]),
        (scenario_closure, ["user"]),
        (scenario_partial, ["user"]),
        (scenario_argument, ["user"]),
        (scenario_generator, ["user"]),
        (scenario_xarray, ["user"]),
        (scenario_xarray_groupby, ["user"]),
        (scenario_rebound, ["mul"]),
        (scenario_result_kept, ["user"]),
        (scenario_result_used, ["sum-aggregate", "user"]),
        (scenario_siblings, (["add", "user"], False)),
        (scenario_several_of_a_temporary, ["user"]),
        (scenario_rechunk, ["rechunk-merge", "user"]),
        (scenario_overlap, ["user"]),
        (scenario_bag, ["user"]),
        (scenario_delayed, ["other", "user"]),
        (scenario_persisted, ["user"]),
        (scenario_optimized, ["user"]),
        (scenario_unpickled, ["user"]),
        (scenario_loop, ["user"]),
        (scenario_traceback, ([], False)),
        (scenario_computed_and_deleted, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_liveness(scenario, alive):
    gc.collect()
    found = scenario()
    assert found == alive


def test_outputs_are_not_asked_for_again_by_what_follows():
    x = make()
    hlg = x.__dask_graph__()
    found = liveness.alive(hlg.layers, hlg.dependents)
    assert x.name not in found


# -- facts of layers ---------------------------------------------------------------


def facts(collection, prefix: str, trusted=()) -> layers.LayerFacts:
    hlg = hlg_of(collection)
    name = the(prefix, hlg.layers)
    return facts_of(name, hlg.layers[name])


def test_facts_are_remembered_while_the_layer_lives():
    x = make()
    layer = x.dask.layers[x.name]
    found = facts_of(x.name, layer)
    assert facts_of(x.name, layer) is found
    key, alive = id(layer), weakref.ref(layer)
    assert key in layers._known
    del x, layer
    gc.collect()
    assert alive() is None and key not in layers._known


def test_a_new_layer_at_an_old_address_has_facts_of_its_own():
    x, y = make(), make().map_blocks(other)
    one, two = x.dask.layers[x.name], y.dask.layers[y.name]
    layers._known[id(two)] = weakref.ref(one), facts_of(x.name, one)
    assert facts_of(y.name, two).functions == {"other"}
    layers._known.pop(id(two))


def test_facts_of_a_users_function():
    found = facts(make(), "user")
    assert (found.closed, found.unknown, found.alias) == (False, True, False)
    assert not found.getter and found.wish is None


@pytest.mark.parametrize("prefix", ["add", "sum", "sum-aggregate", "ones_like"])
def test_dasks_own_work_is_known_to_be_cheap(prefix):
    assert not facts((da.ones(10, chunks=5) + 1).sum(), prefix).unknown


UNKNOWN = {
    "map_blocks": lambda: da.ones(4, chunks=2).map_blocks(other).map_blocks(user),
    "block_info": lambda: da.ones(4, chunks=2).map_blocks(with_info, dtype=float),
    "map_overlap": lambda: da.ones(4, chunks=2).map_overlap(user, depth=1, trim=False),
    "apply_gufunc": lambda: da.apply_gufunc(user, "()->()", da.ones(4, chunks=2)),
    "apply_along_axis": lambda: da.apply_along_axis(np_user, 0, da.ones((4, 4), chunks=2)),
    "partial": lambda: da.ones(4, chunks=2).map_blocks(partial(user, 1)),
    "linear algebra": lambda: da.ones((4, 4), chunks=2).map_blocks(np.linalg.pinv, dtype=float),
    "bag": lambda: db.from_sequence([1, 2], npartitions=2).map(user),
    "bag partitions": lambda: db.from_sequence([1, 2], npartitions=2).map_partitions(list_user),
    "bag filter": lambda: db.from_sequence([1, 2], npartitions=2).filter(user),
    "delayed": lambda: dask.delayed(user, pure=True)(1),
}


def with_info(block, block_info=None):
    return block


def np_user(x):
    return x


def list_user(part):
    return [user(i) for i in part]


@pytest.mark.parametrize("made", UNKNOWN.values(), ids=UNKNOWN)
def test_work_of_unknown_cost(made):
    hlg = hlg_of(made())
    assert any(facts_of(n, layer).unknown for n, layer in hlg.layers.items())


def test_layers_that_only_hand_on():
    d = dask.delayed(np.ones, pure=True)(4)
    x = da.from_delayed(d, shape=(4,), dtype=float)
    assert facts(x, "from-value").alias
    assert not facts(x + 1, "add").alias


def test_getters_are_known():
    x = da.from_array(np.ones(10), chunks=5)
    assert facts(x[2:7], "getitem").getter
    assert not facts(x + 1, "add").getter


def test_annotations_are_read_off_the_layer():
    with dask.annotate(cache=False):
        x = make()
    assert facts(x, "user").wish is False
    with dask.annotate(cache=True, retries=2):
        x = make()
    assert facts(x, "user").wish is True
    with dask.annotate(retries=2):
        x = make()
    assert facts(x, "user").wish is None


def denials(collection) -> dict:
    """Why layers are denied, without what is said in brackets."""
    denied = graph_facts(collection.dask, ()).denied
    return {key_split(name): reason.partition(" (")[0] for name, reason in denied.items()}


def test_denied_layers_spread_to_what_follows():
    x = da.ones(10, chunks=5)
    with dask.annotate(cache=False):
        y = x.map_blocks(user)
    z = (y + 1).sum()
    denied = denials(z)
    assert denied == {"user": NOT_KEPT, "add": UPSTREAM, "sum": UPSTREAM, "sum-aggregate": UPSTREAM}


def test_writers_deny_what_they_get():
    x = make()
    y = x.map_blocks(write_block) + 1
    denied = denials(y)
    assert denied == {"user": WRITTEN, "write_block": WRITES, "add": UPSTREAM}


def test_lifted_layers_are_not_denied():
    with dask.annotate(cache=True):
        x = da.from_array(np.ones(4), chunks=2, name="mine")
    y = x + 1
    found = graph_facts(y.dask, ())
    assert not found.denied and "mine" in found.lifted


def test_futures_must_be_trusted():
    x = make()
    persisted = HighLevelGraph({"f": {"f": Task("f", user, TaskRef("future"))}}, {"f": set()})
    found = graph_facts(HighLevelGraph.merge(x.dask, persisted), ())
    assert set(found.denied) == {"f"}


# -- barriers at work --------------------------------------------------------------


def bag_of(n: int = 6) -> db.Bag:
    return db.from_sequence(range(n), npartitions=3)


BARRIERS = {
    "sum": (lambda: make().sum(), ["user"]),
    "elementwise": (lambda: make() + 1, ["user", "ones_like"]),
    "mean": (lambda: (make() - 1).mean(axis=0), ["user"]),
    "fork": (lambda: make() @ make().T, ["user"]),
    "overlap": (lambda: make().map_overlap(other, depth=1).sum(), ["user"]),
    "delayed inside": (
        lambda: da.from_delayed(dask.delayed(np.ones, pure=True)(4), (4,), float) + 1,
        ["from-value"],
    ),
    "rechunk": (lambda: make().rechunk((2, 10)).sum(), ["user", "rechunk-merge"]),
    "concatenated": (lambda: da.concatenate([make(), make() * 2])[3:].sum(), ["concatenate"]),
    "bag": (lambda: bag_of().map(user).sum(), ["user"]),
    "bag, two readers": (lambda: two_readers(bag_of().map(user)), ["user"]),
    "bag partitions": (lambda: bag_of().map_partitions(lazily).sum(), ["lazily"]),
    "bag, all": (lambda: bag_of().map(user).filter(other).map(abs), ["user", "filter-other"]),
    "bag of pairs": (lambda: db.zip(bag_of().map(user), bag_of()).count(), ["user"]),
}


def two_readers(bag):
    return db.zip(bag, bag.map(other)).map(list)


def lazily(part):
    return (i + 1 for i in part)


def equal(got, want):
    if isinstance(want, (pd.DataFrame, pd.Series)):
        assert type(got) is type(want)
        (pd.testing.assert_frame_equal if want.ndim == 2 else pd.testing.assert_series_equal)(
            got, want
        )
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want):
            equal(g, w)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("made", "prefixes"), BARRIERS.values(), ids=BARRIERS)
def test_barriers_change_no_value_and_their_keys_are_there(made, prefixes):
    collection = made()
    computation = asked(collection)
    want = dask.get(computation.expr.__dask_graph__(), computation.keys)
    hlg = hlg_of(collection)
    names = {n for n in hlg.layers if key_split(n) in prefixes}
    assert {key_split(n) for n in names} == set(prefixes)
    graph = as_graph(protect(computation.expr, names).__dask_graph__())
    equal(dask.get(graph, computation.keys), want)
    for name in names:
        keys = {k for k in hlg.layers[name].get_output_keys() if key_name(k) == name}
        needed = keys & set(graph)
        assert needed
        assert {k for k in keys if used_by_any(k, graph)} <= set(graph)
        # An alias would look as if it had cost nothing.
        renamed = [k for k in needed if type(graph[k]) is Alias and graph[k].target not in keys]
        assert not [k for k in renamed if users(graph[k].target, graph) == 1 and not alias(k, hlg)]


def used_by_any(key, graph) -> bool:
    return any(key in task.dependencies for task in graph.values())


def users(key, graph) -> int:
    return sum(key in task.dependencies for task in graph.values())


def alias(key, hlg) -> bool:
    """Whether a layer itself only hands on."""
    return facts_of(key_name(key), hlg.layers[key_name(key)]).alias


def test_without_a_barrier_the_keys_are_fused_away():
    x = make()
    computation = asked(x.sum())
    assert x.name not in {key_name(k) for k in computation.expr.__dask_graph__()}
    same = protect(computation.expr, set())
    assert set(same.__dask_graph__()) == set(computation.expr.__dask_graph__())


def test_keys_of_the_expression_stay_the_same():
    x = make()
    computation = asked(x.sum())
    new = protect(computation.expr, {x.name})
    assert list(flatten([new.__dask_keys__()])) == computation.keys


def test_several_results_are_protected_together():
    x = make()
    computation = asked(x.sum(), x.max())
    want = dask.get(computation.expr.__dask_graph__(), computation.keys)
    graph = as_graph(protect(computation.expr, {x.name}).__dask_graph__())
    assert {k for k in graph if key_name(k) == x.name} == set(flatten(x.__dask_keys__()))
    equal(dask.get(graph, computation.keys), want)


def test_what_is_not_needed_is_not_computed():
    x = make()
    computation = asked(x[:5, :5].sum())
    graph = as_graph(protect(computation.expr, {x.name}).__dask_graph__())
    assert [k for k in graph if key_name(k) == x.name] == [(x.name, 0, 0)]


def test_slices_are_still_pushed_past_a_barrier_further_down():
    source = da.from_array(np.arange(100.0).reshape(10, 10), chunks=(10, 10))
    x = source[:2].map_blocks(user)
    computation = asked(x.sum())
    graph = as_graph(protect(computation.expr, {x.name}).__dask_graph__())
    assert source.name not in {key_name(k) for k in graph} or len(graph) <= 5
    equal(dask.get(graph, computation.keys[0]), x.sum().compute(scheduler="sync"))


def test_partitions_behind_a_barrier_can_be_read_twice():
    b = bag_of().map_partitions(lazily)
    computation = asked(b.sum())
    graph = as_graph(protect(computation.expr, {b.name}).__dask_graph__())
    for key in b.__dask_keys__():
        assert type(dask.get(graph, key)) is list


def test_an_optimizer_that_returns_layers_is_culled():
    x = make()
    keep_layers = BarrierOptimizer(lambda graph, keys: graph, [x.name])
    y = (x + 1)[:5]
    optimized = keep_layers(y.dask, y.__dask_keys__())
    assert isinstance(optimized, HighLevelGraph)
    assert {k for k in optimized if key_name(k) == x.name} == {(x.name, 0, 0), (x.name, 0, 1)}


def test_unknown_barriers_are_no_trouble():
    x = make().sum()
    optimize = BarrierOptimizer(da.Array.__dask_optimize__, ["stranger"])
    graph = optimize(x.dask, x.__dask_keys__())
    equal(dask.get(graph, x.__dask_keys__()[0]), 200)


def test_envelopes_travel():
    # Plans are pickled on the way to the scheduler.
    x = make()
    computation = asked(x.sum())
    new = pickle.loads(pickle.dumps(protect(computation.expr, {x.name})))
    equal(dask.get(new.__dask_graph__(), computation.keys[0]), 200)


def test_worth_reading_is_what_saves_more_than_it_costs():
    hlg = hlg_of(make().sum())
    name = the("user", hlg.layers)

    def worth(kept: int, paid: float) -> set:
        return barriers.worth_reading(
            hlg, {name: kept}.get, lambda n: paid if n == name else 0.0, task=0.01
        )

    assert worth(3, paid=1.0) == {name}
    assert worth(0, paid=0.0) == set()
    assert worth(3, paid=0.005) == set()
    assert worth(4, paid=0.005) == {name}


# -- aliases -----------------------------------------------------------------------


def test_a_renamed_task_gets_its_key_back():
    tasks = {
        "x": Alias("x", "x-fused"),
        "x-fused": Task("x-fused", user, 1),
        "y": Task("y", other, TaskRef("x")),
    }
    new = collapse_aliases(tasks, {"x", "y"})
    assert set(new) == {"x", "y"} and new["x"].key == "x" and type(new["x"]) is Task
    assert dask.get(new, "y") == 6


def test_a_task_with_another_reader_keeps_its_name():
    tasks = {
        "x": Alias("x", "x-fused"),
        "x-fused": Task("x-fused", user, 1),
        "y": Task("y", other, TaskRef("x-fused")),
    }
    assert collapse_aliases(tasks, {"x", "y"}) == tasks


def test_what_is_protected_itself_keeps_its_name():
    tasks = {"x": Alias("x", "y"), "y": Task("y", user, 1)}
    assert collapse_aliases(tasks, {"x", "y"}) == tasks


def test_keys_that_nobody_protects_may_stay_aliases():
    tasks = {"x": Alias("x", "y"), "y": Task("y", user, 1)}
    assert collapse_aliases(tasks, {"z"}) == tasks


def test_chains_of_aliases_still_lead_to_the_value():
    tasks = {"x": Alias("x", "y"), "y": Alias("y", "z"), "z": Task("z", user, 1)}
    assert dask.get(collapse_aliases(tasks, {"x"}), "x") == 2


def test_two_aliases_of_one_task_both_stay():
    tasks = {"x": Alias("x", "z"), "y": Alias("y", "z"), "z": Task("z", user, 1)}
    new = collapse_aliases(tasks, {"x", "y"})
    assert dask.get(new, ["x", "y"]) == (2, 2)


# -- names of final results --------------------------------------------------------


def renamed(*collections, said=None, trusted=lambda name: True, **kwargs) -> list:
    """New names of final results; None for those that keep the one that dask gave them."""
    computation = asked(*collections, **kwargs)
    new, names = finalize.rename(computation.expr, trusted, said)
    want = dask.get(computation.expr.__dask_graph__(), computation.keys)
    equal(
        dask.get(new.__dask_graph__(), [names.get(k, k) for k in computation.keys]),
        want,
    )
    return [names.get(k) for k in computation.keys]


FINAL = {
    "array": lambda: make() + 1,
    "reduction": lambda: make().sum(),
    "bag": lambda: bag_of().map(user),
    "item": lambda: bag_of().map(user).sum(),
    "xarray": lambda: xr.DataArray(make(), dims=("a", "b")).sum(),
    "dataset": lambda: xr.Dataset({"u": (("a", "b"), make()), "v": ("a", make()[0])}),
}


@pytest.mark.parametrize("made", FINAL.values(), ids=FINAL)
def test_the_same_computation_has_the_same_name(made):
    plain = asked(made()).keys
    assert plain != asked(made()).keys, "dask names it the same each time by itself"
    (one,), (two,) = renamed_of_any(made()), renamed_of_any(made())
    assert one == two and one is not None
    assert one.startswith(finalize.PREFIX)


def renamed_of_any(collection) -> list:
    computation = asked(collection)
    _, names = finalize.rename(computation.expr, lambda name: True, None)
    return [names.get(k) for k in computation.keys]


def test_different_computations_have_different_names():
    made = [
        make(),
        make() + 1,
        make() + 2,
        make(chunks=2),
        make().rechunk(10),
        make().sum(),
        make().sum(axis=0),
        make().sum(keepdims=True),
        make()[:5],
        bag_of().map(user),
        bag_of().map(user).sum(),
        bag_of(7).map(user),
        xr.DataArray(make(), dims=("a", "b")),
        xr.DataArray(make(), dims=("b", "a")),
        xr.DataArray(make(), dims=("a", "b"), attrs={"unit": "m"}),
        xr.Dataset({"u": (("a", "b"), make())}),
        xr.Dataset({"w": (("a", "b"), make())}),
        xr.Dataset({"u": (("a", "b"), make())}, coords={"a": np.arange(10)}),
    ]
    names = [name for collection in made for name in renamed_of_any(collection)]
    assert None not in names and len(set(names)) == len(names)


def test_one_name_with_another_layout_is_another_result():
    # The keys of a part of an array have the array's name.
    x = make()
    keys = x.__dask_keys__()
    tokens = {
        finalize.final_token(part, da.core.finalize, (), lambda name: True, None)
        for part in (keys, keys[:1], [row[:1] for row in keys], [keys[0] + keys[1]])
    }
    assert len(tokens) == 4 and None not in tokens


def test_how_it_is_computed_is_part_of_the_name():
    x = make().sum()
    names = [
        renamed(x, said=said)[0]
        for said in (None, {"workers": ["a"]}, {"workers": ["b"]}, {"retries": 2})
    ]
    assert len(set(names)) == 4


def test_names_that_are_not_trusted_give_none():
    x = make().sum()
    assert renamed(x, trusted=lambda name: name != x.name) == [None]
    assert renamed(da.from_array(np.ones(4), chunks=2, name="mine")) == [None]
    assert renamed(da.from_array(np.ones(4), chunks=2, name=False)) == [None]


def test_several_results_have_their_own_names():
    x = make()
    total, most = renamed(x.sum(), x.max())
    assert total != most and None not in (total, most)
    assert renamed(x.sum(), x.max()) == [total, most]
    assert set(renamed(x.max(), x.sum())) == {total, most}


def test_a_result_in_a_group_and_alone_has_one_name():
    x = make()
    (alone,) = renamed(x.sum())
    assert renamed(x.sum(), x.max())[0] == alone


def test_of_several_only_those_that_are_trusted_are_renamed():
    x, mine = make(), da.from_array(np.ones(4), chunks=2, name="mine")
    total, none = renamed(x.sum(), mine.sum(), trusted=lambda name: name != mine.sum().name)
    assert total is not None and none is None


def test_several_results_of_different_kinds():
    first = renamed(make().sum(), bag_of().map(user))
    assert first == renamed(make().sum(), bag_of().map(user)) and None not in first


def test_delayed_and_persisted_keys_stay_as_they_are():
    assert renamed(dask.delayed(user, pure=True)(1)) == [None]


def test_frames_have_stable_names_by_themselves():
    df = dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=2)
    computation = asked(df.a.sum())
    assert finalize.rename(computation.expr, lambda name: True, None) == (computation.expr, {})


@pytest.mark.parametrize("made", [lambda: [make()], lambda: [make(), make().sum()]])
def test_a_random_name_is_denied(made, monkeypatch):
    # It looks like a token, and never comes back: what is kept under it is lost room.
    monkeypatch.setattr(finalize, "final_token", lambda *args: None)
    _, verdict = judged(*made())
    assert not [name for name in verdict.allowed if random_name(name)]


# -- pruning -----------------------------------------------------------------------


def frame():
    pdf = pd.DataFrame({"a": np.arange(12) % 3, "b": np.arange(12.0), "c": 1.0})
    return dd.from_pandas(pdf, npartitions=3)


def merged():
    # On disk it would go through files, which prune nothing.
    return frame().merge(frame().map_partitions(df_user), on="b", shuffle_method="tasks")


def df_user(df):
    return df.assign(b=df.b * 2)


KINDS = {
    "sum": lambda: make().sum(),
    "elementwise": lambda: (make() + 1) * make(),
    "mean and std": lambda: make().mean() + make().std(),
    "transposed product": lambda: make() @ make().T,
    "sliced": lambda: make()[2:8, ::2].sum(axis=1),
    "rechunked": lambda: make().rechunk((3, 10)).map_blocks(user).max(axis=0),
    "overlap": lambda: make().map_overlap(other, depth=1).map_blocks(user).sum(),
    "concatenated": lambda: da.concatenate([make(), make().map_blocks(other)]).sum(axis=1),
    "stacked": lambda: da.stack([make(), make() + 1]).mean(axis=0),
    "reshaped": lambda: make().reshape(100).cumsum(axis=0),
    "from delayed": lambda: da.from_delayed(
        dask.delayed(np.arange, pure=True)(6), (6,), int
    ).map_blocks(user)[:4],
    "gufunc": lambda: da.apply_gufunc(user, "()->()", make()).sum(),
    "bag": lambda: bag_of().map(user).filter(other).sum(),
    "bag groups": lambda: bag_of().map(user).groupby(is_even, shuffle="tasks").map(sorted_group),
    "bag fold": lambda: bag_of().map(user).fold(max, split_every=2),
    "bag readers": lambda: two_readers(bag_of().map(user)),
    "bag to array": lambda: da.concatenate(
        [da.from_delayed(d, (2,), int) for d in bag_of().map(user).to_delayed()]
    ).sum(),
    "frame": lambda: frame().map_partitions(df_user).b.sum(),
    "groupby": lambda: frame().map_partitions(df_user).groupby("a").b.mean(),
    "merge": lambda: merged().c_x.sum(),
    "shuffle": lambda: frame().shuffle("a", shuffle_method="tasks").b.sum(),
    "delayed": lambda: dask.delayed(sum, pure=True)(
        [dask.delayed(user, pure=True)(i) for i in range(5)]
    ),
    "delayed diamond": lambda: diamond(dask.delayed(user, pure=True)(1)),
    "xarray": lambda: xr.DataArray(make(), dims=("a", "b")).mean("a").data,
    "several": lambda: [make().sum(), make().max(), bag_of().map(user).sum()],
}


def is_even(i):
    return i % 2 == 0


def sorted_group(group):
    return group[0], sorted(group[1])


def diamond(d):
    a, b = dask.delayed(other, pure=True)(d), dask.delayed(user, pure=True)(d)
    return dask.delayed(max, pure=True)(a, b)


def several(made) -> list:
    return made if isinstance(made, list) else [made]


def seeded() -> random.Random:
    seed = random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


def all_values(graph) -> dict:
    """Values of all keys, each computed for itself: iterators can be read once only."""
    values = {key: dask.get(graph, key) for key in graph}
    return {k: v for k, v in values.items() if not hasattr(v, "__next__")}


def with_data(tasks, data) -> dict:
    return {**tasks, **{key: DataNode(key, value) for key, value in data.items()}}


@pytest.mark.parametrize("made", KINDS.values(), ids=KINDS)
def test_a_pruned_graph_has_the_same_values(made):
    rng = seeded()
    computation = asked(*several(made()))
    graph = as_graph(computation.expr.__dask_graph__())
    want = dask.get(graph, computation.keys)
    known = all_values(graph)
    for share in (0, 0.1, 0.3, 0.6, 0.9, 1):
        kept = {key: value for key, value in known.items() if rng.random() < share}
        tasks, used = prune_tasks(graph, computation.keys, kept.__contains__)
        assert not kept.keys() & tasks.keys()
        assert len(used) == len(set(used)) and set(used) <= set(kept)
        needed = set(computation.keys).union(*(t.dependencies for t in tasks.values()))
        assert needed <= tasks.keys() | set(used), "something would be missing"
        assert set(used) <= needed, "something would be counted as a hit that is not"
        pruned = with_data(tasks, {key: kept[key] for key in used})
        equal(dask.get(pruned, computation.keys), want)


LAYERED = {n: m for n, m in KINDS.items() if n not in ("frame", "groupby", "merge", "shuffle")}


@pytest.mark.parametrize("made", LAYERED.values(), ids=LAYERED)
def test_a_graph_pruned_by_layers_has_the_same_values(made):
    rng = seeded()
    collections = several(made())
    computation = asked(*collections)
    want = dask.get(computation.expr.__dask_graph__(), computation.keys)
    hlg = hlg_of(*collections)
    known = all_values(as_graph(hlg))
    whole = [
        name
        for name, layer in hlg.layers.items()
        if len(layer) and all(k in known for k in layer.get_output_keys())
    ]
    outputs = {key_name(k) for k in computation.keys}
    for share in (0.1, 0.3, 0.6, 1):
        names = {name for name in whole if rng.random() < share}
        kept = {k: known[k] for name in names for k in hlg.layers[name].get_output_keys()}

        def number_kept(name):
            return len(hlg.layers[name]) if name in names else 0

        expr, dropped = prune_layers(computation.expr, number_kept, outputs)
        assert dropped >= 0 and (dropped or expr is computation.expr)
        graph = as_graph(expr.__dask_graph__())
        tasks, used = prune_tasks(graph, computation.keys, kept.__contains__)
        pruned = with_data(tasks, {key: kept[key] for key in used})
        equal(dask.get(pruned, computation.keys), want)


@pytest.mark.parametrize("made", KINDS.values(), ids=KINDS)
def test_what_an_envelope_gives_has_the_same_values(made):
    # As it happens: whole layers go, what is kept in part is made visible, then tasks go.
    rng = seeded()
    collections = several(made())
    computation = asked(*collections)
    want = dask.get(computation.expr.__dask_graph__(), computation.keys)
    first, _ = opened(*collections)
    known = all_values(first)
    if all(hasattr(c.__dask_graph__(), "layers") for c in collections):
        known.update(all_values(as_graph(hlg_of(*collections))))
    for share in (0, 0.2, 0.5, 1):
        kept = {key: value for key, value in known.items() if rng.random() < share}
        again = asked(*collections)
        plan_keys = planned_keys(again)
        tasks, submission = opened(*collections, kept=kept)
        pruned = with_data(tasks, {key: kept[key] for key in submission.used})
        assert submission.skipped >= 0 and submission.total >= len(tasks)
        outputs = [k for k in plan_keys if k in pruned]
        if len(outputs) == len(plan_keys):
            equal(dask.get(pruned, plan_keys), want)
        else:
            assert [k for k in plan_keys if k not in pruned and not random_name(k)] == []


def planned_keys(computation) -> list:
    new, names = finalize.rename(computation.expr, lambda name: True, None)
    return [names.get(k, k) for k in computation.keys]


def random_name(key) -> bool:
    return str(key_name(key)).startswith(finalize.PREFIX)


def test_whole_layers_are_dropped_before_their_tasks_are_made():
    x = make().map_blocks(other)
    hlg = hlg_of(x.sum())
    new, dropped = prune_graph(hlg, lambda name: 4 * (name == x.name), ())
    assert dropped == 12  # ones_like, user, other
    assert {key_split(n) for n in new.layers} == {"other", "sum", "sum-aggregate"} | {
        key_split(n) for n in new.layers if key_split(n) == "sum-partial"
    }
    assert len(new.layers[x.name]) == 0


def test_a_layer_that_is_kept_in_part_is_not_dropped():
    x = make()
    hlg = hlg_of(x.sum())
    assert prune_graph(hlg, lambda name: 3 * (name == x.name), ()) == (hlg, 0)


def test_a_layer_that_was_asked_for_is_not_dropped():
    x = make()
    hlg = hlg_of(x.sum())
    assert prune_graph(hlg, lambda name: 4 * (name == x.name), {x.name}) == (hlg, 0)


def test_what_others_need_too_stays():
    x = make()
    y, z = x.map_blocks(other), x.map_blocks(abs_user)
    hlg = hlg_of((y + z).sum())
    new, dropped = prune_graph(hlg, lambda name: 4 * (name == y.name), ())
    assert dropped == 4 and x.name in new.layers and len(new.layers[x.name]) == 4


def test_nothing_kept_changes_nothing():
    computation = asked(make().sum())
    assert prune_layers(computation.expr, lambda name: 0, ()) == (computation.expr, 0)


def test_outputs_that_are_kept_leave_nothing_to_do():
    graph = as_graph({"x": Task("x", user, 1), "y": Task("y", other, TaskRef("x"))})
    assert prune_tasks(graph, ["y"], {"x", "y"}.__contains__) == ({}, ["y"])


def test_keys_outside_of_a_graph_are_left_to_the_scheduler():
    graph = {"y": Task("y", other, TaskRef("future"))}
    tasks, used = prune_tasks(graph, ["y"], {"x"}.__contains__)
    assert list(tasks) == ["y"] and used == []


def test_shared_inputs_are_walked_once():
    levels = 60  # two ways from each level to the next: 2 ** 60 paths
    graph = {"x0": Task("x0", user, 1)}
    for i in range(1, levels):
        graph[f"x{i}"] = Task(f"x{i}", max, TaskRef(f"x{i - 1}"), TaskRef(f"x{i - 1}"))
    tasks, used = prune_tasks(graph, [f"x{levels - 1}"], lambda key: False)
    assert len(tasks) == levels and not used


def test_dependents_of_a_graph_are_found_a_few_times_only(monkeypatch):
    """dask finds them anew each time: once a layer would be quadratic."""
    found = []
    plain = HighLevelGraph.dependents.fget
    monkeypatch.setattr(
        HighLevelGraph, "dependents", property(lambda self: found.append(1) or plain(self))
    )
    x = da.ones(2, chunks=1)
    for _ in range(50):
        x = (x + 1).map_blocks(lambda block: block)
    make_plan(as_computed(x.sum()), read_settings(), (), None)
    assert len(found) < 20
