"""Recorded sessions (`client.cache.record`): replayed as they were, or run with other policies."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from simulator import Ask, Session, Simulator, Task

from cachingclient.ledger import Ledger
from cachingclient.policy import make_policy


def read(path: Any) -> tuple[dict[str, Any], list[list[Any]]]:
    """Read a trace: how things were at its beginning, and its events."""
    with open(path, encoding="utf-8") as f:
        header = json.loads(f.readline())
        if not isinstance(header, dict) or header.get("trace") != 1:
            raise ValueError(f"{path} is no trace of version 1")
        return header, [json.loads(line) for line in f]


class Replay:
    """Takes the decisions of a recorded session again, event by event.

    What happened for other reasons than the policy's (what was lost, cleared, refused, or had to
    go for running work) happens again as it was recorded.

    Parameters
    ----------
    header : dict
        As read from a trace.
    """

    def __init__(self, header: dict[str, Any]) -> None:
        policy = make_policy(header["policy"], header["halflife"])
        self.simulator = Simulator(policy, header["limit"], header["min-cost"])
        self.ledger: Ledger = self.simulator.ledger
        self.ledger.resize(header["limit"], header["shares"])
        self.ledger.pinned = set(header["pinned"])
        #: events at which another decision was taken: (number, event, what was decided here)
        self.differences: list[tuple[int, list[Any], Any]] = []
        for key, name, nbytes, paid, hits in header["kept"]:
            self.ledger.offer(key, name, paid, nbytes)
            for _ in range(hits):
                self.ledger.hit([key])
        #: keys that were kept in the recorded session
        self.recorded: set[str] = {entry[0] for entry in header["kept"]}
        self._paid: dict[str, float] = {}

    def run(self, events: list[list[Any]]) -> Replay:
        """Go through all events."""
        for number, event in enumerate(events):
            found = getattr(self, f"_{event[0]}")(*event[1:])
            if found is not None:
                self.differences.append((number, event, found))
        return self

    def _submit(self, now: float, number: int, names: Any, outputs: Any, alive: Any) -> None:
        assert self.simulator.submitted(now, names, alive) <= number

    def _ran(self, key: str, name: str, seconds: float, nbytes: int, needs: Any) -> None:
        self.simulator.work += seconds
        self._paid[key] = self.simulator.payments.ran(
            key, name, seconds, [(k, n) for k, n in needs]
        )

    def _offer(self, key: str, name: str, *terms: Any) -> Any:
        paid, nbytes, tasks, may_evict, alive, where, request, parts, kept, victims = terms
        # What a final result cost has something on top.
        assert paid >= self._paid.get(key, 0.0) - 1e-9
        decision = self.ledger.offer(
            key, name, paid, nbytes, tasks, may_evict, alive, where, request, parts
        )
        self.recorded.difference_update(victims)
        if kept:
            self.recorded.add(key)
        else:
            self.recorded.discard(key)
        return None if decision == (kept, victims) else decision

    def _hit(self, keys: list[str], request: int) -> None:
        self.ledger.hit([k for k in keys if k in self.ledger], request)

    def _gone(self, keys: list[str]) -> None:
        self.recorded.difference_update(keys)
        for key in keys:
            self.ledger.forget(key)

    _forget = _relieve = _gone

    def _settle(self, victims: list[str]) -> Any:
        self.recorded.difference_update(victims)
        found = self.ledger.over_limit()
        return None if found == victims else found

    def _resize(self, limit: int, shares: dict[str, int], victims: list[str]) -> Any:
        self.recorded.difference_update(victims)
        found = self.ledger.resize(limit, shares)
        return None if found == victims else found

    def _pin(self, names: list[str]) -> None:
        self.ledger.pinned = set(names)

    def _came(self, address: str, keys: list[str]) -> None:
        for key in keys:
            self.ledger.came(key, address)

    def _moved(self, address: str, keys: list[str]) -> None:
        self.ledger.moved(address, [k for k in keys if k in self.ledger])


def session(path: Any) -> Session:
    """A recorded session, to be run with any policy and limit.

    Keys have the seconds and bytes of the last time that they ran. What was asked for and never
    ran while the session was recorded (it was kept before) is left out.
    """
    _, events = read(path)
    tasks: dict[Hashable, Task] = {}
    parts: dict[str, int] = {}
    asks: list[Ask] = []
    for what, *args in events:
        if what == "offer":
            parts[args[1]] = args[9]
    for what, *args in events:
        if what == "ran":
            key, name, seconds, nbytes, needs = args
            tasks[key] = Task(name, tuple(k for k, _ in needs), seconds, nbytes, parts.get(name, 0))
        elif what == "submit":
            now, _, _, outputs, alive = args
            asks.append(Ask(now, outputs, {n: a for n, a in alive.items() if a is not None}))
    known = {
        key: task._replace(needs=tuple(d for d in task.needs if d in tasks))
        for key, task in tasks.items()
    }
    for ask in asks:
        ask.outputs = [k for k in ask.outputs if k in known]
    return Session(f"trace {path}", known, [ask for ask in asks if ask.outputs])
