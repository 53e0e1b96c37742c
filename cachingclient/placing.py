"""Where users want something computed: what is kept on other workers is no answer to that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState


class Place(NamedTuple):
    """What was said of the workers that may compute something."""

    #: addresses, hosts or names; all may if there are none
    workers: Collection[str] = ()
    #: {resource: how much of it a worker must have}
    resources: Mapping[str, float] = {}

    @classmethod
    def of(cls, *said: Mapping[str, Any]) -> Place | None:
        """What keywords and annotations say; the first that says something counts.

        Examples
        --------
        >>> Place.of({"workers": "alice"}, {"resources": {"GPU": 1}})
        Place(workers=('alice',), resources={'GPU': 1})
        >>> Place.of({"workers": ["alice"], "allow_other_workers": True}) is None
        True
        """
        found: dict[str, Any] = {}
        for name in ("workers", "resources", "allow_other_workers"):
            found[name] = next((s[name] for s in said if s.get(name)), None)
        workers, resources = found["workers"], found["resources"]
        if found["allow_other_workers"] or not (workers or resources):
            return None
        if not isinstance(workers, (list, tuple, set, frozenset)):
            workers = () if workers is None else (workers,)
        return cls(tuple(map(str, workers)), resources or {})

    def has(self, scheduler: Scheduler, ws: WorkerState) -> bool:
        """Whether a worker is one of those that may."""
        if not all(ws.resources.get(name, 0) >= much for name, much in self.resources.items()):
            return False
        return not self.workers or any(
            _address(scheduler, worker) in (ws.address, ws.host) for worker in self.workers
        )


def _address(scheduler: Scheduler, worker: str) -> str:
    try:
        return scheduler.coerce_address(worker)
    except (KeyError, ValueError, OSError):
        return worker
