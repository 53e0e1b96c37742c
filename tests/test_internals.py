"""Private parts of dask and distributed that are touched are still as they were found.

Each test fails when dask changes what `cachingclient.internals` relies on: then that
module is the place to mend.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import re
import threading
from html import unescape
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import DataNode
from dask.blockwise import Blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed.client import FutureState
from distributed.scheduler import ClientState, TaskGroup, TaskPrefix, TaskState
from utils_graphs import asked

import cachingclient
from cachingclient import internals, pending, tasks
from cachingclient.graph import finalize
from cachingclient.internals import (
    Alias,
    Expr,
    GraphNode,
    HLGExpr,
    HLGExprSequence,
    HLGFinalizeCompute,
    LLGExpr,
    Task,
    TaskList,
    TaskRef,
)

PACKAGE = Path(cachingclient.__file__).parent
PRIVATE = re.compile(
    r"(from|import) (dask|distributed)[a-z_.]*\._"
    r"|(scheduler|worker|client|dask|distributed|expr|hlg|ws|ts)\._[a-z]"
)
TOKEN = "0123456789abcdef" * 2


def user(x):
    return x + 1


def make() -> da.Array:
    return da.ones((4, 4), chunks=2).map_blocks(user)


# -- nothing else is touched -------------------------------------------------------


def private_names(path: Path) -> list[str]:
    found = []
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        # Examples are no code of the package, and the name of a module is no use of it
        code = "" if line.lstrip().startswith((">>>", "...")) else re.sub('"[^"]*"', "", line)
        if PRIVATE.search(code):
            found.append(f"{path.name}:{n}: {line.strip()}")
    return found


def test_private_names_are_used_in_one_module_only():
    found = {path: private_names(path) for path in sorted(PACKAGE.rglob("*.py"))}
    # Would pass for ever if it found nothing at all
    assert found.pop(PACKAGE / "internals.py")
    assert [line for lines in found.values() for line in lines] == []


@pytest.mark.parametrize(
    "line",
    ["from dask._expr import Expr", "import distributed._x", "self.client._cancel()", "ts._hash"],
)
def test_private_names_are_found(line):
    assert PRIVATE.search(line)


# -- expressions -------------------------------------------------------------------


def single(collection) -> Expr:
    """The expression of one collection, out of the sequence that dask makes of several."""
    (expr,) = asked(collection).expr.operands
    return expr


def test_expressions_have_a_name_that_their_keys_start_with():
    expr = single(make())
    assert list(flatten([expr.__dask_keys__()])) == [internals.expr_name(expr)]


def test_an_expression_is_rebuilt_with_a_token_that_names_it():
    expr = single(make())
    new = internals.rebuilt(expr, list(expr.operands), TOKEN)
    assert type(new) is type(expr)
    assert internals.expr_name(new) == f"finalize-hlgfinalizecompute-{TOKEN}"
    assert internals.expr_name(expr) != internals.expr_name(new)
    assert internals.same_token(new) == TOKEN


def test_an_expression_rebuilt_with_its_own_token_keeps_its_keys():
    expr = single(make())
    new = internals.rebuilt(expr, list(expr.operands), internals.same_token(expr))
    assert new.__dask_keys__() == expr.__dask_keys__()


def test_an_expression_rebuilt_without_a_token_gets_one_of_its_own():
    expr = single(make())
    names = {internals.expr_name(internals.rebuilt(expr, list(expr.operands))) for _ in range(2)}
    assert len(names) == 2


def test_operands_of_hlg_expressions_are_where_they_are_looked_for():
    # Barriers replace the second, groups of results the first and third.
    assert HLGExpr._parameters[:4] == ["dsk", "low_level_optimizer", "output_keys", "postcompute"]
    expr = single(make()).operand("dsk")
    assert type(expr) is HLGExpr
    assert isinstance(expr.hlg, HighLevelGraph) and expr.hlg is expr.operands[0]
    assert expr.low_level_optimizer is expr.operands[1] is da.Array.__dask_optimize__
    assert expr.operand("output_keys") is expr.operands[2]


def test_a_computation_arrives_as_a_sequence():
    assert type(asked(make()).expr) is HLGExprSequence
    assert type(asked(make(), make().sum()).expr) is HLGExprSequence


def test_a_single_result_is_finalized_around_its_graph():
    x = make()
    expr = single(x)
    assert type(expr) is HLGFinalizeCompute
    inner = expr.operand("dsk")
    assert set(inner.hlg.layers) == set(x.dask.layers)
    assert inner.__dask_keys__() == x.__dask_keys__()
    assert expr.postcompute == x.__dask_postcompute__()
    assert internals.expr_name(expr).startswith(finalize.PREFIX)


def test_results_of_one_kind_arrive_merged_with_a_layer_each():
    x = make()
    computation = asked(x.sum(), x.max())
    (expr,) = computation.expr.operands
    names = [n for n in expr.hlg.layers if n.startswith(finalize.PREFIX)]
    assert set(names) == set(computation.keys) and len(names) == 2
    for name in names:
        (task,) = expr.hlg.layers[name].values()
        assert type(task) is Task and not task.kwargs
        assert isinstance(task.args[0], (TaskList, TaskRef, Alias))


def test_a_low_level_graph_is_an_expression_too():
    expr = LLGExpr({"x": Task("x", user, 1)})
    assert isinstance(expr, Expr)
    assert dict(expr.__dask_graph__()).keys() == {"x"}


def test_an_optimizer_is_called_with_a_graph_and_keys():
    called = []

    def optimize(graph, keys, **kwargs):
        called.append((type(graph), list(flatten(keys))))
        return da.Array.__dask_optimize__(graph, keys, **kwargs)

    x = make()
    inner = single(x).operand("dsk")
    operands = list(inner.operands)
    operands[1] = optimize
    new = internals.rebuilt(inner, operands, internals.same_token(inner))
    graph = new.__dask_graph__()
    assert called == [(HighLevelGraph, list(flatten(x.__dask_keys__())))]
    np.testing.assert_array_equal(dask.get(graph, x.__dask_keys__()[0][0]), 2)


def test_expressions_can_be_pickled_under_their_name():
    expr = single(make())
    again = pickle.loads(pickle.dumps(internals.rebuilt(expr, list(expr.operands), TOKEN)))
    assert internals.expr_name(again).endswith(TOKEN)


# -- tasks -------------------------------------------------------------------------


def test_tasks_tell_their_function_arguments_and_dependencies():
    task = Task("x", user, TaskRef("y"), 2, z=TaskRef(("w", 0)))
    assert isinstance(task, GraphNode)
    assert (task.key, task.func, len(task.args)) == ("x", user, 2)
    assert task.args[0].key == "y" and task.kwargs["z"].key == ("w", 0)
    assert set(task.dependencies) == {"y", ("w", 0)}


def test_a_task_gets_another_key():
    task = Task("x", user, TaskRef("y"))
    new = task.substitute({}, key="z")
    assert (new.key, new.func, set(new.dependencies)) == ("z", user, {"y"})
    assert task.key == "x"


def test_aliases_tell_what_they_refer_to():
    task = Alias("x", ("y", 0))
    assert isinstance(task, GraphNode)
    assert task.target == ("y", 0) and set(task.dependencies) == {("y", 0)}


def test_lists_in_tasks_tell_their_parts():
    task = TaskList(TaskRef("x"), TaskList(TaskRef("y")))
    assert task.args[0].key == "x" and task.args[1].args[0].key == "y"
    assert set(task.dependencies) == {"x", "y"}


def test_functions_of_fused_tasks_are_found():
    task = Task.fuse(Task("x", user, 1), Task("y", abs, TaskRef("x")))
    assert {user, abs} <= set(tasks.task_functions(task))
    # What nests them comes from where it is expected, so that it does not count.
    assert task.func.__module__ == tasks.MACHINERY
    assert tasks.task_functions(Task("x", user, TaskList(1, TaskRef("y"))))


def test_data_in_graphs_has_a_value_and_no_function():
    node = DataNode("x", 5)
    assert node.value == 5 and not node.dependencies
    assert not list(tasks.task_functions(node))


def test_legacy_tasks_are_converted():
    graph = internals.as_graph({"x": 1, ("y", 0): (user, "x"), "z": ("y", 0), "w": [(abs, "x")]})
    assert all(isinstance(task, GraphNode) for task in graph.values())
    assert set(graph[("y", 0)].dependencies) == {"x"}
    assert set(graph["z"].dependencies) == {("y", 0)}
    assert set(graph["w"].dependencies) == {"x"}


def test_what_is_not_needed_is_culled():
    graph = internals.as_graph({"x": 1, "y": (user, "x"), "z": (user, "y")})
    assert set(internals.cull(graph, ["y"])) == {"x", "y"}


def test_bags_are_reified_by_a_function_of_dask():
    from dask.bag.core import reify

    assert reify(i for i in range(3)) == [0, 1, 2]
    bag = db.from_sequence([1], npartitions=1)
    # The optimizer tells by its module that partitions may be iterators.
    assert "bag" in bag.__dask_optimize__.__module__


# -- layers ------------------------------------------------------------------------


def test_blockwise_layers_tell_their_task_and_arguments():
    x = da.ones(4, chunks=2).map_blocks(np.clip, 0, 1)
    layer = x.dask.layers[x.name]
    assert isinstance(layer, Blockwise) and layer.output == x.name
    task, literals = internals.blockwise_parts(layer)
    assert isinstance(task, GraphNode) and np.clip in set(tasks.task_functions(task))
    assert len(layer) == 2 and len(layer.indices) >= 1
    assert all(not isinstance(literal, tuple) for literal in literals)


def test_materialized_layers_tell_their_tasks_and_whether_they_are_legacy():
    x = make().rechunk((1, 4))
    layer = x.dask.layers[x.name]
    assert isinstance(layer, MaterializedLayer)
    assert set(layer.mapping) == set(layer.get_output_keys()) >= set(flatten(x.__dask_keys__()))
    assert MaterializedLayer({"x": (user, 1)}).has_legacy_tasks
    assert not MaterializedLayer({"x": Task("x", user, 1)}).has_legacy_tasks


def test_layers_tell_their_annotations():
    with dask.annotate(cache=False):
        x = make()
    assert x.dask.layers[x.name].annotations == {"cache": False}


def test_layers_are_shared_by_the_graphs_of_collections():
    # The rule of liveness counts on it.
    x = make()
    assert (x + 1).dask.layers[x.name] is x.dask.layers[x.name]


def test_p2p_is_found_by_the_names_that_it_has():
    core = importlib.import_module("distributed.shuffle._core")
    assert core.P2PBarrierTask.__name__ == "P2PBarrierTask"
    assert core.p2p_barrier.__module__.startswith("distributed.shuffle")


def test_p2p_rechunks_tell_their_outputs_without_making_tasks():
    with dask.config.set({"array.rechunk.method": "p2p"}):
        x = da.ones((6, 6), chunks=(1, 6)).rechunk((6, 1))
    layer = x.dask.layers[x.name]
    assert internals.is_rechunk(layer)
    assert internals.number_of_outputs(layer) == len(layer.get_output_keys()) == 6
    culled, _ = layer.cull({(x.name, 0, 1), (x.name, 0, 3)}, set())
    assert internals.number_of_outputs(culled) == 2
    assert not culled.is_materialized() and not layer.is_materialized()


# -- client ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    """A plain client: what is private is looked at as distributed has it."""
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        yield client


def parameters(method: str) -> list[str]:
    return list(inspect.signature(getattr(distributed.Client, method)).parameters)


def test_the_method_for_graphs_takes_an_expression_and_its_keys():
    assert parameters(internals.GRAPH_METHOD)[:3] == ["self", "expr", "keys"]
    assert {"workers", "retries", "user_priority", "resources", "actors"} <= set(
        parameters(internals.GRAPH_METHOD)
    )


def watched(client, monkeypatch) -> list:
    """Expressions that go through the method for graphs."""
    seen = []
    plain = getattr(client, internals.GRAPH_METHOD)

    def watch(expr, keys, *args, **kwargs):
        seen.append(expr)
        return plain(expr, keys, *args, **kwargs)

    monkeypatch.setattr(client, internals.GRAPH_METHOD, watch)
    return seen


WAYS = {
    "compute": lambda client: make().sum().compute(),
    "client.compute": lambda client: client.compute(make().sum()).result(),
    "persist": lambda client: make().persist(),
    "client.persist": lambda client: client.persist(make()),
    "submit": lambda client: client.submit(user, 1).result(),
    "map": lambda client: client.gather(client.map(user, [1, 2])),
    "get": lambda client: client.get({"x": (user, 1)}, "x"),
    "delayed": lambda client: dask.delayed(user)(1).compute(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_all_graphs_go_through_one_method(client, monkeypatch, way):
    seen = watched(client, monkeypatch)
    way(client)
    assert len(seen) == 1 and isinstance(seen[0], (Expr, dict))


@pytest.mark.parametrize("way", ["submit", "get"])
def test_what_is_submitted_arrives_as_tasks(client, monkeypatch, way):
    seen = watched(client, monkeypatch)
    WAYS[way](client)
    assert type(seen[0]) is LLGExpr


def test_what_is_mapped_makes_its_tasks_when_asked(client, monkeypatch):
    seen = watched(client, monkeypatch)
    WAYS["map"](client)
    graph = internals.as_graph(seen[0].__dask_graph__())
    assert len(graph) == 2 and all(user in tasks.task_functions(t) for t in graph.values())


def test_the_method_for_connections_is_called_at_each():
    connect = getattr(distributed.Client, internals.CONNECT_METHOD)
    assert asyncio.iscoroutinefunction(connect)
    for method in ("_start", "_reconnect"):
        source = inspect.getsource(getattr(distributed.Client, method))
        assert f"self.{internals.CONNECT_METHOD}(" in source


def test_cancel_goes_through_one_method(client, monkeypatch):
    assert parameters(internals.CANCEL_METHOD) == ["self", "futures", "reason", "msg", "force"]
    called = []

    async def cancel(*args, **kwargs):
        called.append((args, kwargs))

    monkeypatch.setattr(client, internals.CANCEL_METHOD, cancel)
    future = client.submit(user, 1)
    client.cancel([future])
    future.cancel()
    assert len(called) == 2


def test_the_client_listens_to_what_is_watched(client):
    handlers = internals.stream_handlers(client)
    assert {"key-in-memory", "task-erred", "cancelled-keys", "restart"} <= set(handlers)
    assert all(callable(handler) for handler in handlers.values())
    expected = {
        "key-in-memory": "key",
        "task-erred": "key",
        "cancelled-keys": "keys",
    }
    for op, parameter in expected.items():
        assert parameter in inspect.signature(handlers[op]).parameters


def test_a_message_that_the_client_sends_arrives(client):
    received = threading.Event()
    scheduler = client.cluster.scheduler
    scheduler.stream_handlers["test-internals"] = lambda client, value: received.set()
    try:
        internals.send(client, {"op": "test-internals", "value": 1, "client": client.id})
        assert received.wait(10)
    finally:
        del scheduler.stream_handlers["test-internals"]


def test_a_message_of_the_scheduler_arrives(client):
    received = threading.Event()
    internals.stream_handlers(client)["test-internals"] = lambda **_: received.set()
    try:
        scheduler = client.cluster.scheduler
        message = {"op": "test-internals"}
        client.loop.add_callback(scheduler.report, message, client=client.id)
        assert received.wait(10)
    finally:
        del internals.stream_handlers(client)["test-internals"]


def test_one_future_is_cancelled_alone(client):
    one, two = client.submit(user, 5, pure=True), client.submit(user, 5, pure=True)
    assert two.result() == 6 and one.key == two.key

    async def cancel():
        internals.cancel_one(one, "for a test", "a message")

    client.sync(cancel)
    assert one.cancelled() and one.status == "cancelled"
    with pytest.raises(distributed.client.FutureCancelledError, match="for a test"):
        one.result()
    assert not two.cancelled() and two.result() == 6


def test_states_of_futures_are_made_of_a_key():
    assert list(inspect.signature(FutureState).parameters) == ["key"]
    assert {"reason", "msg"} <= set(inspect.signature(FutureState.cancel).parameters)


def test_a_future_knows_that_it_is_released(client):
    one, two = client.submit(user, 7, pure=True), client.submit(user, 7, pure=True)
    assert not internals.is_released(one)
    one.release()
    assert internals.is_released(one) and not internals.is_released(two)
    assert two.result() == 8


def test_a_future_of_a_key_needs_no_graph(client):
    one = client.submit(user, 8, pure=True)
    again = distributed.Future(one.key, client)
    assert again.result() == one.result() == 9


def test_the_scheduler_says_why_keys_are_lost():
    # Which computations are sent again is told by this text alone.
    from distributed import scheduler

    source = inspect.getsource(scheduler)
    assert f'"{pending.LOST}"' in source and f'"{pending.FORGOTTEN}"' in source


# -- scheduler ---------------------------------------------------------------------


def test_a_pseudo_client_is_made_once(client):
    scheduler = client.cluster.scheduler

    async def make_and_remove():
        try:
            first = internals.pseudo_client(scheduler, "test-internals")
            again = internals.pseudo_client(scheduler, "test-internals")
            return first, again, scheduler.clients["test-internals"]
        finally:
            del scheduler.clients["test-internals"]

    first, again, known = client.sync(make_and_remove)
    assert first is again is known
    assert type(first) is ClientState and first.wants_what == set()


def new_task(key: str = "x") -> TaskState:
    return TaskState(key, None, "released", TaskGroup(key, TaskPrefix(key)), validate=False)


def test_keys_are_wanted_and_let_go_of():
    ours, theirs = ClientState("ours"), ClientState("theirs")
    ts = new_task()
    internals.want(ours, ts)
    internals.want(ours, ts)
    assert ts.who_wants == {ours} and ours.wants_what == {ts}
    assert internals.only_wanted_by(ours, ts)
    internals.want(theirs, ts)
    assert not internals.only_wanted_by(ours, ts)
    internals.unwant(theirs, ts)
    internals.unwant(theirs, ts)
    assert internals.only_wanted_by(ours, ts) and theirs.wants_what == set()
    internals.unwant(ours, ts)
    assert not ts.who_wants and ours.wants_what == set()


def test_a_key_that_something_waits_for_is_not_only_wanted():
    ours, ts = ClientState("ours"), new_task()
    internals.want(ours, ts)
    ts.waiters = {new_task("y")}
    assert not internals.only_wanted_by(ours, ts)


def test_a_new_task_is_wanted_by_nobody():
    assert new_task().who_wants is None and not new_task().waiters


def test_what_a_pseudo_client_wants_stays_in_memory(client):
    scheduler = client.cluster.scheduler
    future = client.submit(user, 11, pure=True)
    future.result()
    key = future.key

    async def want():
        pseudo = internals.pseudo_client(scheduler, "test-internals")
        internals.want(pseudo, scheduler.tasks[key])

    async def state():
        ts = scheduler.tasks.get(key)
        return ts and (ts.state, [c.client_key for c in ts.who_wants or ()])

    async def let_go():
        scheduler.client_releases_keys([key], "test-internals", stimulus_id="test-internals")
        del scheduler.clients["test-internals"]

    client.sync(want)
    future.release()
    client.sync(scheduler_has_let_go, scheduler, key, client.id)
    assert client.sync(state) == ("memory", ["test-internals"])
    client.sync(let_go)
    assert client.sync(state) is None


def test_what_we_let_go_is_no_activity(client):
    scheduler = client.cluster.scheduler

    async def look():
        scheduler.check_idle()
        since = scheduler.check_idle()
        with internals.still_idle(scheduler):
            scheduler.transition_counter += 1
        after_ours = scheduler.check_idle()
        scheduler.transition_counter += 1  # somebody else's
        with internals.still_idle(scheduler):
            scheduler.transition_counter += 1
        return since, after_ours, scheduler.check_idle()

    since, after_ours, after_theirs = client.sync(look)
    assert since and after_ours == since
    assert after_theirs is None


async def scheduler_has_let_go(scheduler, key, client_id):
    for _ in range(1000):
        ts = scheduler.tasks.get(key)
        if ts is None or client_id not in {c.client_key for c in ts.who_wants or ()}:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the client's future is still wanted")


def family(*keys: str) -> list[TaskState]:
    """Each key depends on the one before."""
    tasks = [new_task(key) for key in keys]
    for before, ts in zip(tasks, tasks[1:]):
        ts.add_dependency(before)
    return tasks


def test_workers_are_removed_by_a_method_that_is_looked_up_each_time():
    from distributed.scheduler import Scheduler

    assert list(inspect.signature(Scheduler.remove_worker).parameters)[1] == "address"
    assert "self.remove_worker(" in inspect.getsource(Scheduler.handle_worker)


def test_a_key_is_cut_off_what_it_depends_on():
    first, second, third = family("first", "second", "third")
    first.waiters = {second}
    second.has_lost_dependencies = True
    assert internals.cut_loose(second) == [first]
    assert not (second.dependencies or first.dependents or first.waiters)
    assert not second.has_lost_dependencies and second.dependents == {third}
    fourth = new_task("fourth")
    fourth.add_dependency(second)
    assert internals.cut_loose(third) == []


def test_a_task_may_run_nowhere_or_anywhere(client):
    """The scheduler finds no worker for it, whichever there are."""
    scheduler = client.cluster.scheduler

    async def look():
        ts = new_task()
        (worker,) = scheduler.workers
        ts.worker_restrictions, ts.host_restrictions = {worker}, {"host"}
        ts.resource_restrictions, ts.retries = {"GPU": 1}, 3
        ts.loose_restrictions, ts.annotations = True, {"workers": [worker]}
        internals.may_run_nowhere(ts)
        nowhere = scheduler.valid_workers(ts), ts.loose_restrictions
        internals.may_run_anywhere(ts)
        return nowhere, scheduler.valid_workers(ts), ts.retries, ts.annotations

    assert client.sync(look) == ((set(), False), None, 0, None)


def test_a_stand_in_is_a_task_with_dependencies():
    task = internals.stand_in("x", user, frozenset({"y"}))
    assert isinstance(task, GraphNode) and task.func is user
    assert task.key == "x" and task.dependencies == frozenset({"y"})


def test_tasks_are_attached_and_not_asked_for(client):
    """Data of unknown origin gets its tasks back, and nothing runs."""
    scheduler = client.cluster.scheduler
    kept = client.submit(user, 1, key="attach-kept")
    assert kept.result() == 2
    graph = {
        "attach-first": Task("attach-first", user, 1),
        "attach-kept": Task("attach-kept", user, TaskRef("attach-first")),
    }

    async def attach():
        ts = scheduler.tasks["attach-kept"]
        ts.run_spec = None
        internals.link(scheduler, ts, ["attach-first"])
        stub = scheduler.tasks["attach-first"]
        before = stub.run_spec, stub.state, ts.dependencies == {stub}
        touched, due = internals.attach(
            scheduler,
            graph,
            {"attach-kept"},
            {"retries": {"attach-first": 2}},
            {"attach-first": 0, "attach-kept": 1},
            7,
        )
        scheduler.validate_state()
        return (
            before,
            {t.key for t in touched},
            due,
            ts.run_spec is graph["attach-kept"],
            stub.run_spec is graph["attach-first"],
            (ts.state, stub.state),
            stub.priority[0],
            stub.retries,
        )

    assert client.sync(attach) == (
        (None, "released", True),
        {"attach-first", "attach-kept"},
        {},
        True,
        True,
        ("memory", "released"),
        -7,
        2,
    )
    kept.release()


# -- what came with sources, audits and the guard on workers ----------------------------


def test_a_read_parquet_tells_its_files(tmp_path):
    path = str(tmp_path / "x.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(path)
    frame = dd.read_parquet(path)
    found = [internals.dataset_info(node)[0] for node in frame.optimize(fuse=False).expr.walk()]
    files = [f for info in found if info for f in info["ds"].files]
    assert files == [path]


def test_other_expressions_have_no_files():
    frame = dd.from_pandas(pd.DataFrame({"a": [1]}), 1)
    assert internals.dataset_info(frame.expr) == ({}, None)


def test_a_collection_as_it_is_computed():
    expr = internals.as_computed(make().sum())
    assert isinstance(expr, (HLGExprSequence, HLGFinalizeCompute))
    keys = list(flatten(expr.__dask_keys__()))
    assert len(keys) == 1 and keys[0].startswith(finalize.PREFIX)


def test_what_is_mapped_is_an_expression_of_its_own(client, monkeypatch):
    sent = []
    plain = client._graph_to_futures
    monkeypatch.setattr(
        client, "_graph_to_futures", lambda expr, *a, **k: sent.append(expr) or plain(expr, *a, **k)
    )
    client.gather(client.map(user, [1, 2]))
    assert [type(expr) for expr in sent] == [internals.MapExpr]


def test_what_is_submitted_is_told_by_the_arguments(client, monkeypatch):
    told = []
    plain = client._graph_to_futures
    monkeypatch.setattr(
        client,
        "_graph_to_futures",
        lambda *a, **k: told.append(internals.is_submitted(k)) or plain(*a, **k),
    )
    client.submit(user, 1).result()
    client.gather(client.map(user, [1, 2]))
    assert told == [True, True]
    client.get({"x": 1}, "x")
    client.compute(make().sum()).result()
    client.persist(make())
    assert told == [True, True, False, False, False]
    assert not internals.is_submitted({}) and not internals.is_submitted({"span_metadata": None})


def test_a_graph_is_submitted_on_the_scheduler(client):
    async def submit(dask_scheduler):
        internals.pseudo_client(dask_scheduler, "somebody")
        graph = {"one": Task("one", user, 1), "two": Task("two", user, TaskRef("one"))}
        await internals.submit_on_scheduler(dask_scheduler, "somebody", graph, "two", -5)
        ts = dask_scheduler.tasks["two"]
        # higher priorities come later
        return ts.priority[0], {c.client_key for c in ts.who_wants}

    assert client.run_on_scheduler(submit) == (5, {"somebody"})
    client.run_on_scheduler(
        lambda dask_scheduler: dask_scheduler.client_releases_keys(["two"], "somebody")
    )


def test_a_worker_runs_tasks_by_a_method_that_is_looked_up_each_time(client):
    async def replaced(dask_worker):
        plain, seen = dask_worker.execute, []

        def execute(key, *, stimulus_id):
            ts = internals.worker_task(dask_worker, key)
            seen.append((key, internals.in_threads(dask_worker, ts), ts.run_spec is not None))
            return plain(key, stimulus_id=stimulus_id)

        setattr(dask_worker, internals.EXECUTE_METHOD, execute)
        dask_worker.seen = seen

    client.run(replaced)
    assert client.submit(user, 1, key="watched").result() == 2
    seen = [s for found in client.run(lambda dask_worker: dask_worker.seen).values() for s in found]
    assert ("watched", True, True) in seen


def test_a_task_is_swapped_only_where_it_is_still_there():
    class State:
        run_spec = "old"

    ts = State()
    internals.swap(ts, "other", "new")
    assert ts.run_spec == "old"
    internals.swap(ts, "old", "new")
    assert ts.run_spec == "new"


def test_a_method_is_hidden_from_tracebacks():
    def method():
        return 1

    assert internals.hidden(method).__code__.co_filename == distributed.worker.__file__


def test_a_worker_forgets_what_a_key_was_computed_from(client):
    first = client.submit(user, 21, key="forget-first")
    second = client.submit(user, first, key="forget-second")
    assert second.result() == 23
    first.release()

    async def look(dask_worker):
        tasks = dask_worker.state.tasks
        for _ in range(1000):
            if tasks["forget-first"].state == "released":
                break
            await asyncio.sleep(0.01)
        before = set(tasks)
        internals.forget_ancestors(dask_worker, ["forget-second", "stranger"], "test")
        dask_worker.state.validate_state()
        return before - set(tasks), tasks["forget-second"].state

    assert list(client.run(look).values()) == [({"forget-first"}, "memory")]
    assert second.result() == 23


# -- what the scheduler serves -----------------------------------------------------------------


def test_collectors_are_made_at_the_first_scrape_and_kept():
    pytest.importorskip("prometheus_client")
    from distributed.http.scheduler.prometheus import core

    assert isinstance(core.COLLECTORS, list)
    assert core.PrometheusHandler._collectors is None or isinstance(
        core.PrometheusHandler._collectors, tuple
    )

    class Collector:
        def __init__(self, server):
            self.server = server

        def collect(self):
            return []

    live = core.PrometheusHandler._collectors
    for before in (None, (Collector.__new__(type("Other", (Collector,), {})),)):
        core.PrometheusHandler._collectors = before
        try:
            kind = type("Mine", (Collector,), {})
            for _ in range(2):
                internals.add_collector(None, kind)
            assert core.COLLECTORS.count(kind) == 1
            mine = [c for c in core.PrometheusHandler._collectors or () if isinstance(c, kind)]
            assert len(mine) == (0 if before is None else 1)
            internals.remove_collector(kind)
            assert kind not in core.COLLECTORS
            assert core.PrometheusHandler._collectors == before
        finally:
            core.PrometheusHandler._collectors = live


def test_menus_of_all_pages_share_their_lists(client):
    pages = pytest.importorskip("distributed.dashboard.scheduler")
    scheduler = client.cluster.scheduler
    variables = pages.template_variables(scheduler)
    assert pages.template_variables(scheduler) is variables
    assert variables["pages"][-1] == "info" and "cache" not in variables["pages"]
    assert all(set(plot) == {"url", "name"} for plot in variables["plots"])


def test_the_report_takes_code_as_html(client):
    pytest.importorskip("bokeh")
    scheduler = client.cluster.scheduler
    assert "code" in inspect.signature(scheduler.performance_report).parameters
    assert scheduler.handlers["performance_report"].__name__ in ("performance_report", "report")
    with helpers.reporting():
        html = client.sync(
            client.scheduler.performance_report, start=0, last_count=0, code="<u>mark</u>"
        )
    assert "<u>mark</u>" in unescape(html)  # escaped once, as all that is in a page of bokeh's


def test_a_route_tells_the_prefix(client):
    from cachingclient.web.routes import prefix_of

    assert prefix_of(client.cluster.scheduler) == "/"


def test_preloads_run_before_a_scheduler_starts_its_plugins():
    """So one that a preload registers is started twice."""
    source = inspect.getsource(distributed.Scheduler.start_unsafe)
    assert source.index("self.preloads.start()") < source.index("plugin.start(self)")


# -- dataframe expressions ---------------------------------------------------------


@pytest.fixture
def frame_files(tmp_path):
    pdf = pd.DataFrame({"a": range(8), "b": range(8), "c": range(8), "d": range(8)})
    (tmp_path / "csv").mkdir()
    (tmp_path / "parquet").mkdir()
    for n in range(4):
        pdf.iloc[2 * n : 2 * n + 2].to_parquet(tmp_path / "parquet" / f"{n}.parquet", index=False)
        pdf.iloc[2 * n : 2 * n + 2].to_csv(tmp_path / "csv" / f"{n}.csv", index=False)
    return tmp_path


def read_csv(top):
    return dd.read_csv(str(top / "csv" / "*.csv"))


def read_parquet(top):
    return dd.read_parquet(top / "parquet")


def read_arrow(top):
    return dd.read_parquet(top / "parquet", filesystem="arrow")


def computed_nodes(collection):
    return list(internals.as_computed(collection).walk())


def reader_of(collection):
    kinds = internals.frame_kinds()
    (found,) = (n for n in computed_nodes(collection) if isinstance(n, kinds.BlockwiseIO))
    return found.operand("_expr") if isinstance(found, kinds.FusedIO) else found


def test_kinds_of_frames_are_known_where_dataframes_are():
    kinds = internals.frame_kinds()
    assert issubclass(kinds.FromMapProjectable, (kinds.FromMap, kinds.BlockwiseIO))
    assert issubclass(kinds.ReadParquet, kinds.PartitionsFiltered)
    assert issubclass(kinds.FusedParquetIO, kinds.FusedIO)


def test_what_failed_is_released_by_its_own_stimulus():
    told = []

    class Listener(distributed.SchedulerPlugin):
        name = "listener"

        def transition(self, key, start, finish, *args, stimulus_id, **kwargs):
            if key == "flaky":
                told.append((start, finish, internals.has_failed(stimulus_id)))

    calls = []

    def flaky():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    with distributed.Client(**helpers.INPROC) as client:
        client.cluster.scheduler.add_plugin(Listener())
        client.submit(flaky, key="flaky", retries=1, pure=False).result()
    assert ("processing", "released", True) in told
    assert ("processing", "memory", True) not in told


def test_nodes_in_memory_are_found():
    frame = dd.from_pandas(pd.DataFrame({"a": range(8)}), npartitions=2)
    doubled = frame * 2
    for node in (doubled.expr, frame.expr):
        assert sum(n is node for n in internals.live_frames(10_000)) == 1
    name = doubled.expr._name
    del doubled, node
    assert all(n._name != name for n in internals.live_frames(10_000)), "references count"
    assert internals.live_frames(0) is None


def test_partitions_of_what_is_asked_for_are_put_together():
    frame = dd.from_pandas(pd.DataFrame({"a": range(8)}), npartitions=2) * 2
    (top,) = asked(frame).expr.operands
    assert isinstance(top, internals.frame_kinds().RepartitionToFewer)
    assert [n._name for n in top.dependencies()] == [frame.expr._name]


def test_operands_of_an_expression_have_names():
    reader = reader_of(dd.from_map(user, [1, 2], meta=pd.DataFrame({"a": [1]})))
    rest = internals.other_operands(reader, {"iterables"})
    assert internals.other_operands(reader, ()) == list(reader.operands)
    assert len(rest) == len(reader.operands) - 1
    assert any(o is user for o in rest)
    assert not any(o is reader.operand("iterables") for o in rest)


def test_several_frames_arrive_as_a_sequence(frame_files):
    f = read_csv(frame_files)
    expr = asked(f.a.sum(), f.b.sum()).expr
    kinds = internals.frame_kinds()
    assert type(expr) is kinds.Sequence
    assert all(isinstance(part, kinds.Expr) for part in expr.operands)
    # It has no tasks but those of its parts.
    assert set(internals.layer_of(expr)) <= set(expr.__dask_graph__())


def test_which_nodes_work_partition_by_partition(frame_files):
    kinds = internals.frame_kinds()
    f = read_csv(frame_files)

    def info(df, partition_info=None):
        return df

    yes = [f.a + 1, f.map_partitions(user), f[f.a > 1], f.assign(z=f.a)]
    no = [f, f.a.cumsum(), f.map_partitions(info, meta=f._meta), f.repartition(npartitions=2)]
    for collection, expected in [*((c, True) for c in yes), *((c, False) for c in no)]:
        node = collection.optimize(fuse=False).expr
        if type(node).__name__ == "ArrowStringConversion":
            node = node.frame
        assert internals.is_blockwise(node, kinds) is expected, node
    assert not internals.is_blockwise(f.optimize().expr, kinds), "a fused one is opened"


def test_only_lengths_are_counted(frame_files):
    kinds = internals.frame_kinds()
    of_length = [
        internals.counts_rows(n, kinds) for n in computed_nodes(read_csv(frame_files).a.size)
    ]
    of_sum = [
        internals.counts_rows(n, kinds) for n in computed_nodes(read_csv(frame_files).a.sum())
    ]
    assert any(of_length) and not any(of_sum)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("read", [read_csv, read_parquet, read_arrow])
def test_a_reader_is_asked_for_other_columns_and_files(frame_files, read):
    reader = reader_of(read(frame_files)[["a", "b"]])
    assert internals.total_partitions(reader) == 4
    assert internals.selected_partitions(reader) is None
    assert not internals.as_series(reader)
    other = internals.with_operands(reader, {"columns": ["d"], "_series": False}, TOKEN)
    assert internals.expr_name(other) == f"{internals.reader_label(reader)}-{TOKEN}"
    task = internals.read_file(other, ("x", 2), 2)
    assert task.key == ("x", 2) and not task.dependencies
    frame = task()
    assert list(frame.columns) == ["d"] and list(frame.d) == [4, 5]


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_whether_words_become_strings_of_pyarrow(frame_files):
    for convert in (True, False):
        with dask.config.set({"dataframe.convert-string": convert}):
            reader = reader_of(read_parquet(frame_files)[["a", "b"]])
            assert internals.converts_strings(reader) is convert
            for read in (read_csv, read_arrow):  # those say it in their names
                assert internals.converts_strings(reader_of(read(frame_files)[["a"]])) is None


def test_partitions_that_were_selected(frame_files):
    head = reader_of(read_csv(frame_files).head(1, compute=False))
    assert internals.selected_partitions(head) == (0,)
    assert internals.total_partitions(head) == 4


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("read", [read_parquet, read_arrow])
def test_several_files_are_read_at_once_as_dask_does(frame_files, read):
    with dask.config.set({"dataframe.parquet.minimum-partition-size": 1}):
        kinds = internals.frame_kinds()
        f = read(frame_files)[["a"]]
        (fused,) = (n for n in computed_nodes(f) if isinstance(n, kinds.FusedIO))
        units = internals.fused_files(fused)
        assert [list(unit) for unit in units] == [[0, 1], [2, 3]]
        reader = internals.with_operands(fused.operand("_expr"), {"columns": ["c"]}, TOKEN)
        got = internals.read_files(fused, reader, "x", units[1])()
        want = internals.partition_task(fused, 1)()
        assert list(got.c) == list(want.a)
        assert list(got.index) == list(want.index)
        assert internals.renumbers(fused) is (list(got.index) == [0, 1, 2, 3])
        files = [DataNode(None, internals.read_file(reader, "y", n)()) for n in units[1]]
        renumbered = internals.renumbers(fused)
        whole = internals.concatenated("z", TaskList(*files), renumbered)()
        pd.testing.assert_frame_equal(whole, got)


def test_tasks_of_a_node_are_had_one_by_one(frame_files):
    kinds = internals.frame_kinds()
    node = (read_csv(frame_files).a + 1).optimize(fuse=False).expr
    assert internals.has_task_per_partition(node, kinds)
    task = internals.partition_task(node, 2)
    assert task.key == (internals.expr_name(node), 2)
    assert task == internals.layer_of(node)[task.key]
    tree = internals.as_computed(read_csv(frame_files).a.sum()).operands[0]
    assert not internals.has_task_per_partition(tree, kinds)
    assert internals.meta_of(node).name == "a"


def test_data_of_a_frame_has_a_token():
    pdf = pd.DataFrame({"a": [1, 2]})
    one, two, other = (
        reader_of(dd.from_pandas(p, npartitions=1)).operand("frame")
        for p in (pdf, pdf.copy(), pdf + 1)
    )
    assert isinstance(one, internals.frame_kinds().BackendData)
    assert internals.data_token(one) == internals.data_token(two) != internals.data_token(other)


def test_legacy_tasks_find_what_is_not_in_their_graph():
    graph = internals.as_graph({"x": (user, "y")}, {"y"})
    assert graph["x"].dependencies == {"y"}
    assert not internals.as_graph({"x": (user, "y")})["x"].dependencies
