"""Plays chaos sessions, and tells whose fault it is that a step fails."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos import asks, events
from chaos.stage import Stage, configured
from chaos.steps import ASKS, Step

#: Seconds until a step hangs
DEADLINE = 30
#: Seconds that a cluster has to close
CLOSING = 30
#: How often a step that fails is tried with plain clients
TRIES = 3

OURS = tuple(f"distributed.{part}.cachingclient" for part in ("client", "scheduler", "worker"))


class Hangs(BaseException):
    """A step takes too long; no handler of somebody else catches it."""


@dataclass
class Outcome:
    """How a session went."""

    #: number of the step that failed, and what was wrong with it
    step: int | None = None
    error: str = ""
    #: {act: how often it was played}, and {act: seconds}
    acts: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    hits: int = 0
    #: tasks that plain dask forgot to forget
    orphans: int = 0

    @property
    def sort(self) -> str:
        """Sort of its error: two of the same sort may have the same cause."""
        lines = self.error.strip().splitlines()
        found = [line.split(":")[0] for line in lines if line and not line[0].isspace()]
        return "hangs" if "hangs" in found else next(iter(found[-1:]), "")


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Give up after some seconds; in the main thread."""

    def ring(*args: Any) -> None:
        raise Hangs(f"nothing after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def errors() -> Iterator[list[str]]:
    """Errors of ours, which are swallowed, and states that the scheduler finds impossible."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            if record.name in OURS or isinstance(cause, AssertionError):
                trace = "".join(traceback.format_exception(cause)[-4:]) if cause else ""
                messages.append(f"{record.getMessage()}\n{trace}")

    handler = Handler(logging.ERROR)
    # The second does not hand its messages on to the first.
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield messages
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def play(
    steps: Sequence[Step],
    plain: bool = False,
    seconds: float = DEADLINE,
    beside: Callable[[Stage], Any] = contextlib.nullcontext,
    say: Callable[[str], Any] = lambda text: None,
) -> Outcome:
    """Play a session until a step fails.

    Parameters
    ----------
    steps : sequence of Step
    plain : bool
        Whether to play it with distributed's own client.
    seconds : float
        Until a step hangs.
    beside : callable
        Makes a context manager of the stage, in which the steps are played.
    say : callable
        Told of each step.
    """
    outcome = Outcome()
    with configured(), errors() as messages, tempfile.TemporaryDirectory() as top:
        stage = Stage(plain, top)
        try:
            with beside(stage):
                for number, step in enumerate(steps):
                    say(f"{number}: {step}")
                    if error := attempt(stage, step, messages, outcome, seconds):
                        outcome.step, outcome.error = number, error
                        break
            outcome.kills, outcome.orphans = stage.kills, stage.orphans
            with contextlib.suppress(Exception):
                outcome.hits = 0 if plain else stage.cache.info().hits
        finally:
            _close(stage)
    return outcome


def act_of(name: str) -> Callable[[Stage, Step], None]:
    """The function that plays a sort of step."""
    return getattr(asks if name in ASKS else events, name)


def attempt(stage: Stage, step: Step, messages: list[str], outcome: Outcome, seconds: float) -> str:
    """Play one step; returns what is wrong with it, if anything."""
    start = time.monotonic()
    outcome.acts[step.act] += 1
    error = ""
    try:
        with deadline(seconds):
            act_of(step.act)(stage, step)
    except Hangs as e:
        error = f"hangs: {e}\n{describe(stage)}"
    except Exception as e:
        error = "".join(traceback.format_exception(e))
    outcome.seconds[step.act] += time.monotonic() - start
    return "\n".join([error, *messages]).strip()


def describe(stage: Stage) -> str:
    """What the scheduler is at, read from another thread: it may hang itself."""
    with contextlib.suppress(Exception):
        scheduler = stage.scheduler
        lines = [
            f"{len(scheduler.tasks)} tasks: {Counter(ts.state for ts in scheduler.tasks.values())}",
            f"kills armed: {stage.killer.count}, clients: {sorted(stage.clients)}",
        ]
        for ws in scheduler.workers.values():
            lines.append(f"{ws}: {[str(ts.key) for ts in ws.processing][:5]}")
        stuck = [ts for ts in scheduler.tasks.values() if ts.state not in ("memory", "released")]
        for ts in stuck[:10]:
            lines.append(f"{ts.key} {ts.state} waits for {[str(d) for d in ts.waiting_on or ()]}")
        for client in stage.clients.values():
            wait = [f"{k}: {f.status}" for k, f in list(client.futures.items())]
            lines.append(f"{client.id}: {[w for w in wait if 'finished' not in w][:5]}")
        return "\n".join(lines)
    return "the scheduler's state cannot be read"


def _close(stage: Stage) -> None:
    try:
        with deadline(CLOSING):
            stage.close()
    except (Hangs, Exception):
        # What is left ends with this process.
        for address in [ws.address for ws in stage.scheduler.workers.values()]:
            stage.kill(address)


def examine(steps: Sequence[Step], outcome: Outcome, **kwargs: Any) -> list[Outcome]:
    """Play the steps up to the one that failed with plain clients."""
    assert outcome.step is not None
    return [play(steps[: outcome.step + 1], plain=True, **kwargs) for _ in range(TRIES)]
