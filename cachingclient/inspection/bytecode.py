"""Instructions of code objects.

`dis` makes them complete, with positions and texts, which takes most of the time of a look. Here is
as much as is needed of them, for the versions of Python that are known; others get them from `dis`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

VERSION = sys.version_info[:2]
KNOWN = (3, 10) <= VERSION <= (3, 13)


class Instruction(NamedTuple):
    """An instruction; `target` is where it jumps to, if that is further on."""

    offset: int
    opcode: int
    opname: str
    arg: int | None
    value: Any
    target: int | None


_EXTENDED = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap.get("CACHE", -1)
_WITH_ARGUMENT = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))
_NAMES = frozenset(dis.hasname)
_LOCALS = frozenset(dis.haslocal)
_CELLS = frozenset(dis.hasfree)
_CONSTANTS = frozenset(dis.hasconst)
_RELATIVE = frozenset(op for op in dis.hasjrel if "BACKWARD" not in dis.opname[op])
_ABSOLUTE = frozenset(dis.hasjabs)
#: Instructions on two local variables, four bits for each (Python 3.13)
_PAIRS = frozenset(op for name, op in dis.opmap.items() if name.count("_FAST") == 2)
#: Bits of the argument that are not a part of the number of the name
_FLAGS = {
    dis.opmap[name]: bits
    for name, bits, since in (
        ("LOAD_GLOBAL", 1, (3, 11)),
        ("LOAD_ATTR", 1, (3, 12)),
        ("LOAD_SUPER_ATTR", 2, (3, 12)),
    )
    if VERSION >= since
}


def instructions(code: CodeType) -> Iterator[Instruction]:
    """Instructions of a code object.

    Examples
    --------
    >>> [i.value for i in instructions(compile("abs", "", "eval")) if i.opname == "LOAD_NAME"]
    ['abs']
    """
    return _fast(code) if KNOWN else _slow(code)


def _slow(code: CodeType) -> Iterator[Instruction]:
    jumps = {*dis.hasjrel, *dis.hasjabs}
    for i in dis.get_instructions(code):
        target = i.argval if i.opcode in jumps and i.argval > i.offset else None
        yield Instruction(i.offset, i.opcode, i.opname, i.arg, i.argval, target)


def _fast(code: CodeType) -> Iterator[Instruction]:
    tables = _tables(code)
    extended, raw = 0, code.co_code
    for offset in range(0, len(raw), 2):
        opcode = raw[offset]
        if opcode == _CACHE:
            continue
        arg = raw[offset + 1] | extended
        if opcode == _EXTENDED:
            extended = arg << 8
            continue
        extended = 0
        table = tables[_KINDS[opcode]]
        value = None
        if opcode in _PAIRS:
            value = tables[1][arg >> 4], tables[1][arg & 15]
        elif table is not None:
            value = table[arg >> _FLAGS[opcode] if opcode in _FLAGS else arg]
        target = _target(raw, offset, arg) if opcode in _JUMPS else None
        given = arg if opcode in _WITH_ARGUMENT else None
        yield Instruction(offset, opcode, dis.opname[opcode], given, value, target)


_JUMPS = _RELATIVE | _ABSOLUTE
#: For each instruction, which of the tables of a code its argument is the number in; 0 for none
_KINDS = [0] * 256
for _kind, _opcodes in enumerate((_LOCALS - _PAIRS, _CELLS, _NAMES, _CONSTANTS), 1):
    for _opcode in _opcodes:
        if _opcode < 256:  # larger ones exist in compilers only
            _KINDS[_opcode] = _kind


def _tables(code: CodeType) -> tuple[Any, ...]:
    local, cells = code.co_varnames, code.co_cellvars + code.co_freevars
    if VERSION >= (3, 11):
        own = tuple(name for name in code.co_cellvars if name not in local)
        local = cells = local + own + code.co_freevars
    return None, local, cells, code.co_names, code.co_consts


def _target(raw: bytes, offset: int, arg: int) -> int | None:
    if raw[offset] in _ABSOLUTE:
        return 2 * arg if 2 * arg > offset else None
    following = offset + 2
    while following < len(raw) and raw[following] == _CACHE:
        following += 2
    return following + 2 * arg
