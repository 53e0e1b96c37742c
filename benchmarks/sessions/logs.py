"""Logs of a web server in a bag: parse, filter, count, and ask again.

Rotated and compressed, as they lie on a server. The records are parsed by a function of the
administrator's, who then looks for what went wrong.
"""

from __future__ import annotations

import datetime
import gzip
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.bag as db

FILES = 12
LINE = re.compile(
    r'(?P<host>\S+) - (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>\w+) (?P<path>\S+) [^"]*" '
    r'(?P<status>\d+) (?P<size>\d+) "(?P<agent>[^"]*)" (?P<ms>\d+)'
)


def make(folder: Path, scale: float) -> None:
    """Write the logs."""
    lines = int(47_000 * scale)
    rng = random.Random(0)
    paths = [f"/shop/{n % 7}/item/{n}" for n in range(300)] + ["/", "/login", "/cart", "/search"]
    agents = [f"Mozilla/5.0 (Machine {n}) Browser/{n % 9}" for n in range(40)]
    states = [200] * 90 + [304] * 5 + [404] * 3 + [500, 503]
    for n in range(FILES):
        start = datetime.datetime(2026, 3, 1 + n)
        with gzip.open(folder / f"access-{n:02}.log.gz", "wt", compresslevel=3) as file:
            for m in range(lines):
                time = start + datetime.timedelta(seconds=86_400 * m / lines)
                path = paths[min(int(rng.expovariate(0.02)), len(paths) - 1)]
                file.write(
                    f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)} - "
                    f"user{rng.randrange(5_000)} [{time:%d/%b/%Y:%H:%M:%S}] "
                    f'"GET {path} HTTP/1.1" {rng.choice(states)} {rng.randrange(200, 90_000)} '
                    f'"{rng.choice(agents)}" {int(rng.expovariate(0.01))}\n'
                )


def parsed(line: str) -> dict[str, Any]:
    """A record of a line."""
    match = LINE.match(line)
    assert match is not None
    record: dict[str, Any] = match.groupdict()
    record["time"] = datetime.datetime.strptime(record["time"], "%d/%b/%Y:%H:%M:%S")
    for name in ("status", "size", "ms"):
        record[name] = int(record[name])
    return record


def session(folder: Path, keep: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    records = keep(db.read_text(str(folder / "*.log.gz")).map(parsed))
    yield "one record", records.take(1)
    yield "how many", records.count().compute()
    yield "states", dict(records.pluck("status").frequencies().compute())
    failed = records.filter(lambda r: r["status"] >= 500)
    yield "failures by path", sorted(failed.pluck("path").frequencies().compute())
    by_hour = failed.map(lambda r: r["time"].hour).frequencies()
    yield "failures by hour", sorted(by_hour.compute())
    slow = records.filter(lambda r: r["ms"] > 400)
    yield "slow answers", slow.count().compute()
    yield "slow answers by path", sorted(slow.pluck("path").frequencies().compute())
    yield "mean time", records.pluck("ms").mean().compute()
    yield "users", records.pluck("user").distinct().count().compute()
    sent = records.foldby(
        lambda r: r["path"], lambda total, r: total + r["size"], 0, lambda a, b: a + b, 0
    )
    yield "bytes by path", sorted(sent.compute())
    yield "agents", sorted(records.pluck("agent").frequencies().compute())
    yield "states again", dict(records.pluck("status").frequencies().compute())
