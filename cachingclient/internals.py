"""Every private part of dask and distributed that is touched, with the reason.

Nothing else in this package imports or calls a private name of theirs, and
``tests/test_internals.py`` fails when one of these changes.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import distributed.worker as distributed_worker
from dask.typing import Key
from dask.utils import M
from distributed import Client, Future, Scheduler, Worker

from cachingclient.telling import tell

#: What this dask lacks of what is used here.
_absent: list[str] = []

try:
    # Kinds of expressions that reach a client: each is rewritten in a way of its own.
    from dask._expr import Expr as Expr
    from dask._expr import FinalizeCompute
    from dask._expr import HLGExpr as HLGExpr
    from dask._expr import HLGFinalizeCompute as HLGFinalizeCompute
    from dask._expr import LLGExpr as LLGExpr
    from dask._expr import _ExprSequence as ExprSequence
    from dask._expr import _HLGExprSequence as HLGExprSequence

    # Optimizers return graphs with legacy tasks, whose dependencies only this finds.
    # Tasks: references to other tasks are found, and keys renamed, in them.
    from dask._task_spec import Alias as Alias
    from dask._task_spec import DataNode as DataNode
    from dask._task_spec import GraphNode as GraphNode
    from dask._task_spec import List as TaskList
    from dask._task_spec import Task as Task
    from dask._task_spec import TaskRef as TaskRef
    from dask._task_spec import convert_legacy_graph as convert_legacy_graph
    from dask._task_spec import cull as cull
    from dask.base import collections_to_expr
    from distributed.client import FutureState
    from distributed.client import _MapExpr as MapExpr  # what client.map sends, as no other does
    from distributed.protocol.serialize import Serialized, serialize, to_serialize
    from distributed.scheduler import ClientState, Computation, TaskState
    from distributed.spans import SpanMetadata
    from distributed.worker_state_machine import TaskState as WorkerTask
except ImportError as e:
    _absent.append(str(e).partition(" (")[0])

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Something that nothing is, in place of what dask lacks: the package can be imported."""
        if _absent and not name.startswith("__"):
            return globals().setdefault(name, type(name, (), {}))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# -- expressions ----------------------------------------------------------------


def expr_name(expr: Expr) -> str:
    """Name of an expression: its keys start with it, and no public attribute tells it."""
    return expr._name


def rebuilt(expr: Expr, operands: list[Any], token: str | None = None) -> Expr:
    """The same expression with other operands: a graph is no value that can be tokenized."""
    return type(expr)(*operands, _determ_token=token or uuid.uuid4().hex)


def same_token(expr: Expr) -> str:
    """The token that names an expression: a rewritten one must keep its keys."""
    return expr.deterministic_token


def dataset_info(expr: Expr) -> tuple[Mapping[str, Any], Any]:
    """Files that a read_parquet has found, and pyarrow's file system: no other place tells."""
    if not hasattr(type(expr), "_dataset_info"):
        return {}, None
    return expr._dataset_info, getattr(expr, "fs", None)


def other_operands(expr: Expr, names: Container[str]) -> list[Any]:
    """Operands of an expression but those of some names."""
    if not names:
        return list(expr.operands)
    named = zip_longest(type(expr)._parameters[: len(expr.operands)], expr.operands)
    return [operand for name, operand in named if name not in names]


def as_computed(collection: Any) -> Expr:
    """The expression that a client is asked for when a collection is computed."""
    return FinalizeCompute(collections_to_expr([collection])).optimize()


# -- client ---------------------------------------------------------------------

#: The one method that all graphs go through (same signature in 2025.4 and 2026.8).
GRAPH_METHOD = "_graph_to_futures"
#: Called at each connect and reconnect, when the scheduler can be spoken to.
CONNECT_METHOD = "_ensure_connected"
#: Does what `Client.cancel` says, in sync and async clients alike.
CANCEL_METHOD = "_cancel"
#: Runs one task; the worker looks it up on itself each time (2025.4 and 2026.8).
EXECUTE_METHOD = "execute"


