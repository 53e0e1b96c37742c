"""What users say of how to compute something reaches the scheduler, as with a plain client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import helpers
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import SchedulerPlugin

import cachingclient
from cachingclient.scheduler.submissions import Submission

META = np.empty((0,))
#: Workers with something that tasks may ask for.
CLUSTER = {**helpers.INPROC, "resources": {"GPU": 2}}
TWO = {**helpers.INPROC, "n_workers": 2}


def slow(block):
    helpers.count()
    return block + 1


def slow_frame(df):
    helpers.count()
    return df + 1


class Told(NamedTuple):
    """What the scheduler was told of a task."""

    #: of (users' priority, generation, place in the graph)
    priority: tuple
    annotations: dict
    retries: int
    restrictions: tuple


told: dict[Any, Told] = {}


class Listen(SchedulerPlugin):
    """Notes what is said of each task that is sent to a worker."""

    name = "listen"

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if finish == "processing":
            ts = self.scheduler.tasks[key]
            # Of workers their number: their addresses are others in each cluster.
            where = (
                len(ts.worker_restrictions or ()),
                ts.loose_restrictions,
                sorted((ts.resource_restrictions or {}).items()),
            )
            annotations = {k: v for k, v in (ts.annotations or {}).items() if k != "workers"}
            told[key] = Told(ts.priority, annotations, ts.retries, where)


def listen(
    kind: type, ask: Callable[[Any], Any], before: Callable[[Any], Any] = lambda client: None
) -> dict[Any, Told]:
    """What a scheduler hears of a question; others were asked before it."""
    with dask.config.set(helpers.KEEN), kind(**CLUSTER) as client:
        client.register_plugin(Listen())
        before(client)
        helpers.forgotten(client)
        told.clear()
        ask(client)
        helpers.validate(client)
        return dict(told)


def both(
    ask: Callable[[Any], Any], before: Callable[[Any], Any] = lambda client: None
) -> tuple[dict[Any, Told], dict[Any, Told]]:
    """What schedulers hear of a question of a plain client, and of one of ours."""
    return tuple(listen(c, ask, before) for c in (distributed.Client, cachingclient.Client))


def rules(heard: dict[Any, Told]) -> list[Any]:
    """All that was said, without the tasks' places in the graph."""
    said = {repr((t.priority[0], *t[1:])) for t in heard.values()}
    assert said, "nothing ran"
    return sorted(said)


def array():
    return da.zeros(12, chunks=3).map_blocks(slow, dtype="f8", meta=META)


def delayed():
    return dask.delayed(slow, pure=True)(np.ones(3)).sum(pure=True)


def frame():
    df = dd.from_pandas(pd.DataFrame({"a": range(12)}), npartitions=3)
    return df.map_partitions(slow_frame, meta=pd.DataFrame({"a": [0]})).a


BUILD = {
    "array": lambda: array().sum(),
    "bag": lambda: db.from_sequence(range(6), npartitions=3).map(slow).sum(),
    "delayed": delayed,
    "frame": lambda: frame().sum(),
}

