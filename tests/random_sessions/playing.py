"""Plays a session on a client, and notes all that a user can see of it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import hashlib
import logging
import os
import random
import shutil
import signal
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import _shuffle
from distributed import Future
from random_sessions import counting
from random_sessions.comparing import error_text, nameless, same, tidy
from random_sessions.functions import PRELUDE
from random_sessions.steps import Step

#: Where dask remembers what it computed to find divisions, for all clients of a process
DIVISIONS: Any = getattr(_shuffle, "divisions_lru", {})
#: Seconds until what was released must be gone.
PATIENCE = 5
#: Seconds until what nobody needs should be gone.
ENOUGH = 0.3
#: Seconds until what the scheduler answers has arrived.
ANSWERED = 0.05
#: Loggers of what nobody else would notice.
OURS = tuple(f"distributed.{part}.cachingclient" for part in ("client", "scheduler", "worker"))


class Outcome(NamedTuple):
    """What a user can see of a step."""

    shown: list[Any]
    error: str | None
    calls: Counter[str]
    #: {path: digest}
    files: dict[str, str]


# -- what sessions use besides dask ------------------------------------------------------------


def table(rows: int, n: int) -> pd.DataFrame:
    """A frame whose numbers are whole: sums of them don't depend on their order."""
    a, b = np.arange(rows) * 7 % 5, np.arange(rows) * n % 11
    return pd.DataFrame({"a": a.astype("i8"), "b": b.astype("f8")})


def second(values: Any) -> Any:
    return list(values)[1]


def odd(value: int) -> int:
    return value % 2


def load(path: str) -> Any:
    return np.load(path)


def save_text(path: str, value: Any) -> None:
    Path(path).write_text(repr(value))


def newer(write: Any) -> Any:
    """Write a file, or a folder, with another time of change than before.

    Within one tick of the file system's clock plain dask would not notice it itself.
    """

    @functools.wraps(write)
    def again(path: str, *args: Any) -> None:
        before = os.stat(path).st_mtime_ns if os.path.exists(path) else None
        write(path, *args)
        while os.stat(path).st_mtime_ns == before:
            time.sleep(0.002)
            write(path, *args)

    return again


@newer
def write_csv(path: str, n: int) -> None:
    table(10, n).to_csv(path, index=False)


@newer
def write_parquet(path: str, n: int) -> None:
    table(10, n).to_parquet(path)


@newer
def write_text(path: str, n: int) -> None:
    Path(path).write_text(f"{n}\n" * 6)


@newer
def write_npy(path: str, n: int) -> None:
    with open(path, "wb") as f:
        np.save(f, np.full(8, n))


@newer
def write_zarr(path: str, n: int) -> None:
    import zarr

    shutil.rmtree(path, ignore_errors=True)
    zarr.open_array(path, mode="w", shape=(8,), chunks=(4,), dtype="i8")[:] = n


class Target:
    """An array in a file, to store into."""

    def __init__(self, path: str, like: Any) -> None:
        self.path = path
        with open(path, "wb") as f:
            np.save(f, np.zeros(like.shape))

    def __setitem__(self, index: Any, value: Any) -> None:
        out = np.lib.format.open_memmap(self.path, mode="r+")
        out[index] = value
        out.flush()


#: By their names, as users import them
MODULES = {
    **{"da": da, "dask": dask, "db": db, "dd": dd, "np": np, "os": os, "pd": pd},
    **{"random": random, "time": time, "uuid": uuid, "datetime": datetime},
    **{"partial": functools.partial, "sleep": time.sleep, "clock": time.time},
}
HELPERS = (
    *(table, second, odd, load, save_text, write_csv, write_parquet, write_text, write_npy),
    *(write_zarr, Target, counting.count, counting.first, tidy),
)


# -- playing -----------------------------------------------------------------------------------


