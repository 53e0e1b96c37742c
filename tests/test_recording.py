"""`client.cache.record`: what is written, and that a simulator decides as the product did."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path

import dask
import dask.array as da
import helpers
import numpy as np
import pytest

import cachingclient
from cachingclient import Client

BENCHMARKS = Path(__file__).parent.parent / "benchmarks" / "policies"
META = np.empty((0,))
POLICIES = ["cachey", "group", "lru"]


@pytest.fixture
def traces(monkeypatch):
    """The simulator's reader of traces."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import traces

    yield traces
    for name in ("traces", "simulator"):
        sys.modules.pop(name, None)


def slow(block, seconds):
    time.sleep(seconds)
    return block + 1


def secret_name(block):
    return block * 2


def build(value, seconds=0.01, n=4, size=1000):
    x = da.full(n * size, float(value), chunks=size)
    return x.map_blocks(slow, seconds, dtype="f8", meta=META)


def play(client):
    """A session of more than fits, with repeats; returns what is kept then."""
    values = list(range(6))
    arrays = [build(value, 0.002 * (value + 1)) for value in values]
    for turn in range(3):
        for i, x in enumerate(arrays):
            if (i + turn) % 3:
                assert x.sum().compute() == x.size * (values[i] + 1)
        del x
        values[turn] = 10 + turn
        arrays[turn] = build(values[turn])
        client.cache.resize(100_000 + 10_000 * turn)
    helpers.forgotten(client)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replayed_trace_keeps_the_same_set(policy, traces, tmp_path):
    path = tmp_path / "session.trace"
    with dask.config.set({**helpers.KEEN, "cachingclient.policy": policy}):
        with Client(**helpers.INPROC, cache_limit=100_000) as client:
            with client.cache.record(path):
                play(client)
            info = client.cache.info()
            names = {entry.name for entry in client.cache.entries()}
    assert info.evictions > 5 and info.hits > 0 and info.currsize > 50_000
    header, events = traces.read(path)
    replay = traces.Replay(header).run(events)
    assert replay.differences == []
    assert set(replay.ledger.kept) == replay.recorded
    assert len(replay.ledger.kept) == info.keys
    assert len(replay.ledger.names) == len(names)
    assert (replay.ledger.currsize, replay.ledger.hits) == (info.currsize, info.hits)


def test_another_policy_decides_otherwise(traces, tmp_path):
    # Or the test above would prove nothing.
    path = tmp_path / "session.trace"
    with dask.config.set(helpers.KEEN):
        with Client(**helpers.INPROC, cache_limit=100_000) as client:
            with client.cache.record(path):
                play(client)
    header, events = traces.read(path)
    replay = traces.Replay({**header, "policy": "lru"}).run(events)
    assert replay.differences


def test_a_recorded_session_runs_with_any_policy_and_limit(traces, tmp_path, keen):
    path = tmp_path / "session.trace"
    with keen.cache.record(path):
        x = build(1)
        assert (x.sum().compute(), x.max().compute()) == (8000, 2)
    session = traces.session(path)
    from simulator import plain_work, run

    from cachingclient.policy import make_policy

    plain = plain_work(session)
    unlimited = run(session, make_policy("group"), 10**9).work
    nothing = run(session, make_policy("group"), 0).work
    assert unlimited < 0.75 * plain and nothing == pytest.approx(plain)


def test_no_names_no_data_no_code(keen, tmp_path):
    path = tmp_path / "session.trace"
    with keen.cache.record(path) as recording:
        x = da.full(8, 271828.0, chunks=2).map_blocks(secret_name, dtype="f8", meta=META)
        assert x.sum().compute() == 8 * 271828 * 2
        keen.cache.pin(x)
    text = path.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert {"submit", "ran", "offer", "pin"} <= {e[0] for e in events[1:]}
    assert recording.events == len(events) - 1
    for word in ("secret", "sum", x.name, x.name[-32:], "271828", "inproc", "tcp", keen.id):
        assert word not in text


def test_equal_names_are_hashed_alike_within_a_recording_and_not_beyond(keen, tmp_path):
    names = []
    for i in range(2):
        keen.cache.clear()
        helpers.forgotten(keen)
        with keen.cache.record(tmp_path / str(i)):
            assert build(1).max().compute() == 2
        lines = (tmp_path / str(i)).read_text().splitlines()[1:]
        events = list(map(json.loads, lines))
        asked = {n for e in events if e[0] == "submit" for n in e[3]}
        ran = {e[2] for e in events if e[0] == "ran"}
        assert ran and ran <= asked
        names.append(ran)
    assert not names[0] & names[1]


