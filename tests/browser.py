"""A real Chromium for the tests of what is shown in one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

#: A laptop's screen.
SCREEN = {"width": 1280, "height": 800}


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as p:
        try:
            # In a container there is no user to protect from the pages of this test.
            browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as e:
            pytest.skip(f"there is no Chromium: {e}")
        try:
            yield browser
        finally:
            browser.close()
