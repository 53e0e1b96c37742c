"""Which layers get a barrier: those whose keys will save more than they cost.

Formula
-------
A barrier makes a task of each chunk of a layer. It is set where

``chunks * overhead < chunks * seconds * share * probability``

overhead
    Seconds that one more task costs on this cluster.
seconds
    Task time that a chunk had cost, with what it needs. Of a layer that only ran fused with
    others the time of the whole task is known, which is more: what a barrier costs is then
    little beside that task, so that the error is small, and made once.
share
    Part of the layer that fits the limit.
probability
    That it is asked for again: `PROBABLE` where somebody holds it, or where an earlier
    computation had it too and this one does something new with it. Others don't come back.

What the user pinned or annotated gets a barrier at any price; of a linear chain that is annotated
the last layer. Before anything is measured, only layers of unknown work get one that somebody
holds, at most the last of a linear chain, and as many as the allowance for first sights affords.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Probability that what is alive, or was seen before, is asked for again.
PROBABLE = 0.5
#: Estimates by function alone may err: they may spend so many times the first-sight allowance.
GUESSED = 10


class Estimate(NamedTuple):
    """What is known of the cost of a layer."""

    #: seconds a chunk
    seconds: float
    #: whether this layer was measured, and not another one of the same function
    measured: bool


class Experience(Protocol):
    """What a scheduler has learnt of layers."""

    #: seconds that one more task costs
    task_overhead: float

    def was_seen(self, name: str) -> bool:
        """Whether an earlier computation had the layer too."""

    def is_pinned(self, name: str) -> bool:
        """Whether the user pinned it."""

    def estimate(self, name: str) -> Estimate | None:
        """What a chunk of it costs, or of others of the same function."""

    def share(self, name: str, nkeys: int) -> float:
        """Part of it that fits the limit."""


@dataclass(frozen=True)
class Candidates:
    """What a client knows of the layers of a graph."""

    #: layers that must not get a barrier
    blocked: frozenset[str] = frozenset()
    #: those that somebody holds
    alive: frozenset[str] = frozenset()
    #: those that do work of unknown cost, or stand directly on a layer that does
    unknown: frozenset[str] = frozenset()
    #: those that the user wants kept
    wanted: frozenset[str] = frozenset()
    #: how many tasks may be made of what was never measured
    affordable: float = 0
    #: whether barriers are wanted at all
    use: bool = True


def merged(several: Iterable[Candidates], affordable: float) -> Candidates:
    """Candidates of all graphs of a submission, with what it may spend."""
    several = list(several)
    nothing: frozenset[str] = frozenset()
    return Candidates(
        nothing.union(*(c.blocked for c in several)),
        nothing.union(*(c.alive for c in several)),
        nothing.union(*(c.unknown for c in several)),
        nothing.union(*(c.wanted for c in several)),
        affordable=affordable,
        use=bool(several),
    )


def choose(
    candidates: Candidates,
    dependents: Mapping[str, Iterable[str]],
    size: Callable[[str], int],
    denied: Container[str],
    experience: Experience,
) -> set[str]:
    """Layers that get a barrier.

    Parameters
    ----------
    candidates : Candidates
    dependents : mapping
        {name of a layer: layers that need it}
    size : callable
        Number of keys of a layer, 0 if these cannot be protected.
    denied : container of str
        Layers that may not be kept.
    experience : Experience
    """
    found = _Choice(candidates, size, experience)
    for name, following in dependents.items() if candidates.use else ():
        # A single key that was asked for is fused into the task that puts the result together;
        # several are needed by it in any case.
        if name not in candidates.blocked and name not in denied:
            if following or size(name) == 1:
                found.look(name, following)
    return found.chosen(dependents)


class _Choice:
    """Sorts the layers of one submission."""

    def __init__(
        self, candidates: Candidates, size: Callable[[str], int], experience: Experience
    ) -> None:
        self.candidates = candidates
        self.size = size
        self.experience = experience
        #: that pay, or are pinned
        self.paying: set[str] = set()
        self.annotated: set[str] = set()
        #: {name of unknown cost: number of its keys}
        self.blind: dict[str, int] = {}
        #: {name that is known by its function alone: number of its keys}
        self.guessed: dict[str, int] = {}

    def look(self, name: str, following: Iterable[str]) -> None:
        experience, candidates = self.experience, self.candidates
        if experience.is_pinned(name):
            self._note(name, self.paying)
        elif name in candidates.wanted:
            self._note(name, self.annotated)
        elif name in candidates.alive or _is_frontier(name, following, experience):
            estimate = experience.estimate(name)
            if estimate is not None and estimate.measured:
                if self._pays(estimate, name):
                    self._note(name, self.paying)
            # What dask does itself to one array says nothing of another.
            elif name in candidates.alive and name in candidates.unknown:
                self._first_sight(name, estimate)

    def _note(self, name: str, into: set[str]) -> None:
        if self.size(name):
            into.add(name)

    def _first_sight(self, name: str, estimate: Estimate | None) -> None:
        if nkeys := self.size(name):
            if estimate is None:
                self.blind[name] = nkeys
            elif self._pays(estimate, name):
                self.guessed[name] = nkeys

    def _pays(self, estimate: Estimate, name: str) -> bool:
        overhead = self.experience.task_overhead
        saved = estimate.seconds * PROBABLE
        if saved <= overhead:
            return False
        return saved * self.experience.share(name, self.size(name)) > overhead

    def chosen(self, dependents: Mapping[str, Iterable[str]]) -> set[str]:
        affordable = self.candidates.affordable
        chosen = {*self.paying, *_cheapest(self.guessed, affordable * GUESSED)}
        wanted = chosen | self.annotated | self.blind.keys()

        def is_last(name: str) -> bool:
            return not _leads_to(name, wanted, dependents)

        chosen.update(filter(is_last, self.annotated))
        last = {n: nkeys for n, nkeys in self.blind.items() if is_last(n)}
        return chosen.union(_cheapest(last, affordable))


def _is_frontier(name: str, following: Iterable[str], experience: Experience) -> bool:
    """Whether an earlier computation had a layer, and something new is done with it."""
    return experience.was_seen(name) and not all(map(experience.was_seen, following))


def _cheapest(layers: Mapping[str, int], affordable: float) -> Iterable[str]:
    for name in sorted(layers, key=lambda n: (layers[n], n)):
        affordable -= layers[name]
        if affordable < 0:
            return
        yield name


def _leads_to(name: str, wanted: set[str], dependents: Mapping[str, Iterable[str]]) -> bool:
    """Whether a linear chain leads from a layer to another that is wanted."""
    following = list(dependents.get(name) or ())
    while len(following) == 1:
        (name,) = following
        if name in wanted:
            return True
        following = list(dependents.get(name) or ())
    return False
