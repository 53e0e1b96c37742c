"""Sessions as people work, with a plain client, with the cache, and with what else there is.

Eight sessions (`making.py`), each a plain script with no caching code in it, on five sides
(`sides.py`): a plain client; ours; the sketch of a plugin that keeps all that took long; dask.cache
on threads; and what an expert would persist who knows the whole session. Each run has processes of
its own: two workers of one thread. Wall time is from the first line of the script to its last
answer, with making the client, without starting the cluster.

    python benchmarks/sessions/run.py --out rows.jsonl [--rounds 3] [--only NAME ...]
                                      [--sides plain ours ...] [--folder FOLDER] [--scale 1]
    python benchmarks/sessions/run.py --out rows.jsonl --table          # print the summary
    python benchmarks/sessions/run.py --out rows.jsonl --write-readme   # put it there

needs ``pip install '.[bench]'``, 1.5 GB of disk for data that is made once, and about 45 minutes
for three rounds on two cores that do nothing else. Each row is written as measured; what is
in the file already is not measured again, so that an interrupted run goes on. Afterwards there is a
table for each session, and the summary. The order of the sides is another one in each round;
ratios are formed within a round. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import making
import psutil
import rows
import tables

HERE = Path(__file__).parent
README = HERE.parent.parent / "README.rst"
SIDES = ["plain", "ours", "sketch", "dask.cache", "persist"]
#: Seconds after which a run is given up
PATIENCE = 300


def machine() -> str:
    """Name the machine, as well as it knows itself."""
    name = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    gigabytes = psutil.virtual_memory().total / 2**30
    return f"{name}, {os.cpu_count()} cores, {gigabytes:.0f} GiB, {platform.system()}"


def one(name: str, side: str, folder: Path, scale: float, answers: Path) -> rows.Row:
    """Measure one session on one side, in processes of its own."""
    with tempfile.TemporaryDirectory() as top:
        out = Path(top) / "row"
        command = [sys.executable, str(HERE / "one.py"), name, side, str(folder), str(out)]
        command += ["--scale", str(scale), "--answers", str(answers / f"{name}-{scale:g}.pkl")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command,
            env=environment,
            cwd=top,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                _, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return {"error": f"took more than {PATIENCE} s"}
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if not out.exists():
            return {"error": (errors.strip().splitlines() or ["it ended without a word"])[-1]}
        row: rows.Row = json.loads(out.read_text())
        return row


def measure(options: argparse.Namespace) -> None:
    """Measure what is not in the file yet."""
    done = rows.known(rows.read(options.out), options.scale)
    for name in options.only:
        making.data(name, options.folder, options.scale)
    answers = options.folder / "answers"
    for name, side, n in rows.plan(options.only, options.sides, options.rounds):
        if (name, side, n) in done:
            continue
        print(f"round {n + 1}: {name}, {side} ... ", end="", flush=True)
        start = time.perf_counter()
        cost = one(name, side, options.folder, options.scale, answers)
        about = {"session": name, "side": side, "round": n, "scale": options.scale}
        about |= {"date": f"{datetime.date.today()}", "machine": machine()}
        rows.append(options.out, about | cost)
        wall = f"{cost['wall']:.1f} s" if "wall" in cost else cost["error"]
        print(f"{wall} (with its cluster {time.perf_counter() - start:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the file of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(making.SESSIONS), metavar="NAME")
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES, metavar="SIDE")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "cachingclient-sessions"
    )
    parser.add_argument("--scale", type=float, default=1, help="of the data")
    parser.add_argument("--table", action="store_true", help="print the summary as rst, only")
    parser.add_argument("--write-readme", action="store_true", help="put the summary there, only")
    options = parser.parse_args()
    # What it started must go, too.
    signal.signal(signal.SIGTERM, lambda *args: sys.exit(1))
    if not options.table and not options.write_readme:
        measure(options)
    found = [row for row in rows.read(options.out) if row["scale"] == options.scale]
    summary = tables.summary(found, making.SESSIONS, making.NO_REUSE)
    if options.write_readme:
        README.write_text(tables.put(README.read_text(), summary))
    elif options.table:
        print(summary)
    else:
        for name in options.only:
            print(tables.session(name, [row for row in found if row["session"] == name]))
        print(summary)
        missed = tables.missed(found, making.NO_REUSE)
        print("\n".join(missed) or "All bars are kept.")
        return int(bool(missed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
