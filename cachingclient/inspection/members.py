"""What is defined in classes, and what objects hold, by name; nothing of it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from types import MemberDescriptorType
from typing import Any

from cachingclient.inspection.objects import class_dict, is_own

#: Attributes of a class that are looked at
MANY = 200


def mro(cls: type) -> tuple[type, ...]:
    """A class and its bases; a metaclass may have code for this."""
    return type.__dict__["__mro__"].__get__(cls)


def members(cls: type) -> Iterator[tuple[type, str, Any]]:
    """What the user wrote into a class and its bases: (where, name, what).

    Examples
    --------
    >>> cls = type("Settings", (), {"__module__": "__main__", "rate": 3, "scaled": lambda self: 1})
    >>> [name for _, name, _ in members(cls)]
    ['rate', 'scaled']
    """
    for base in mro(cls):
        if is_own(base):
            for name, thing in islice(list(class_dict(base).items()), MANY):
                # Other special names tell where a class is, and what Python remembers of it.
                if callable(thing) or not (name.startswith("_") and name.endswith("_")):
                    yield base, name, thing


def accessors(member: Any) -> tuple[Any, ...]:
    """Callables of a member of a class: a method is itself, a property has several.

    Examples
    --------
    >>> accessors(staticmethod(len)), accessors(property(len))
    ((<built-in function len>,), (<built-in function len>, None, None))
    """
    if type(member) in (staticmethod, classmethod):
        return (member.__func__,)
    if type(member) is property:
        return (member.fget, member.fset, member.fdel)
    return (member.func if type(member) is cached_property else member,)


def attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """What an object itself has in attributes and slots; properties are left alone.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> list(attributes(SimpleNamespace(a=1)))
    [('a', 1)]
    """
    try:
        names = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        names = {}
    if type(names) is dict:
        yield from list(names.items())
    for base in mro(type(thing)):
        for name, slot in list(class_dict(base).items()) if is_own(base) else ():
            if type(slot) is MemberDescriptorType:
                try:
                    yield name, slot.__get__(thing)
                except AttributeError:  # an empty slot
                    pass
