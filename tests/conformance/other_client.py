"""A plugin of pytest: other people's tests get our client where they ask for distributed's.

    pytest -p other_client --client plain|ours|caching --outcomes FILE [--only FILE]

What becomes of each test is appended to a file at once, so that a run which died can go on where
it was: tests that are in that file already are left out. `run.py` starts this.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import distributed
import pytest

# Before anything of distributed.utils_test, which keeps a copy of the configuration.
import cachingclient

PLAIN = distributed.Client

#: Worst last.
ORDER = ("passed", "xfailed", "skipped", "failed")
#: Ends of a run in which nothing is left to do: passed, failed, no tests.
DONE = (0, 1, 5)
#: Of a test that was begun: what it is if nothing more is heard of it.
DIED = "died"


class InCaching(PLAIN):  # type: ignore[misc, valid-type]
    """A client of distributed's own that is ``async with caching(...)`` while it is connected."""

    _caching: Any = None

    async def _start(self, *args: Any, **kwargs: Any) -> Any:
        await super()._start(*args, **kwargs)
        if self.status == "running":
            context = cachingclient.caching(self)
            await context.__aenter__()
            self._caching = context
        return self

    def close(self, *args: Any, **kwargs: Any) -> Any:
        if self.status != "running":
            return super().close(*args, **kwargs)
        if self.asynchronous:
            return self._leave_and_close(*args, **kwargs)
        self.sync(self._leave)
        return super().close(*args, **kwargs)

    async def _leave_and_close(self, *args: Any, **kwargs: Any) -> None:
        await self._leave()
        await super().close(*args, **kwargs)

    async def _close(self, *args: Any, **kwargs: Any) -> Any:
        if self.status == "running":
            await self._leave()
        return await super()._close(*args, **kwargs)

    async def _leave(self) -> None:
        context, self._caching = self._caching, None
        if context is not None:
            await context.__aexit__(None, None, None)


# Its id and repr begin with its name
InCaching.__name__ = PLAIN.__name__

CLIENTS = {"plain": PLAIN, "ours": cachingclient.Client, "caching": InCaching}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--client", choices=list(CLIENTS), default="ours")
    group.addoption("--outcomes", type=Path, required=True)
    group.addoption("--only", type=Path, help="a file with the tests to run, one a line")
    group.addoption("--tests-of", action="append", default=[], metavar="PACKAGE=FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    # Of pytest-rerunfailures: what fails is run again here anyway.
    config.addinivalue_line("markers", "flaky: may fail at times")
    utils_test = importlib.import_module("distributed.utils_test")
    for pair in config.getoption("tests_of"):
        package, folder = pair.split("=", 1)
        # Its tests import each other by their full names; all else is the installed package's.
        importlib.import_module(package).__path__.append(folder)
        if package == "distributed":
            utils_test.certs_dir = str(Path(folder, "tests"))
    replace(CLIENTS[config.getoption("client")])
    config.pluginmanager.register(Outcomes(config.getoption("outcomes")), "outcomes")


def replace(client: type) -> None:
    """Put another client in the place of distributed's, wherever it was imported already."""
    for name, module in list(sys.modules.items()):
        if name == __name__ or name.split(".")[0] == "cachingclient":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is PLAIN:
                setattr(module, attribute, client)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = set(read(config.getoption("outcomes")))
    path = config.getoption("only")
    only = None if path is None else set(path.read_text().splitlines())
    out = [i for i in items if short_name(i.nodeid) in done]
    if only is not None:
        out += [i for i in items if short_name(i.nodeid) not in only | done]
    config.hook.pytest_deselected(items=out)
    items[:] = [i for i in items if i not in out]


def short_name(nodeid: str) -> str:
    """A test's name within its file."""
    return nodeid.split("::", 1)[-1]


def read(path: Path) -> dict[str, str]:
    """What became of the tests so far, from the file that `Outcomes` writes."""
    if not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text().splitlines())


class Outcomes:
    """Writes down what becomes of each test.

    Parameters
    ----------
    path : Path
        One line for each test that begins, and another when it is over. Beside it a file with
        the suffix ``.done`` tells that all are.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._worst = ORDER[0]

    def _write(self, nodeid: str, outcome: str) -> None:
        with self.path.open("a") as f:
            f.write(json.dumps([short_name(nodeid), outcome]) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._worst = ORDER[0]
        self._write(nodeid, DIED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome
        if outcome == "skipped" and hasattr(report, "wasxfail"):
            outcome = "xfailed"
        self._worst = max(self._worst, outcome, key=ORDER.index)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, self._worst)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        # What pytest returns does not tell: a test that takes too long ends it with status 1
        if exitstatus in DONE:
            self.path.with_suffix(".done").touch()
