"""Tables for a person to read: as text, and as HTML in a notebook."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dask.utils import format_bytes, format_time
from dask.widgets import TEMPLATE_PATHS, get_template

TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
if TEMPLATES not in TEMPLATE_PATHS:
    TEMPLATE_PATHS.append(TEMPLATES)

#: Rows of a table in a notebook: more are no help, and the notebook is stored with them.
MANY_ROWS = 200

_TOKEN = re.compile(r"([0-9a-f]{8})[0-9a-f]{24}")


class Column(NamedTuple):
    """One column: its title, and what it shows of a row."""

    title: str
    text: Callable[[Any], str]
    #: numbers stand to the right
    right: bool = True
    #: the same in full, where `text` shortens it
    full: Callable[[Any], str] | None = None


def short_name(name: str) -> str:
    """A layer's name with a part of its token, which is enough for ``clear``.

    Examples
    --------
    >>> short_name("read-csv-0123456789abcdef0123456789abcdef")
    'read-csv-01234567'
    """
    return _TOKEN.sub(r"\1", str(name))


def bytes_text(nbytes: float) -> str:
    """Bytes as dask writes them; nothing for none.

    Examples
    --------
    >>> bytes_text(2**21), bytes_text(0)
    ('2.00 MiB', '')
    """
    return format_bytes(int(nbytes)) if nbytes else ""


def seconds_text(seconds: float) -> str:
    """Seconds as dask writes them; nothing for none.

    Examples
    --------
    >>> seconds_text(1.5), seconds_text(754), seconds_text(0)
    ('1.50 s', '12m 34s', '')
    """
    return format_time(seconds) if seconds else ""


def number_text(number: int) -> str:
    """A number with its thousands apart; nothing for none.

    Examples
    --------
    >>> number_text(10000), number_text(0)
    ('10,000', '')
    """
    return f"{number:,}" if number else ""


def as_text(columns: Sequence[Column], rows: Iterable[Any], empty: str) -> str:
    """A table of plain text.

    Parameters
    ----------
    columns : sequence of Column
    rows : iterable
    empty : str
        What is said where there are no rows.

    Examples
    --------
    >>> columns = [Column("layer", str, right=False), Column("size", lambda row: str(len(row)))]
    >>> print(as_text(columns, ["slow", "x"], "nothing"))
    layer  size
    slow      4
    x         1
    """
    table = [[c.text(row) for c in columns] for row in rows]
    if not table:
        return empty
    widths = [max(len(c.title), *(len(row[i]) for row in table)) for i, c in enumerate(columns)]
    lines = [[c.title for c in columns], *table]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns)
        ).rstrip()
        for line in lines
    )


def as_html(columns: Sequence[Column], rows: Sequence[Any], empty: str) -> str:
    """The same as HTML; what rows say is escaped.

    Parameters
    ----------
    columns : sequence of Column
    rows : sequence
    empty : str
        What is said where there are no rows.
    """
    table = [
        [(c.text(row), c.full(row) if c.full else "", c.right) for c in columns]
        for row in rows[:MANY_ROWS]
    ]
    return get_template("cachingclient-table.html.j2").render(
        columns=columns, rows=table, empty=empty, more=max(0, len(rows) - MANY_ROWS)
    )
