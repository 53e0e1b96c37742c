"""One command for all that has to pass: ``nox``; or parts of it, as ``nox -s lint``.

What follows ``--`` is for pytest: ``nox -s "tests(oldest)" -- tests/test_client.py``.
"""

from __future__ import annotations

import configparser
from pathlib import Path

import nox

nox.options.reuse_existing_virtualenvs = True

TOP = Path(__file__).parent


def oldest() -> list[str]:
    """What setup.cfg requires at least, as requirements of just that."""
    config = configparser.ConfigParser()
    config.read(TOP / "setup.cfg")
    required = config["options"]["install_requires"].split("\n")
    return [line.replace(" >=", "==") for line in required if line]


@nox.session
@nox.parametrize("dask", ["oldest", "newest"], ids=["oldest", "newest"])
def tests(session: nox.Session, dask: str) -> None:
    """Run the tests with the oldest dask that is supported, or the newest there is."""
    session.install("--upgrade", "-e", ".[test]", *(oldest() if dask == "oldest" else ()))
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Look at the style, and check the types."""
    session.install("black", "flake8", "isort", "mypy", "-e", ".")
    session.run("flake8", ".")
    session.run("isort", "--check", ".")
    session.run("mypy", "cachingclient")
