"""Pages and panels as a person sees them, in a real Chromium."""

from __future__ import annotations

import time

import browser
import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from bokeh.server.tornado import BokehTornado
from distributed import LocalCluster, performance_report

from cachingclient import Client, caching
from cachingclient.scheduler.overview import current

META = np.empty((0,))


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as chromium:
        yield chromium


@pytest.fixture
def page(chromium):
    page = chromium.new_page(viewport=browser.SCREEN)
    yield page
    page.close()


@pytest.fixture
def errors(page):
    """What goes wrong in the page."""
    messages = []

    def from_the_console(message):
        # distributed's report names an icon on dask's site, which may be out of reach
        elsewhere = message.location.get("url", "").startswith("https://")
        if message.type == "error" and not elsewhere:
            messages.append(message.text)

    page.on("console", from_the_console)
    page.on("pageerror", lambda error: messages.append(str(error)))
    return messages


@pytest.fixture
def cluster():
    pytest.importorskip("bokeh")
    with dask.config.set(helpers.KEEN):
        with LocalCluster(**{**helpers.INPROC, "dashboard_address": ":0"}) as cluster:
            yield cluster


def address(cluster, path=""):
    return f"http://127.0.0.1:{cluster.scheduler.http_server.port}/{path}"


def slow(block):
    time.sleep(0.02)
    return block + 1


def build(n=4):
    return da.zeros(10 * n, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def boxes(page):
    return page.evaluate("""() => Bokeh.index.roots.flatMap(root => {
            const found = [], work = [root];
            while (work.length) {
                const view = work.pop();
                if (["Figure", "DataTable", "Div"].includes(view.model.type)) {
                    const {x, y, width, height} = view.el.getBoundingClientRect();
                    found.push({type: view.model.type, x, y, width, height});
                }
                work.push(...(view.child_views ?? []));
            }
            return found;
        })""")


def test_the_page_is_in_the_menu_and_fits_a_laptop(cluster, page, errors):
    with Client(cluster, cache_limit="1 MiB") as client:
        x = build()
        page.goto(address(cluster, "status"))
        page.get_by_role("link", name="Cache", exact=True).first.click()
        page.wait_for_url("**/cache")
        page.wait_for_function("document.title == 'Dask: Cache'")
        page.get_by_text("no hits yet").wait_for()
        assert (x.sum().compute(), x.mean().compute(), x.sum().compute()) == (40, 1, 40)
        # pushed to the open page
        page.get_by_text("slow-").first.wait_for()
        info = client.cache.info()
        page.get_by_text(f"{info.hits} hits").wait_for()
        found = boxes(page)
        assert [b["type"] for b in found].count("Figure") == 5
        assert [b["type"] for b in found].count("DataTable") == 1
        width, height = browser.SCREEN["width"], browser.SCREEN["height"]
        assert all(b["width"] > 200 for b in found)
        assert all(b["height"] > 100 for b in found if b["type"] != "Div")
        assert all(b["x"] >= 0 and b["x"] + b["width"] <= width for b in found)
        assert all(b["y"] + b["height"] <= height for b in found)
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert errors == []


@pytest.mark.skipif(
    hasattr(BokehTornado, "stop_async"), reason="from bokeh 3.10 on pages end with what serves them"
)
def test_an_open_page_says_when_the_cache_has_gone(cluster, page, errors):
    plain = distributed.Client(cluster, set_as_default=False)
    with caching(plain):
        page.goto(address(cluster, "cache"))
        page.get_by_text("no hits yet").wait_for()
    page.get_by_text("The scheduler keeps no cache.").wait_for()
    # and goes on when it is back
    with caching(plain):
        page.get_by_text("no hits yet").wait_for()
    plain.close()
    assert errors == []


def test_single_plots_are_in_the_menu(cluster, page, errors):
    with Client(cluster):
        build().sum().compute()
        page.goto(address(cluster, "cache"))
        for name in ("Cache", "Cache Entries", "Cache Workers"):
            page.get_by_text("More...").hover()
            page.locator(".dropdown-content").get_by_role("link", name=name, exact=True).click()
            page.wait_for_url("**/individual-cache*")
            page.wait_for_function("globalThis.Bokeh && Bokeh.index.roots.length > 0")
            (box,) = boxes(page)
            assert box["width"] > 1000 and box["height"] > 500
            page.go_back()
        assert errors == []


def test_ten_thousand_keys(cluster, page, errors):
    with Client(cluster):
        ledger = current(cluster.scheduler).ledger
        for n in range(10_000):
            ledger.offer(n, f"layer-{n:032x}", paid=1.0 + n, nbytes=10)
        page.goto(address(cluster, "cache"))
        page.get_by_text("10,000 keys").wait_for()
        page.get_by_text("layer-00000000").first.wait_for()
        assert errors == []


def test_performance_report(cluster, page, errors, tmp_path):
    path = tmp_path / "report.html"
    with Client(cluster):
        x = build()
        # as many sites are, this one may be out of reach
        with helpers.reporting(), performance_report(str(path), mode="inline"):
            x.sum().compute()
            x.mean().compute()
    page.goto(path.as_uri())
    page.get_by_role("heading", name="Cache", exact=True).wait_for()
    assert page.locator("li").get_by_text("Hits: 4, misses: ").is_visible()
    assert page.get_by_role("heading", name="Calling Code").is_visible()
    assert errors == []


NOTEBOOK = """
import time
import dask.array as da
from cachingclient import Client
client = Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")

def slow(block):
    time.sleep(0.05)
    return block + 1

x = da.zeros(40, chunks=10).map_blocks(slow, dtype="f8", meta=da.zeros(0))
x.sum().compute(), x.mean().compute(), x.sum().compute();
""".strip()


def test_notebook(page, errors, tmp_path):
    """The outputs as a notebook stores and shows them."""
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    nbconvert = pytest.importorskip("nbconvert")
    cells = [NOTEBOOK, "client", "client.cache", "client.cache.entries()"]
    cells += ["client.cache.explain(x.std())", "client.cache.info()", "client.close()"]
    made = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    resources = {"metadata": {"path": str(helpers.ROOT)}}
    nbclient.NotebookClient(made, timeout=60, kernel_name="python3", resources=resources).execute()
    html, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(made)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{html}", encoding="utf-8")
    page.goto(path.as_uri())
    headings = page.get_by_role("heading", name="Cache", exact=True)
    assert headings.count() == 2
    assert all(headings.nth(n).is_visible() for n in range(2))
    page.get_by_text("kept in").first.wait_for()
    page.get_by_role("heading", name="Workers", exact=True).first.click()
    page.locator("details[open]").get_by_text("of", exact=False).first.wait_for()
    tables = page.locator("table").filter(has=page.get_by_text("layer", exact=True))
    assert tables.count() == 2
    assert tables.nth(0).get_by_text("slow-").is_visible()
    row = tables.nth(1).locator("tr").filter(has_text="slow-")
    assert [text.strip() for text in row.locator("td").all_inner_texts()][1] == "4 of 4"
    assert row.get_by_text("reused").is_visible()
    assert page.get_by_text("maxsize").is_visible()
    assert errors == []
