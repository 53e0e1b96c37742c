"""Running one file of tests with one client after the other, and what differs then."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from other_client import read
from suites import Suite

import cachingclient

#: Settings by which all that may be kept is kept, whatever it costs.
KEEN = {"DASK_CACHINGCLIENT__MIN_COST": "0s", "DASK_CACHINGCLIENT__TASK_OVERHEAD": "0s"}
#: Workers are forked from a process that has imported all there is to import: more than twice as
#: fast.
FAST = (
    {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
    if "forkserver" in multiprocessing.get_all_start_methods()
    else {}
)


class Runner:
    """Runs tests with a client, in processes of their own.

    Parameters
    ----------
    work : Path
        Folder of what was found. A run that is there already is not run again, and one that was
        interrupted goes on.
    timeout : int
        Seconds for one test.
    keen : bool
        Whether all is kept that may be, whatever it costs.
    """

    def __init__(self, work: Path, timeout: int = 300, keen: bool = False) -> None:
        self.work = work
        self.timeout = timeout
        self.keen = keen

    def run(
        self, suite: Suite, client: str, attempt: int | str = 0, only: Iterable[str] | None = None
    ) -> dict[str, str]:
        """What becomes of each test: passed, failed, skipped, xfailed or died."""
        kind = client + ("-keen" if self.keen and client != "plain" else "")
        stem = self.work / kind / suite.name.replace("/", ".") / str(attempt)
        stem.parent.mkdir(parents=True, exist_ok=True)
        outcomes, done = stem.with_suffix(".jsonl"), stem.with_suffix(".done")
        arguments = ["--client", client, "--outcomes", str(outcomes)]
        if only is not None:
            wanted = stem.with_suffix(".only")
            wanted.write_text("\n".join(sorted(only)))
            arguments += ["--only", str(wanted)]
        while not done.exists():
            before = len(read(outcomes))
            code = self._pytest(suite, arguments, stem.with_suffix(".log"))
            if not done.exists() and len(read(outcomes)) == before:
                raise RuntimeError(f"pytest returned {code}: see {stem.with_suffix('.log')}")
        return read(outcomes)

    def _pytest(self, suite: Suite, arguments: list[str], log: Path) -> int:
        here = self.work / "here"
        here.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pytest", *"-p no:cacheprovider -p other_client".split()]
        command += [*suite.arguments, *arguments, f"--timeout={self.timeout}"]
        # Python 3.11 has trouble with parsing large files at times, which other styles do
        command += ["--color=no", "--tb=native"]
        with log.open("ab") as f:
            return subprocess.run(
                [*command, str(suite.path)],
                cwd=here,
                env=self._environment(),
                stdout=f,
                stderr=subprocess.STDOUT,
            ).returncode

    def _environment(self) -> Mapping[str, str]:
        package = Path(cachingclient.__file__).parent.parent
        found = [str(Path(__file__).parent), str(package), os.environ.get("PYTHONPATH")]
        path = os.pathsep.join(p for p in found if p)
        return {**FAST, **os.environ, "PYTHONPATH": path, **(KEEN if self.keen else {})}


@dataclass
class Verdict:
    """One test with both clients."""

    test: str
    #: what became of it, each time
    plain: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether it never passes with ours, and with a plain client it does as a rule."""
        passed = self.plain.count("passed")
        return "passed" not in self.ours and 2 * passed > len(self.plain)

    def __str__(self) -> str:
        return f"{self.test} (plain: {_counted(self.plain)}; ours: {_counted(self.ours)})"


def _counted(outcomes: list[str]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in Counter(outcomes).items())


@dataclass
class Comparison:
    """One file of tests with both clients."""

    suite: Suite
    plain: dict[str, str]
    ours: dict[str, str]
    #: tests that a plain client passed and ours did not, at first
    verdicts: list[Verdict]

    @property
    def differing(self) -> list[Verdict]:
        """Tests that a plain client passes and ours does not."""
        return [v for v in self.verdicts if v.differs]

    @property
    def unsteady(self) -> list[Verdict]:
        """Tests that were run again, and came out one way and the other."""
        return [v for v in self.verdicts if not v.differs]


def compare(
    run: Callable[..., dict[str, str]],
    suite: Suite,
    ours: str,
    again: int,
    quick: bool = False,
    known: Container[str] = (),
) -> Comparison:
    """Run a file with both clients, and what only ours failed some times more.

    Parameters
    ----------
    run : callable
        As `Runner.run`.
    suite : Suite
    ours : str
        Name of the client to compare with the plain one.
    again : int
        How often to run again what differs.
    quick : bool
        Whether a plain client runs only what ours did not pass.
    known : container of str
        Tests that are not run again: it is known that they differ.

    Examples
    --------
    >>> compare(lambda suite, client, *more: {"test_a": client}, Suite("a", Path()), "ours", 1)
    ... # doctest: +ELLIPSIS
    Comparison(...verdicts=[])
    """
    found = run(suite, ours)
    if quick:
        plain = run(suite, "plain", "quick", [t for t, o in found.items() if o != "passed"])
    else:
        plain = run(suite, "plain")
    verdicts = {
        test: Verdict(test, [outcome], [found.get(test, "missing")])
        for test, outcome in plain.items()
        if outcome == "passed" != found.get(test)
    }
    doubtful = [test for test in verdicts if test not in known]
    for attempt in range(1, again + 1) if doubtful else ():
        for client in ("plain", ours):
            outcomes = run(suite, client, attempt, doubtful)
            for test in doubtful:
                seen = verdicts[test].plain if client == "plain" else verdicts[test].ours
                seen.append(outcomes.get(test, "missing"))
    return Comparison(suite, plain, found, list(verdicts.values()))
