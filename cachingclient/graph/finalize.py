"""Names for final results that are the same each time.

Plain dask names the task that puts a result together after a random number. A
result is identified by the keys it is made of, by what is done with them, and by
what was said of how to compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from typing import Any

import dask
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.tokenize import TokenizationError, tokenize
from dask.typing import Key

from cachingclient.admission import has_token, key_name
from cachingclient.internals import (
    Alias,
    Expr,
    HLGExpr,
    HLGExprSequence,
    HLGFinalizeCompute,
    Task,
    TaskList,
    TaskRef,
    expr_name,
    rebuilt,
)

PREFIX = "finalize-hlgfinalizecompute-"
#: More keys than this are told apart by their names and number only where that is safe.
MANY_KEYS = 1000


def is_final(key: Key) -> bool:
    """Whether a key is the final result of a computation, which plain dask shares with nobody.

    Examples
    --------
    >>> is_final("finalize-hlgfinalizecompute-0123"), is_final(("x-0123", 0))
    (True, False)
    """
    return isinstance(key, str) and key.startswith(PREFIX)


def final_token(
    keys: Any,
    function: Any,
    extra: tuple[Any, ...],
    trusted: Callable[[Any], bool],
    said: Any,
    cancelled: Container[Any] = (),
) -> str | None:
    """Token of a final result; None if it is not identified by its keys.

    Parameters
    ----------
    keys : list
        Nested list of the keys it is made of.
    function, extra
        What is done with them.
    trusted : callable
        Whether a name identifies its content.
    said
        How to compute it: workers, resources, retries and the like; or a callable that tells this
        for the names of the keys.
    cancelled : container
        Keys that must not be used again.
    """
    names = {key_name(k) for k in flatten(keys)}
    if not names or not all(has_token(n) and trusted(n) for n in names):
        return None
    try:
        with dask.config.set({"tokenize.ensure-deterministic": True}):
            told = said(names) if callable(said) else said
            token = tokenize(_identity(keys, names, function), function, extra, told)
    except (TokenizationError, RuntimeError):
        return None
    while PREFIX + token in cancelled:
        token = tokenize(token)
    return token


def _identity(keys: Any, names: set[Any], function: Any) -> Any:
    """Stands for the keys: those of one array are told by its name and number of blocks."""
    if len(names) == 1 and getattr(function, "__module__", "") == "dask.array.core":
        return *names, _shape(keys)
    return hashlib.blake2b(repr(keys).encode(), digest_size=16).hexdigest()


def _shape(keys: Any) -> tuple[int, ...]:
    """Lengths of nested lists, which are regular where one array made them."""
    shape = []
    while isinstance(keys, list) and keys:
        shape.append(len(keys))
        keys = keys[0]
    return tuple(shape)


def rename(
    expr: Expr,
    trusted: Callable[[Any], bool],
    said: Any,
    cancelled: Container[Any] = (),
) -> tuple[Expr, dict[Key, Key]]:
    """Give the final results of an expression names that are the same each time.

    Parameters
    ----------
    expr : Expr
        As it arrives at the client.
    trusted : callable
        Whether a name identifies its content.
    said
        How to compute it.
    cancelled : container
        Keys that must not be used again.

    Returns
    -------
    (Expr, dict)
        The expression, and {old key: new key} of what was renamed.
    """
    renamed: dict[Key, Key] = {}
    if isinstance(expr, HLGExprSequence):
        parts = []
        for part in expr.operands:
            new, of_part = rename(part, trusted, said, cancelled)
            parts.append(new)
            renamed.update(of_part)
        return (rebuilt(expr, parts) if renamed else expr), renamed
    if isinstance(expr, HLGFinalizeCompute):
        return _rename_single(expr, trusted, said, cancelled)
    if isinstance(expr, HLGExpr):
        return _rename_group(expr, trusted, said, cancelled)
    return expr, renamed


def _rename_single(
    expr: HLGFinalizeCompute,
    trusted: Callable[[Any], bool],
    said: Any,
    cancelled: Container[Any],
) -> tuple[Expr, dict[Key, Key]]:
    postcompute = expr.postcompute
    if not isinstance(postcompute, tuple):
        return expr, {}
    function, extra = postcompute
    keys = expr.operand("dsk").__dask_keys__()
    token = final_token(keys, function, tuple(extra), trusted, said, cancelled)
    if token is None:
        return expr, {}
    new = rebuilt(expr, list(expr.operands), token)
    return new, {expr_name(expr): expr_name(new)}


def _rename_group(
    expr: HLGExpr, trusted: Callable[[Any], bool], said: Any, cancelled: Container[Any]
) -> tuple[Expr, dict[Key, Key]]:
    """Several results that dask merged into one graph, each with a layer of its own."""
    hlg = expr.hlg
    renamed: dict[str, str] = {}
    for name in hlg.layers:
        # What dask puts together for delayed functions is one layer with all that it needs.
        if isinstance(name, str) and name.startswith(PREFIX) and len(hlg.layers[name]) == 1:
            (task,) = hlg.layers[name].values()
            token = _token_of_task(task, trusted, said, cancelled)
            if token is not None:
                renamed[name] = PREFIX + token
    if not renamed:
        return expr, {}
    keys: dict[Key, Key] = dict(renamed.items())
    operands = list(expr.operands)
    operands[0] = _with_names(hlg, renamed)
    output_keys = expr.operand("output_keys")
    if output_keys is not None:
        operands[2] = replace_keys(output_keys, keys)
    return rebuilt(expr, operands), keys


def _token_of_task(
    task: Any, trusted: Callable[[Any], bool], said: Any, cancelled: Container[Any]
) -> str | None:
    if not isinstance(task, Task) or not task.args or task.kwargs:
        return None
    keys = _plain_keys(task.args[0])
    return final_token(keys, task.func, tuple(task.args[1:]), trusted, said, cancelled)


def _plain_keys(tree: Any) -> Any:
    if isinstance(tree, TaskList):
        return [_plain_keys(t) for t in tree.args]
    if isinstance(tree, TaskRef):
        return tree.key
    return tree.target if isinstance(tree, Alias) else tree


def _with_names(hlg: HighLevelGraph, renamed: Mapping[str, str]) -> HighLevelGraph:
    layers, dependencies = dict(hlg.layers), dict(hlg.dependencies)
    for old, new in renamed.items():
        (task,) = layers.pop(old).values()
        layers[new] = MaterializedLayer({new: task.substitute({}, key=new)})
        dependencies[new] = dependencies.pop(old)
    return HighLevelGraph(layers, dependencies)


def replace_keys(keys: Any, renamed: Mapping[Key, Key]) -> Any:
    """Replace keys in nested lists.

    Examples
    --------
    >>> replace_keys([["a"], "b"], {"a": "c"})
    [['c'], 'b']
    """
    if isinstance(keys, list):
        return [replace_keys(k, renamed) for k in keys]
    return renamed.get(keys, keys)
