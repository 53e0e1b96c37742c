"""Runs sessions through the product's own ledger, payments and policies, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cachingclient.ledger import Ledger
from cachingclient.paying import Payments
from cachingclient.policy import Policy

#: What took less is not kept: the product's default.
MIN_COST = 0.005


class Task(NamedTuple):
    """What is known of a key."""

    group: str
    needs: tuple[Hashable, ...]
    seconds: float
    nbytes: int
    #: keys of its group, where these are worth something only together
    parts: int = 0


@dataclass
class Ask:
    """A graph that a user submits."""

    when: float
    outputs: Sequence[Hashable]
    #: {group: whether something alive needs it}, as far as it is known
    alive: Mapping[str, bool] = field(default_factory=dict)


@dataclass
class Session:
    """All that is asked, and how it would be computed."""

    name: str
    tasks: dict[Hashable, Task]
    asks: list[Ask]


def needed(
    tasks: Mapping[Hashable, Task], outputs: Sequence[Hashable], kept: Any = ()
) -> tuple[list[Hashable], list[Hashable]]:
    """Keys that have to run, in an order in which they can, and kept keys that are used."""
    order: list[Hashable] = []
    used: dict[Hashable, None] = {}
    seen: set[Hashable] = set()
    stack: list[tuple[Hashable, bool]] = [(k, False) for k in reversed(outputs)]
    while stack:
        key, done = stack.pop()
        if done:
            order.append(key)
        elif key in kept:
            used[key] = None
        elif key not in seen:
            seen.add(key)
            stack.append((key, True))
            stack.extend((d, False) for d in reversed(tasks[key].needs))
    return order, list(used)


class Simulator:
    """A cache without a cluster.

    Parameters
    ----------
    policy : Policy
    limit : int
        Bytes.
    min_cost : float
        Seconds.
    """

    def __init__(self, policy: Policy, limit: float, min_cost: float = MIN_COST) -> None:
        self.ledger = Ledger(policy, int(limit))
        self.payments = Payments()
        self.min_cost = min_cost
        self.alive: dict[str, bool] = {}
        #: seconds of task time
        self.work = 0.0

    def submitted(self, now: float, names: Any, alive: Mapping[str, bool]) -> int:
        """A graph arrives; returns its number."""
        self.ledger.policy.request(now)
        self.alive.update(alive)
        for name, is_alive in alive.items():
            self.ledger.policy.living(name, is_alive)
        return self.payments.submitted(names)

    def ask(self, ask: Ask, tasks: Mapping[Hashable, Task]) -> None:
        """Compute what a user asks for."""
        order, used = needed(tasks, ask.outputs, self.ledger)
        dependents: dict[Hashable, int] = {}
        for key in order:
            for need in tasks[key].needs:
                dependents[need] = dependents.get(need, 0) + 1
        names = dict.fromkeys(tasks[k].group for k in order)
        number = self.submitted(ask.when, names, ask.alive)
        if used:
            self.ledger.hit(used, number)
        for key in order:
            task = tasks[key]
            sharing = [(d, dependents[d]) for d in task.needs]
            self.ran(key, task, number, sharing)

    def ran(self, key: Hashable, task: Task, number: int, sharing: Any) -> None:
        """A task has run."""
        self.work += task.seconds
        paid = self.payments.ran(key, task.group, task.seconds, sharing)
        self.ledger.ran(key, task.seconds)
        if paid >= self.min_cost:
            self.ledger.offer(
                key,
                task.group,
                paid,
                task.nbytes,
                alive=self.alive.get(task.group),
                request=number,
                parts=task.parts,
            )


def run(session: Session, policy: Policy, limit: float, living: bool = True) -> Simulator:
    """Run a whole session; `living`: whether the policy hears of what is alive."""
    simulator = Simulator(policy, limit)
    for ask in session.asks:
        simulator.ask(ask if living else Ask(ask.when, ask.outputs), session.tasks)
    return simulator


def plain_work(session: Session) -> float:
    """Seconds of task time without a cache."""
    return sum(
        session.tasks[k].seconds
        for ask in session.asks
        for k in needed(session.tasks, ask.outputs)[0]
    )


def working_set(session: Session) -> int:
    """Bytes of all that more than one ask could use."""
    count: dict[Hashable, int] = {}
    for ask in session.asks:
        for key in needed(session.tasks, ask.outputs)[0]:
            count[key] = count.get(key, 0) + 1
    return sum(session.tasks[k].nbytes for k, n in count.items() if n > 1)


Make = Callable[[], Policy]
