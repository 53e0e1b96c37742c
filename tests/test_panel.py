"""What the objects look like, as text and in a notebook; looking never raises."""

from __future__ import annotations

import asyncio
import warnings
from xml.etree import ElementTree

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster
from distributed.utils_test import gen_test
from helpers import KEEN

from cachingclient import CacheInfo, Client, Entry, caching, panel
from cachingclient.explaining import Explanation, Row
from cachingclient.info import Entries
from cachingclient.tables import MANY_ROWS

META = np.empty((0,))
TOKEN = "0123456789abcdef" * 2
EVIL = "<script>alert(1)</script>"


def slow(block):
    return block + 1


def build():
    return da.zeros(40, chunks=10).map_blocks(slow, dtype="f8", meta=META)


# -- the panel --------------------------------------------------------------------


def test_under_the_client(keen):
    build().sum().compute()
    html = keen._repr_html_()
    info = keen.cache.info()
    plain = distributed.Client._repr_html_(keen)
    assert plain[:200] in html and len(html) > len(plain)
    # As the client's own is: what shows several of them in one page parses it
    assert ElementTree.fromstring(html) is not None
    assert f"kept in {info.keys} keys of " in html
    assert f"<strong>Misses:</strong> {info.misses}" in html
    assert html.count("background-color: #ECB172") == 3  # one for all, and one for each worker


def test_of_the_cache_itself(keen):
    html = keen.cache._repr_html_()
    assert ">Cache</h3>" in html and ">Client</h3>" not in html


def test_links_to_the_page():
    pytest.importorskip("bokeh")
    with Client(**{**helpers.INPROC, "dashboard_address": ":0"}) as client:
        link = client.dashboard_link.removesuffix("status") + "cache"
        assert f'href="{link}"' in client._repr_html_()


def test_links_to_no_page_that_is_not_there(keen):
    assert "/cache" not in keen._repr_html_()


def test_inside_caching():
    with LocalCluster(**helpers.INPROC) as cluster:
        client = distributed.Client(cluster)
        assert ">Cache</h3>" not in client._repr_html_()
        with caching(client) as cache:
            assert ">Cache</h3>" in client._repr_html_()
            assert ">Cache</h3>" in cache._repr_html_()
        assert ">Cache</h3>" not in client._repr_html_()
        client.close()


def test_evictions_are_told_by_cause(keen):
    build().sum().compute()
    keen.cache.resize(2)
    assert f"{keen.cache.info().evictions} (limit: " in keen._repr_html_()


def test_without_a_cache():
    with Client(**helpers.INPROC, cache_limit=0) as client:
        assert "cache_limit is 0" in client._repr_html_()