class Stage:
    """A client with a cluster of its own.

    Parameters
    ----------
    make_client : callable
        Class of the client.
    processes : bool
        Whether the workers are other processes.
    seconds : float, optional
        A step that takes longer is given up: only where nobody else uses SIGALRM.
    """

    def __init__(self, make_client: Any, processes: bool = False, seconds: float = 0) -> None:
        self.make_client, self.processes, self.seconds = make_client, processes, seconds
        self._open()

    def _open(self) -> None:
        options = {"dashboard_address": None, "processes": self.processes}
        # Sessions fail on purpose. `_logged` hears everything all the same.
        options["silence_logs"] = logging.CRITICAL
        with dask.config.set({"cachingclient.min-cost": "0s", "cachingclient.task-overhead": "0s"}):
            self.client = self.make_client(
                n_workers=2, threads_per_worker=1, set_as_default=False, **options
            )
        self.scheduler = self.client.cluster.scheduler
        self.cache = getattr(self.client, "cache", None)
        self.limit = self.cache.info().maxsize if self.cache is not None else 0

    def close(self) -> None:
        """Close the client and its cluster."""
        self.client.close()

    def reopen(self) -> None:
        """What hangs, or was left behind, must not be in the way of the next session."""
        with contextlib.suppress(Exception):
            self.close()
        self._open()

    def play(self, steps: Sequence[Step], top: Path) -> list[Outcome]:
        """Play a session in an empty folder."""
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir(parents=True)
        counting.forget()
        DIVISIONS.clear()
        with self.client.as_current(), _logged() as self.messages:
            namespace = self.namespace(str(top))
            outcomes = [self.step(step, namespace, top) for step in steps]
            let_go(namespace)
            outcomes.append(self.end())
        return outcomes

    def namespace(self, top: str) -> dict[str, Any]:
        """What a notebook has."""
        cache = self.cache
        self.shown: list[Any] = []
        found = {
            # functions of a notebook are in __main__, and travel by value
            "__name__": "__main__",
            "HERE": top,
            "client": self.client,
            "show": lambda value: self.shown.append(copy.deepcopy(value)),
            "clear": cache.clear if cache is not None else lambda: None,
            "resize": cache.resize if cache is not None else lambda limit: None,
            "disabled": cache.disabled if cache is not None else contextlib.nullcontext,
            "remove": lambda prefix: remove(Path(top), prefix),
            **MODULES,
            **{h.__name__: h for h in HELPERS},
        }
        exec(PRELUDE, found)
        return found

    def step(self, step: Step, namespace: dict[str, Any], top: Path) -> Outcome:
        """Run one step, and wait until nothing is left of it but what the user holds."""
        self.shown.clear()
        error = None
        try:
            with alarm(self.seconds):
                exec(step.code, namespace)
        except Exception as e:
            error = error_text(e, str(top))
            traceback.clear_frames(e.__traceback__)
            e.__traceback__ = None
        if error is not None:
            gc.collect()
        if "cancel" in step.code:
            # The scheduler's answer would cancel a new future of the same name, in plain dask too.
            time.sleep(ANSWERED)
        error = self.settle() or error
        files = {str(p.relative_to(top)): digest(p) for p in top.rglob("*") if p.is_file()}
        return Outcome(list(self.shown), error, counting.counted(), files)

    def end(self) -> Outcome:
        """What is there when all is let go of: nothing."""
        if self.cache is not None:
            self.cache.clear()
            self.cache.resize(self.limit)
        # Expressions are found by their tokens: the next client would get the same objects.
        gc.collect()
        error = self.settle(nothing=True)
        if error or "run_spec" in str(self.messages):
            self.reopen()
        else:
            self.scheduler.validate_state()
        return Outcome(list(self.messages), error, Counter(), {})

    def settle(self, nothing: bool = False) -> str | None:
        """Wait until all that was let go of is forgotten; says what is not."""
        start = time.monotonic()
        while left := self.left(nothing):
            if time.monotonic() > start + (PATIENCE if left.matters else ENOUGH):
                names = nameless(left.names)
                return f"after {PATIENCE} s there are: {names}" if left.matters else None
            time.sleep(0.001)
        return None

    def left(self, nothing: bool) -> Left | None:
        """What is still to go away."""
        # The client lets go of futures on its loop: what it was told before is done then.
        self.client.sync(asyncio.sleep, 0)
        return self.client.sync(_look, self.scheduler, self.client, nothing)


