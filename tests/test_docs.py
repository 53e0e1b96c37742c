"""What the documentation shows works as it stands there, and it leaves nothing out."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from helpers import INPROC

from cachingclient import CacheInfo, Client, admission
from cachingclient.ledger import CAUSES
from cachingclient.news import CLEAR, EVICT, HIT, KEEP

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {str(p.relative_to(DOCS).with_suffix("")): p for p in sorted(DOCS.rglob("*.rst"))}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def source(name: str) -> str:
    return PAGES[name].read_text(encoding="utf-8")


def words(name: str) -> str:
    """A page without its line breaks."""
    return re.sub(r"\s+", " ", source(name))


@pytest.mark.parametrize("name", [name for name in PAGES if ">>> " in source(name)])
def test_examples_run(name, tmp_path, monkeypatch):
    pytest.importorskip("numpy")
    monkeypatch.chdir(tmp_path)
    path = str(PAGES[name])
    failed, tried = doctest.testfile(path, False, optionflags=FLAGS, encoding="utf-8")
    assert tried and not failed


def test_python_that_is_only_shown_compiles():
    blocks = re.compile(r"^\.\. code-block:: python\n\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
    found = [block for name in PAGES for block in blocks.findall(source(name))]
    assert found
    for block in found:
        compile(re.sub(r"^ {4}", "", block, flags=re.MULTILINE), "documentation", "exec")


def test_every_page_is_in_a_table_of_contents():
    listed = re.findall(r"^   ([\w/-]+)$", source("index"), re.MULTILINE)
    assert sorted(listed) == sorted(PAGES.keys() - {"index"})


def test_links_of_pages_lead_somewhere():
    for name in PAGES:
        for target in re.findall(r":doc:`(?:[^`<]*<)?([\w./-]+)>?`", source(name)):
            assert (PAGES[name].parent / f"{target}.rst").exists(), f"{name} links to {target}"


def test_every_reason_has_a_remedy():
    named = vars(admission).items()
    reasons = [v for k, v in named if re.match("[A-Z]", k) and k.isupper() and isinstance(v, str)]
    assert len(reasons) > 15
    for reason in reasons:
        assert f"*{reason}*" in words("troubleshooting")


def test_every_metric_and_field_is_listed():
    pytest.importorskip("prometheus_client")
    with Client(**INPROC | {"dashboard_address": ":0"}) as client:
        address = f"http://127.0.0.1:{client.cluster.scheduler.http_server.port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=20) as answer:
            served = set(re.findall(r"^# HELP (dask_cache_\w+)", answer.read().decode(), re.M))
        with urllib.request.urlopen(f"{address}/json/cache.json", timeout=20) as answer:
            fields = json.load(answer).keys() - set(CacheInfo._fields)
    page = source("reference/metrics")
    assert len(served) > 10
    assert served == set(re.findall(r"^``(dask_cache_\w+)``", page, re.MULTILINE))
    assert fields and all(f"``{field}``" in page for field in fields)
    assert all(f"``{cause}``" in words("reference/metrics") for cause in CAUSES)


def test_every_counter_is_listed():
    for field in CacheInfo._fields:
        assert re.search(rf"^``{field}`` ", source("looking"), re.MULTILINE)


def test_every_event_is_listed():
    for name in (KEEP, HIT, EVICT, CLEAR, *CAUSES):
        assert f"``{name}``" in words("reference/events")


def test_picture_is_the_script_s(tmp_path):
    """Whoever changes the one changes the other."""
    code = "import picture; print(picture.picture(), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, check=True)
    assert drawn.stdout == (DOCS / "images" / "how-it-works.svg").read_bytes()


def test_it_can_be_built(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("dask_sphinx_theme")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    settings = (tmp_path / "reference" / "settings.html").read_text(encoding="utf-8")
    assert "scheduler-memory" in settings
