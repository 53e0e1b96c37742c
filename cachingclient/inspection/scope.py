"""What the names in a function stand for."""

from __future__ import annotations

import builtins
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cachingclient.inspection.objects import (
    MISSING,
    Absent,
    Instance,
    Super,
    cell_contents,
    class_dict,
    full_name,
    is_a,
    is_installed,
    is_own,
    module_dict,
    name_in,
    static,
)
from cachingclient.inspection.outline import Attribute, Call, Name, Outline, outline


def _module(name: str) -> Any:
    found = sys.modules.get(name)
    return Absent(name) if found is None else found


class _Outlines(dict):
    """Outlines of code; a copy that travels is empty."""

    #: Codes remembered at the most
    maxsize = 5_000

    def __missing__(self, code: CodeType) -> Outline:
        if len(self) >= self.maxsize:
            self.clear()
        # read without a lock: at worst a code is looked at twice
        self[code] = found = outline(code)
        return found

    def __reduce__(self) -> Any:
        return type(self), ()


_outlines = _Outlines()


#: Containers that can change, and methods by which they do.
CONTAINERS = (list, dict, set, Counter, OrderedDict, defaultdict, deque)
FILLERS = frozenset(
    "add append clear difference_update discard extend insert pop popitem remove reverse"
    " setdefault sort update".split()
)


class Scope:
    """Resolves what the names in one function stand for."""

    #: the class whose instance is the first argument, if this is known
    cls: type | None

    def __init__(self, function: FunctionType, cls: type | None = None):
        self.function = function
        self.cls = cls
        self.outline = _outlines[function.__code__]
        self.globals = function.__globals__
        methods = [u for u in self.outline.uses if type(u) is Attribute and type(u.base) is Name]
        self._filled = {use.base.name for use in methods if use.name in FILLERS}
        self._stored = {use.base.name for use in methods if use.name == "__setitem__"}
        self._found: dict[int, Any] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        #: [(function, module or class, name or number of a cell, what was found)]
        self.loaded: list[tuple[Any, Any, Any]] = []

    def resolve(self, node: Any) -> Any:
        """What a node stands for: an object, `Absent`, `Instance` or `MISSING`."""
        key = id(node)
        if key not in self._found:
            self._found[key] = MISSING
            self._found[key] = self._resolve(node)
        return self._found[key]

    def _resolve(self, node: Any) -> Any:
        if type(node) is Name:
            return getattr(self, f"_{node.where}")(node.name)
        if type(node) is Attribute:
            return self._attribute(self.resolve(node.base), node.name)
        if type(node) is Call:
            cls = self.resolve(node.function)
            if cls is super:
                return self._super(node)
            return Instance(cls) if is_a(cls, type) else MISSING
        return MISSING

    def _super(self, node: Call) -> Any:
        names = self.function.__code__.co_freevars
        if node.args:
            behind = self.resolve(node.args[0])
        else:
            behind = self._cell("__class__") if "__class__" in names else MISSING
        return Super(self.cls or behind, behind) if is_a(behind, type) else MISSING

    def _global(self, name: str) -> Any:
        found = self.globals.get(name, MISSING)
        if not self.is_state(name, found):
            self.loaded.append((self.function, name, found))
        return vars(builtins).get(name, MISSING) if found is MISSING else found

    def _cell(self, name: str) -> Any:
        index = self.function.__code__.co_freevars.index(name)
        found = cell_contents(self.function, index)
        if not self.is_state(name, found):
            self.loaded.append((self.function, index, found))
        return found

    def is_state(self, name: str, value: Any) -> bool:
        """Whether the function itself fills a container: a log or a count is no setting of it."""
        # Who keeps options in a dict may note others there: only of a counter it is no setting.
        if type(value) is Counter and name in self._stored:
            return True
        return type(value) in CONTAINERS and name in self._filled

    def _self(self, name: str) -> Any:
        return MISSING if self.cls is None else Instance(self.cls)

    def _import(self, name: str) -> Any:
        bare = name.lstrip(".")
        if bare != name:
            parents = str(self.globals.get("__package__") or "").split(".")
            parents = parents[: len(parents) - (len(name) - len(bare) - 1)]
            bare = ".".join((*parents, bare)) if bare else ".".join(parents)
        return _module(bare)

    def _attribute(self, base: Any, name: str) -> Any:
        if type(base) is Absent:
            return Absent(f"{base.name}.{name}")
        if is_a(base, ModuleType):
            return self._of_module(base, name)
        if base is MISSING:
            return MISSING
        if type(base) is Super:
            return self._of_class(*base, name)
        if type(base) is Instance:
            return self._of_class(base.cls, None, name)
        return self._of_class(base if is_a(base, type) else type(base), None, name)

    def _of_module(self, module: ModuleType, name: str) -> Any:
        found = module_dict(module).get(name, MISSING)
        if not is_installed(full_name(module)):
            self.loaded.append((module, name, found))
        if found is MISSING:
            return _module(f"{full_name(module)}.{name}")
        return found

    def _of_class(self, cls: type, behind: type | None, name: str) -> Any:
        found = static(cls, name, behind)
        if is_own(cls):
            # a constant of the class, too, may be another one the next time
            self.loaded.append((cls, name, class_dict(cls).get(name, MISSING)))
        return found

    def names(self, node: Any) -> tuple[str, ...]:
        """Full names of what a node stands for: as the function gets there, and its own.

        None for what is the user's: its code tells more.
        """
        key = id(node)
        if key not in self._names:
            found = self.resolve(node)
            known = found is not MISSING and not is_own(found)
            names = (self._name(node), full_name(found)) if known else ()
            self._names[key] = tuple(name for name in names if name is not None)
        return self._names[key]

    def _name(self, node: Any) -> str | None:
        if type(node) is Attribute:
            base = self.resolve(node.base)
            if type(base) is Absent or is_a(base, ModuleType):
                return f"{full_name(base)}.{node.name}"
            if is_a(base, type):
                return f"{name_in(base, '__name__')}.{node.name}"
        return None