def test_nothing_is_noted_before_and_after(keen, tmp_path):
    plugin = keen.cluster.scheduler.plugins["cachingclient"]
    assert plugin.ledger.journal is None
    recording = keen.cache.record(tmp_path / "trace")
    assert plugin.ledger.journal is not None and "going on" in repr(recording)
    recording.stop()
    assert plugin.ledger.journal is None and "closed" in repr(recording)
    size = (tmp_path / "trace").stat().st_size
    assert build(1).max().compute() == 2
    recording.stop()
    assert (tmp_path / "trace").stat().st_size == size


@pytest.mark.parametrize("path, error", [(7, TypeError), (None, TypeError), ("", TypeError)])
def test_what_is_no_path(keen, path, error):
    with pytest.raises(error, match="path must be"):
        keen.cache.record(path)


def test_a_path_that_cannot_be_written(keen, tmp_path):
    plugin = keen.cluster.scheduler.plugins["cachingclient"]
    for path in (tmp_path, tmp_path / "no" / "such" / "folder"):
        with pytest.raises(OSError, match="path cannot be written"):
            keen.cache.record(path)
    assert plugin.ledger.journal is None
    keen.cache.record(tmp_path / "fine").stop()


def test_a_second_recording_leaves_the_first_alone(keen, tmp_path):
    (tmp_path / "second").write_text("mine")
    with keen.cache.record(tmp_path / "first"):
        for name in ("second", "third"):
            with pytest.raises(RuntimeError, match="going on already"):
                keen.cache.record(tmp_path / name)
        assert build(1).max().compute() == 2
    assert (tmp_path / "second").read_text() == "mine" and not (tmp_path / "third").exists()
    assert len((tmp_path / "first").read_text().splitlines()) > 4


def test_whoever_records_and_goes_leaves_nothing(keen, tmp_path):
    plugin = keen.cluster.scheduler.plugins["cachingclient"]
    with Client(keen.scheduler.address) as other:
        other.cache.record(tmp_path / "trace")
        assert plugin.ledger.journal is not None
    helpers.wait_until(lambda: plugin.ledger.journal is None)
    keen.cache.record(tmp_path / "mine").stop()


@pytest.mark.parametrize("own", [False, True])
def test_a_client_that_closes_while_it_records(own, keen, tmp_path):
    """The rest cannot be fetched any more: that is said, once, and the file is closed."""
    with pytest.warns(UserWarning, match="not complete") as caught:
        with helpers.logged("asyncio") as messages:
            client = Client(**helpers.INPROC) if own else Client(keen.cluster)
            with client.cache.record(tmp_path / "trace") as recording:
                client.close()
                recording.stop()
            gc.collect()
    assert not messages and "closed" in repr(recording)
    assert len([w for w in caught if "not complete" in str(w.message)]) == 1


def test_a_cache_that_goes_while_it_is_recorded(keen, tmp_path):
    plugin = keen.cluster.scheduler.plugins["cachingclient"]
    with pytest.warns(UserWarning, match="not complete"):
        with keen.cache.record(tmp_path / "trace"):
            plugin.loop.call_soon_threadsafe(plugin.leave)
            helpers.wait_until(lambda: keen.cache._session.scheduler_id is None)


def test_a_client_without_a_cache(tmp_path):
    with Client(**helpers.INPROC, cache_limit=0) as client:
        with pytest.raises(RuntimeError, match="no cache"):
            client.cache.record(tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


def test_on_an_asynchronous_client(tmp_path):
    async def main():
        async with cachingclient.Client(**helpers.INPROC, asynchronous=True) as client:
            async with await client.cache.record(tmp_path / "trace"):
                assert await client.submit(sum, [1, 2], pure=True) == 3
            recording = await client.cache.record(tmp_path / "other")
            await recording.stop()

    asyncio.run(main())
    assert '["ran"' in (tmp_path / "trace").read_text()


def test_a_recorder_that_nobody_comes_to_stops(keen, tmp_path, monkeypatch):
    monkeypatch.setattr("cachingclient.scheduler.recorder.MOST", 3)
    plugin = keen.cluster.scheduler.plugins["cachingclient"]
    with pytest.warns(UserWarning, match="not complete"):
        with keen.cache.record(tmp_path / "trace"):
            assert build(1).max().compute() == 2
            helpers.wait_until(lambda: plugin.ledger.journal is None)
