"""Draws chaos sessions."""

from __future__ import annotations

import random
from typing import NamedTuple

from chaos.questions import PERSISTED, QUESTIONS, VARIETY


class Step(NamedTuple):
    """What happens at once; which numbers mean what is up to `asks` and `events`."""

    act: str
    kind: str
    #: which client, worker or thing
    who: int
    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.act}({self.kind}, {self.who}, {self.n}, {self.m})"


#: {what is asked: how often}
ASKS = {
    "compute": 40,
    "burst": 14,
    "submit": 7,
    "persist": 5,
    "use_persisted": 6,
    "future": 5,
    "use_future": 6,
    "drop": 4,
    "fatal": 2,
    "failing": 2,
    "uncached": 4,
}
#: {what happens: how often}
EVENTS = {
    "kill": 2,
    "kill_at": 3,
    "retire": 1.5,
    "add": 2,
    "restart_worker": 1,
    "cancel": 4,
    "clear": 2,
    "resize": 3,
    "leave": 2,
    "join": 4,
}
#: Steps from one restart of the whole cluster to the next: each costs seconds
RESTART_EVERY = 150
#: Steps after which everything is let go of
EMPTY_EVERY = 60


def draw(seed: int, length: int) -> list[Step]:
    """Draw a session; a shorter one of the same seed is its beginning, but for the last step."""
    rng = random.Random(seed)
    weights = {**ASKS, **EVENTS}
    names, often = list(weights), list(weights.values())
    restart = rng.randrange(RESTART_EVERY)
    steps = []
    for i in range(length):
        act = rng.choices(names, often)[0]
        if i % EMPTY_EVERY == EMPTY_EVERY - 1:
            act = "empty"
        elif i % RESTART_EVERY == restart:
            act = "restart"
        kind = rng.choice(PERSISTED if act == "persist" else list(QUESTIONS))
        steps.append(Step(act, kind, rng.randrange(12), rng.randrange(VARIETY), rng.randrange(12)))
    if steps:
        steps[-1] = Step("empty", "", 0, 0, 0)
    return steps