def test_on_a_scheduler_that_lost_it(keen):
    keen.unregister_scheduler_plugin("cachingclient")
    helpers.wait_until(lambda: keen._session.scheduler_id is None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "keeps no cache for this client" in keen._repr_html_()


def test_of_a_closed_client():
    client = Client(**helpers.INPROC)
    cache = client.cache
    client.close()
    assert "CachingClient" in client._repr_html_()
    assert "Cache of" in cache._repr_html_()
    assert repr(cache).startswith("<Cache of ")


@pytest.mark.parametrize("part", ["_ask", "get_template"])
def test_a_panel_that_fails_is_left_out(keen, monkeypatch, part):
    def fail(*args, **kwargs):
        raise RuntimeError("ours")

    monkeypatch.setattr(panel, part, fail)
    assert keen._repr_html_() == distributed.Client._repr_html_(keen)
    assert "Cache of" in keen.cache._repr_html_()


def test_a_scheduler_that_does_not_answer(keen, monkeypatch):
    async def never(*args, **kwargs):
        await asyncio.Event().wait()

    monkeypatch.setattr(keen._session, "call", never)
    monkeypatch.setattr(panel, "PATIENCE", 0.05)
    assert ">Client</h3>" in keen._repr_html_()


@gen_test(config=KEEN)
async def test_of_an_asynchronous_client():
    """There is no waiting in a repr: what is in the same process is shown all the same."""
    async with Client(**helpers.INPROC, asynchronous=True) as client:
        assert await client.submit(abs, -1, pure=True) == 1
        assert "kept in 1 keys of 1 layers" in client._repr_html_()
        assert ">Cache</h3>" in client.cache._repr_html_()
    assert "CachingClient" in client._repr_html_()


def test_of_an_asynchronous_client_far_away(monkeypatch):
    monkeypatch.setattr(panel, "PLUGINS", {})

    @gen_test()
    async def look():
        async with Client(**helpers.INPROC, asynchronous=True) as client:
            assert "await client.cache.info()" in client._repr_html_()

    look()


# -- tables -----------------------------------------------------------------------


def test_names_are_escaped():
    entries = Entries([Entry(EVIL, keys=1, total=1)])
    explanation = Explanation([Row(EVIL, "not kept", 1, 0, why=EVIL)])
    for html in (entries._repr_html_(), explanation._repr_html_()):
        assert "<script>" not in html and "&lt;script&gt;" in html
    assert EVIL in repr(entries) and EVIL in repr(explanation)


def test_names_are_shortened_and_told_in_full():
    entries = Entries([Entry(f"slow-{TOKEN}", keys=1, total=1)])
    assert TOKEN not in repr(entries) and "slow-01234567 " in repr(entries)
    assert f'title="slow-{TOKEN}"' in entries._repr_html_()


@pytest.mark.parametrize(
    "pinned, alive, why",
    [
        (True, None, "pinned"),
        (True, False, "pinned"),
        (False, True, "in use"),
        (False, False, "nothing alive needs it"),
        (False, None, ""),
    ],
)
def test_why(pinned, alive, why):
    entry = Entry("slow-0", keys=1, total=2, alive=alive, pinned=pinned)
    assert entry.why == why
    assert repr(Entries([entry])).endswith(why) and why in Entries([entry])._repr_html_()


def test_nothing():
    assert repr(Entries()) == "nothing is kept" and "nothing is kept" in Entries()._repr_html_()
    assert repr(Explanation()) == "nothing to compute"
    assert "nothing to compute" in Explanation()._repr_html_()


def test_many_rows():
    entries = Entries(Entry(f"layer-{n}", keys=1, total=1) for n in range(MANY_ROWS + 7))
    html = entries._repr_html_()
    assert html.count("<tr>") == MANY_ROWS and "and 7 more" in html
    assert len(repr(entries).splitlines()) == MANY_ROWS + 8


def test_counters():
    html = CacheInfo(hits=12345, maxsize=2**30, saved=90.0)._repr_html_()
    assert "12,345" in html and "1.00 GiB" in html and "90.00 s" in html


def test_entries_and_explain_of_a_session(keen):
    x = build()
    with dask.annotate(cache=True):
        keen.cache.pin(x)
    x.sum().compute()
    x.mean().compute()
    (entry,) = keen.cache.entries("slow")
    assert (entry.keys, entry.total, entry.hits, entry.why) == (4, 4, 4, "pinned")
    assert entry.saved == pytest.approx(entry.seconds) and entry.nbytes == 4 * 80
    explained = keen.cache.explain(x.std())
    (row,) = [r for r in explained if r.name == entry.name]
    assert (row.nbytes, row.saved, row.hits) == (entry.nbytes, entry.saved, entry.hits)
    assert "4 of 4" in str(explained) and "320 B" in str(explained)


def test_keys_of_a_layer_that_are_computed_again_count_once(keen):
    x = build()
    x.sum().compute()
    keen.cache.clear()
    helpers.forgotten(keen)
    x[:20].sum().compute()
    (entry,) = keen.cache.entries("slow")
    assert (entry.keys, entry.total) == (2, 4)
    x.sum().compute()
    (entry,) = keen.cache.entries("slow")
    assert (entry.keys, entry.total) == (4, 4)
