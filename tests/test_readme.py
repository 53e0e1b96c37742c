"""What the README shows works as it stands there."""

from __future__ import annotations

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


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=150
    )


def test_first_block_shares_work():
    pytest.importorskip("numpy")
    check = "\nassert client.cache.info().skipped >= 16\nclient.close()\n"
    done = run(blocks()[0] + check)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CacheInfo(")


def test_all_blocks_run_one_after_the_other():
    pytest.importorskip("numpy")
    assert len(blocks()) == 4
    done = run("\n".join(blocks()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("CacheInfo(") == 2


@pytest.mark.parametrize("last", ["-m cachingclient demo", "-m pytest"])
def test_commands_need_nothing_else(last):
    command = (
        r"^    python3 -m venv \.venv && \.venv/bin/pip install .*'\.\[\w+\]' && \.venv/bin/python "
    )
    assert re.search(command + re.escape(last) + "$", README, re.MULTILINE)


def test_every_setting_is_listed():
    for key, default in dask.config.get("cachingclient").items():
        row = re.search(rf"^``{key}`` +(\S+)", README, re.MULTILINE)
        assert row, f"{key} is not in the README"
        assert row.group(1) == str(default).lower().split()[0]


def test_every_counter_is_listed():
    for field in cachingclient.CacheInfo._fields:
        assert re.search(rf"^``{field}`` ", README, re.MULTILINE), f"{field} is not in the README"