WAYS = {
    "priority": {"priority": 7},
    "retries": {"retries": 3},
    "resources": {"resources": {"GPU": 1}},
    "their own": {"mine": "text"},
    "several": {"priority": -2, "retries": 1, "mine": ("a", 1)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", BUILD)
def test_annotated_when_computed(kind, way):
    def ask(client):
        with dask.annotate(**WAYS[way]):
            BUILD[kind]().compute()

    plain, ours = both(ask)
    assert rules(plain) == rules(ours)
    assert len(rules(ours)) == 1, "all tasks are treated alike"


@pytest.mark.parametrize("way", ["priority", "retries", "resources"])
@pytest.mark.parametrize("kind", BUILD)
def test_said_when_computed(kind, way):
    plain, ours = both(lambda client: BUILD[kind]().compute(**WAYS[way]))
    assert rules(plain) == rules(ours)
    (rule,) = rules(ours)
    plain, ours = both(lambda client: client.compute(BUILD[kind](), **WAYS[way]).result())
    assert rules(plain) == rules(ours) == [rule]


@pytest.mark.parametrize("allow", [False, True])
def test_workers(allow):
    def ask(client):
        worker, _ = client.scheduler_info()["workers"]
        array().sum().compute(workers=worker, allow_other_workers=allow)

    plain, ours = both(ask)
    assert rules(plain) == rules(ours)
    assert {t.restrictions[:2] for t in ours.values()} == {(1, allow)}


def ask_here(client, kind, worker, way):
    said = {"workers": [worker]} if way == "said" else {}
    with dask.annotate(**{} if said else {"workers": [worker]}):
        if kind == "submit":
            return client.submit(lambda: distributed.get_worker().address, pure=True, **said)
        return client.persist(da.ones(4, chunks=2).map_blocks(slow, meta=META), **said)


@pytest.mark.parametrize("way", ["said", "annotated"])
@pytest.mark.parametrize("kind", ["submit", "persist"])
def test_what_is_kept_elsewhere_is_no_answer(kind, way):
    """What was said of where to compute holds, whatever is kept on other workers."""
    with dask.config.set(helpers.KEEN), cachingclient.Client(**TWO) as client:
        for worker in [*client.scheduler_info()["workers"]] * 2:
            asked = ask_here(client, kind, worker, way)
            distributed.wait(asked)
            assert {tuple(w) for w in client.who_has(asked).values()} == {(worker,)}
            del asked
            helpers.forgotten(client)
        helpers.validate(client)


def part(client):
    x = array()
    assert x[:6].sum().compute() == 6


def test_what_is_not_held_of_a_graph():
    def ask(client):
        with dask.annotate(priority=5, retries=2, mine=1):
            assert array().sum().compute() == 12

    plain, ours = both(ask, part)
    assert rules(plain) == rules(ours)
    assert ran_of(ours, "slow") == 2, "half of it was held"


def ran_of(heard, name):
    return sum(key_split(key) == name for key in heard)


def test_persisted_in_part():
    def ask(client):
        y = array().persist(priority=3)
        assert y.sum().compute() == 12

    plain, ours = both(ask, part)
    for prefix in ("slow", "zeros_like"):
        mine = {k: t for k, t in ours.items() if key_split(k) == prefix}
        theirs = {k: t for k, t in plain.items() if key_split(k) == prefix}
        assert mine.keys() <= theirs.keys()
        assert {t.priority[0] for t in mine.values()} <= {-3}
    assert ran_of(ours, "slow") == 2


def test_held_for_another_priority():
    """What was computed with one priority answers a question with another one."""
    x = array()

    def ask(client):
        with dask.annotate(priority=9):
            assert x.mean().compute() == 1

    _, ours = both(ask, lambda client: x.sum().compute())
    assert ran_of(ours, "slow") == 0
    assert {t.priority[0] for t in ours.values()} == {-9}


def test_sent_again_after_a_loss(monkeypatch):
    """What is sent again comes from another thread, in which nothing is annotated."""
    x = array()
    planned = Submission.planned
    lost = []

    def evict(self, used, *args, **kwargs):
        planned(self, used, *args, **kwargs)
        if used:
            lost.extend(used)
            self.plugin.loop.call_soon_threadsafe(self.plugin.clear)

    def ask(client):
        monkeypatch.setattr(Submission, "planned", evict)
        with dask.annotate(priority=5, mine=1):
            assert client.compute(x.mean(), retries=2).result() == 1

    ours = listen(cachingclient.Client, ask, lambda client: x.sum().compute())
    assert len(lost) == 4 == ran_of(ours, "slow")
    (rule,) = rules(ours)
    assert rule == repr((-5, {"priority": 5, "mine": 1, "retries": 2}, 2, (0, False, [])))


# -- annotations of layers ----------------------------------------------------------------


def by_prefix(heard):
    found: dict[str, set[str]] = {}
    for key, t in heard.items():
        found.setdefault(key_split(key), set()).add(repr((t.priority[0], *t[1:])))
    return found


def annotated_delayed():
    with dask.annotate(priority=4, retries=2):
        value = dask.delayed(slow, pure=True)(np.ones(3))
    with dask.annotate(priority=1):
        return dask.delayed(np.sum, pure=True)(value)


def annotated_array():
    with dask.annotate(priority=4, mine=1):
        x = array()
    return x.sum()


@pytest.mark.parametrize("build", [annotated_delayed, annotated_array])
def test_annotated_when_built(build):
    plain, ours = both(lambda client: client.compute(build(), optimize_graph=False).result())
    assert by_prefix(plain) == by_prefix(ours)
    assert len(rules(ours)) > 1


def test_annotated_delayed_optimized():
    plain, ours = both(lambda client: annotated_delayed().compute())
    assert by_prefix(plain) == by_prefix(ours)


def test_annotated_delayed_held_in_part():
    def before(client):
        with dask.annotate(priority=4, retries=2):
            assert dask.delayed(slow, pure=True)(np.ones(3)).compute().sum() == 6

    plain, ours = both(lambda client: annotated_delayed().compute(), before)
    assert by_prefix(ours).items() <= by_prefix(plain).items()
    assert ran_of(ours, "slow") == 0 and ran_of(ours, "sum") == 1


# -- order ----------------------------------------------------------------------------------


def places(heard):
    """Generation and place of each task; final results have names of their own."""
    return {
        key_split(k) if key_split(k).startswith("finalize") else k: t.priority[1:]
        for k, t in heard.items()
    }


@pytest.mark.parametrize("kind", ["array", "bag", "delayed", "frame"])
def test_order_of_a_graph_of_which_nothing_is_held(kind):
    plain, ours = both(lambda client: BUILD[kind]().compute(optimize_graph=False))
    assert places(plain) == places(ours)


def test_earlier_questions_come_first():
    """With the cache on too: tasks of a later graph, held in part, stand behind."""

    def ask(client):
        x = array()
        futures = [client.compute(x.max(), fifo_timeout="0s")]
        futures += [client.compute(x.mean(), fifo_timeout="0s")]
        assert client.gather(futures) == [1, 1]

    _, ours = both(ask, part)
    first = [t.priority[1] for k, t in ours.items() if "max" in key_split(k)]
    second = [t.priority[1] for k, t in ours.items() if "mean" in key_split(k)]
    assert max(first) < min(second)


# -- submitted tasks --------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [True, False])
def test_submitted_and_mapped(pure):
    def ask(client):
        future = client.submit(slow, 1, pure=pure, priority=6, retries=1)
        others = client.map(slow, range(2, 4), pure=pure, priority=2, resources={"GPU": 1})
        assert client.gather([future, *others]) == [2, 3, 4]

    plain, ours = both(ask)
    assert rules(plain) == rules(ours)
    assert len(rules(ours)) == 2
