"""The worker plugin: tasks that may change their inputs get copies, and so do users.

Results are kept on workers, and a task that changes what it is given would change what the
next one reads. Three ways were measured (``benchmarks/mutation.py``): milliseconds that a
task takes on an array of 128 MiB and on a list of 20,000 dicts, with a function that only
reads, one that hides what it does, and one that writes in place.

==================  =====  =====  ======  ===========  ============  ==================
way                 reads  hides  writes  reads dicts  writes dicts  a part runs twice
==================  =====  =====  ======  ===========  ============  ==================
no protection        11.7   12.0     4.8          0.5           0.6
copies for all       24.0   24.4    16.2         14.4          15.0  never
read-only views      11.6   11.7    16.0         14.3          15.8  at the first write
a look, copies       11.9   24.5    16.1          0.5          15.2  never
==================  =====  =====  ======  ===========  ============  ==================

A frame of 20 columns and 100,000 rows costs 0.03 ms in each of them, by copy-on-write; 0.5 ms
where what cannot be read might write beneath that. The look takes 3 microseconds for a user's
function and 15 for a fused task of dask's own; 5 where its functions were cleared before.

The last is what is done. Read-only views are no safer than the look: compiled code may
write to them without an error, or refuse to read them; a function may catch the error;
what it did before the error (a row in a database, a step of a random generator) is done
twice; and the views escape in results, which other tasks then cannot write to. A look that
errs on the safe side costs a copy, at the speed of memory, where a user's function stores
into something or calls what is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin

from cachingclient.internals import (
    EXECUTE_METHOD,
    forget_ancestors,
    hidden,
    in_threads,
    lacking,
    swap,
    worker_task,
)
from cachingclient.worker.bytecode import BENEATH, CHANGES, CLEAR
from cachingclient.worker.copies import Copier
from cachingclient.worker.look import task_verdict
from cachingclient.worker.memory import MemoryWatch
from cachingclient.worker.results import CopyingComm

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed import Worker
    from distributed.comm import Comm
    from distributed.worker_state_machine import TaskState

logger = logging.getLogger("distributed.worker.cachingclient")

#: What the scheduler says when it has forgotten what keys were computed from.
FORGET = "cachingclient-forget"
#: Topic of what the scheduler is told by a worker that cannot.
REMEMBERS = "cachingclient-remembers"
#: Seconds for which this is still listened to: a worker ends when it hears what it does not know.
LATE = 60

#: Bytes of results that are copied in the thread that messages are packed in, not on the loop.
LARGE = 1_000_000


class MutationGuard(WorkerPlugin):
    """Protects what is in a worker's memory from the tasks that read it, and from users.

    Tasks whose functions may change their inputs get copies of them, and so do all that read
    what changes by that. Where workers share
    their process with clients, clients get copies of results.

    Notes
    -----
    Not protected: objects of classes that `cachingclient.worker.copies` does not know;
    values that tasks look up by themselves, in ``get_worker().data`` or by the client of
    ``worker_client``; constants inside of a task, which are sent with it each time.

    An error here never fails a task: it gets what it would get without this.
    """

    name = "cachingclient-guard"
    idempotent = True

    #: {id of a worker: what is hung into it}
    hooks: dict[int, Hooks]

    def __init__(self) -> None:
        self.hooks = {}

    def __reduce__(self) -> Any:
        return type(self), ()

    def setup(self, worker: Worker) -> None:
        """Hang into a worker; fails where its dask is not known, so that nothing is kept there."""
        if missing := lacking():
            raise RuntimeError(missing)
        worker_task(worker, None)
        self.teardown(worker)
        self.hooks[id(worker)] = Hooks(worker)

    def teardown(self, worker: Worker) -> None:
        """Leave it as it was."""
        hooks = self.hooks.pop(id(worker), None)
        if hooks is not None:
            hooks.remove()

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Watch what tasks do to the memory."""
        # Called some eight times a task: each line counts.
        if finish == "memory":
            for hooks in self.hooks.values():
                hooks.memory.came(key, start)


