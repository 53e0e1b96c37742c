"""What a function of the user calls, and what with: objects at hand, and what is given.

`walk` knows classes only, which is all that decides whether code was edited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from cachingclient.inspection.given import ANYTHING, NOTHING, Given, passes_on, relevant, unset
from cachingclient.inspection.holders import PARTS, contents, is_container, reached, shape
from cachingclient.inspection.objects import (
    MISSING,
    Instance,
    Super,
    dunders,
    is_a,
    is_holder,
    is_own,
    static,
    value_in,
)
from cachingclient.inspection.outline import Argument, Attribute, Call, Constant, Name
from cachingclient.inspection.scope import Scope
from cachingclient.inspection.walk import (
    MAKERS,
    Visit,
    defaults,
    follow,
    held_functions,
    is_leaf,
    wrapped,
)

#: Functions that make what others use are looked into so deep, and so many of their returns
FACTORIES = 3
RETURNS = 5


#: {id of a node: what is given to it}
_Givens = dict[int, set[Given]]


class Part(NamedTuple):
    """A function that is called, and how."""

    #: a function of the user, or something else that is judged by its name
    function: Any
    #: what it is a method of: a class, or the object itself if it is at hand
    owner: Any
    given: Given


class Inside(Scope):
    """Resolves also what objects hold, and knows which parameters are None."""

    def __init__(
        self,
        function: FunctionType,
        owner: Any = None,
        given: Given = NOTHING,
        depth: int = FACTORIES,
    ):
        super().__init__(function, owner if owner is None or is_a(owner, type) else type(owner))
        self.owner = owner
        self.given = given
        self._depth = depth
        self._unset = unset(function, owner, given)
        self._calls: _Givens | None = None
        self._handed: _Givens = {}

    def is_none(self, node: Any) -> bool:
        """Whether a node is known to stand for None."""
        if type(node) is Constant:
            return node.value is None
        if type(node) is Argument or (type(node) is Name and node.where == "self"):
            return node.name in self._unset
        if type(node) is Attribute and type(self.resolve(node.base)) is Instance:
            # who made it may have set another value
            return False
        return type(node) in (Name, Attribute) and self.resolve(node) is None

    def givens(self, node: Any, thing: Any = None) -> Iterable[Given]:
        """What is given where a node is called, or handed to what calls it."""
        if self._calls is None:
            self._calls, self._handed = defaultdict(set), defaultdict(set)
            self._note_calls(self._calls, self._handed)
        calls = self._calls.get(id(node), set())
        if is_a(thing, type):
            # isinstance(x, thing), thing.constant: who makes no object needs no seed
            return calls or (ANYTHING,)
        return calls | self._handed.get(id(node), set()) or (NOTHING,)

    def _note_calls(self, called: _Givens, handed: _Givens) -> None:
        calls = [node for node in self.outline.uses if type(node) is Call]
        # vectorize(f)(x, seed=3)
        outer = {id(call.function): self._given(call) for call in calls}
        for call in calls:
            called[id(call.function)].add(given := self._given(call))
            after = outer.get(id(call), NOTHING)
            words = given.keywords | after.keywords
            # apply(f, args=...)
            rest = given.rest or after.rest or not _HANDED.isdisjoint(call.keywords)
            for i, node in enumerate(call.args):
                positional = (*given.positional[i + 1 :], *after.positional)
                handed[id(node)].add(Given(positional, words, rest))
            for node in call.keywords.values():
                handed[id(node)].add(Given(after.positional, words, rest))

    def _given(self, call: Call) -> Given:
        if call.starred:
            return self.given if passes_on(self.function) else ANYTHING
        words = frozenset((k, not self.is_none(node)) for k, node in call.keywords.items())
        return Given(tuple(not self.is_none(node) for node in call.args), words)

    def _self(self, name: str) -> Any:
        return super()._self(name) if self.owner is self.cls else self.owner

    def _attribute(self, base: Any, name: str) -> Any:
        found = super()._attribute(base, name)
        if type(base) is Instance and found is MISSING:
            return self._set_in(static(base.cls, "__init__"), base.cls, name)
        if base is MISSING or is_a(base, (type, ModuleType)) or not is_holder(base):
            return found
        value = value_in(base, name)
        return found if value is MISSING else value

    def _resolve(self, node: Any) -> Any:
        found = super()._resolve(node)
        if found is MISSING and type(node) is Call and self._depth:
            function = self.resolve(node.function)
            if type(function) is FunctionType and is_own(function):
                return self._made_by(function)
        return found

    def _made_by(self, function: FunctionType) -> Any:
        """The object that a function of the user returns, if it is one of the user's."""
        scope = Inside(function, depth=self._depth - 1)
        return self._first_object(scope, scope.outline.returns)

    def _set_in(self, function: Any, cls: type, name: str) -> Any:
        """The same for what ``__init__`` sets an attribute to."""
        if type(function) is not FunctionType or not is_own(function) or not self._depth:
            return MISSING
        scope = Inside(function, cls, depth=self._depth - 1)
        nodes = [node for attribute, node in scope.outline.attributes if attribute == name]
        return self._first_object(scope, nodes)

    def _first_object(self, scope: Inside, nodes: Sequence[Any]) -> Any:
        for node in nodes[:RETURNS]:
            found = scope.resolve(node)
            if type(found) is Instance or is_holder(found):
                self.loaded += scope.loaded
                return found
        return MISSING


_HANDED = frozenset(("args", "kwargs", "kwds", "func_args", "func_kwargs"))


