"""Draws sessions: lists of steps, which are lines of code as a user would write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import dask.array as da
from random_sessions import functions

#: Whether `map_blocks` takes a name as it is.
NAMES_ARE_TAKEN = da.ones(1).map_blocks(abs, name="mine").name == "mine"

#: Words that start the names of variables, by the sort of their values
_LETTERS = {"array": "x", "frame": "df", "bag": "b", "delayed": "d", "future": "f", "source": "src"}


class Step(NamedTuple):
    """What a user does at once."""

    code: str
    #: whether the calls of pure functions count too: nobody said that they are pure
    exact: bool = False


class Var(NamedTuple):
    """A variable of the session."""

    name: str
    sort: str
    #: sort of its value, or of its elements
    of: str = "number"
    #: shape of an array
    shape: tuple[int, ...] = ()
    #: whether a task may change it in place: nobody else reads it
    fresh: bool = True
    #: whether something below it is changed in place, so that others must not read that
    dirty: bool = False


#: {theme: {what may happen, beside what always may: how often}}
THEMES: dict[str, dict[str, float]] = {
    "inplace": {"inplace": 15, "change_answer": 2, "write": 3},
    "held": {"persist": 5, "future": 8, "cancel": 4, "together": 3, "failing": 2},
    "files": {"source": 5, "rewrite": 8, "write": 5, "persist": 1, "impure": 1},
    "names": {"impure": 7, "unsaid": 5, "fixed": 5, "failing": 2, "future": 2, "together": 1},
}
#: What may happen in every session
ALWAYS = {
    "build": 2,
    "derive": 4,
    "question": 7,
    "again": 10,
    "redefine": 1,
    "constant": 0.5,
    "switch": 1,
}


def draw(seed: int, without: frozenset[str] = frozenset(), processes: bool = False) -> list[Step]:
    """Draw a session.

    Parameters
    ----------
    seed : int
    without : set of str
        What must not happen, by the names of `THEMES` and `ALWAYS`.
    processes : bool
        Whether workers are other processes, where calls are not counted.
    """
    return Author(seed, without, processes).session()


class Author:
    """Writes one session."""

    def __init__(self, seed: int, without: frozenset[str], processes: bool) -> None:
        self.rng = random.Random(seed)
        theme = self.rng.choice(sorted(THEMES))
        weights = {**ALWAYS, **THEMES[theme]}
        if processes:
            without |= {"impure", "unsaid", "failing"}
        self.weights = {k: w for k, w in weights.items() if k not in without}
        self.steps: list[Step] = []
        self.vars: list[Var] = []
        #: steps that may be asked again
        self.questions: list[Step] = []
        #: steps that made a variable with a function: {name of the function: (sort, steps)}
        self.uses: dict[str, tuple[str, list[str]]] = {}
        self.sources: list[tuple[str, str]] = []
        self.constants = 0
        self._n = 0

    def session(self) -> list[Step]:
        length = self.rng.randint(8, 15)
        while sum("def " not in s.code for s in self.steps) < length:
            names, weights = zip(*self.weights.items())
            getattr(self, self.rng.choices(names, weights)[0])()
        return self.steps

    # -- helpers ---------------------------------------------------------------

    def step(self, code: str, exact: bool = False, again: bool = False) -> None:
        self.steps.append(Step(code, exact))
        if again:
            self.questions.append(self.steps[-1])

    def name(self, word: str) -> str:
        self._n += 1
        return f"{word}{self._n}"

    def n(self, low: int = 1, high: int = 9) -> int:
        return self.rng.randint(low, high)

    def make(self, sort: str, code: str, of: str = "number", **kwargs: Any) -> Var:
        var = Var(self.name(_LETTERS[sort]), sort, of, **kwargs)
        self.step(f"{var.name} = {code}")
        self.vars.append(var)
        return var

    def function(self, of: str, how: Callable[..., str] = functions.pure, **kw: Any) -> str:
        name = self.name("f" if how is functions.pure else how.__name__)
        self.step(how(self.rng, name, of, **kw))
        return name

    def pick(self, *sorts: str, **known: Any) -> Var | None:
        found = [
            v
            for v in self.vars
            if v.sort in sorts and all(getattr(v, k) == w for k, w in known.items())
        ]
        # what was made last is asked for most
        return self.rng.choice(found[-4:]) if found else None

    def collection(self) -> Var:
        return self.pick("array", "frame", "bag", "delayed") or self.build()

    # -- making ----------------------------------------------------------------

    def build(self) -> Var:
        sort = self.rng.choice(("array", "frame", "bag", "delayed"))
        return getattr(self, f"build_{sort}")()

    def build_array(self) -> Var:
        n, shape = self.n(), self.rng.choice([(12,), (6, 4), (9,)])
        chunks = tuple(-(-s // self.rng.choice([2, 3])) for s in shape)
        size = shape[0] * (shape + (1,))[1]
        numbers = f"np.arange({n}, {n + size}).reshape({shape})"
        code = self.rng.choice(
            (
                f"da.from_array({numbers}, chunks={chunks})",
                f"da.from_array({numbers} * 0.5, chunks={chunks})",
                f"da.ones({shape}, chunks={chunks})",
                f"da.full({shape}, {n}.0, chunks={chunks})",
                f"da.arange({n}, {n + size}, chunks=4).reshape({shape}).rechunk({chunks})",
                f"da.random.default_rng({n}).integers(0, 9, size={shape}, chunks={chunks})",
                f"da.random.RandomState({n}).poisson(3, size={shape}, chunks={chunks})",
                f"da.from_delayed(dask.delayed(np.full, pure=True)({shape}, {n}), {shape}, 'i8')",
            )
        )
        return self.make("array", code, "array", shape=shape, fresh="from_array" not in code)

    def build_frame(self) -> Var:
        n, rows = self.n(), self.rng.choice([12, 20])
        pdf = f"table({rows}, {n})"
        code = self.rng.choice(
            (
                f"dd.from_pandas({pdf}, npartitions={self.rng.choice([1, 2, 3])})",
                f"dd.from_delayed([dask.delayed(table, pure=True)(8, {n} + i) for i in range(2)],"
                " meta=table(0, 0))",
                f"dd.from_map(partial(table, 6), [{n}, {n + 1}, {n}], meta=table(0, 0))",
            )
        )
        return self.make("frame", code, "frame", fresh="from_pandas" not in code)

    def build_bag(self) -> Var:
        n = self.n()
        of = self.rng.choice(("number", "list", "dict"))
        values = {
            "number": f"range({n}, {n + 10})",
            "list": f"[[i, {n}] for i in range(6)]",
            "dict": f"[{{'k': i, 'n': {n}}} for i in range(6)]",
        }
        return self.make("bag", f"db.from_sequence({values[of]}, npartitions=3)", of)

    def build_delayed(self) -> Var:
        n = self.n()
        of = self.rng.choice(("number", "list", "dict", "array", "text"))
        calls = {
            "number": f"abs, pure=True)(-{n})",
            "list": f"list, pure=True)(range({n}))",
            "dict": f"dict, pure=True)(k={n}, m=2)",
            "array": f"np.arange, pure=True)({n + 1})",
            "text": f"str, pure=True)({n})",
        }
        return self.make("delayed", f"dask.delayed({calls[of]}", of)

    # -- deriving --------------------------------------------------------------

    def derive(self) -> Var:
        return self.derived(self.collection())

    def derived(self, var: Var) -> Var:
        if self.rng.random() < 0.6:
            return self.mapped(var, self.function(var.of))
        return getattr(self, f"derive_{var.sort}")(var)

    def mapped(self, var: Var, function: str, **kwargs: Any) -> Var:
        """Something made by a user's function of a variable."""
        kwargs = {"fresh": True, "dirty": var.dirty, **kwargs}
        before = len(self.steps)
        made = self.make(var.sort, self.call(var, function), var.of, shape=var.shape, **kwargs)
        self.uses.setdefault(function, (var.of, []))[1].append(self.steps[before].code)
        return made

    def call(self, var: Var, function: str) -> str:
        v, f = var.name, function
        ways = {
            "array": [f"{v}.map_blocks({f}, dtype={v}.dtype, meta={v}._meta)"],
            "frame": [f"{v}.map_partitions({f}, meta={v}._meta)"],
            "bag": [f"{v}.map({f})", f"db.map({f}, {v})"],
            "delayed": [f"dask.delayed({f}, pure=True)({v})"],
        }
        return self.rng.choice(ways[var.sort])

    def derive_array(self, x: Var) -> Var:
        v, n = x.name, self.n()
        other = self.pick("array", shape=x.shape, dirty=False) if not x.dirty else None
        o = other.name if other else v
        code, fresh = self.rng.choice(
            (
                (f"{v} + {n}", True),
                (f"({v} * {n} - 1) ** 2", True),
                (f"{v} + {o}", True),
                (f"da.where({v} > {n}, {v}, 0)", True),
                (f"{v}[::-1]", False),
                (f"da.concatenate([{v}, {v}])[{x.shape[0]}:]", False),
                (f"da.stack([{v}, {o}])[1]", False),
                (f"{v}.rechunk(4)", False),
                (
                    f"da.overlap.overlap({v}, 1, 'reflect')"
                    f".map_blocks(lambda w: w + {n}).rechunk(3)"
                    f"[tuple(slice(0, s) for s in {x.shape})]",
                    True,
                ),
                (
                    f"{v}.map_overlap(lambda w: w * {n}, depth=1, boundary=0, dtype={v}.dtype,"
                    f" meta={v}._meta)",
                    True,
                ),
            )
        )
        return self.make("array", code, "array", shape=x.shape, fresh=fresh, dirty=x.dirty)

    def derive_frame(self, df: Var) -> Var:
        v, n = df.name, self.n()
        code = self.rng.choice(
            (
                f"{v}[{v}.b > {n}]",
                f"{v}.assign(b={v}.b * {n})",
                f"{v}.repartition(npartitions=2)",
                f"{v}.partitions[:2]",
                f"{v}[['a', 'b']]",
                f"dd.concat([{v}, {v}])",
                f"{v}.assign(b={v}.b.clip(upper={n}))",
                f"{v}.sample(frac=0.5, random_state={n})",
            )
        )
        return self.make("frame", code, "frame", fresh=False, dirty=df.dirty)

    def derive_bag(self, b: Var) -> Var:
        v, n = b.name, self.n()
        code = self.rng.choice(
            (
                f"{v}.filter(lambda w: hash(str(w)) is not None)",
                f"{v}.map_partitions(list)",
                f"{v}.repartition(2)",
                f"db.concat([{v}, {v}])",
                f"{v}.random_sample(0.5, random_state={n})",
            )
        )
        return self.make("bag", code, b.of, fresh=False, dirty=b.dirty)

    def derive_delayed(self, d: Var) -> Var:
        v = d.name
        other = self.pick("delayed", of=d.of, dirty=False) if not d.dirty else None
        o = other.name if other else v
        code = self.rng.choice(
            (
                f"dask.delayed(second, pure=True)([{v}, {o}])",
                f"dask.delayed(second, pure=True)(({o}, {v}))",
                f"dask.delayed(second, pure=True)(list({{'m': {v}, 'n': {o}}}.values()))",
            )
        )
        return self.make("delayed", code, d.of, fresh=False, dirty=d.dirty or o == v)

    def inplace(self) -> None:
        """A function that changes its input, and questions to both."""
        sort = self.rng.choice(("array", "frame", "bag", "delayed"))
        var = self.pick(sort) or getattr(self, f"build_{sort}")()
        if var.of not in functions.INPLACE:
            return
        if not var.fresh:
            var = self.mapped(var, self.function(var.of))
        if self.rng.random() < 0.5:
            self.ask(var)
        made = self.mapped(var, self.function(var.of, functions.inplace), dirty=True)
        self.ask(made)
        self.ask(var)
        if self.rng.random() < 0.5:
            self.ask(made)

    def impure(self) -> None:
        """A function that the static look must catch."""
        var = self.collection()
        if self.rng.random() < 0.3 and var.sort == "delayed":
            return self.impure_future(var)
        made = self.mapped(var, self.function(var.of, functions.impure))
        if self.rng.random() < 0.4:
            made = self.derived(made)
        for _ in range(self.n(1, 3)):
            self.ask(made)

    def impure_future(self, var: Var) -> None:
        name = self.function(var.of, functions.impure)
        code = f"show(client.submit({name}, {var.name}.compute(), pure=True).result())"
        for _ in range(2):
            self.step(code, again=True)

    # -- asking ----------------------------------------------------------------

    def question(self) -> None:
        self.ask(self.collection())

    def ask(self, var: Var) -> None:
        kwargs = self.rng.choice([""] * 6 + ["optimize_graph=False"])
        lazy, order = getattr(self, f"ask_{var.sort}")(var)
        answer = f"tidy({lazy}.compute({kwargs}))" if order else f"{lazy}.compute({kwargs})"
        self.step(f"show({answer})", again=True)

    def lazy(self, var: Var) -> str:
        """A question in whose answer the order means something."""
        while True:
            lazy, order = getattr(self, f"ask_{var.sort}")(var)
            if not order:
                return lazy

    def ask_array(self, x: Var) -> tuple[str, bool]:
        v, n = x.name, self.n()
        ways = (
            *("{v}", "{v}.sum()", "{v}.mean()", "{v}.max()", "{v}.std()", "{v}.min(axis=0)"),
            *("{v}[1:5]", "{v}.sum(axis=-1)", "({v} + {n}).sum()", "({v} - {v}.mean()).max()"),
            *("{v}.cumsum(axis=0)", "{v}.blocks[0]", "{v}.argmax(axis=0)", "{v}.T", "{v}.any()"),
            *("da.unique({v})", "{v}[{v} > {n}]", "{v}.astype('f4').rechunk(-1)", "(-{v}).ravel()"),
        )
        return self.rng.choice(ways).format(v=v, n=n), False

    def ask_frame(self, df: Var) -> tuple[str, bool]:
        ways = (
            *(("{v}", False), ("{v}.b.sum()", False), ("{v}.b.mean()", False)),
            *(("{v}.a.max()", False), ("{v}.count()", False), ("{v}.b", False)),
            *(("{v}[{v}.b > {n}]", False), ("{v}.groupby('a').b.mean()", True)),
            *(("{v}.groupby('a').b.sum()", True), ("{v}.a.value_counts()", True)),
            *(("{v}[['b']]", False), ("{v}.partitions[0]", False), ("{v}.a.nunique()", False)),
            *(("({v}.b + {n}).min()", False), ("{v}.b.cumsum()", False)),
            *(("{v}.set_index('a')", True), ("{v}.shuffle('a')", True), ("{v}.describe()", False)),
            *(("{v}.merge({v}, on='a')", True), ("{v}.drop_duplicates(['a', 'b'])", True)),
            *(("{v}.merge(dd.from_pandas(table(6, {n}), npartitions=2), on='a')", True),),
            *(("{v}.groupby('a').agg({{'b': ['min', 'count']}})", True),),
        )
        if df.dirty:  # nobody else may read what is changed
            ways = [w for w in ways if "merge" not in w[0]]
        lazy, order = self.rng.choice(ways)
        return lazy.format(v=df.name, n=self.n()), order

    def ask_bag(self, b: Var) -> tuple[str, bool]:
        ways = [("{v}", False), ("{v}.count()", False), ("{v}.map(str)", False)]
        if b.of == "number":
            ways += [("{v}.sum()", False), ("{v}.max()", False), ("{v}.topk(2)", False)]
            ways += [("{v}.frequencies()", True), ("{v}.distinct()", True), ("{v}.std()", False)]
            ways += [("{v}.fold(max)", False), ("{v}.groupby(odd)", True)]
            ways += [("{v}.map(abs).filter(odd)", False), ("{v}.accumulate(max)", False)]
        else:
            ways += [("{v}.map(len).sum()", False), ("{v}.map(len)", False)]
        lazy, order = self.rng.choice(ways)
        return lazy.format(v=b.name), order

    def ask_delayed(self, d: Var) -> tuple[str, bool]:
        ways = ["{v}", "dask.delayed(repr, pure=True)({v})", "dask.delayed(list)([{v}])"]
        return self.rng.choice(ways).format(v=d.name), False

    def again(self) -> None:
        if self.questions:
            self.steps.append(self.rng.choice(self.questions[-6:]))

    def together(self) -> None:
        """Several questions at once, of one sort: dask mixes the answers of several sorts up."""
        var = self.collection()
        others = [v for v in self.vars if v.sort == var.sort and not v.dirty][-3:]
        if not var.dirty:
            asked = ", ".join(self.lazy(v) for v in [var, *others])
            self.step(f"show(dask.compute({asked}))", again=True)

    def change_answer(self) -> None:
        """A user changes what he got."""
        changes = {"array": "got += 1", "frame": "got['b'] = 0", "bag": "got[:] = []"}
        for sort, change in changes.items():
            var = self.pick(sort)
            if var is not None:
                self.step(f"got = {var.name}.compute(); {change}; show(got)", again=True)

    # -- redefining, switching -------------------------------------------------

    def redefine(self) -> None:
        """A cell is changed and run again, and those after it."""
        if not self.uses:
            return
        name = self.rng.choice(sorted(self.uses))
        of, codes = self.uses[name]
        how = next((h for h in _KINDS if name.startswith(h.__name__)), functions.pure)
        self.step(how(self.rng, name, of))
        for code in codes[-2:]:
            self.step(code)
        for question in self.questions[-2:]:
            self.steps.append(question)

    def constant(self) -> None:
        """A function reads a global, which is changed before the same is asked again."""
        var = self.pick("array", "bag", "delayed", of="number") or self.build_bag()
        if var.of != "number":
            return
        k, name = self.name("K"), self.name("f")
        self.step(f"{k} = {self.n()}")
        self.step(f"def {name}(x):\n    return x * {k}")
        made = self.mapped(var, name)
        self.ask(made)
        self.step(f"{k} = {self.n() + 10}")
        self.steps.append(self.questions[-1])

    def switch(self) -> None:
        """The cache is cleared, switched off, or made small: nothing changes for the user."""
        if self.rng.random() < 0.5 or not self.questions:
            self.step(self.rng.choice(("clear()", "resize('2 kB')", "resize('1 GiB')")))
            return
        question = self.rng.choice(self.questions[-3:])
        manager = self.rng.choice(("disabled()", "dask.annotate(cache=False)"))
        self.step(f"with {manager}:\n    {question.code}", question.exact)

    # -- holding ---------------------------------------------------------------

    def persist(self) -> None:
        """Something is held, asked about, and perhaps let go of."""
        var = self.collection()
        call = self.rng.choice((f"{var.name}.persist()", f"client.persist({var.name})"))
        made = self.make(var.sort, call, var.of, shape=var.shape, fresh=False)
        self.ask(made)
        self.ask(var)
        if self.rng.random() < 0.4:
            self.let_go(made)

    def let_go(self, var: Var) -> None:
        self.vars.remove(var)
        self.step(f"del {var.name}")

    def future(self) -> None:
        way = self.rng.choice(("submit", "map", "compute", "scatter", "input"))
        getattr(self, f"future_{way}")()

    def future_submit(self) -> None:
        value = self.n()
        made = self.make("future", f"client.submit({self.function('number')}, {value}, pure=True)")
        self.step(f"show({made.name}.result())", again=True)
        if self.rng.random() < 0.4:
            self.let_go(made)
            self.steps.append(self.steps[-3])
            self.vars.append(made)

    def future_map(self) -> None:
        name = self.function("number")
        low = self.n(0, 4)
        batch = self.rng.choice(("", ", batch_size=2"))
        code = f"client.gather(client.map({name}, range({low}, {low + 4}), pure=True{batch}))"
        for _ in range(2):
            self.step(f"show({code})", again=True)

    def future_compute(self) -> None:
        lazy = self.lazy(self.collection())
        self.step(f"show(client.compute({lazy}).result())", again=True)

    def future_scatter(self) -> None:
        made = self.make("future", f"client.scatter({self.n()})")
        code = f"client.submit({self.function('number')}, {made.name}, pure=True).result()"
        self.step(f"show({code})", again=True)

    def future_input(self) -> None:
        """A future is what something else is made of."""
        future = self.pick("future")
        if future is None:
            return self.future_submit()
        name, f = self.function("number"), future.name
        code = self.rng.choice(
            (
                f"client.submit({name}, {f}, pure=True).result()",
                f"dask.delayed({name}, pure=True)({f}).compute()",
                f"dask.delayed({name})({f}).compute()",
                f"da.from_delayed({f}, (), 'i8').map_blocks({name}, dtype='i8').compute()",
                f"db.from_delayed([dask.delayed(list, pure=True)([{f}])]).map({name}).compute()",
                f"client.gather(client.map({name}, [{f}, {f}], pure=True))",
            )
        )
        self.step(f"show({code})", again=True)

    def cancel(self) -> None:
        """A computation is cancelled, and asked for again."""
        var = self.pick("array", "bag")
        if var is not None and self.rng.random() < 0.6:
            return self.cancel_one(var.name)
        lazy = self.lazy(self.collection())
        cancel = self.rng.choice(
            (
                f"g = client.compute({lazy}); g.cancel(); show(g.status); del g",
                f"g = client.compute({lazy}); g.result(); g.cancel(); show(g.cancelled()); del g",
                f"g = client.persist({lazy}); client.cancel(g); del g",
            )
        )
        self.step(cancel)
        self.step(f"show({lazy}.compute())", again=True)

    def cancel_one(self, v: str) -> None:
        """Others ask for the same at once: arrays and bags have a name for each computation."""
        self.step(
            self.rng.choice(
                (
                    f"g, h = client.compute([{v}, {v}]); g.cancel(); show(h.result()); del g, h",
                    f"g, h = client.compute({v}), client.compute({v}); g.cancel()\n"
                    "show(h.result()); del g, h",
                    f"g = client.compute({v}); g.cancel(); del g; show({v}.compute())",
                    f"g = client.compute({v}); g.result(); g.cancel(); show({v}.compute()); del g",
                )
            )
        )

    # -- what nobody called pure ---------------------------------------------------

    def unsaid(self) -> None:
        """Nobody said that it is pure: computed as often as by a plain client."""
        name, n = self.function("number", counts=True), self.n()
        said = self.rng.choice(("", ", pure=False"))
        code = self.rng.choice(
            (
                f"client.submit({name}, {n}{said}).result()",
                f"client.gather(client.map({name}, [{n}, {n + 1}]{said}))",
                f"dask.delayed({name})({n}).compute()",
                f"dask.delayed(abs, pure=True)(dask.delayed({name})({n})).compute()",
                f"da.from_delayed(dask.delayed({name})({n}), (), 'i8').sum().compute()",
                f"dask.delayed({name}, pure=False)(client.submit({name}, {n})).compute()",
            )
        )
        for _ in range(2):
            self.step(f"show({code})", exact=True, again=True)
        if self.rng.random() < 0.4:
            self.step(f"show(client.submit({name}, {n}, pure=True).result())", again=True)
            self.steps.append(self.questions[-2])

    def fixed(self) -> None:
        """One name for one content, then for another."""
        key, name = self.name("key"), self.function("number", counts=True)
        code = self.rng.choice(
            (
                "client.submit({f}, {n}, key='{k}').result()",
                "client.submit({f}, {n}, key='{k}', pure=True).result()",
                "client.submit(abs, client.submit({f}, {n}, key='{k}'), pure=True).result()",
                "client.gather(client.map({f}, [{n}, 2], key=['{k}', '{k}-2']))",
                "dask.delayed({f})({n}, dask_key_name='{k}').compute()",
                "dask.delayed(abs, pure=True)(dask.delayed({f})({n}, dask_key_name='{k}'))"
                ".compute()",
                "da.from_array(np.full(6, {n}), chunks=3, name='{k}').map_blocks({f}, dtype='i8',"
                " meta=np.empty(0, 'i8')).compute()",
                "da.from_array(np.full(6, {n}), chunks=3, name='{k}').map_blocks({f}, dtype='i8',"
                " meta=np.empty(0, 'i8')).sum().compute()",
                "da.ones(6, chunks=3).map_blocks({f}, dtype='f8', meta=np.empty(0), name='{k}')"
                ".map_blocks(lambda v: v * {n}, name='{k}-2', meta=np.empty(0)).sum().compute()",
            )
        )
        for n in self.rng.sample(range(9), 2):
            for _ in range(self.n(1, 2)):
                question = f"show({code.format(f=name, n=n, k=key)})"
                # Older versions of dask put a token behind such a name.
                fixed = "name='{k}-2'" not in code or NAMES_ARE_TAKEN
                self.step(question, exact=fixed, again=True)

    def failing(self) -> None:
        """An error comes each time, or once: it is not kept."""
        name = self.name("failing")
        self.step(functions.failing(self.rng, name))
        code = self.rng.choice(
            (
                "client.submit({f}, {n}, pure=True).result()",
                "dask.delayed({f}, pure=True)({n}).compute()",
                "dask.delayed(abs, pure=True)(dask.delayed({f}, pure=True)({n})).compute()",
                "da.ones(4, chunks=4).map_blocks({f}, dtype='f8', meta=np.empty(0)).sum()"
                ".compute()",
                "db.from_sequence([{n}], npartitions=1).map({f}).sum().compute()",
            )
        )
        for _ in range(3):
            self.step(f"show({code.format(f=name, n=self.rng.choice([1, 1, 2]))})", again=True)

    # -- files -----------------------------------------------------------------

    def source(self) -> Var:
        """Something is read from files."""
        kind = self.rng.choice(sorted(SOURCES))
        name = self.name("source")
        self.step(f"write_{kind}(HERE + '/{name}', {self.n()})")
        self.sources.append((kind, name))
        sort, of, ways = SOURCES[kind]
        code = self.rng.choice(ways).format(p=f"HERE + '/{name}'")
        made = self.make(sort, code, of, shape=(8,))
        self.ask(made)
        return made

    def rewrite(self) -> None:
        """Files are written anew, perhaps of the same size, and the same is asked again."""
        if not self.sources:
            self.source()
        kind, name = self.rng.choice(self.sources)
        self.step(f"write_{kind}(HERE + '/{name}', {self.n()})")
        for question in self.questions[-2:]:
            self.steps.append(question)
        if self.rng.random() < 0.4:
            sort, of, ways = SOURCES[kind]
            code = self.rng.choice(ways).format(p=f"HERE + '/{name}'")
            self.ask(self.make(sort, code, of, shape=(8,)))

    def write_files(self, var: Var, name: str) -> str:
        v, p = var.name, f"HERE + '/{name}"
        ways = {
            "array": (
                f"da.to_zarr({v}.rechunk({v}.chunksize), {p}.zarr')",
                f"{v}.rechunk({v}.chunksize).to_zarr({p}.zarr')",
                f"da.to_npy_stack({p}.npys', {v})",
                f"{v}.store(Target({p}.npy', {v}), lock=False)",
                f"da.store([{v}], [Target({p}.npy', {v})], lock=False)",
                f"da.store({v}, Target({p}.npy', {v}), lock=False, compute=False).compute()",
            ),
            "frame": (
                f"{v}.to_parquet({p}.parquet')",
                f"{v}.to_parquet({p}.parquet', write_index=False)",
                f"{v}.to_csv({p}-*.csv')",
                f"{v}.to_csv({p}.csv', single_file=True)",
                f"{v}.to_json({p}-*.json')",
                f"dask.compute({v}.to_csv({p}-*.csv', compute=False))",
            ),
            "bag": (
                f"{v}.map(str).to_textfiles({p}-*.txt')",
                f"dask.compute({v}.map(str).to_textfiles({p}-*.txt', compute=False))",
            ),
            "delayed": (f"dask.delayed(save_text, pure=True)({p}.txt', {v}).compute()",),
        }
        return self.rng.choice(ways[var.sort])

    def write(self) -> None:
        """Something is written, and again after it was deleted."""
        var = self.collection()
        name = self.name("out")
        code = self.write_files(var, name)
        self.step(f"show({code} is not None)")
        for _ in range(self.n(1, 2)):
            if self.rng.random() < 0.8:
                self.step(f"remove('{name}')")
            self.step(f"show({code} is not None)")


