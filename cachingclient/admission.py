"""What may ever be kept: tokens, purity, side effects, types.

Keeping is by permission. A key may be kept if its name ends in a token (so that
equal names mean equal content), if nothing that it was computed from lacks one,
and if neither it nor anything that it was computed from writes something.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dask.typing import Key

NO_TOKEN = "its key has no token"
#: What dask makes of one in the arguments of delayed functions
_UNSHARED = re.compile(r"-[0-9a-f]{32}-[0-9a-f]{32}$")
WRITES = "writes something"
NEVER = "named in cachingclient.never"
NOT_KEPT = "annotated with cache=False"
UNKNOWN_INPUT = "made of a future that nobody called pure"
UPSTREAM = "depends on something that is not kept"
UNSHARED = "a name of its own each time (a part of a delayed function's arguments)"
UNNAMED = "what it is made of, or how, cannot be told by a token"
GIVEN = "its name was given to it, and may be given to something else: leave it to dask"
NOT_PURE = "not pure: pass pure=True"
ONCE = "cannot be read twice, or does nothing but have an effect"
STALE = "reads something that has changed, or may have"
SHARED = "reads files, and a client is connected that would not notice when they change"
UNGUARDED = "a worker lacks the package cachingclient, so that tasks could change what is kept"
LEAVING = "its worker was about to close, or was paused"
REJECTED = "an audit found that it is another one each time"
RETRIED = "failed before it worked"
LARGE = "large for the time that it takes to compute it again from what is kept"
NO_MEMORY = "running work needs the memory of its worker"
P2P = "internal to a P2P shuffle"
PART = "a part of what is kept"
NOT_WHOLE = "its file is too large to be kept with all columns, and would be read for each of them"
WRITTEN = "handed to a writer that may change it in place"

_TOKEN = re.compile(r"(?:^|-)[0-9a-f]{32}$")
_UUID = re.compile(r"(?:^|-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-[0-9]+)?$")


def key_name(key: Key) -> Any:
    """Name of the layer that a key belongs to.

    Examples
    --------
    >>> key_name(("x", 0, 1))
    'x'
    >>> key_name("y")
    'y'
    """
    return key[0] if type(key) is tuple and key else key


@lru_cache(10_000)
def has_token(name: Any) -> bool:
    """Whether a name identifies its content.

    Examples
    --------
    >>> has_token("sum-0123456789abcdef0123456789abcdef")
    True
    >>> has_token("sum-5b7c1f44-9cf4-4a83-8fb1-6c0c01c22222"), has_token("mine")
    (False, False)
    """
    return isinstance(name, str) and _TOKEN.search(name) is not None


@lru_cache(10_000)
def has_uuid(name: Any) -> bool:
    """Whether a name is unique, as dask names what nobody called pure.

    Examples
    --------
    >>> has_uuid("sum-5b7c1f44-9cf4-4a83-8fb1-6c0c01c22222")
    True
    """
    return isinstance(name, str) and _UUID.search(name) is not None


@lru_cache(10_000)
def is_unshared(name: Any) -> bool:
    """Whether dask has put a random number behind a token, so that nobody shares the key.

    It does so with all that a delayed function needs of other collections.

    Examples
    --------
    >>> is_unshared("sum-" + 32 * "0" + "-" + 32 * "1"), is_unshared("sum-" + 32 * "0")
    (True, False)
    """
    return isinstance(name, str) and _UNSHARED.search(name) is not None


class Effect(NamedTuple):
    """Names of layers and functions that do more than return a value."""

    #: what the names look like
    pattern: re.Pattern[str]
    #: whether the inputs may be changed in place, so that kept ones must not be handed over
    mutates: bool


def _effect(pattern: str, mutates: bool) -> Effect:
    return Effect(re.compile(pattern, re.IGNORECASE), mutates)


#: What the configuration calls a writer may change its inputs too.
CONFIGURED = _effect("", mutates=True)

_FORMATS = (
    "avro|bigquery|clipboard|csv|deltalake|delta|database|disk|excel|feather|file|gbq|hdf5?|html"
    "|iceberg|json|latex|markdown|mongo|netcdf|npy|npz|orc|parquet|pickle|sql|stata|textfiles?"
    "|tiledb|tiff?|xml|zarr"
)
#: Conversions: they start as writers do, and only return a value.
_CONVERSIONS = (
    "array|arrow|backend|bag|dask|dask_array|dask_dataframe|dataarray|dataframe|dataset|datetime"
    "|delayed|device|dict|frame|index|item|items|legacy_dataframe|list|mask|numeric|numpy|pandas"
    "|period|pyarrow|pydatetime|records|series|sparse|string|timedelta|timestamp|tuple|unit|xarray"
)
_START = r"(?:^|[-_.:<>/])"

#: Extend by a line: the first pattern found in a name decides.
EFFECTS = (
    # dask.array and dask.bag only read what they write
    _effect(rf"{_START}(?:load[-_])?store(?:[-_]map|d)?(?:[-_.]|$)", mutates=False),
    _effect(rf"{_START}to[-_]?(?:textfiles?|zarr|npy)(?![a-z])", mutates=False),
    # DataFrame.to_parquet drops the index of its partitions in place; others may too
    _effect(rf"{_START}to[-_]?(?:{_FORMATS})(?:data|barrier|[-_.]|$)", mutates=True),
    _effect(rf"(?:^|[.:<>/])_*to_(?!(?:{_CONVERSIONS})(?:[-_.]|$))[a-z]", mutates=True),
    _effect(
        rf"{_START}(?:write|save|store|dump|upload|export|publish|send|upsert|rmtree|mkdir"
        r"|makedirs|unlink)",
        mutates=True,
    ),
)

#: Types of values that cannot be read twice, or that stand for something outside.
_ONCE = re.compile(
    r"(?:^|\.)(?:NoneType|generator|async_generator|coroutine|Future|map|filter|zip|enumerate"
    r"|reversed|chain|islice|flatiter|socket|SSLSocket|Popen|Thread|Process"
    r"|\w*(?:[iI]terator|[rR]eader|[wW]riter|File|FileWrapper|IO|IOBase|IOWrapper)"
    r"|\w*(?:[cC]ursor|[cC]onnection|[lL]ock|Semaphore|Condition|Event|Barrier|Queue))$"
    r"|^itertools\.|^_io\."
)


def effect_of(name: str) -> Effect | None:
    """What a name of a layer or function says about side effects.

    Examples
    --------
    >>> effect_of("to-parquet-0123456789abcdef0123456789abcdef").mutates
    True
    >>> effect_of("write_rows") is None, effect_of("to_datetime") is None
    (False, True)
    """
    return _effect_of(_without_token(name))


def _without_token(name: str) -> str:
    """Tokens tell nothing of effects, and there are many of them."""
    return name[:-33] if name[-33:-32] == "-" and has_token(name) else name


@lru_cache(10_000)
def _effect_of(name: str) -> Effect | None:
    return next((e for e in EFFECTS if e.pattern.search(name)), None)


@lru_cache(10_000)
def _effects_of(name: str, functions: frozenset[str]) -> tuple[tuple[Effect, str], ...]:
    return tuple((e, text) for text in (name, *functions) if (e := _effect_of(text)))


@lru_cache(1_000)
def readable_again(typename: str | None) -> bool:
    """Whether values of a type can be read more than once.

    Examples
    --------
    >>> readable_again("numpy.ndarray"), readable_again("generator")
    (True, False)
    """
    if typename is None:
        return True
    return _ONCE.search(typename) is None and not hasattr(_type(typename), "__next__")


def _type(typename: str) -> Any:
    """The class, where its module has been imported already."""
    module, _, name = typename.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


@dataclass(frozen=True)
class Rules:
    """What the configuration adds to these tables.

    Examples
    --------
    >>> rules = Rules(never=("secret",), effects=("push_*",))
    >>> rules.reason("secret-0123456789abcdef0123456789abcdef", ())
    'named in cachingclient.never'
    >>> rules.reason("load-0123456789abcdef0123456789abcdef", ["push_rows"])
    'writes something (push_rows)'
    """

    #: prefixes of names that are not kept
    never: tuple[str, ...] = ()
    #: prefixes of names that are kept, whatever else is known of them
    always: tuple[str, ...] = ()
    #: patterns of names of functions and layers that write something
    effects: tuple[str, ...] = ()
    #: whether to keep also what nobody called pure
    impure: bool = False

    def lifts(self, name: Any) -> bool:
        """Whether a name is to be kept, whatever else is known of it."""
        return isinstance(name, str) and name.startswith(self.always) and not self.denies(name)

    def denies(self, name: Any) -> bool:
        """Whether a name is never to be kept."""
        return isinstance(name, str) and name.startswith(self.never)

    def effect(self, name: Any, functions: Iterable[str]) -> Effect | None:
        """The side effect that a name, or the functions behind it, tell of."""
        return next((e for e, _ in self._effects(name, functions)), None)

    def _effects(self, name: Any, functions: Iterable[str]) -> Iterable[tuple[Effect, str]]:
        if self.effects or not isinstance(name, str):
            return self._any_effects(name, functions)
        return _effects_of(_without_token(name), frozenset(functions))

    def _any_effects(self, name: Any, functions: Iterable[str]) -> Iterator[tuple[Effect, str]]:
        for text in (name, *functions):
            if isinstance(text, str):
                if found := effect_of(text):
                    yield found, text
                elif any(fnmatch(text, pattern) for pattern in self.effects):
                    yield CONFIGURED, text

    def reason(
        self,
        name: Any,
        functions: Iterable[str],
        impurity: Callable[[], str | None] = lambda: None,
    ) -> str | None:
        """Why a name may not be kept, as far as it and its functions tell.

        Parameters
        ----------
        name : str
            Name of a layer.
        functions : iterable of str
            Names of the functions behind it.
        impurity : callable
            What their code shows.
        """
        if self.denies(name):
            return NEVER
        if self.lifts(name):
            return None
        for _, text in self._effects(name, functions):
            return f"{WRITES} ({plain_name(text)})"
        if not has_token(name):
            return NOT_PURE if has_uuid(name) else NO_TOKEN
        return None if self.impure else impurity()


def plain_name(name: str) -> str:
    """A name without its token, as a person wrote it.

    Examples
    --------
    >>> plain_name("to-parquet-0123456789abcdef0123456789abcdef")
    'to-parquet'
    """
    return _TOKEN.sub("", name) or name