def visits(part: Part) -> Iterator[Visit]:
    """A function of the user, and those that it calls, nearest first; scopes are `Inside`."""
    return follow(part, _key, Inside, _called)


def _key(part: Part) -> Any:
    function, owner, given = part
    return id(function), id(owner) if owner is None or is_a(owner, type) else shape(owner), given


def parts(thing: Any, owner: Any = None, given: Given = NOTHING, depth: int = 5) -> Iterator[Part]:
    """What a callable is made of, as `walk.units` tells, with what it is called with.

    Examples
    --------
    >>> [part.given.positional for part in parts(partial(sorted, [], key=abs))]
    [(True,), ()]
    """
    if is_leaf(thing):
        yield Part(thing, owner, relevant(thing, owner, given))
        for inner in wrapped(thing) if depth else ():
            yield from parts(inner, owner, given, depth - 1)
    elif depth:
        for part in _inner(thing, given):
            yield from parts(*part, depth - 1)


def _inner(thing: Any, given: Given) -> Iterator[Part]:
    if is_a(thing, partial):
        yield from _of_partial(thing, given)
    elif type(thing) is MethodType:
        yield Part(thing.__func__, thing.__self__, given)
    elif is_a(thing, type):
        for name in MAKERS if is_own(thing) else ():
            yield Part(static(thing, name), thing, given)
    elif callable(thing):
        call = static(type(thing), "__call__")
        if type(call) is FunctionType:
            yield Part(call, thing, given)
        if not is_own(call):
            # wrappers, which call what they hold
            for part in held_functions(thing, slots=type(call) is FunctionType):
                yield Part(part, None, given)


def _of_partial(thing: Any, given: Given) -> Iterator[Part]:
    arguments = partial.args.__get__(thing)
    keywords = partial.keywords.__get__(thing)
    words = frozenset((name, value is not None) for name, value in keywords.items())
    values = tuple(value is not None for value in arguments)
    yield Part(partial.func.__get__(thing), None, given.before(values, words))
    for i, part in enumerate(arguments[:PARTS]):
        yield Part(part, None, Given(values[i + 1 :], words, True))
    for part in list(keywords.values())[:PARTS]:
        yield Part(part, None, Given((), words, True))


def _called(scope: Inside) -> Iterator[Part]:
    """Functions of the user that a function of the user calls or mentions."""
    return (part for part in _mentioned(scope) if is_own(part.function))


def _mentioned(scope: Inside) -> Iterator[Part]:
    for node in scope.outline.uses:
        found = scope.resolve(node.function if type(node) is Call else node)
        if type(node) is Call:
            yield from _called_objects(scope, node.function, found)
        elif found is not MISSING and type(found) is not ModuleType:
            yield from _used(scope, found, _receiver(scope, node), scope.givens(node, found))
    yield from parts(scope.function.__dict__.get("__wrapped__"), scope.owner, scope.given)
    for default in defaults(scope.function):
        yield from _used(scope, default, None, (NOTHING,))


def _called_objects(scope: Inside, node: Any, found: Any) -> Iterator[Part]:
    """What is made and called at once, and `self`: objects that are not named anywhere else."""
    for given in scope.givens(node):
        if type(found) is Instance:
            yield from parts(static(found.cls, "__call__"), found.cls, given)
        elif type(node) in (Call, Name) and is_holder(found):
            yield from parts(found, None, given)


def _used(scope: Inside, thing: Any, owner: Any, givens: Iterable[Given]) -> Iterator[Part]:
    for given in givens:
        yield from parts(thing, owner, given)
    if is_holder(thing):
        for name in dunders(type(thing)):
            yield from parts(static(type(thing), name), thing)
    if is_container(thing):
        yield from _items(list(contents(thing)), scope.function.__code__)


def _items(items: list[Any], code: CodeType) -> Iterator[Part]:
    """What code may call that takes these from a container."""
    given = Given((), said(code))
    for item in items:
        if not is_holder(item):
            yield from parts(item, None, given)
    for method, owner in reached(filter(is_holder, items), words(code)):
        yield from parts(method, owner, given)


def _receiver(scope: Inside, node: Any) -> Any:
    """What a method is looked up on: an object of the user's, or a class."""
    base = scope.resolve(node.base) if type(node) is Attribute else None
    if base is None or base is MISSING or is_a(base, ModuleType):
        return None
    if type(base) is Super:
        return base.cls if scope.owner is None else scope.owner
    if type(base) is Instance:
        return base.cls
    return base if is_a(base, type) or is_holder(base) else type(base)


@lru_cache(10_000)
def words(code: CodeType) -> frozenset[str]:
    """Names of globals and attributes in a function and those nested in it.

    Examples
    --------
    >>> sorted(words((lambda xs: [x.draw() for x in xs.all]).__code__))
    ['all', 'draw']
    """
    nested = (words(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*nested)


@lru_cache(10_000)
def said(code: CodeType) -> frozenset[tuple[str, bool]]:
    """Keywords of calls in a function, and in those nested in it, of whatever is called.

    Examples
    --------
    >>> said((lambda f: f(3, seed=3)).__code__)
    frozenset({('seed', True)})
    """
    constants = code.co_consts
    tuples = [constant for constant in constants if type(constant) is tuple]
    nested = [said(constant) for constant in constants if isinstance(constant, CodeType)]
    strings = {(name, True) for names in tuples for name in names if type(name) is str}
    return frozenset(strings).union(*nested)