_KINDS = (functions.inplace, functions.impure)

#: {kind of file: (sort of collection, sort of value, ways to read it)}
SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "csv": (
        "frame",
        "frame",
        (
            "dd.read_csv({p})",
            "dd.read_csv({p}, blocksize=None)[['a', 'b']]",
            "dd.from_map(pd.read_csv, [{p}], meta=table(0, 0))",
            "dd.from_delayed([dask.delayed(pd.read_csv, pure=True)({p})], meta=table(0, 0))",
        ),
    ),
    "parquet": (
        "frame",
        "frame",
        (
            "dd.read_parquet({p})",
            "dd.read_parquet({p}, filesystem='pyarrow')",
            "dd.from_map(pd.read_parquet, [{p}], meta=table(0, 0))",
        ),
    ),
    "text": ("bag", "text", ("db.read_text({p})", "db.read_text({p}).map(str.strip)")),
    "npy": (
        "array",
        "array",
        (
            "da.from_delayed(dask.delayed(np.load, pure=True)({p}), (8,), 'i8')",
            "da.from_delayed(dask.delayed(load, pure=True)({p}), (8,), 'i8')",
            "da.map_blocks(lambda block_id, path: load(path)[4 * block_id[0]:][:4], path={p},"
            " chunks=((4, 4),), dtype='i8', meta=np.empty(0, 'i8'))",
        ),
    ),
    "zarr": ("array", "array", ("da.from_zarr({p})", "da.from_zarr({p}) + 1")),
}