#: Methods that are called, or put in front of, with the parameters that they have to take.
_METHODS: dict[Any, dict[str, str]] = {
    Client: {
        GRAPH_METHOD: "expr keys span_metadata workers user_priority resources retries actors",
        CONNECT_METHOD: "",
        CANCEL_METHOD: "futures reason msg force",
        "_send_to_scheduler": "msg",
    },
    Scheduler: {
        "_generate_taskstates": "keys dsk computation",
        "_apply_annotations": "tasks annotations_by_type",
        "_set_priorities": (
            "internal_priority submitting_task user_priority fifo_timeout start tasks"
        ),
        "update_graph": (
            "client expr_ser keys span_metadata internal_priority submitting_task user_priority"
        ),
        "new_task": "key spec state",
        "client_releases_keys": "keys client",
    },
    Worker: {EXECUTE_METHOD: "key stimulus_id"},
}


@lru_cache(1)
def lacking() -> str:
    """What this dask lacks that the cache cannot do without; empty where it is all there."""
    found = _absent or [
        text for kind, methods in _METHODS.items() for text in _changed(kind, methods)
    ]
    return f"dask {dask.__version__} is not known to it: {found[0]}" if found else ""


def _changed(kind: type, methods: Mapping[str, str]) -> Iterator[str]:
    for name, needed in methods.items():
        method = getattr(kind, name, None)
        if method is None:
            yield f"{kind.__name__} has no method {name}"
        elif not _takes(method, needed.split()):
            yield f"{kind.__name__}.{name} takes other arguments"


def _takes(method: Any, needed: list[str]) -> bool:
    parameters = inspect.signature(method).parameters
    # Somebody may have put a function in front of it that passes on whatever it is given.
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    asked = [n for n, p in parameters.items() if p.default is p.empty and n != "self"]
    return anything or (
        [p for p in parameters if p in needed] == needed and set(asked) <= set(needed)
    )


def stream_handlers(client: Client) -> dict[str, Callable[..., Any]]:
    """Handlers for messages of the scheduler: a plain client has no public way to add one."""
    return client._stream_handlers


def send(client: Client, message: dict[str, Any]) -> None:
    """Send on the stream that graphs are sent on, so that the order is kept."""
    client._send_to_scheduler(message)


def is_submitted(kwargs: Mapping[str, Any]) -> bool:
    """Whether the graph method was called by `Client.submit` or `map`: its arguments tell."""
    made_of = (kwargs.get("span_metadata") or {}).get("collections", ())
    return any(of.get("type") == "Future" for of in made_of)


def cancel_one(future: Future, reason: str | None, msg: str | None) -> None:
    """Cancel one future and leave others of the same key alone: their state is shared."""
    future._state = FutureState(future.key)
    future._state.cancel(reason=reason, msg=msg)


def is_released(future: Future) -> bool:
    """Whether a future waits for its key no more, though somebody has the object."""
    return future._cleared


# -- scheduler ------------------------------------------------------------------


def pseudo_client(scheduler: Scheduler, name: str) -> ClientState:
    """A client that is nobody: what it wants stays in memory; made once, restarts keep it."""
    if name not in scheduler.clients:
        scheduler.clients[name] = ClientState(name)
    return scheduler.clients[name]


async def submit_on_scheduler(
    scheduler: Scheduler, client: str, graph: dict[Any, Any], key: Any, priority: int
) -> None:
    """Submit a graph as a client does: only messages of clients can do so otherwise."""
    expr = Serialized(*serialize(to_serialize(LLGExpr(graph)), on_error="raise"))
    await scheduler.update_graph(
        client=client,
        expr_ser=expr,
        keys={key},
        span_metadata=SpanMetadata(collections=[]),
        internal_priority=None,
        submitting_task=None,
        user_priority=priority,
    )