class Left(NamedTuple):
    """What is still on a scheduler."""

    names: str
    #: whether it is more than tasks that nobody needs, which plain dask may leave for a while
    matters: bool = True


async def _look(scheduler: Any, client: Any, nothing: bool) -> Left | None:
    """Runs on the loop of the scheduler, so that nothing changes meanwhile."""
    if client.id not in scheduler.clients:
        return Left("no client")
    wanted = {ts.key for ts in scheduler.clients[client.id].wants_what}
    unsettled = [ts.key for ws in scheduler.workers.values() for ts in ws.processing]
    unsettled += wanted ^ set(client.futures)
    if nothing:
        unsettled += scheduler.tasks
    if unsettled:
        return Left(" ".join(map(str, unsettled)))
    kept = {ts.key for cs in scheduler.clients.values() for ts in cs.wants_what}
    superfluous = _superfluous(scheduler, kept)
    return Left(superfluous, matters=False) if superfluous else None


def _superfluous(scheduler: Any, wanted: set[Any]) -> str:
    """Tasks that nobody wants and nobody needs."""
    work = [scheduler.tasks[k] for k in wanted if k in scheduler.tasks]
    needed = set(work)
    while work:
        new = set(work.pop().dependencies) - needed
        needed |= new
        work.extend(new)
    return " ".join(str(ts.key) for ts in scheduler.tasks.values() if ts not in needed)


def let_go(namespace: dict[str, Any]) -> None:
    """Delete what a user would hold on to: dask may hold on to functions for longer."""
    for name, value in list(namespace.items()):
        if isinstance(value, Future) or dask.is_dask_collection(value):
            del namespace[name]


def remove(top: Path, prefix: str) -> None:
    """Delete files and folders."""
    for path in top.glob(f"{prefix}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """An error after some seconds; 0 is never."""
    if not seconds:
        yield
        return

    def ring(*args: Any) -> None:
        raise TimeoutError("hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    """Errors of ours, which are swallowed, and the scheduler's warnings of names used twice."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.levelno >= logging.ERROR or "Detected different" in text:
                cause = record.exc_info[1] if record.exc_info else None
                messages.append(f"{text.splitlines()[0]} {cause!r}")

    handler = Handler(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("distributed.scheduler", *OURS)]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield messages
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


# -- comparing ---------------------------------------------------------------------------------


def differences(steps: Sequence[Step], plain: list[Outcome], ours: list[Outcome]) -> list[str]:
    """What differs, step by step."""
    found = []
    for n, (step, one, other) in enumerate(zip([*steps, END], plain, ours)):
        found += [f"step {n}: {text}" for text in _differences(step, one, other)]
    return found


#: What is there at the end: messages that were logged, and what nobody let go of
END = Step("(the end)")


def _differences(step: Step, one: Outcome, other: Outcome) -> Iterator[str]:
    if one.error != other.error and (other.error or step is not END):
        yield f"plain {one.error or 'works'}, ours {other.error or 'works'}"
    if step is END:
        if new := Counter(other.shown) - Counter(one.shown):
            yield f"ours logs {list(new)}"
    elif one.error == other.error and not same(one.shown, other.shown):
        yield f"plain {one.shown!r}, ours {other.shown!r}"
    calls = [_counting(step, outcome) for outcome in (one, other)]
    if one.error is None and calls[0] != calls[1]:
        yield f"plain calls {dict(calls[0])}, ours {dict(calls[1])}"
    if one.files != other.files:
        changed = {p for p, d in one.files.items() ^ other.files.items()}
        yield f"these files differ: {', '.join(sorted(changed))}"


def _counting(step: Step, outcome: Outcome) -> Counter[str]:
    """Calls that must be as many: of impure functions, and of others that nobody called pure."""
    if step.exact:
        return outcome.calls
    return Counter({f: n for f, n in outcome.calls.items() if f.startswith("impure")})
