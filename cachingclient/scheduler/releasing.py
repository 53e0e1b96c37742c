"""Letting go of kept keys, by key, by name, and by what they were made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cachingclient.admission import STALE, key_name

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed.scheduler import TaskState

    from cachingclient.ledger import Ledger
    from cachingclient.scheduler.books import Books
    from cachingclient.scheduler.holding import Holder


class Release:
    """Takes keys off the books and lets the scheduler have them.

    Parameters
    ----------
    holder : Holder
    ledger : Ledger
    books : Books
    dropped : callable
        Told of a client, and a key that it counted on.
    """

    def __init__(
        self,
        holder: Holder,
        ledger: Ledger,
        books: Books,
        dropped: Callable[[str, list[Key]], Any],
    ) -> None:
        self.holder = holder
        self.scheduler = holder.scheduler
        self.ledger = ledger
        self.books = books
        self._dropped = dropped

    def forget(self, keys: Iterable[Key]) -> list[Key]:
        """Take keys off the books alone."""
        keys = list(keys)
        for key in keys:
            self.ledger.forget(key)
            for client in self.books.outputs.get(key, ((), 0))[0]:
                self._dropped(client, [key])
        return keys

    def soon(self, keys: Iterable[Key]) -> None:
        """Let go of keys as soon as no transition is under way."""
        self.holder.let_go_soon(self.forget(keys))

    def now(self, keys: Iterable[Key]) -> None:
        """Let go of keys: not inside a transition."""
        self.holder.let_go(self.forget(keys))

    def everything(self) -> None:
        """Let go of all that is kept."""
        self.now(self.ledger.kept)

    def names(self, names: Collection[Any], keys: Collection[Key] = ()) -> None:
        """Let go of names, and of what keys were made to depend on.

        What somebody else wants is used by others, as it is where nothing is kept.
        """
        self.books.deny(names)
        self.now({*self.ledger.of_names(names), *self._kept(self._upstream(keys))})

    def stale(self, names: Collection[Any], edited: bool = False) -> None:
        """Let go of names that are no longer what would be computed now.

        Parameters
        ----------
        names : collection
        edited : bool
            Whether it is the code that has changed, and not what it reads.
        """
        if not names:
            return
        self.books.deny(names, STALE)
        self.now(self.ledger.of_names(names))
        # What users hold themselves stays, and is used, as is what runs now: nothing made of it
        # may be kept. What has to run for them once more would run the code as it was then: the
        # scheduler keeps the task by which it knows a key.
        for key, ts in self.scheduler.tasks.items():
            if key_name(key) in names and (edited or ts.state != "released"):
                self.books.tainted.add(key)

    def renew(self, tasks: Mapping[Key, Any]) -> None:
        """Take other tasks for stale keys that the scheduler knows, and that are not there.

        A barrier showed them to it, of something that somebody still holds; plain dask, which
        had fused them, would not know them.
        """
        for key, task in tasks.items():
            ts = self.scheduler.tasks.get(key)
            if ts is None or ts.state != "released" or key not in self.books.tainted:
                continue
            if ts.run_spec is not None and {d.key for d in ts.dependencies} == task.dependencies:
                ts.run_spec = task

    def downstream(self, names: Collection[Any]) -> None:
        """Let go of names, and of what was computed from them."""
        work = [ts for k, ts in self.scheduler.tasks.items() if key_name(k) in names]
        self.now(self._kept(_closure(work, lambda ts: ts.dependents)))

    def _upstream(self, keys: Collection[Key]) -> set[TaskState]:
        work = [self.scheduler.tasks[k] for k in keys if k in self.scheduler.tasks]
        return _closure(work, lambda ts: ts.dependencies)

    def _kept(self, tasks: Iterable[TaskState]) -> list[Key]:
        return [ts.key for ts in tasks if ts.key in self.ledger]


def _closure(
    work: list[TaskState], following: Callable[[TaskState], set[TaskState]]
) -> set[TaskState]:
    seen = set(work)
    while work:
        new = following(work.pop()) - seen
        seen |= new
        work.extend(new)
    return seen