def want(client: ClientState, ts: TaskState) -> None:
    """Pin a key without a transition, which is not allowed inside one."""
    if ts.who_wants is None:
        ts.who_wants = set()
    ts.who_wants.add(client)
    client.wants_what.add(ts)


def unwant(client: ClientState, ts: TaskState) -> None:
    """Unpin a key without a transition: right where the scheduler is about to make one."""
    client.wants_what.discard(ts)
    if ts.who_wants:
        ts.who_wants.discard(client)


def only_wanted_by(client: ClientState, ts: TaskState) -> bool:
    """Whether nobody else has any use for a key."""
    return not ts.waiters and ts.who_wants == {client}


def cut_loose(ts: TaskState) -> list[TaskState]:
    """Cut a key off what it depends on, without a transition; returns what nobody needs then."""
    orphans = []
    for dts in ts.dependencies:
        dts.dependents.discard(ts)
        if dts.waiters:
            dts.waiters.discard(ts)
        if not (dts.dependents or dts.who_wants or dts.waiters):
            orphans.append(dts)
    ts.dependencies.clear()
    ts.has_lost_dependencies = False
    return orphans


def may_run_anywhere(ts: TaskState) -> None:
    """Forget where a task had to run: a later graph may say something else."""
    ts.worker_restrictions = ts.host_restrictions = ts.resource_restrictions = None
    ts.loose_restrictions = False
    ts.annotations = None
    ts.retries = 0


def may_run_nowhere(ts: TaskState) -> None:
    """Have the scheduler find no worker for a task, so that it waits in "no-worker"."""
    may_run_anywhere(ts)
    ts.worker_restrictions = {"nowhere"}


def stand_in(key: Key, function: Callable[[], Any], needs: Any) -> Task:
    """A task in place of one that is packed away: without one the scheduler takes a key for data
    that cannot be computed again, and forgets all that depends on it with it."""
    task = Task(key, function)
    task._dependencies = needs
    return task


def link(scheduler: Scheduler, ts: TaskState, keys: Any) -> None:
    """Tell what a key depends on, without saying how that is computed: a graph that has the key
    is compared with it."""
    for key in keys:
        dts = scheduler.tasks.get(key)
        if dts is None:
            dts = scheduler.new_task(key, None, "released")
        ts.add_dependency(dts)


def attach(
    scheduler: Scheduler,
    graph: dict[Key, Any],
    keys: Any,
    annotations: dict[str, dict[Key, Any]],
    order: dict[Key, int],
    priority: int,
) -> tuple[list[TaskState], dict[Key, Any]]:
    """Make tasks known to the scheduler as `update_graph` does, but ask for none of them.

    Returns what was touched, and transitions that are due.
    """
    blank = [ts for key in graph if (ts := scheduler.tasks.get(key)) and ts.run_spec is None]
    computation = scheduler.computations[-1] if scheduler.computations else Computation()
    touched, new, _ = scheduler._generate_taskstates(set(keys), graph, computation)
    scheduler._apply_annotations([*new, *blank], annotations)
    scheduler._set_priorities(order, None, priority, "60s", time.time(), touched)
    if spans := scheduler.extensions.get("spans"):
        spans.observe_tasks(touched, (), SpanMetadata(collections=[]))
    due: dict[Key, Any] = {}
    for ts in touched:
        for dts in ts.dependencies:
            if dts.exception_blame and ts.state in ("released", "no-worker"):
                ts.exception_blame = dts.exception_blame
                due[ts.key] = "erred"
    return touched, due


@contextlib.contextmanager
def still_idle(scheduler: Scheduler) -> Iterator[None]:
    """Transitions of ours are no activity: an idle scheduler closes when it would without us."""
    idle = scheduler._idle_transition_counter == scheduler.transition_counter
    try:
        yield
    finally:
        if idle:
            scheduler._idle_transition_counter = scheduler.transition_counter


