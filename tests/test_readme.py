"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import dask.config
import pytest

import cachingclient

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.rst").read_text(encoding="utf-8")
BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)


def blocks() -> list[str]:
    return [textwrap.dedent(block) for block in BLOCK.findall(README)]


def run(code: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,  # it writes files
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_first_block_shares_work(tmp_path):
    pytest.importorskip("numpy")
    check = "\nassert client.cache.info().skipped >= 16\nclient.close()\n"
    lines = [line for line in blocks()[0].splitlines() if line]
    assert len(lines) == 8, "no more, so that it is read"
    done = run(blocks()[0] + check, tmp_path)
    assert done.returncode == 0, done.stderr


def test_all_blocks_run_one_after_the_other(tmp_path):
    pytest.importorskip("numpy")
    assert len(blocks()) == 4
    done = run("\n".join(blocks()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("CacheInfo(") == 1
    assert re.search(r"16 of 16 .* reused$", done.stdout, re.MULTILINE), "what explain tells"


@pytest.mark.parametrize("last", ["-m cachingclient demo", "-m pytest"])
def test_commands_need_nothing_else(last):
    command = (
        r"^    python3 -m venv \.venv && \.venv/bin/pip install .*'\.\[\w+\]' && \.venv/bin/python "
    )
    assert re.search(command + re.escape(last) + "$", README, re.MULTILINE)


def table(first: str) -> dict[str, str]:
    """{first column: the others} of the table that has a row of this name."""
    rows: dict[str, str] = {}
    (block,) = [t for t in re.split(r"^=[= ]+$", README, flags=re.MULTILINE) if first in t]
    for line in block.strip("\n").splitlines():
        name, rest = re.match(r"(?:``([\w-]+)``)? +(.*)", line).groups()
        if name:
            last = name
            rows[name] = rest
        else:
            rows[last] += f" {rest}"
    return {name: re.sub(r"\s+", " ", text) for name, text in rows.items()}


def settings_file() -> dict[str, tuple[str, str]]:
    """{setting: (its default, its comment)} of the file that they are read from."""
    text = Path(cachingclient.config.__file__).with_name("cachingclient.yaml").read_text("utf-8")
    found = re.findall(r"^  ([\w-]+): (.*?) +# (.*)$", text, re.MULTILINE)
    return {name: (default, comment) for name, default, comment in found}


def test_every_setting_is_explained_in_its_file():
    assert list(settings_file()) == list(dask.config.get("cachingclient"))


def test_settings_are_as_in_their_file():
    """Those that are listed, in the same order, with the same defaults, in the same words."""
    listed, in_file = table("``cache-limit``"), settings_file()
    assert list(listed) == [name for name in in_file if name in listed]
    for name, text in listed.items():
        assert text == " ".join(in_file[name])


def test_there_is_a_place_for_the_table_of_sessions():
    assert re.search(r"^\.\. sessions-table-begin$.*^\.\. sessions-table-end$", README, re.M | re.S)


def test_links_lead_somewhere():
    targets = re.findall(r"`[^`<]+<([^`>]+)>`_", README) + re.findall(r"image:: (\S+)", README)
    assert len(targets) > 8
    for target in targets:
        assert (ROOT / target).exists(), f"the README links to {target}"
