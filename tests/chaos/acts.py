"""What can happen in a chaos session: each function plays one step on a stage."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
from chaos import tasks
from chaos.questions import PERSISTED, QUESTIONS, array, equal, values
from chaos.stage import Held, Stage
from chaos.steps import Step
from distributed import CancelledError
from distributed.client import futures_of

#: Without it dask calls the function itself, here
META = np.empty((0, 0))
#: Workers that are there at the least, and at the most
FEWEST, MOST = 2, 4
#: Made of more than one source
SPANNING = {"merge", "array_of_delayed", "frame_of_delayed"}
LIMITS = ("first", 0, 3_000, 20_000, "100 kB", 0.1)


class Wrong(Exception):
    """An answer is not what is known."""


def check(answer: Any, known: Any) -> None:
    if not equal(answer, known):
        raise Wrong(f"{answer!r} in place of {known!r}")


def asked(stage: Stage, kind: str, n: int, m: int) -> tuple[Any, Any]:
    """Something lazy, and what it comes to."""
    return QUESTIONS[kind].ask(stage.base(kind, n), n, m)


def others(step: Step) -> list[tuple[str, int, int]]:
    """Questions that come together with others."""
    kinds = list(QUESTIONS)
    first = kinds.index(step.kind) if step.kind in kinds else 0
    return [(kinds[(first + i * (1 + step.m)) % len(kinds)], step.n, step.m + i) for i in range(3)]


class Meanwhile:
    """Computations that run while something else happens."""

    def __init__(self, stage: Stage, step: Step) -> None:
        self.name, client = stage.pick(step.who)
        self.found = []
        with client.as_current():
            for kind, n, m in others(step):
                lazy, known = asked(stage, kind, n, m)
                self.found.append((client.compute(lazy), known))

    def __enter__(self) -> Meanwhile:
        return self

    def __exit__(self, *exception: Any) -> None:
        if exception[0] is None:
            for future, known in self.found:
                check(future.result(), known)
        self.found.clear()


# -- asking ------------------------------------------------------------------------------------


def compute(stage: Stage, step: Step) -> None:
    name, client = stage.pick(step.who)
    lazy, known = asked(stage, step.kind, step.n, step.m)
    with client.as_current():
        check(lazy.compute(), known)


def burst(stage: Stage, step: Step) -> None:
    with Meanwhile(stage, step):
        pass


def uncached(stage: Stage, step: Step) -> None:
    name, client = stage.pick(step.who)
    lazy, known = asked(stage, step.kind, step.n, step.m)
    cache = getattr(client, "cache", None)
    how = cache.disabled() if cache and step.m % 2 else dask.annotate(cache=False)
    with client.as_current(), how:
        check(lazy.compute(), known)


def submit(stage: Stage, step: Step) -> None:
    name, client = stage.pick(step.who)
    pure = {"pure": True} if step.m % 3 else {}
    futures = client.map(tasks.bump, range(step.n, step.n + 5), n=step.m, **pure)
    summed = client.submit(tasks.total_of, futures, **pure)
    if step.m % 2:
        futures.clear()
    check(summed.result(), sum(range(step.n, step.n + 5)) + 5 * step.m)


def persist(stage: Stage, step: Step) -> None:
    name, client = stage.pick(step.who)
    with client.as_current():
        thing = client.persist(stage.base(step.kind, step.n))
    stage.held.append(Held(thing, name, step.kind, step.n, -1, None))


def use_persisted(stage: Stage, step: Step) -> None:
    found = [h for h in stage.held if h.m < 0]
    if not found:
        return compute(stage, step)
    held = found[step.who % len(found)]
    client = stage.clients[held.client]
    lazy, known = QUESTIONS[held.kind].ask(held.thing, held.n, step.m)
    with client.as_current():
        read(stage, held, lambda: lazy.compute(), known)


def future(stage: Stage, step: Step) -> None:
    name, client = stage.pick(step.who)
    lazy, known = asked(stage, step.kind, step.n, step.m)
    with client.as_current():
        thing = client.compute(lazy)
    stage.held.append(Held(thing, name, step.kind, step.n, step.m, known))


def use_future(stage: Stage, step: Step) -> None:
    found = [h for h in stage.held if h.m >= 0]
    if not found:
        return compute(stage, step)
    held = found[step.who % len(found)]
    if step.m % 2:
        read(stage, held, held.thing.result, held.known)
    else:
        client = stage.clients[held.client]
        read(stage, held, lambda: client.submit(tasks.same, held.thing).result(), held.known)


def read(stage: Stage, held: Held, ask: Callable[[], Any], known: Any) -> None:
    """Read what a user holds: it may be cancelled only if it was."""
    try:
        check(ask(), known)
    except CancelledError:
        if not held.cancelled:
            raise
        stage.held.remove(held)


def drop(stage: Stage, step: Step) -> None:
    """Let go of some of what is held, and of a variable."""
    del stage.held[step.who % 3 :: 3]
    if stage.alive and step.m % 2:
        stage.alive.popitem(last=False)


def fatal(stage: Stage, step: Step) -> None:
    """A task kills its own worker at its nth call; the next time it does not."""
    name, client = stage.pick(step.who)
    path = os.path.join(stage.top, f"fatal-{step.n}-{step.m}")
    first = not os.path.exists(path)
    x = array(step.n).map_blocks(tasks.bump, step.n, dtype="f8")
    x = x.map_blocks(tasks.fatal, path, 1 + step.m % 6, dtype="f8", meta=META)
    known = values(step.n) + step.n + 1
    with client.as_current():
        check(x.sum().compute(), known.sum())
        check(x.max().compute(), known.max())
    stage.kills += first


def failing(stage: Stage, step: Step) -> None:
    """The user's error is the user's."""
    name, client = stage.pick(step.who)
    x = array(step.n).map_blocks(tasks.bump, step.n, dtype="f8")
    with client.as_current():
        try:
            x.map_blocks(tasks.fail, f"no {step.n}", dtype="f8").sum().compute()
        except ValueError as e:
            if str(e) != f"no {step.n}":
                raise
        else:
            raise Wrong("no error")
        check(x.sum().compute(), (values(step.n) + step.n).sum())


# -- what happens ------------------------------------------------------------------------------


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
    stage.cache.clear()
    try:
        stage.wait(lambda: not stage.left(), "this is left")
    except AssertionError as e:
        raise Wrong(f"{e}: {stage.left()}") from None
    stage.on_loop(stage.scheduler.validate_state)

