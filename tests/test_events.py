"""Events, logs and reports of what the cache does; and what shows progress."""

from __future__ import annotations

import json
import logging

import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from dask.utils import format_bytes
from distributed import LocalCluster, as_completed, performance_report, progress, wait
from helpers import wait_until

from cachingclient import caching
from cachingclient.history import History, Reading
from cachingclient.news import MANY_LAYERS, News
from cachingclient.scheduler.overview import current
from cachingclient.web.report import HANDLER

META = np.empty((0,))
TOPIC = "cachingclient"


def slow(block):
    helpers.count()
    return block + 1


def build(n=4):
    return da.zeros(10 * n, chunks=10).map_blocks(slow, dtype="f8", meta=META)


def report(dask_scheduler):
    current(dask_scheduler).reporter.report()


def events(client):
    """What was published until now, by what happened."""
    client.run_on_scheduler(report)
    return [event for _, event in client.get_events(TOPIC)]


# -- events -----------------------------------------------------------------------


def test_one_event_a_batch(keen):
    x = build(50)
    x.sum().compute()
    (kept,) = [e for e in events(keen) if e["action"] == "keep"][-1:]
    info = keen.cache.info()
    assert sum(e["keys"] for e in events(keen) if e["action"] == "keep") == info.keys > 50
    assert sum(e["nbytes"] for e in events(keen)) == info.currsize
    assert len(events(keen)) < info.keys / 4, "one a second, not one a key"
    assert any(name.startswith("slow-") for name in kept["layers"])


def test_hits_evictions_and_clears(keen):
    x = build()
    x.sum().compute()
    x.mean().compute()
    hits = [e for e in events(keen) if e["action"] == "hit"]
    assert sum(e["keys"] for e in hits) == keen.cache.info().hits == 4
    keen.cache.resize(300)
    evicted = [e for e in events(keen) if e["action"] == "evict"]
    assert {e["cause"] for e in evicted} == {"limit"}
    assert sum(e["keys"] for e in evicted) == keen.cache.info().evictions > 0
    left = keen.cache.info().keys
    keen.cache.clear()
    (cleared,) = [e for e in events(keen) if e["action"] == "clear"]
    assert cleared["keys"] == left


def test_nothing_is_said_while_nothing_happens(keen):
    build().sum().compute()
    before = events(keen)
    assert events(keen) == before


def test_they_can_be_subscribed_to(keen):
    heard = []
    keen.subscribe_topic(TOPIC, lambda event: heard.append(event[1]["action"]))
    build().sum().compute()
    wait_until(lambda: "keep" in heard)
    keen.unsubscribe_topic(TOPIC)


def test_an_event_names_no_more_layers_than_a_person_reads():
    news = News()
    for n in range(10_000):
        news.note("keep", f"layer-{n}", nbytes=2)
    (event,) = news.take()
    assert (event["keys"], event["nbytes"], len(event["layers"])) == (10_000, 20_000, MANY_LAYERS)
    json.dumps(event)


# -- readings ---------------------------------------------------------------------


def test_readings_cover_a_long_life():
    history = History(many=100)
    for second in range(100_000):
        history.note(Reading(float(second), hits=second))
    assert 40 <= len(history.readings) < 100
    assert history.readings[0].time == 0 and history.readings[-1].time > 95_000
    times = [r.time for r in history.readings]
    assert times == sorted(times)
    apart = [b - a for a, b in zip(times, times[1:])]
    assert max(apart) <= 4 * min(apart)


def test_an_idle_cache_remembers_its_past():
    history = History(many=10)
    for second in range(5):
        history.note(Reading(float(second), hits=second))
    for second in range(5, 100_000):
        history.note(Reading(float(second), hits=4))
    assert [r.hits for r in history.readings] == [0, 1, 2, 3, 4]
    assert history.at(50_000).hits == 4 and history.at(2.5).hits == 2 and history.at(-1) is None


def test_the_last_change_is_not_forgotten():
    history = History(many=10)
    for second in range(100):
        history.note(Reading(float(second), hits=second))
    for second in range(100, 200):
        history.note(Reading(float(second), hits=99))
    assert history.readings[-1].hits == 99


# -- logs -------------------------------------------------------------------------