def add_collector(scheduler: Scheduler, kind: type[Any]) -> None:
    """Have metrics collected: the classes are public, but what the first scrape of a process has
    made of them is all that is asked later."""
    from distributed.http.scheduler.prometheus import core

    if kind not in core.COLLECTORS:
        core.COLLECTORS.append(kind)
    handler: Any = core.PrometheusHandler
    live = handler._collectors
    if live and not any(isinstance(c, kind) for c in live):
        collector = kind(scheduler)
        core.prometheus_client.REGISTRY.register(collector)
        handler._collectors = (*live, collector)


def remove_collector(kind: type[Any]) -> None:
    """The same backwards."""
    from distributed.http.scheduler.prometheus import core

    if kind in core.COLLECTORS:
        core.COLLECTORS.remove(kind)
    handler: Any = core.PrometheusHandler
    live = handler._collectors or ()
    for collector in live:
        if isinstance(collector, kind):
            core.prometheus_client.REGISTRY.unregister(collector)
    handler._collectors = tuple(c for c in live if not isinstance(c, kind)) or None


# -- workers --------------------------------------------------------------------


def worker_task(worker: Worker, key: Any) -> WorkerTask | None:
    """State of a task on its worker: tells what it is computed from, and how."""
    return worker.state.tasks.get(key)


def in_threads(worker: Worker, ts: WorkerTask) -> bool:
    """Whether a task shares memory with its worker: told as `Worker.execute` tells it."""
    executor = worker.executors.get((ts.annotations or {}).get("executor", "default"))
    return "ThreadPoolExecutor" in str(type(executor)) or getattr(ts.run_spec, "is_coro", False)


def swap(ts: WorkerTask, old: Any, new: Any) -> None:
    """Put another task into the place of one, if that is still there."""
    if ts.run_spec is old:
        ts.run_spec = new


def forget_ancestors(worker: Worker, keys: Any, stimulus_id: str) -> None:
    """Have a worker forget what keys in its memory were computed from: it would remember that for
    as long as it has them."""
    gone: dict[WorkerTask, Any] = {}
    for key in keys:
        ts = worker.state.tasks.get(key)
        if ts is not None and ts.state == "memory":
            for dts in ts.dependencies:
                dts.dependents.discard(ts)
                if dts.state == "released" and not dts.dependents:
                    gone[dts] = "forgotten"
            ts.dependencies.clear()
    if gone:
        worker.state._transitions(gone, stimulus_id=stimulus_id)


def hidden(method: Any) -> Any:
    """Leave a method out of users' tracebacks and profiles: they are cut by file names."""
    filename = distributed_worker.__file__
    method.__code__ = method.__code__.replace(co_filename=filename)
    return method


# -- layers ---------------------------------------------------------------------


def blockwise_parts(layer: Any) -> tuple[Task, list[Any]]:
    """Task of a Blockwise layer, and the arguments that are no layers of their own."""
    return layer.task, [a for a, index in layer.indices if index is None]


def blockwise_arguments(layer: Any) -> tuple[Any, ...]:
    """What a Blockwise layer hands to its function: literals, and the blocks of others' names."""
    return tuple(a for a, _ in layer.indices)


def is_rechunk(layer: Any) -> bool:
    """Whether a layer is a P2P rechunk: its tasks are made when they are needed."""
    # By name: importing its module takes longer than anything that asks.
    return type(layer).__name__ == "P2PRechunkLayer"


def number_of_outputs(layer: Any) -> int:
    """How many outputs of a P2P rechunk are needed, without making its tasks."""
    return int(layer.keepmap.sum())


def as_graph(graph: Mapping[Key, Any], outside: set[Key] | None = None) -> dict[Key, GraphNode]:
    """A low-level graph in which every task knows what it depends on.

    Legacy tasks find their inputs by looking for known keys: those that are not in the graph
    have to be named.
    """
    return convert_legacy_graph(graph, outside | graph.keys() if outside else None)


