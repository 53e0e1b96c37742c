"""One submission of a client: what is sent in place of a graph, and what is said ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
from dask.typing import Key
from distributed import Future

from cachingclient import internals
from cachingclient.admission import has_token, key_name
from cachingclient.frames import held
from cachingclient.frames.data import data_of
from cachingclient.graph.barriers import graphs_of
from cachingclient.graph.envelope import Envelope, Request
from cachingclient.graph.plan import Plan, make_plan
from cachingclient.judging import is_named, judge
from cachingclient.pending import Job
from cachingclient.placing import Place
from cachingclient.scheduler.plugin import MANY_OUTPUTS
from cachingclient.watching import Seen

if TYPE_CHECKING:
    from cachingclient.session import Session

#: What is said of how to compute something, that makes its result another one.
_HOW = ("workers", "allow_other_workers", "resources", "retries", "user_priority")
#: Annotations that don't make a result another one.
_OURS = ("cache", "span")


class Wish(NamedTuple):
    """What the user said around a submission."""

    #: whether to use the cache at all
    use: bool
    #: whether to keep the results whatever they are
    keep: bool
    #: whether purity was said; None where nothing needs to be said
    pure: bool | None
    #: the rest of the annotations in force
    annotations: Mapping[str, Any]

    @classmethod
    def now(cls, pure: bool | None, disabled: bool) -> Wish:
        """As it is in this context."""
        annotations = dask.get_annotations()
        cache = annotations.get("cache")
        others = {k: v for k, v in annotations.items() if k not in _OURS}
        return cls(cache is not False and not disabled, cache is True, pure, others)


class Sending:
    """One submission.

    Parameters
    ----------
    session : Session
    plain : callable
        The client's own method for graphs.
    keys : list
        Keys that the user asked for.
    args, kw
        What else `plain` was called with.
    """

    def __init__(
        self,
        session: Session,
        plain: Callable[..., Any],
        keys: list[Key],
        args: tuple[Any, ...],
        kw: dict[str, Any],
    ) -> None:
        self.session = session
        self.plain = plain
        self.keys = keys
        self.args = args
        self.kw = kw

    def send(self, expr: Any, keys: list[Key]) -> dict[Key, Future]:
        """Send an expression, or what stands for one."""
        return self.plain(expr, keys, *self.args, **self.kw)

    def prepare(self, expr: Any, wish: Wish) -> Callable[[], dict[Key, Future]]:
        """Find out how to send an expression.

        Returns
        -------
        callable
            Sends it. Nothing is changed before that is called.
        """
        settings = self.session.settings
        pure = wish.pure is not False or wish.keep or settings.rules.impure
        if isinstance(expr, internals.LLGExpr) or not pure:
            message = self._judged(expr, wish) if wish.use and pure else self._refused(expr)
            return lambda: self._send_after(message, expr)
        if not wish.use:
            job = Job(list(dict.fromkeys(self.keys)), ())
            way = self._way(Envelope(expr, self._request(job.keys, number=job.number, use=False)))
            # What the scheduler knows of its keys may be on its way out: that is over soon.
            job.ways = [way, way, self._way(expr)]
            return lambda: self._as_asked(self.session.pending.send(job), {})
        how = {k: self.kw[k] for k in _HOW if self.kw.get(k)}
        session = self.session
        seen = session.watch.look(expr)
        said = said_of(how, wish.annotations, seen)
        steps = held.alive(expr)
        plan = make_plan(expr, settings, session.trusted, said, session.cancelled)
        gone = dict.fromkeys(session.departed.take(), False)
        layers = {
            n: layer
            for _, hlg in graphs_of(expr)
            for n, layer in hlg.layers.items()
            if plan.alive.get(n)
        }
        session.departed.watch({**layers, **steps.held})
        plan.alive = {**gone, **plan.alive, **steps.alive}
        return self._planned(plan, seen, wish)

    # -- tasks as they are: the scheduler culls them, and hears of their names before ------

    def _send_after(self, message: dict[str, Any], expr: Any) -> dict[Key, Future]:
        self.session.voice.say(**message)
        before = self._on_their_way(expr)
        if not before:
            return self.send(expr, self.keys)
        # What it depends on may turn out to be lost, and nobody but this may need it by now.
        way = self._way(expr)

        def again(keys: list[Key]) -> dict[Key, Future]:
            client = self.session.client
            there: list[Any] = []
            for send, needed in before:
                # What somebody holds has been sent again for itself, before this was cancelled.
                if gone := [k for k in needed if k not in client.futures]:
                    there.append(send(gone))
                there += [Future(k, client) for k in needed]
            try:
                return way(keys)
            finally:
                there.clear()

        job = Job(list(dict.fromkeys(self.keys)), [way, again, again], silent=True)
        return self._as_asked(self.session.pending.send(job), {})

    def _on_their_way(self, expr: Any) -> list[tuple[Callable[[list[Key]], Any], list[Key]]]:
        """Ways to send again what tasks depend on, and its keys: the scheduler may still have to
        say that it is lost."""
        pending = self.session.pending
        if not len(pending):
            return []
        needs: set[Key] = set()
        if isinstance(expr, internals.LLGExpr):
            for task in internals.as_graph(expr.__dask_graph__()).values():
                needs |= task.dependencies
        elif isinstance(expr, internals.MapExpr):
            needs = {a.key for it in expr.iterables for a in it if isinstance(a, Future)}
        return pending.last_ways(needs)

    def _refused(self, expr: Any) -> dict[str, Any]:
        inside = expr.__dask_graph__() if isinstance(expr, internals.LLGExpr) else self.keys
        return {"denied": [key_name(k) for k in inside]}

    def _judged(self, expr: Any, wish: Wish) -> dict[str, Any]:
        session = self.session
        graph = internals.as_graph(expr.__dask_graph__())
        lifted: Container[Any] = {key_name(k) for k in graph} if wish.keep else ()
        seen = session.watch.look_at_tasks(graph)
        verdict = judge(
            graph,
            session.trusted,
            lifted=lifted,
            rules=session.settings.rules,
            sources=lambda name: seen.made_of.get(name, ()),
            given=wish.pure is not True,
        )
        session.watch.note(verdict.readers)
        session.trusted.note_all(verdict.allowed)
        return {
            "allowed": list(verdict.allowed),
            "denied": list(verdict.denied),
            "sources": seen.digests,
            "unsure": list(seen.unsure),
            "readers": {s: list(names) for s, names in verdict.readers.items()},
            "alive": dict.fromkeys(session.departed.take(), False),
            "place": Place.of(self.kw, wish.annotations),
        }

    # -- graphs in an envelope -------------------------------------------------------------

    def _planned(self, plan: Plan, seen: Seen, wish: Wish) -> Callable[[], dict[Key, Future]]:
        session = self.session
        new = list(dict.fromkeys(plan.renamed.get(k, k) for k in self.keys))
        job = Job(new, ())
        data = frozenset(data_of(plan.expr)) if seen.readers else frozenset()
        request = self._request(
            new,
            number=job.number,
            denied=plan.denied,
            lifted=frozenset(plan.lifted),
            lift_all=wish.keep,
            alive=plan.alive,
            candidates=plan.candidates,
            sources=seen.digests,
            unsure=seen.unsure,
            made_of=seen.made_of,
            readers=seen.readers,
            data=data,
            place=Place.of(self.kw, wish.annotations),
        )
        names = {key_name(k) for k in new}
        denied = plan.denied.keys() | _named_by_users(plan.expr, new)
        session.trusted.note_all(n for n in names if has_token(n) and n not in denied)
        session.finals.note_all(plan.renamed.values())
        job.ways = [self._way(Envelope(plan.expr, request)), self._way(plan.expr)]
        if known := data.intersection(session.sent_data):
            job.ways.insert(0, self._way(Envelope(plan.expr, request, known)))
        session.sent_data.note_all(data)
        keepable = not names.intersection(plan.denied) and len(new) <= MANY_OUTPUTS
        if keepable and not seen.changed and session.recent.knows(new):
            job.ways.insert(0, self._way(Envelope(None, request)))
        return lambda: self._as_asked(session.pending.send(job), plan.renamed)

    def _way(self, expr: Any) -> Callable[[list[Key]], dict[Key, Future]]:
        annotations = dict(dask.get_annotations())

        def send(keys: list[Key]) -> dict[Key, Future]:
            # It may be sent again from another thread.
            with dask.annotate(**annotations):
                return self.send(expr, keys)

        return send

    def _request(self, keys: list[Key], **kwargs: Any) -> Request:
        session = self.session
        rules = session.settings.rules
        # The cache may have left since: nobody opens such an envelope then.
        scheduler = session.scheduler_id or ""
        return Request(scheduler, session.client.id, tuple(keys), rules=rules, **kwargs)

    def _as_asked(
        self, futures: dict[Key, Future], renamed: Mapping[Key, Key]
    ) -> dict[Key, Future]:
        """Futures under the keys that the user asked for, one each."""
        given: dict[Key, Future] = {}
        taken: set[Key] = set()
        for key in self.keys:
            new = renamed.get(key, key)
            given[key] = Future(new, self.session.client) if new in taken else futures[new]
            taken.add(new)
        self.session.answers.add(given[k] for k in self.keys if k in renamed)
        return given


def said_of(
    how: Mapping[str, Any], annotations: Mapping[str, Any], seen: Seen
) -> Callable[[Iterable[Any]], Any]:
    """All that tells one answer from another of the same collections, by their names.

    Their sources belong to it: who holds an answer holds that of the sources as they were.

    Parameters
    ----------
    how, annotations : mapping
        What was said of how to compute it.
    seen : Seen
        The state of the sources.
    """

    def said(names: Iterable[Any]) -> Any:
        sources = {source for name in names for source in seen.made_of.get(name, ())}
        state = sorted((str(source), seen.digests.get(source, "")) for source in sources)
        return how, annotations, state

    return said


def _named_by_users(expr: Any, keys: Iterable[Key]) -> set[Key]:
    """Keys of single tasks that users made up: what is made of them cannot be told by a name."""
    single = {k for k in keys if isinstance(k, str)}
    return {
        k
        for _, hlg in graphs_of(expr)
        for k in hlg.layers.keys() & single
        if is_named(k, hlg.layers[k].get(k))
    }
