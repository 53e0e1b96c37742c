"""The package works where numpy, pandas and pyarrow are not installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent

PREPARE = """
import sys

BLOCKED = {"numpy", "pandas", "pyarrow"}


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", PREPARE + textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_import_and_submit_without_numpy_and_pandas():
    done = run("""
        import time
        from distributed import LocalCluster
        from cachingclient import Client

        def slow(x):
            # An attribute of a module, since a global of this script would travel by value
            sys.calls = getattr(sys, "calls", 0) + 1
            time.sleep(0.2)
            return x + 1

        with LocalCluster(processes=False, dashboard_address=":0") as cluster:
            with Client(cluster) as client:
                for _ in range(2):
                    assert client.submit(slow, 1, pure=True).result() == 2
                info = client.cache.info()
        print(sys.calls, info.keys, *sorted(BLOCKED & set(sys.modules)))
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1"], done.stderr


def test_demo_says_what_to_install():
    done = run("from cachingclient.__main__ import main; main(['demo'])")
    assert done.returncode == 1
    assert "pip install 'cachingclient[demo]'" in done.stderr
    assert "Traceback" not in done.stderr
