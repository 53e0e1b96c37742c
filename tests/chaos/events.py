"""What happens to a cluster in a chaos session: each function plays one step on a stage."""

from __future__ import annotations

from typing import Any

from chaos import tasks
from chaos.asks import Meanwhile, Wrong, burst, check, compute, future, persist
from chaos.questions import PERSISTED
from chaos.stage import Held, Stage
from chaos.steps import Step
from distributed.client import futures_of

#: Workers that are there at the least, and at the most
FEWEST, MOST = 2, 4
#: Made of more than one source
SPANNING = {"merge", "array_of_delayed", "frame_of_delayed"}
LIMITS = ("first", 0, 3_000, 20_000, "100 kB", 0.1)


def kill(stage: Stage, step: Step) -> None:
    """Between two computations, or as soon as some were sent."""
    ws = stage.worker(step.who)
    if step.m % 2:
        with Meanwhile(stage, step):
            stage.kill(ws.address)
    else:
        stage.kill(ws.address)
    if step.m % 3:
        stage.wait(lambda: ws.address not in stage.scheduler.workers, "a killed worker is there")


def kill_at(stage: Stage, step: Step) -> None:
    """When the nth task of some computations starts, or is done."""
    finish, victim = ("memory", "own") if step.m % 2 else ("processing", "source")
    stage.on_loop(stage.killer.arm, 1 + step.who * 2, finish, victim)
    with Meanwhile(stage, step):
        pass
    stage.on_loop(stage.killer.arm, 0, "", "")


def retire(stage: Stage, step: Step) -> None:
    if len(stage.workers()) <= FEWEST:
        return add(stage, step)
    if step.m % 2:
        with Meanwhile(stage, step):
            stage.retire(stage.worker(step.who))
    else:
        stage.retire(stage.worker(step.who))


def add(stage: Stage, step: Step) -> None:
    if len(stage.cluster.worker_spec) < MOST:
        stage.add()
    burst(stage, step)


def restart_worker(stage: Stage, step: Step) -> None:
    """Between two computations: plain dask may hang where one runs meanwhile."""
    ws = stage.worker(step.who)
    stage.clients["first"].restart_workers([ws.address], timeout=60)
    burst(stage, step)


def restart(stage: Stage, step: Step) -> None:
    stage.held.clear()
    _, client = stage.pick(step.who)
    # Plain dask would stumble over its own orphans.
    settle(stage, "first")
    stage.on_loop(stage.forget_orphans)
    client.restart(timeout=60)


def cancel(stage: Stage, step: Step) -> None:
    """Cancel a held future, or what has just been asked for; then ask again."""
    force = step.m % 3 == 0
    if not stage.held or step.m % 2:
        (future if step.m % 4 else persist)(stage, fitting(step))
    held = stage.held.pop()
    client = stage.clients[held.client]
    for other in stage.held:
        if (force or other.client == held.client) and related(held, other):
            other.cancelled = True
    client.cancel(held.thing, force=force)
    if not all(f.cancelled() for f in futures_of(held.thing)):
        raise Wrong("not cancelled")
    del held
    for name in stage.clients:
        settle(stage, name)
    compute(stage, step)


def related(one: Held, other: Held) -> bool:
    """Whether two may share keys, all the way down."""
    return one.n == other.n or bool({one.kind, other.kind} & SPANNING)


def fitting(step: Step) -> Step:
    """The same, of a kind that can be persisted."""
    return step if step.m % 4 else step._replace(kind=PERSISTED[step.who % len(PERSISTED)])


def settle(stage: Stage, name: str) -> None:
    """What a client said before has been heard, and answered.

    Plain dask cancels what has the same name and is asked for before the answer.
    """
    client = stage.clients[name]
    check(client.submit(tasks.same, 5, pure=False).result(), 5)


def clear(stage: Stage, step: Step) -> None:
    if step.m % 2:
        with Meanwhile(stage, step):
            stage.cache.clear()
    else:
        stage.cache.clear(None if step.m % 4 else stage.base(step.kind, step.n))
    compute(stage, step)


def resize(stage: Stage, step: Step) -> None:
    limit: Any = LIMITS[step.m % len(LIMITS)]
    with Meanwhile(stage, step):
        stage.cache.resize(max(stage.limit, 1) if limit == "first" else limit)


def join(stage: Stage, step: Step) -> None:
    stage.join("second" if step.m % 3 else "plain")
    compute(stage, step)


def leave(stage: Stage, step: Step) -> None:
    """A client leaves, maybe the first one, while another one works."""
    names = list(stage.clients)
    name = names[step.m % len(names)]
    with Meanwhile(stage, step) as running:
        if running.name != name:
            stage.leave(name)
    stage.join("first")


def empty(stage: Stage, step: Step) -> None:
    """When all is let go of nothing is left."""
    stage.let_go()
    # What is still running must not be kept after the cache was cleared.
    for name in stage.clients:
        settle(stage, name)
    stage.cache.clear()
    try:
        stage.wait(lambda: not stage.left(), "this is left")
    except AssertionError as e:
        raise Wrong(f"{e}: {stage.left()}") from None
    stage.on_loop(stage.scheduler.validate_state)
