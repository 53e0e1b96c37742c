"""Rows of a run: one JSON object a line, written as measured, and read again to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """Return the rows of a file; a line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def append(path: Path, row: Row) -> None:
    """Write one more row."""
    text = path.read_text() if path.exists() else ""
    cut = bool(text) and not text.endswith("\n")
    with path.open("a") as file:
        file.write("\n" * cut + json.dumps(row) + "\n")


def known(rows: list[Row], scale: float) -> set[tuple[str, str, int]]:
    """What has been measured at a scale."""
    return {(r["session"], r["side"], r["round"]) for r in rows if r["scale"] == scale}


def plan(names: list[str], sides: list[str], rounds: int) -> Iterator[tuple[str, str, int]]:
    """Yield session, side and round; each session's sides begin with another one in each round."""
    for n in range(rounds):
        for m, name in enumerate(names):
            first = (n + m) % len(sides)
            for side in sides[first:] + sides[:first]:
                yield name, side, n
