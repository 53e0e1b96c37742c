"""What users ask in a chaos session: each function plays one step on a stage."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
from chaos import tasks
from chaos.questions import QUESTIONS, array, equal, values
from chaos.stage import Held, Stage
from chaos.steps import Step
from distributed import CancelledError

#: Without it dask calls the function itself, here
META = np.empty((0, 0))


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