# -- dataframe expressions --------------------------------------------------------


class FrameKinds(NamedTuple):
    """Kinds of dataframe expressions: each is told apart by its class alone."""

    Expr: Any
    Blockwise: Any
    BlockwiseIO: Any
    FromMap: Any
    FromMapProjectable: Any
    FromPandas: Any
    Fused: Any
    FusedIO: Any
    FusedParquetIO: Any
    Len: Any
    MapPartitions: Any
    Partitions: Any
    PartitionsFiltered: Any
    Projection: Any
    RepartitionToFewer: Any
    ReadParquet: Any
    #: several that are asked for at once
    Sequence: Any
    #: what wraps the data of from_pandas
    BackendData: Any
    #: block by block, and yet not the same for a part of the blocks
    positional: tuple[Any, ...]


@lru_cache(1)
def _load_frame_kinds() -> FrameKinds | None:
    try:
        return _import_frame_kinds()
    except (ImportError, AttributeError) as e:
        tell(
            f"Reads of dataframes are not shared: dask {dask.__version__} is not known to the "
            f"cache: {str(e).partition(' (')[0]}. The rest of it works."
        )
        return None


@lru_cache(1)
def _import_frame_kinds() -> FrameKinds:
    from dask.dataframe.dask_expr import _expr, _reductions, _repartition, _shuffle, _util
    from dask.dataframe.dask_expr.io import io, parquet
    from dask.dataframe.tseries.resample import ResampleAggregation

    return FrameKinds(
        _expr.Expr,
        _expr.Blockwise,
        io.BlockwiseIO,
        io.FromMap,
        io.FromMapProjectable,
        io.FromPandas,
        _expr.Fused,
        io.FusedIO,
        io.FusedParquetIO,
        _reductions.Len,
        _expr.MapPartitions,
        _expr.Partitions,
        _expr.PartitionsFiltered,
        _expr.Projection,
        _repartition.RepartitionToFewer,
        parquet.ReadParquet,
        ExprSequence,
        _util._BackendData,
        (_shuffle.SetIndexBlockwise, ResampleAggregation),
    )


def frame_kinds() -> FrameKinds | None:
    """Kinds of dataframe expressions; None while dask.dataframe is not in use."""
    return _load_frame_kinds() if "dask.dataframe.dask_expr" in sys.modules else None


def is_blockwise(node: Any, kinds: FrameKinds) -> bool:
    """Whether a partition is made of those of the same number alone, by the class's own word."""
    kind = type(node)
    return (
        isinstance(node, kinds.Blockwise)
        and not isinstance(node, (kinds.BlockwiseIO, kinds.Fused, *kinds.positional))
        and kind._task in (kinds.Blockwise._task, kinds.MapPartitions._task)
        and kind._blockwise_arg is kinds.Blockwise._blockwise_arg
        and kind._layer is kinds.Expr._layer
        and not getattr(node, "_has_partition_info", False)
    )


def has_failed(stimulus_id: str) -> bool:
    """Whether a task is released since it failed: with retries left it is run again, and no
    transition says so by itself."""
    return stimulus_id.startswith("task-erred-")


def live_frames(most: int) -> list[Any] | None:
    """Nodes of dataframe expressions in memory, each once; None where they cannot be told, or are
    more than a number. dask finds equal ones by these tables."""
    kinds = frame_kinds()
    if kinds is None:
        return None
    # A class has the table of a base, if that had one when the first of its nodes was made.
    found = (getattr(c, _TABLE, None) for c in (kinds.Expr, *_subclasses(kinds.Expr)))
    tables = {id(table): table for table in found if table is not None}
    if not tables or sum(map(len, tables.values())) > most:
        return None
    return [n for t in tables.values() for n in list(t.values()) if isinstance(n, kinds.Expr)]


#: Name of the tables of nodes, of a class or its base.
_TABLE = "_instances"


