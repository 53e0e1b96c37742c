"""Pictures of what a user sees, for the documentation: written to ``docs/images``.

Needs what ``pip install cachingclient[test]`` installs, and a Chromium::

    python docs/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import nbformat
import numpy as np
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Page, sync_playwright

from cachingclient import Client

IMAGES = Path(__file__).parent / "images"
#: A laptop's screen.
SCREEN = {"width": 1280, "height": 800}

SETUP = """
import time
import dask.array as da
import numpy as np
from cachingclient import Client

client = Client(n_workers=4, threads_per_worker=1, memory_limit="1 GiB", processes=False,
                dashboard_address=":0", cache_limit="256 MiB")

def smooth(block):
    time.sleep(0.1)
    return np.cumsum(block, axis=0)

x = da.random.default_rng(0).normal(size=(4000, 2000), chunks=(1000, 1000)).map_blocks(smooth)
x.mean().compute(), x.std().compute(), x.mean().compute();
"""
CELLS = {
    "panel": "client",
    "entries": "client.cache.entries()",
    "explain": "client.cache.explain(x.max(axis=0) - x.min())",
    "info": "client.cache.info()",
}


def session(client: Client) -> None:
    """Questions as a person asks them: some again, and more than there is room for."""

    def smooth(block: Any, width: int) -> Any:
        time.sleep(width / 100)
        return np.cumsum(block, axis=0) / width

    def spectrum(block: Any) -> Any:
        time.sleep(0.04)
        return np.abs(np.fft.fft2(block))

    raw = da.random.default_rng(0).normal(size=(4000, 2000), chunks=(1000, 1000))
    tables = [raw.map_blocks(smooth, width, dtype=float) for width in (2, 4, 16)]
    spectra = raw.map_blocks(spectrum, dtype=float)
    client.cache.pin(spectra)
    questions: list[Callable[[Any], Any]] = [
        lambda x: x.mean(),
        lambda x: x.std(axis=0),
        lambda x: x.max(),
        lambda x: x.mean(),
        lambda x: (x > 0).sum(),
        lambda x: x.min(axis=1),
    ]
    for question in questions:
        for x in (tables[0], spectra, tables[1], tables[0], tables[2], tables[2]):
            question(x).compute()
            time.sleep(0.3)


def dashboard(page: Page) -> None:
    """The page /cache, after some minutes of work."""
    with Client(
        n_workers=4,
        threads_per_worker=1,
        processes=False,
        memory_limit="1 GiB",
        dashboard_address=":0",
        cache_limit="200 MiB",
    ) as client:
        link = client.dashboard_link.removesuffix("status")
        page.goto(link + "cache")
        session(client)
        page.get_by_text("kept").first.wait_for()
        page.wait_for_timeout(3000)  # the next reading, and a page that has drawn it
        page.screenshot(path=IMAGES / "dashboard.png")


def notebook(page: Page) -> None:
    """What the objects look like in a notebook."""
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in (SETUP, *CELLS.values())]
    made = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(made, timeout=120, kernel_name="python3").execute()
    html, _ = HTMLExporter(template_name="lab").from_notebook_node(made)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notebook.html"
        path.write_text(html, encoding="utf-8")
        page.goto(path.as_uri())
        for number, name in enumerate(CELLS, start=1):
            cell = page.locator(".jp-CodeCell").nth(number)
            cell.screenshot(path=IMAGES / f"{name}.png")


def main() -> int:
    """Write all pictures."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SCREEN)
        dashboard(page)
        notebook(page)
        browser.close()
    print("\n".join(str(path) for path in sorted(IMAGES.glob("*.png"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
