"""Runs one session on one side, and writes what it cost as JSON.

    python benchmarks/sessions/one.py climate ours FOLDER ROW [--scale 1] [--answers FILE]

FOLDER is for data, ROW the file that is written. With --answers the answers are compared with those
in FILE, which are made from this run if there are none.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from pathlib import Path
from typing import Any

import making
from answers import same
from dask._expr import Expr
from measuring import Memory, cpu
from sides import SIDES, cluster
from unlocking import unlock


def measure(
    name: str, side: str, folder: Path, processes: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a session, and return what it cost and its answers."""
    session = making.load(name).session
    unlock(Expr)
    answers, each = {}, {}
    with cluster(side, processes) as place, Memory(place.pids) as memory:
        used = cpu()
        start = last = time.perf_counter()
        with place.client():
            for asked, answer in session(folder, place.keep):
                answers[asked] = answer
                now = time.perf_counter()
                each[asked], last = round(now - last, 4), now
            wall, used = last - start, cpu() - used
        cost = {
            "wall": round(wall, 4),
            "cpu": round(used, 2),
            "task_seconds": round(place.ran.seconds, 4),
            "tasks": place.ran.tasks,
        }
    return {**cost, "memory": memory.peak, "each": each}, answers


def compare(answers: dict[str, Any], path: Path) -> list[str]:
    """Return the questions whose answers are not those of the file."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(answers))
        return []
    known = pickle.loads(path.read_bytes())
    return [q for q in {**known, **answers} if not same(answers.get(q), known.get(q))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=making.SESSIONS)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("row", type=Path)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--answers", type=Path)
    options = parser.parse_args()
    folder = making.data(options.name, options.folder, options.scale)
    row, answers = measure(options.name, options.side, folder)
    if options.answers:
        row["different"] = compare(answers, options.answers)
    options.row.write_text(json.dumps(row))


if __name__ == "__main__":
    main()
