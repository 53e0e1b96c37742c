"""Schedulers and workers in processes of their own, that have distributed and little else.

They import this module for what they are to run, so nothing is imported here that they lack.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

#: What machines without this package lack: it, what it needs, and what distributed needs not.
LACKING = ("cachingclient", "cachey", "wrapt", "bokeh", "prometheus_client", "pandas", "pyarrow")

#: Hides modules from all finders that are there: one that is added later may find them.
HIDE = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""

#: Runs one server until standard input closes.
SERVE = """
import asyncio
import dask
from distributed import Scheduler, Worker

dask.config.set({"distributed.scheduler.validate": True, **CONFIG})

async def serve():
    kind, *address = sys.argv[1:]
    if kind == "scheduler":
        server = Scheduler(port=0, host="127.0.0.1", dashboard=False)
    else:
        server = Worker(*address, nthreads=1, dashboard=False)
    async with server:
        print(server.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


def absent() -> list[str]:
    """Modules that a process does not find; runs on schedulers and workers."""
    return [name for name in ("cachingclient", "cachey", "wrapt", "pandas") if not find_spec(name)]


def check(dask_scheduler: Any) -> tuple[int, bool]:
    """Check the state of a scheduler; returns how many keys are kept, and whether it is off."""
    assert dask_scheduler.validate, "the scheduler does not check itself"
    dask_scheduler.validate_state()
    plugin = dask_scheduler.plugins["cachingclient"]
    return len(plugin.ledger.kept), plugin.off


def slow(x: Any) -> Any:
    """A function that counts its calls, in its process."""
    sys.calls = calls() + 1  # type: ignore[attr-defined]
    return x + 1


def calls() -> int:
    """How often it was called."""
    return getattr(sys, "calls", 0)


@contextlib.contextmanager
def serving(
    *args: str, lacking: tuple[str, ...] = LACKING, config: Mapping[str, Any] = {}
) -> Iterator[str]:
    """Run a scheduler or a worker of one; gives its address."""
    code = f"LACKING, CONFIG = {lacking!r}, {config!r}\n{HIDE}{SERVE}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stdout.close()
