"""The runner of other people's tests reports rightly: tried on a file of tests of our own."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "conformance"

TESTS = """
import os
import pathlib

import distributed.client
import distributed.utils_test
import pytest
from dask.distributed import Client
from distributed import Client as Again

RUNS = pathlib.Path({runs!r})

def plain():
    return Client.__module__ == "distributed.client"

def first(name):
    path = RUNS / name
    new = not path.exists()
    path.touch()
    return new

def test_same():
    assert Client is Again is distributed.client.Client is distributed.utils_test.Client

@pytest.mark.parametrize("x", ["a::b c"])
def test_only_ours_fails(x):
    assert plain()

@pytest.fixture
def broken():
    yield
    assert plain()

def test_only_ours_fails_afterwards(broken):
    pass

def test_only_ours_is_skipped():
    if not plain():
        pytest.skip("no")

def test_explained():
    assert plain()

def test_both_fail():
    assert False

def test_only_plain_fails():
    assert not plain()

def test_unsteady():
    assert plain() or not first("unsteady")

def test_dies_once():
    # With the status of tests that failed, as pytest-timeout does
    if not plain() and first("died"):
        os._exit(1)

def test_last():
    pass
"""

EXPECTED = """# a comment
test_tiny.py::test_explained: a good reason: this
test_tiny.py::test_last: no reason any more
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.timeout(600)
def test_what_only_our_client_fails_is_reported(tmp_path):
    tests, expected = tmp_path / "test_tiny.py", tmp_path / "expected.txt"
    tests.write_text(TESTS.format(runs=str(tmp_path)))
    expected.write_text(EXPECTED)
    command = tests, "--work", tmp_path / "work", "--expected", expected, "--again", 1
    done = run(*command)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("test_tiny.py: 8 passed plain, 3 passed ours, 4 differ, 1 explained")
    twice = "(plain: 2 passed; ours: 2 {})"
    assert lines[1:] == [
        f"  DIFFERS   test_only_ours_fails[a::b c] {twice.format('failed')}",
        f"  DIFFERS   test_only_ours_fails_afterwards {twice.format('failed')}",
        f"  DIFFERS   test_only_ours_is_skipped {twice.format('skipped')}",
        "  explained test_tiny.py::test_explained: a good reason: this",
        "  unsteady  test_unsteady (plain: 2 passed; ours: 1 failed, 1 passed)",
        "  unsteady  test_dies_once (plain: 2 passed; ours: 1 died, 1 passed)",
        "  no longer differs, though explained: test_tiny.py::test_last",
        "3 tests differ and are not explained",
    ]
    assert done.returncode == 1

    # The same command finds all of it done: nothing is run again, and what is found is the same.
    tests.write_text("def test_another(): assert False")
    again = run(*command)
    assert again.stdout.splitlines()[1:] == lines[1:]


@pytest.fixture
def modules(monkeypatch):
    """The runner's own modules, as where it is started."""
    monkeypatch.syspath_prepend(str(HERE))
    return lambda name: importlib.import_module(name)


def test_what_is_explained_is_no_failure(modules, capsys):
    comparing, suites, run = modules("comparing"), modules("suites"), modules("run")
    asked = []

    def fake(suite, client, attempt=0, only=None):
        asked.append((client, attempt, only))
        tests = {"test_a": "passed", "test_b": "failed"} if client == "plain" else {}
        return {"test_a": "failed", "test_b": "failed", "test_c": "passed", **tests}

    suite = suites.Suite("test_tiny.py", Path("test_tiny.py"))
    found = comparing.compare(fake, suite, "caching", 0, quick=True)
    assert asked == [("caching", 0, None), ("plain", "quick", ["test_a", "test_b"])]
    assert [v.test for v in found.differing] == ["test_a"]
    assert run.report(found, {}, 0) == 1
    assert run.report(found, {"test_tiny.py::test_a": "it looks at a name"}, 0) == 0
    assert "explained test_tiny.py::test_a: it looks at a name" in capsys.readouterr().out


INSIDE = """
from distributed.utils_test import gen_cluster

@gen_cluster(client=True)
async def test_inside(c, s, a, b):
    assert type(c).__module__ == "other_client" and type(c).__name__ == "Client"
    assert "cachingclient" in s.plugins
    assert await c.submit(abs, -1, pure=True) == 1
    await c.close()
    assert "cachingclient" not in s.plugins
"""


def test_a_plain_client_inside_of_caching(modules, tmp_path):
    comparing, suites = modules("comparing"), modules("suites")
    path = tmp_path / "test_tiny.py"
    path.write_text(INSIDE)
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    suite = suites.Suite("test_tiny.py", path, ["-c", str(settings)])
    found = comparing.Runner(tmp_path / "work").run(suite, "caching")
    log = tmp_path / "work" / "caching" / "test_tiny.py" / "0.log"
    assert found == {"test_inside": "passed"}, log.read_text()


@pytest.mark.skipif(shutil.which("git") is None, reason="reads checkouts by git")
def test_tests_are_those_of_the_installed_version(modules, tmp_path):
    suites = modules("suites")

    checkout = tmp_path / "checkout"
    folder = checkout / "distributed" / "tests"
    folder.mkdir(parents=True)
    (checkout / "distributed" / "__init__.py").touch()
    (checkout / "pyproject.toml").touch()

    def git(*arguments, date="2026-01-01T12:00:00Z"):
        who = {
            f"GIT_{p}_{k}": v
            for p in ("AUTHOR", "COMMITTER")
            for k, v in {"NAME": "a", "EMAIL": "a@b.c", "DATE": date}.items()
        }
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, check=True, capture_output=True, env=who, text=True).stdout

    git("init", "--quiet")
    commits = {}
    for month in (5, 6, 7):
        (folder / "test_client.py").write_text(f"# {month}")
        git("add", ".")
        git("commit", "--quiet", "-m", "a", date=f"2026-{month:02}-14T12:00:00Z")
        commits[month] = git("rev-parse", "HEAD").strip()
    git("tag", "2026.5.1", commits[5])
    git("tag", "v2026.6.0", commits[6])

    def find(version, *more):
        return suites.find_revision(checkout, [version, "v" + version, *more], version)

    assert find("2026.5.1") == commits[5]
    assert find("2026.6.0") == commits[6]
    assert find("2026.6.7", commits[5][:9]) == commits[5]
    assert find("2026.6.7", "0a341df47") == commits[6]
    assert find("2026.8.0") == commits[7]

    status = git("status", "--porcelain")
    (suite,) = suites.from_checkout("distributed", checkout, commits[5], tmp_path / "tests")
    assert suite.name == "distributed/tests/test_client.py"
    assert suite.path.read_text() == "# 5"
    # Else it would be taken for the package
    assert not (tmp_path / "tests" / "distributed" / "__init__.py").exists()
    assert git("status", "--porcelain") == status
    assert (folder / "test_client.py").read_text() == "# 7"
