"""Where other people's tests are: in a checkout of theirs, or in the installed package."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

#: Test files of each package, within its checkout.
FILES = {
    "distributed": [
        "distributed/tests/test_client.py",
        "distributed/tests/test_client_executor.py",
        "distributed/tests/test_as_completed.py",
        "distributed/tests/test_collections.py",
        "distributed/tests/test_publish.py",
        "distributed/tests/test_queues.py",
        "distributed/tests/test_variable.py",
        "distributed/tests/test_actor.py",
        "distributed/tests/test_worker_client.py",
    ],
    "dask": [
        "dask/tests/test_distributed.py",
        "dask/dataframe/dask_expr/tests/test_distributed.py",
        "dask/dataframe/dask_expr/io/tests/test_distributed.py",
    ],
    "xarray": ["xarray/tests/test_distributed.py"],
}
#: What their tests are configured by, where a checkout has it.
CONFIGURATION = ("conftest.py", "pyproject.toml", "setup.cfg")


@dataclass(frozen=True)
class Suite:
    """One file of tests."""

    #: how it is called in what is printed and in `expected.txt`
    name: str
    path: Path
    #: for pytest
    arguments: list[str] = field(default_factory=list)


def git(checkout: Path, *arguments: str) -> bytes:
    """What git says; nothing in the checkout is changed."""
    done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True)
    if done.returncode:
        raise LookupError(done.stderr.decode().strip() or f"git {' '.join(arguments)} failed")
    return done.stdout


def find_revision(checkout: Path, candidates: Iterable[str], version: str) -> str:
    """The commit of a release, or the one nearest to it.

    Parameters
    ----------
    checkout : Path
        Of git, with or without a work tree.
    candidates : iterable of str
        Tags and commits that are the release, best first.
    version : str
        Begins with the year and the month: where the checkout has none of the candidates, it is
        the commit that is nearest to the middle of that month.
    """
    for name in candidates:
        try:
            found = git(checkout, "rev-parse", "--verify", "--quiet", name + "^{commit}")
        except LookupError:
            continue
        return found.decode().strip()
    year, month = (int(part) for part in version.split(".")[:2])
    middle = datetime(year, month, 15, tzinfo=timezone.utc).timestamp()
    lines = git(checkout, "log", "--format=%ct %H").decode().split("\n")
    commits = [line.split() for line in lines if line]
    return min(commits, key=lambda c: abs(int(c[0]) - middle))[1]


def released_as(package: str) -> list[str]:
    """Tags and the commit that the installed version may have in its repository."""
    version = installed_version(package)
    names = [version, "v" + version]
    try:
        module = __import__(f"{package}._version", fromlist=["commit_id"])
    except ImportError:
        return names
    commit = getattr(module, "commit_id", None)
    return [*names, commit.removeprefix("g")] if commit else names


def from_checkout(package: str, checkout: Path, revision: str, folder: Path) -> list[Suite]:
    """Tests as they are at a revision of a checkout, for the package that is installed."""
    wanted = {str(Path(f).parent) for f in FILES[package]}
    wanted.update(CONFIGURATION, [f"{package}/conftest.py"])
    known = [f for f in sorted(wanted) if git(checkout, "ls-tree", revision, f)]
    with tarfile.open(fileobj=BytesIO(git(checkout, "archive", revision, *known))) as tar:
        tar.extractall(folder, filter="data")
    # Without the package's own __init__.py, so that the installed package is what is tested.
    tests_of = ["--tests-of", f"{package}={folder / package}"]
    return [Suite(f, folder / f, tests_of) for f in FILES[package] if (folder / f).exists()]


def from_installed(package: str, folder: Path) -> list[Suite]:
    """Tests that came with the installed package; none if it has none."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    base = Path(spec.origin).parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\naddopts = -p no:asyncio\n")
    arguments = ["-c", str(settings)]
    return [Suite(f, base / f, arguments) for f in FILES[package] if (base / f).exists()]
