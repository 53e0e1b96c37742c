"""Threads and asynchronous clients ask for hours, clients come and go; then nothing may be left.

    python benchmarks/soak.py [--minutes 10] [--seed 0] [--plain]

Eight threads and two asynchronous clients ask related questions of a cluster of processes, of
arrays, frames, bags, delayed functions and single tasks. Each answer is compared with what is
known. Threads share a client, and at times bring one of their own, which leaves again with work
of its own under way. At the end all is let go of. The exit status is 1 where an answer was wrong,
something hung or failed, a task stays on the scheduler, or this process has a thread, an open file
or connection, a child or a client more than before, that plain clients don't leave behind too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import random
import re
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import dask  # noqa: E402
import distributed  # noqa: E402
import psutil  # noqa: E402
from chaos import tasks  # noqa: E402
from chaos.playing import errors  # noqa: E402
from chaos.questions import PERSISTED, QUESTIONS, VARIETY, equal  # noqa: E402
from distributed import LocalCluster  # noqa: E402

import cachingclient  # noqa: E402
from cachingclient.session import Session  # noqa: E402

THREADS = 8
ASYNCHRONOUS = 2
#: Steps of an asynchronous client until it leaves
STEPS = 20
#: Seconds for one answer, and until what was let go of must be gone
PATIENCE = 60
#: Seconds of the sessions of plain clients before
PLAIN = 20
CONFIG = {
    "distributed.scheduler.validate": True,
    # Even what is cheap is kept
    "cachingclient.min-cost": "0s",
    "cachingclient.task-overhead": "0s",
}


class Wrong(Exception):
    """An answer is not what is known."""


def check(answer: Any, known: Any) -> None:
    if not equal(answer, known):
        raise Wrong(f"{answer!r} in place of {known!r}")


class Asker:
    """Draws questions; one a thread.

    Parameters
    ----------
    soak : Soak
    seed : str
    """

    def __init__(self, soak: Soak, seed: str) -> None:
        self.soak = soak
        self.random = random.Random(seed)

    def draw(self, kinds: Any = tuple(QUESTIONS)) -> tuple[Any, Any]:
        """Something lazy, and what it comes to."""
        draw = self.random.randrange
        kind, n, m = self.random.choice(kinds), draw(VARIETY), draw(6)
        return QUESTIONS[kind].ask(QUESTIONS[kind].make(n), n, m)

    def numbers(self, client: Any) -> tuple[Any, Any]:
        """A task made of others, and what it comes to."""
        draw = self.random.randrange
        pure = {"pure": True} if draw(3) else {}
        n, m = draw(VARIETY), draw(VARIETY)
        futures = client.map(tasks.bump, range(n, n + 5), n=m, **pure)
        total = client.submit(tasks.total_of, futures, **pure)
        return total, sum(range(n, n + 5)) + 5 * m

    # -- in threads ------------------------------------------------------------------------

    def compute(self, client: Any) -> None:
        lazy, known = self.draw()
        check(client.compute(lazy).result(PATIENCE), known)

    def several(self, client: Any) -> None:
        # dask mixes up the results where some are of arrays, and others of dataframes
        kind = self.random.choice(list(QUESTIONS))
        asked = [self.draw([kind]) for _ in range(3)]
        futures = client.compute([lazy for lazy, _ in asked])
        for future, (_, known) in zip(futures, asked):
            check(future.result(PATIENCE), known)

    def persist(self, client: Any) -> None:
        kind, n = self.random.choice(PERSISTED), self.random.randrange(VARIETY)
        held = client.persist(QUESTIONS[kind].make(n))
        for _ in range(2):
            lazy, known = QUESTIONS[kind].ask(held, n, self.random.randrange(6))
            check(client.compute(lazy).result(PATIENCE), known)

    def submit(self, client: Any) -> None:
        total, known = self.numbers(client)
        check(total.result(PATIENCE), known)

    def leave(self, client: Any) -> None:
        """Somebody comes, asks, and leaves in the middle of something."""
        with self.soak.client() as own:
            self.compute(own)
            running = [own.compute(self.draw()[0]), self.numbers(own)[0]]
        del running

    def steer(self, client: Any) -> None:
        if self.soak.plain:
            return self.compute(client)
        cache, draw = client.cache, self.random.randrange
        what = draw(6)
        if what == 0:
            assert cache.info().keys >= 0
        elif what == 1:
            cache.entries()
        elif what == 2:
            cache.clear(self.random.choice(["bump", "sum", "total"]))
        elif what == 3:
            lazy, known = self.draw()
            with cache.disabled():
                check(client.compute(lazy).result(PATIENCE), known)
        elif what == 4:
            made = QUESTIONS["blocks"].make(draw(VARIETY))
            cache.pin(made)
            self.compute(client)
            cache.unpin(made)
        else:
            cache.explain(QUESTIONS["groupby"].make(draw(VARIETY)))

    ACTS = 6 * (compute,) + 2 * (several, persist, submit) + (leave, steer)

    def ask_until(self, done: Callable[[], bool], client: Any) -> None:
        while not done():
            act = self.random.choice(self.ACTS)
            with self.soak.noting(act.__name__):
                act(self, client)

    # -- in an event loop ------------------------------------------------------------------

    async def ask(self, client: Any) -> None:
        what = self.random.randrange(4)
        if what == 0:
            total, known = self.numbers(client)
            check(await client.gather(total), known)
        elif what == 1 and not self.soak.plain:
            assert (await client.cache.info()).keys >= 0
            await client.cache.entries()
        else:
            lazy, known = self.draw()
            check(await asyncio.wait_for(client.compute(lazy).result(), PATIENCE), known)

    async def come_and_go(self, done: Callable[[], bool]) -> None:
        while not done():
            async with self.soak.client(asynchronous=True) as client:
                for _ in range(STEPS):
                    if done():
                        break
                    with self.soak.noting("asynchronous"), client.as_current():
                        await self.ask(client)


class Soak:
    """One session on a cluster of its own.

    Parameters
    ----------
    seconds : float
    seed : int
    plain : bool
        Whether all clients are distributed's own.
    """

    def __init__(self, seconds: float, seed: int, plain: bool = False) -> None:
        self.seconds, self.seed, self.plain = seconds, seed, plain
        self.acts: Counter[str] = Counter()
        self.clients = self.hits = 0
        self.faults: list[str] = []

    def client(self, **kwargs: Any) -> Any:
        """Another client of the cluster."""
        self.clients += 1
        make = distributed.Client if self.plain else cachingclient.Client
        return make(self.cluster.scheduler_address, **{"set_as_default": False, **kwargs})

    @contextlib.contextmanager
    def noting(self, act: str) -> Iterator[None]:
        """Count what is done, and what goes wrong."""
        try:
            yield
        except Exception as e:
            self.faults.append(f"{act}: {type(e).__name__}: {e}"[:500])
        self.acts[act] += 1

    def play(self) -> Soak:
        """Play it; `faults` tells what was wrong."""
        with contextlib.ExitStack() as stack:
            self.messages = stack.enter_context(errors())
            top = stack.enter_context(tempfile.TemporaryDirectory())
            self.cluster = stack.enter_context(
                LocalCluster(
                    n_workers=2,
                    threads_per_worker=2,
                    processes=True,
                    dashboard_address=None,
                    # The scheduler has still something to say to clients that have left
                    silence_logs=logging.CRITICAL + 1,
                    memory_limit="1 GiB",
                    local_directory=top,
                )
            )
            with self.client(set_as_default=True) as client:
                self._run(client)
                self._let_go(client)
            self._left(self._clients, "client of the scheduler")
        self.faults += self.messages
        return self

    def _run(self, client: Any) -> None:
        deadline = time.monotonic() + self.seconds

        def done() -> bool:
            return time.monotonic() > deadline or len(self.faults) > 20

        askers = [Asker(self, f"{self.seed}-{n}") for n in range(THREADS + ASYNCHRONOUS)]
        runs: list[Callable[[], Any]] = [lambda a=a: a.ask_until(done, client) for a in askers[2:]]
        runs.append(lambda: asyncio.run(_all(a.come_and_go(done) for a in askers[:2])))
        threads = [threading.Thread(target=run, name="asker", daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        end = deadline + 3 * PATIENCE
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback(all_threads=True)
            self.faults.append("hangs")

    def _let_go(self, client: Any) -> None:
        """Nobody wants anything any more: no task may stay."""
        if not self.plain:
            self.hits = client.cache.info().hits

        def tasks_left() -> list[str]:
            gc.collect()
            if not self.plain:
                client.cache.clear()  # what was running when it was cleared before
            return [str(key) for key in self.cluster.scheduler.tasks]

        self._left(tasks_left, "task on the scheduler")

    def _clients(self) -> list[str]:
        """Those that somebody made: others stand for nobody."""
        return [name for name in self.cluster.scheduler.clients if "Client-" in name]

    def _left(self, look: Callable[[], list[str]], what: str, seconds: float = PATIENCE) -> None:
        if left := wait_empty(look, seconds):
            self.faults.append(f"{len(left)} x {what}, such as {left[:3]}")


async def _all(coroutines: Any) -> None:
    await asyncio.gather(*coroutines)


def wait_empty(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What is left, when it does not go away."""
    deadline = time.monotonic() + seconds
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def anything() -> Counter[str]:
    """All that this process has which somebody must give back, by what it is."""
    gc.collect()
    found: Counter[str] = Counter()
    for thread in threading.enumerate():
        found["thread " + re.sub(r"\d+|\(.*\)", "", thread.name)] += 1
    me = psutil.Process()
    for connection in me.net_connections("inet"):
        found[f"connection, {connection.status}"] += 1
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[f"child, {child.name()}"] += 1
    for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            found["open " + re.sub(r"\d+", "", os.readlink(f"/proc/self/fd/{fd}"))] += 1
    for thing in gc.get_objects():
        if type(thing) in (distributed.Client, cachingclient.Client, Session):
            found[f"object, {type(thing).__name__}"] += 1
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="play with plain clients alone")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    warnings.simplefilter("ignore")
    dask.config.set(CONFIG)
    seconds = 60 * options.minutes
    # The first leaves what any first one leaves, the second what each one does.
    Soak(min(PLAIN, seconds) / 4, options.seed, plain=True).play()
    first = anything()
    Soak(min(PLAIN, seconds), options.seed, plain=True).play()
    before = anything()
    plains = before - first
    soak = Soak(seconds, options.seed, plain=options.plain).play()
    left = wait_empty(lambda: anything() - before - plains)
    print(f"{sum(soak.acts.values())} steps in {seconds:.0f} s: {dict(soak.acts)}")
    print(
        f"{soak.clients} clients, {soak.hits} hits; plain sessions leave {dict(plains) or 'none'}"
    )
    print(f"faults: {soak.faults or 'none'}\nleft: {dict(left) or 'none'}")
    return int(bool(soak.faults or left))


if __name__ == "__main__":
    sys.exit(main())
