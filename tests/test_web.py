"""What the scheduler's HTTP server says of the cache: pages, metrics, JSON."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request

import dask
import distributed
import helpers
import pytest
from distributed import LocalCluster, Scheduler
from distributed.utils_test import gen_test
from helpers import wait_until

from cachingclient import Client, caching
from cachingclient.scheduler import showing
from cachingclient.scheduler.overview import current
from cachingclient.web import metrics as metrics_module

PAGES = [
    "/cache",
    "/individual-cache",
    "/individual-cache-entries",
    "/individual-cache-evictions",
    "/individual-cache-hits",
    "/individual-cache-time-saved",
    "/individual-cache-workers",
]
DASHBOARD = {**helpers.INPROC, "dashboard_address": ":0"}


@pytest.fixture(autouse=True)
def keep_everything():
    with dask.config.set(helpers.KEEN):
        yield


@pytest.fixture
def cluster():
    pytest.importorskip("bokeh")
    with LocalCluster(**DASHBOARD) as cluster:
        yield cluster


def port(cluster):
    return cluster.scheduler.http_server.port


def get(cluster, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port(cluster)}{path}", timeout=20) as answer:
        return answer.read().decode()


def status(cluster, path):
    try:
        get(cluster, path)
    except urllib.error.HTTPError as e:
        return e.code
    return 200


def served(cluster):
    """What a dashboard lists, and how many applications there are."""
    page = get(cluster, "/status")
    return {
        "menu": re.findall(r'href="([\w-]+)">', page),
        "plots": json.loads(get(cluster, "/individual-plots.json")),
        "applications": len(cluster.scheduler.http_application.applications),
    }


# -- JSON -------------------------------------------------------------------------


def test_json(cluster):
    with Client(cluster, cache_limit="1 MiB") as client:
        client.gather(client.map(abs, range(-150, 0), pure=True))
        helpers.forgotten(client)
        assert client.gather(client.map(abs, [-1], pure=True)) == [1]
        found = json.loads(get(cluster, "/json/cache.json"))
        info = client.cache.info()
        assert {field: found[field] for field in info._fields} == info._asdict()
        assert info.keys == found["layers"] == 150 and info.hits == 1
        assert len(found["entries"]) == 100
        assert found["entries"][0]["name"] == client.cache.entries()[0].name
        assert sum(w["nbytes"] for w in found["workers"]) == found["currsize"]
        assert sum(w["limit"] for w in found["workers"]) == 2**20
        assert found["hint"] is None and found["clients"] == 1


def test_json_without_a_dashboard():
    with LocalCluster(**helpers.INPROC) as cluster, Client(cluster):
        assert json.loads(get(cluster, "/json/cache.json"))["keys"] == 0


def test_looking_changes_nothing(cluster):
    with Client(cluster) as client:
        client.gather(client.map(abs, range(-5, 0), pure=True))
        before = client.cache.entries()
        for path in ("/json/cache.json", "/cache", "/metrics"):
            get(cluster, path)
        assert client.cache.entries() == before and client.cache.info().hits == 0


# -- the dashboard ----------------------------------------------------------------


def test_pages_are_listed_where_dask_lists_its_own(cluster):
    before = served(cluster)
    with caching(distributed.Client(cluster, set_as_default=False)) as cache:
        client = cache._session.client
        inside = served(cluster)
        assert inside["menu"].index("cache") == inside["menu"].index("info") - 1
        assert {p.strip("/") for p in PAGES} <= set(inside["menu"])
        assert inside["plots"]["Individual Cache"] == "/individual-cache"
        assert set(inside["plots"].values()) >= set(PAGES[1:])
        assert [status(cluster, page) for page in PAGES] == [200] * len(PAGES)
    client.close()
    assert served(cluster) == before
    assert [status(cluster, page) for page in [*PAGES, "/json/cache.json"]] == [404] * 8


def test_a_second_registration_lists_them_once(cluster):
    with Client(cluster) as client:
        once = served(cluster)
        plugin = current(cluster.scheduler)
        with pytest.warns(UserWarning, match="overwriting"):
            client.run_on_scheduler(helpers.register_again)
        assert current(cluster.scheduler) not in (plugin, None)
        assert served(cluster) == once
        client.submit(abs, -1, pure=True).result()
        assert json.loads(get(cluster, "/json/cache.json"))["keys"] == 1


def test_a_cache_that_is_switched_off_takes_its_pages_down(cluster, errors_of_ours):
    before = served(cluster)
    with Client(cluster) as client:
        plugin = current(cluster.scheduler)
        client.loop.add_callback(plugin.switch_off, RuntimeError("ours"))
        wait_until(lambda: served(cluster) == before)
        errors_of_ours.clear()


def test_a_part_that_fails_keeps_no_other_away(cluster, monkeypatch):
    monkeypatch.setattr(showing, "PARTS", ("cachingclient.web.no_such", *showing.PARTS))
    with helpers.logged("distributed.scheduler.cachingclient") as messages:
        with Client(cluster) as client:
            assert client.submit(abs, -1, pure=True).result() == 1
            assert status(cluster, "/cache") == 200
    assert len(messages) == 1 and "without cachingclient.web.no_such" in messages[0]


def opened(url, path):
    """The document of a page, as a browser gets it: through a websocket."""
    client = pytest.importorskip("bokeh.client")
    return client.pull_session(url=f"{url}{path}")


def texts(document):
    return " ".join(m.text for m in document.models if m.__class__.__name__ == "Div")


def sources(document):
    return [m for m in document.models if m.__class__.__name__ == "ColumnDataSource"]


def test_pages_show_what_there_is(cluster):
    with Client(cluster) as client:
        client.gather(client.map(abs, range(-3, 0), pure=True))
        client.submit(abs, -1, pure=True).result()
        wait_until(lambda: current(cluster.scheduler).history.readings)
        for path in PAGES:
            session = opened(f"http://127.0.0.1:{port(cluster)}", path)
            try:
                found = sources(session.document)
                assert len(found) == (6 if path == "/cache" else 1)
                assert all(len(column) for s in found for column in s.data.values())
            finally:
                session.close()


def test_page_of_ten_thousand_keys(cluster):
    """A page asks for no more rows than a person looks at."""
    with Client(cluster) as client:
        ledger = current(cluster.scheduler).ledger
        for n in range(10_000):
            ledger.offer(n, f"layer-{n:032x}", paid=1.0, nbytes=10)
        assert client.cache.info().keys == 10_000
        session = opened(f"http://127.0.0.1:{port(cluster)}", "/individual-cache-entries")
        try:
            (source,) = sources(session.document)
            assert {len(column) for column in source.data.values()} == {100}
        finally:
            session.close()


def test_what_an_open_page_looks_at_may_go(cluster):
    """Its parts are asked to look again, for as long as it is open."""
    pages = pytest.importorskip("cachingclient.web.pages")
    plain = distributed.Client(cluster, set_as_default=False)
    with caching(plain):
        plain.submit(abs, -1, pure=True).result()
        wait_until(lambda: current(cluster.scheduler).history.readings)
        parts = [kind(cluster.scheduler) for kind in (pages.Summary, *pages.SINGLE)]
        for part in parts:
            part.update()
            assert part.source.data == {} or all(len(c) for c in part.source.data.values())
        summary = parts[0]
        assert "kept" in summary.root.text
    wait_until(lambda: current(cluster.scheduler) is None)

    def empty(part):
        part.update()  # not each time that it is asked to: looking must not cost much
        return not any(len(column) for column in part.source.data.values())

    for part in parts:
        wait_until(lambda: empty(part))
    assert "keeps no cache" in summary.root.text
    plain.close()


def test_names_are_escaped(cluster):
    with Client(cluster) as client:
        client.submit(abs, -1, pure=True).result()
        ledger = current(cluster.scheduler).ledger
        ledger.regrets.no_room("k", "x<b>bold</b>-0", 10)
        ledger.regrets.ran("k", 1000.0)
        session = opened(f"http://127.0.0.1:{port(cluster)}", "/cache")
        try:
            said = texts(session.document)
            assert "x&lt;b&gt;bold" in said and "<b>bold" not in said
        finally:
            session.close()


@gen_test()
async def test_prefix():
    pytest.importorskip("bokeh")
    async with Scheduler(dashboard_address=":0", http_prefix="foo/bar", port=0) as s:
        async with Client(s.address, asynchronous=True):

            def ask(path):
                url = f"http://127.0.0.1:{s.http_server.port}{path}"
                with urllib.request.urlopen(url, timeout=20) as answer:
                    return answer.read().decode()

            async def got(path):
                return await asyncio.to_thread(ask, path)

            assert json.loads(await got("/foo/bar/json/cache.json"))["keys"] == 0
            assert 'href="cache"' in await got("/foo/bar/cache")
            plots = json.loads(await got("/foo/bar/individual-plots.json"))
            assert "Individual Cache" in plots


# -- metrics ----------------------------------------------------------------------


def metrics(cluster):
    lines = get(cluster, "/metrics").splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("dask_cache_")]
    return {name: float(value) for name, value in pairs}


@pytest.fixture(params=["first scraped before", "never scraped"])
def scraped(cluster, request):
    """Collectors are made at the first scrape of a process: ours come before or after it."""
    pytest.importorskip("prometheus_client")
    from distributed.http.scheduler.prometheus import core

    for collector in core.PrometheusHandler._collectors or ():
        core.prometheus_client.REGISTRY.unregister(collector)
    core.PrometheusHandler._collectors = None
    if request.param == "first scraped before":
        assert metrics(cluster) == {}
    return cluster


def test_metrics(scraped):
    with Client(scraped, cache_limit="1 MiB") as client:
        client.gather(client.map(abs, range(-4, 0), pure=True))
        helpers.forgotten(client)
        assert client.gather(client.map(abs, [-1], pure=True)) == [1]
        found, info = metrics(scraped), client.cache.info()
        assert found["dask_cache_bytes"] == info.currsize > 0
        assert found["dask_cache_limit_bytes"] == 2**20
        assert found["dask_cache_keys"] == 4
        assert found["dask_cache_hits_total"] == 1
        assert found["dask_cache_misses_total"] == 4
        assert found["dask_cache_saved_seconds_total"] == info.saved > 0
        assert found["dask_cache_recomputed_seconds_total"] == 0
        assert found["dask_cache_audits_total"] == found["dask_cache_audits_differing_total"] == 0
        assert found['dask_cache_evictions_total{cause="limit"}'] == 0
        client.cache.resize(2)
        assert metrics(scraped)['dask_cache_evictions_total{cause="limit"}'] == 4
        workers = [v for name, v in found.items() if name.startswith("dask_cache_worker_bytes")]
        assert len(workers) == 2 and sum(workers) == info.currsize


def test_metrics_go_with_the_cache(scraped):
    from distributed.http.scheduler.prometheus import core

    before = list(core.COLLECTORS)
    plain = distributed.Client(scraped, set_as_default=False)
    for _ in range(2):
        with caching(plain):
            assert metrics(scraped)["dask_cache_keys"] == 0
        assert metrics(scraped) == {}
        assert core.COLLECTORS == before
    plain.close()


def test_metrics_go_with_a_scheduler_that_closes():
    pytest.importorskip("prometheus_client")
    with LocalCluster(**helpers.INPROC) as cluster, Client(cluster):
        plugin = current(cluster.scheduler).id
        assert plugin in metrics_module.plugins
    wait_until(lambda: plugin not in metrics_module.plugins)


def test_metrics_of_two_schedulers_in_one_process(scraped):
    with LocalCluster(**DASHBOARD) as other:
        with Client(scraped, set_as_default=False) as one:
            with Client(other, set_as_default=False) as two:
                one.submit(abs, -1, pure=True).result()
                two.gather(two.map(abs, [-1, -2], pure=True))
                for _ in range(2):
                    assert metrics(scraped)["dask_cache_keys"] == 1
                    assert metrics(other)["dask_cache_keys"] == 2
                two.run_on_scheduler(lambda dask_scheduler: current(dask_scheduler).leave())
                assert metrics(other) == {}
                assert metrics(scraped)["dask_cache_keys"] == 1
