"""What is known of names and keys beside what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cachingclient.admission import key_name
from cachingclient.bounded import Bounded
from cachingclient.paying import Payments
from cachingclient.scheduler.living import Living

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed.scheduler import TaskGroup

#: Names that are remembered.
REMEMBERED = 100_000


class Books:
    """Names that may be kept, keys that were asked for, and why something was refused."""

    #: {name that may be kept: None}
    allowed: Bounded
    #: which names living collections need
    alive: Living
    #: {name of a layer: how many computations had it}
    seen: Bounded
    #: {name: most keys of it that the scheduler had at one time}
    sizes: Bounded
    #: names that the user pinned
    pinned: set[Any]
    #: {name: why its last key was not kept}
    refused: Bounded
    #: names that an audit found to differ: never kept again
    rejected: set[Any]
    #: what was paid for keys, while the scheduler knows them
    paid: Payments
    #: {key that a client asked for: (ids of the clients, tasks of its graph)}
    outputs: dict[Key, tuple[set[str], int]]
    #: {key that is soon made from what is kept: seconds that it takes}
    near: dict[Key, float]
    #: keys whose values cannot be kept, nor what is computed from them
    tainted: set[Key]

    def __init__(self) -> None:
        self.rejected = set()
        self.pinned = set()
        self.restart()

    def restart(self) -> None:
        """Forget all but what was found to be wrong."""
        self.allowed = Bounded(REMEMBERED)
        self.alive = Living(REMEMBERED)
        self.seen = Bounded(REMEMBERED)
        self.refused = Bounded(REMEMBERED)
        self.sizes = Bounded(REMEMBERED)
        self.paid, self.outputs, self.tainted = Payments(), {}, set()
        self.near = {}

    def forgotten(self, key: Key) -> None:
        """The scheduler has forgotten a key."""
        self.paid.forgotten(key)
        # Most are empty most of the time, and asking whether costs less than a look for a key.
        if self.outputs:
            self.outputs.pop(key, None)
        if self.near:
            self.near.pop(key, None)
        if self.tainted:
            self.tainted.discard(key)

    def allow(self, names: Iterable[Any]) -> None:
        """Names may be kept."""
        self.allowed.note_all(n for n in names if n not in self.rejected)

    def deny(self, names: Iterable[Any], why: str | None = None) -> None:
        """Names may not be kept any more."""
        for name in names:
            self.allowed.pop(name, None)
            if why is not None:
                self.refused.note(name, why)

    def refuse(self, key: Key, why: str) -> None:
        """A key is not kept."""
        self.refused.note(key_name(key), why)

    def has(self, name: str, group: TaskGroup) -> None:
        """Note how many keys a layer has: the scheduler has all that its computation needs."""
        # Names of single keys are put into one group with others, which is not their layer's.
        number = len(group) - group.states["forgotten"] if group.name == name else 1
        if number > self.sizes.get(name, 0):
            self.sizes.note(name, number)

    def asked(self, client: str, keys: Iterable[Key], tasks: int) -> None:
        """A client asked for keys, each the result of so many tasks."""
        for key in keys:
            clients, _ = self.outputs.get(key, (set(), 0))
            clients.add(client)
            self.outputs[key] = clients, tasks

    def met(self, layers: Iterable[str]) -> None:
        """A computation has these layers."""
        for name in layers:
            self.seen.note(name, self.seen.get(name, 0) + 1)