def test_logs_of_the_scheduler_have_it(keen):
    logger = logging.getLogger("distributed.scheduler.cachingclient")
    assert logger.parent is logging.getLogger("distributed.scheduler")
    with helpers.logged("distributed.scheduler.cachingclient", level=logging.INFO) as messages:
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            keen.cache.resize("3 MiB")
            build().sum().compute()
            number = keen.cache.info().keys
            keen.cache.clear()
        finally:
            logger.setLevel(level)
    assert "The cache keeps up to 3.00 MiB now" in messages
    assert f"{number:,} keys were cleared" in messages
    # a LocalCluster lets warnings through only
    logger.warning("This is for the logs")
    assert "This is for the logs" in str(keen.get_scheduler_logs())


# -- the report -------------------------------------------------------------------


def test_performance_report_has_a_section(keen, tmp_path):
    pytest.importorskip("bokeh")
    path = str(tmp_path / "report.html")
    build(3).sum().compute()
    x = build()
    keen.run_on_scheduler(report)
    before = keen.cache.info()
    with helpers.reporting(), performance_report(path):
        x.sum().compute()
        x.mean().compute()
    after = keen.cache.info()
    spent = after - before
    assert spent.hits == 4
    text = open(path, encoding="utf-8").read()
    text = text.replace("\\u003c", "<").replace("\\u003e", ">").replace("&lt;", "<")
    text = text.replace("&gt;", ">")
    assert "<h2> Cache </h2>" in text
    assert f"Hits: 4, misses: {spent.misses}, evictions: 0" in text
    assert f"Kept at the end: {format_bytes(after.currsize)} of" in text
    assert "slow-" in text and "Calling Code" in text


def test_reports_are_plain_again_without_a_cache():
    with LocalCluster(**helpers.INPROC) as cluster:
        plain = distributed.Client(cluster)
        handler = cluster.scheduler.handlers[HANDLER]
        with caching(plain):
            assert cluster.scheduler.handlers[HANDLER] is not handler
        assert cluster.scheduler.handlers[HANDLER] is handler
        plain.close()


# -- progress ---------------------------------------------------------------------


@pytest.fixture(params=["remembered by the client", "kept by the scheduler"])
def asked_again(keen, request):
    """A computation whose results are kept, asked for again in both ways that there are."""
    x = build()
    futures = keen.compute([x.sum(), x.mean()])
    assert keen.gather(futures) == [40, 1]
    del futures
    helpers.forgotten(keen)
    if request.param == "kept by the scheduler":
        keen._session.recent.clear()
    helpers.ran()
    yield keen.compute([x.sum(), x.mean()])
    assert helpers.ran() == 0


def test_as_completed(asked_again):
    done = [future.result() for future in as_completed(asked_again, timeout=10)]
    assert sorted(done) == [1, 40]
    assert sorted(r for _, r in as_completed(asked_again, with_results=True, timeout=10)) == [1, 40]


def test_progress(asked_again, capsys):
    progress(asked_again, notebook=False)
    assert "100% Completed" in capsys.readouterr().out
    done = wait(asked_again, timeout=10)
    assert len(done.done) == 2 and not done.not_done


def test_progress_of_a_persisted_collection(keen, capsys):
    x = build()
    x.sum().compute()
    for _ in range(2):
        y = x.persist()
        progress(y, notebook=False)
        assert "100% Completed" in capsys.readouterr().out
        assert y.sum().compute() == 40
        del y
    assert helpers.ran() == 4


@pytest.mark.parametrize("multi", [True, False], ids=["by function", "as one"])
def test_progress_in_a_notebook(keen, multi):
    pytest.importorskip("ipywidgets")
    numbers = range(-4, 0)
    assert keen.gather(keen.map(abs, numbers, pure=True)) == [4, 3, 2, 1]
    helpers.forgotten(keen)
    futures = keen.map(abs, numbers, pure=True)
    bar = progress(futures, notebook=True, multi=multi)
    # What a notebook does when it shows the widget
    bar.client().loop.add_callback(bar.listen)
    wait_until(lambda: hasattr(bar, "elapsed_time") and "Finished" in bar.elapsed_time.value)
    text = bar.bar_texts["abs"] if multi else bar.bar_text
    assert "4 / 4" in text.value