def _subclasses(kind: Any) -> Iterator[Any]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def counts_rows(node: Any, kinds: FrameKinds) -> bool:
    """Whether a node only wants the lengths of its input."""
    parameters = type(node)._parameters
    return "kind" in parameters and node.operand("kind") is kinds.Len


def has_task_per_partition(node: Any, kinds: FrameKinds) -> bool:
    """Whether tasks of single partitions can be had without those of all."""
    return type(node)._layer is kinds.Expr._layer


def partition_task(node: Any, index: int) -> Any:
    """Task of one partition, under its own key."""
    key = expr_name(node), index
    return node._task(key, index)


def data_token(data: Any) -> str:
    """Token of data of from_pandas: it has been found already, and tells equal data."""
    return str(data._token)


def layer_of(node: Any) -> Mapping[Key, Any]:
    """All tasks of one node of an expression."""
    return node._layer()


def meta_of(node: Any) -> Any:
    """An empty frame that tells the kind of frames."""
    return node._meta


def selected_partitions(node: Any) -> Sequence[int] | None:
    """Partitions that a reader was asked for; None for all."""
    return tuple(node._partitions) if node._filtered else None


def total_partitions(node: Any) -> int:
    """Partitions of a reader in all, whichever were asked for."""
    return len(node._divisions()) - 1


def fused_files(node: Any) -> list[Sequence[int]]:
    """Files that each partition of several small ones is read from."""
    return node._fusion_buckets


def converts_strings(node: Any) -> bool | None:
    """Whether a reader of parquet makes words strings of pyarrow, which its name may not tell."""
    found: bool | None = dataset_info(node)[0].get("kwargs", {}).get("convert_string")
    return found


def as_series(node: Any) -> bool:
    """Whether a reader gives the only column that it was asked for as a series."""
    return bool(node.operand("_series")) and node._meta.ndim == 1


def reader_label(node: Any) -> str:
    """What the keys of a reader start with."""
    return expr_name(node).rpartition("-")[0]


def with_operands(node: Any, changes: Mapping[str, Any], token: str) -> Any:
    """The same reader with other operands, and a token of ours: making one tokenizes them all."""
    operands = [
        changes.get(parameter, operand)
        for parameter, operand in zip(type(node)._parameters, node.operands)
    ]
    return type(node)(*operands, _determ_token=token)


def read_file(node: Any, key: Key, file: int) -> Task:
    """Task that reads one file, whichever were asked for."""
    return node._filtered_task(key, file)


def read_files(fused: Any, node: Any, key: Key, files: Sequence[int]) -> Task:
    """Task that reads several files as one partition, as `fused` does, by another reader."""
    kinds = _import_frame_kinds()
    if isinstance(fused, kinds.FusedParquetIO):
        tasks = [node._filtered_task(key, file) for file in files]
        fragments = [task.args[0].kwargs for task in tasks]
        return Task(
            key,
            kinds.FusedParquetIO._load_multiple_files,
            [(f["fragment_wrapper"], f["filters"]) for f in fragments],
            fragments[0]["columns"],
            fragments[0]["schema"],
            **tasks[0].kwargs,
            _data_producer=True,
        )
    parts = (node._filtered_task(key, file) for file in files)
    return concatenated(key, TaskList(*parts), renumbered=False)


def renumbers(fused: Any) -> bool:
    """Whether rows of several files that are read together are numbered anew."""
    is_arrow = isinstance(fused, _import_frame_kinds().FusedParquetIO)
    return is_arrow and fused._meta.index.name is None


def concatenated(key: Key, parts: TaskList, renumbered: bool) -> Task:
    """Task that puts frames one after the other, as dask does with files that it reads at once."""
    from dask.dataframe import methods

    if not renumbered:
        return Task(key, methods.concat, parts)
    return Task(key, M.reset_index, Task(None, methods.concat, parts), drop=True)
