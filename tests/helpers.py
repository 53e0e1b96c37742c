"""Counters, polls and looks into a scheduler, shared by the tests.

Tasks count themselves through `count` (workers in this process) or `note` (worker
processes). Both live here, in a module that is imported by its name: what a task refers
to in a function of its own is pickled by value, so that a list there would be copied, and
its content would become part of the task's token.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest
from distributed import SchedulerPlugin, Worker
from distributed.security import Security
from distributed.utils import LoopRunner

from cachingclient import CachePlugin
from cachingclient.config import read_settings

#: The checkout.
ROOT = Path(__file__).parent.parent
#: Workers in this process: what tasks count is seen here.
INPROC: dict[str, Any] = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": False,
    "dashboard_address": None,
}
#: Settings by which even what is cheap is kept, and made visible.
KEEN = {"cachingclient.min-cost": "0s", "cachingclient.task-overhead": "0s"}
#: One worker process.
PROCESS: dict[str, Any] = {**INPROC, "n_workers": 1, "processes": True}

_calls: list[Any] = []
#: Keys that were sent to a worker, since `watch`.
started: list[Any] = []


def count(what: Any = "slow") -> None:
    """Note a call of a user's function."""
    _calls.append(what)


def calls(what: Any = None) -> int:
    """How often `count` was called since the last `ran`."""
    return len(_calls) if what is None else _calls.count(what)


def ran() -> int:
    """The same, starting anew."""
    n = len(_calls)
    del _calls[:n]
    return n


def note(path: str | Path, what: str = "slow") -> None:
    """Note a call in a file."""
    with open(path, "a") as f:
        f.write(f"{what}\n")


def noted(path: str | Path) -> int:
    """How often `note` was called."""
    return len(Path(path).read_text().splitlines()) if Path(path).exists() else 0


def wait_until(true: Callable[[], Any], seconds: float = 10) -> None:
    """Poll until something is true; fail when it does not come true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "this did not come true in time"
        time.sleep(0.005)


def name_of(function: Any) -> str:
    """Name of a test of a function, the same in every process of pytest-xdist."""
    return getattr(function, "__name__", type(function).__name__)


def forgotten(client: distributed.Client) -> None:
    """Wait until the client has let go of every future of its own."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not client.futures, seconds=0.1)
        return
    gc.collect()  # the traceback of an error may hold futures in a cycle
    wait_until(lambda: not client.futures)


class Watch(SchedulerPlugin):
    """Notes what is sent to workers."""

    name = "watch"

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "processing":
            started.append(key)


def watch(client: distributed.Client) -> None:
    """Note in `started` what is sent to workers from now on."""
    client.register_plugin(Watch())


def _validate(dask_scheduler: Any) -> None:
    assert dask_scheduler.validate, "the scheduler does not check itself"
    dask_scheduler.validate_state()
    plugin = dask_scheduler.plugins.get("cachingclient")
    assert plugin is None or not plugin.off


def validate(client: distributed.Client) -> None:
    """Check the state of the scheduler, and that no error has switched the cache off."""
    client.run_on_scheduler(_validate)


def _look(dask_scheduler: Any) -> dict[str, Any]:
    s = dask_scheduler
    return {
        # all but those that somebody made and closes
        "clients": sorted(c for c in s.clients if not c.startswith(("Client-", "CachingClient-"))),
        "wanted": sorted(str(ts.key) for cs in s.clients.values() for ts in cs.wants_what),
        "tasks": sorted(map(str, s.tasks)),
        "plugins": sorted(s.plugins),
        "worker plugins": sorted(s.worker_plugins),
        "handlers": {k: str(v) for k, v in s.handlers.items()},
        "stream handlers": {k: str(v) for k, v in s.stream_handlers.items()},
        "extensions": sorted(s.extensions),
        "periodic callbacks": sorted(s.periodic_callbacks),
    }


def look(client: distributed.Client) -> dict[str, Any]:
    """All on a scheduler that a cache may leave behind."""
    return client.run_on_scheduler(_look)


def held(client: distributed.Client) -> list[str]:
    """Keys that the cache wants on the scheduler."""

    def wanted(dask_scheduler: Any) -> list[str]:
        cs = dask_scheduler.clients.get("cachingclient")
        return sorted(str(ts.key) for ts in cs.wants_what) if cs else []

    return client.run_on_scheduler(wanted)


@contextlib.contextmanager
def logged(*names: str, level: int = logging.WARNING) -> Iterator[list[str]]:
    """Messages of some loggers."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                message += f": {record.exc_info[1]!r}"
            messages.append(message)

    handler = Handler(level)
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        yield messages
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)


@contextlib.contextmanager
def worker_of(address: str) -> Iterator[None]:
    """A worker of a scheduler that is somewhere else, in the loop of a thread of its own."""
    runner = LoopRunner(asynchronous=False)
    runner.start()
    try:
        worker = runner.run_sync(_start_worker, address)
        try:
            yield
        finally:
            runner.run_sync(worker.close)
    finally:
        runner.stop()


async def _start_worker(address: str) -> Worker:
    return await Worker(address, nthreads=1, dashboard=False)


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Around what writes a performance report: older ones of dask miss a template of bokeh's."""
    try:
        yield
    except Exception as e:
        if type(e).__name__ == "TemplateNotFound":
            pytest.skip(f"distributed {distributed.__version__} writes no report with this bokeh")
        raise


def certified(folder: Path) -> Security:
    """What all need that speak TLS with each other, in files of a folder."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subject = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(
        [openssl, "req", *subject, "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    roles = {
        f"tls_{role}_{part}": path
        for role in ("scheduler", "worker", "client")
        for part, path in (("cert", cert), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=cert, **roles)


async def register_again(dask_scheduler: Any) -> None:
    """Put a new plugin into the place of the one that is there."""
    plugin = CachePlugin(read_settings())
    await dask_scheduler.register_scheduler_plugin(plugin, idempotent=False)