class Hooks:
    """What is hung into one worker."""

    #: whether there is nothing to do any more; somebody may still hold on to our methods
    off: bool = False
    #: whether an error was logged
    failed: bool = False
    #: whether what keys were computed from cannot be forgotten
    remembers: bool = False

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: what somebody else had put in the place of the worker's method
        self.previous = vars(worker).get(EXECUTE_METHOD)
        self.plain_execute = getattr(worker, EXECUTE_METHOD)
        self.plain_get_data = worker.handlers["get_data"]
        # Bound once: a method is another object each time that it is looked up.
        self.ours, self.our_get_data = self.execute, self.get_data
        setattr(worker, EXECUTE_METHOD, self.ours)
        self.forget = self._forget
        worker.stream_handlers[FORGET] = self.forget
        if worker.address.startswith("inproc://"):
            worker.handlers["get_data"] = self.our_get_data
        self.memory = MemoryWatch(worker)

    def remove(self) -> None:
        """Take out what is still in its place."""
        self.off = True
        self.memory.remove()
        worker = self.worker
        if vars(worker).get(EXECUTE_METHOD) is self.ours:
            delattr(worker, EXECUTE_METHOD)
            if self.previous is not None:
                setattr(worker, EXECUTE_METHOD, self.previous)
        if worker.handlers.get("get_data") is self.our_get_data:
            worker.handlers["get_data"] = self.plain_get_data
        # The scheduler may have said something that is still on its way.
        worker.loop.call_later(LATE, self._stop_listening)

    def _stop_listening(self) -> None:
        if self.worker.stream_handlers.get(FORGET) is self.forget:
            del self.worker.stream_handlers[FORGET]

    def _forget(self, keys: list[Any], stimulus_id: str) -> None:
        if self.off or self.remembers:
            return
        try:
            forget_ancestors(self.worker, keys, stimulus_id)
        except Exception:
            # A worker ends when a handler of its stream fails.
            self.remembers = True
            logger.exception("This worker goes on to remember what is kept was computed from")
            # It would wait for what these needed, where they have to be computed in another way.
            message = {"action": REMEMBERS, "worker": self.worker.address}
            self.worker.log_event(REMEMBERS, message)

    def failed_once(self) -> None:
        """An error of ours: say so once, and go on without."""
        if not self.failed:
            self.failed = True
            logger.exception("Values could not be copied; a task may change what is kept")

    # -- tasks -----------------------------------------------------------------

    def execute(self, key: Any, *, stimulus_id: str) -> Any:
        """Run a task; its inputs are copied in its own thread, where they have to be."""
        if self.off:
            return self.plain_execute(key, stimulus_id=stimulus_id)
        self.memory.begins(key)
        guarded = self.guarded(key)
        if guarded is None:
            return self.plain_execute(key, stimulus_id=stimulus_id)
        return self.execute_guarded(guarded, key, stimulus_id)

    def guarded(self, key: Any) -> Guarded | None:
        """The task as it should run; None if it may run as it is."""
        try:
            ts = worker_task(self.worker, key)
            if ts is None or not ts.dependencies or ts.run_spec is None:
                return None
            verdict = self.verdict(ts.run_spec)
            keys = self.memory.delicate(ts.dependencies) if verdict == CLEAR else None
            if keys == [] or not in_threads(self.worker, ts):
                return None
            return Guarded(ts, self, keys, deep=bool(verdict & BENEATH))
        except Exception:
            self.failed_once()
            return None

    def verdict(self, task: Any) -> int:
        """The look at a task; one that cannot be looked at gets copies."""
        try:
            # Not once a name: what is fused into a task of that name differs with what is kept.
            return task_verdict(task)
        except Exception:
            self.failed_once()
            return CHANGES | BENEATH

    async def execute_guarded(self, guarded: Guarded, key: Any, stimulus_id: str) -> Any:
        """Put a task into the place of another while that runs."""
        self.swap(guarded.ts, guarded.task, guarded)
        try:
            return await self.plain_execute(key, stimulus_id=stimulus_id)
        finally:
            self.swap(guarded.ts, guarded, guarded.task)

    def swap(self, ts: TaskState, old: Any, new: Any) -> None:
        try:
            swap(ts, old, new)
        except Exception:
            self.failed_once()

    def copies(self, data: Mapping[Any, Any], deep: bool) -> dict[Any, Any]:
        """Copies of the values of a mapping; where that fails the values themselves."""
        copier = Copier(deep)
        return {key: self.copy(value, copier) for key, value in data.items()}

    def copy(self, value: Any, copier: Copier) -> Any:
        try:
            return copier(value)
        except Exception:
            self.failed_once()
            return value

    # -- results ---------------------------------------------------------------

    async def get_data(self, comm: Comm, keys: Any, who: str | None = None, **kwargs: Any) -> Any:
        """Hand out values: workers, which say who they are, may share them; others may not."""
        if who is None and not self.off and comm.peer_address.startswith("inproc://"):
            comm = CopyingComm(comm, self, self.large(keys))  # type: ignore[assignment]
        return await self.plain_get_data(comm, keys=keys, who=who, **kwargs)

    def large(self, keys: Any) -> bool:
        """Whether values may take so long to copy that the event loop would wait for it."""
        try:
            tasks = (worker_task(self.worker, key) for key in keys)
            return sum(ts.nbytes or 0 for ts in tasks if ts is not None) > LARGE
        except Exception:
            # Who asked for them would ask again, for ever.
            self.failed_once()
            return True


class Guarded:
    """A task that gets copies of its inputs.

    It stands in the place of a task while that runs, and is otherwise like it.
    """

    def __init__(self, ts: TaskState, hooks: Hooks, keys: list[Key] | None, deep: bool) -> None:
        self.ts, self.hooks, self.deep = ts, hooks, deep
        #: inputs that are copied; None for all of them
        self.keys = keys
        self.task: Any = ts.run_spec

    @hidden
    def __call__(self, values: Any = ()) -> Any:
        values = dict(values)
        chosen = values if self.keys is None else {k: values[k] for k in self.keys if k in values}
        return self.task({**values, **self.hooks.copies(chosen, self.deep)})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def __repr__(self) -> str:
        return repr(self.task)
