"""Which client is meant: current and default ones, those of tasks, copies, other processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading

import cloudpickle
import dask
import dask.array as da
import distributed
import pytest
from distributed import LocalCluster, default_client, get_client
from helpers import INPROC, KEEN

import cachingclient
from cachingclient import Client, caching


@pytest.fixture
def cluster():
    with dask.config.set(KEEN), LocalCluster(**INPROC) as cluster:
        yield cluster


def current():
    """The client that is current here, if there is one."""
    try:
        return Client.current()
    except ValueError:
        return None


def test_the_last_one_is_current(cluster):
    assert current() is None
    with Client(cluster) as one:
        assert current() is distributed.Client.current() is default_client() is get_client() is one
        with distributed.Client(cluster) as plain:
            assert current() is plain
            with Client(cluster) as two:
                assert current() is two
                with Client(cluster, set_as_default=False):
                    assert current() is two
            assert current() is plain
        assert current() is one
    assert current() is None
    assert dask.config.get("scheduler", None) is None


def trail(cluster, kinds, order):
    """Who is current, and what becomes of a computation, as clients are closed one by one."""
    found = []
    with dask.config.set(scheduler=None):
        clients = [kind(cluster) for kind in kinds]
        for n in order:
            clients[n].close()
            now = current()
            found.append(next((i for i, c in enumerate(clients) if c is now), None))
            try:
                found.append(int(da.ones(4, chunks=2).sum().compute()))
            except RuntimeError as e:
                found.append(str(e))
            found.append(dask.config.get("scheduler"))
    return found


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_closed_in_any_order(cluster, order):
    plain = trail(cluster, (distributed.Client,) * 3, order)
    assert plain[0] == (1 if order[0] == 2 else 2)
    assert trail(cluster, (Client,) * 3, order) == plain
    assert trail(cluster, (Client, distributed.Client, Client), order) == plain


def test_as_current(cluster):
    with Client(cluster) as one, Client(cluster, set_as_default=False) as two:
        with two.as_current():
            assert current() is two
            with one.as_current():
                assert current() is one
                assert da.ones(6, chunks=2).sum().compute() == 6
            assert current() is two
            found = []
            thread = threading.Thread(target=lambda: found.append(current()))
            thread.start()
            thread.join()
            assert found == [one]
        assert current() is one


def test_computed_by_the_one_that_is_current():
    """Two clusters: a computation goes to that of the client that is current."""
    with dask.config.set(KEEN), Client(**INPROC) as one, Client(**INPROC) as two:
        x = da.arange(8, chunks=2).map_blocks(lambda b: b * 3)
        with one.as_current():
            assert x.sum().compute() == 84
        assert (one.cache.info().keys > 0, two.cache.info().keys) == (True, 0)
        assert x.sum().compute() == 84
        assert two.cache.info().keys > 0
        with one.cache.disabled():
            assert x.max().compute() == 21
        assert one.compute(x.min()).result() == 0
        assert two.cache.info().hits > 0 and one.cache.info().hits > 0


def test_client_of_a_cluster(cluster):
    with Client(cluster) as client:
        assert cluster.get_client() is client
    with cluster.get_client() as other:
        assert type(other) is distributed.Client


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps], ids=["pickle", "cloudpickle"])
def test_a_client_is_no_more_copied_than_a_plain_one(cluster, dumps):
    def refused(client):
        with pytest.raises((TypeError, AttributeError)):
            dumps(client)

    with distributed.Client(cluster) as plain, Client(cluster) as client:
        refused(client)
        refused(plain)
        with caching(plain):
            refused(plain)


def test_a_client_in_a_task(cluster):
    """An argument that cannot be sent ends as with a plain client, which works on."""
    found = []
    for make in (distributed.Client, Client):
        with make(cluster) as client:
            with pytest.raises(Exception) as e:
                client.submit(repr, client, key="x").result(30)
            found.append(e.type)
            assert client.submit(abs, -1, pure=True).result(30) == 1
    assert found[0] is found[1]


# -- other processes ----------------------------------------------------------------------

FORKED = """
    import multiprocessing, os, sys
    import dask, dask.array as da
    import distributed
    import {package} as package

    def said():
        try:
            client = distributed.Client.current()
        except ValueError:
            return "none"
        return client.status

    def child(queue):
        x = da.arange(8, chunks=2)
        queue.put((said(), int(x.sum().compute(scheduler="sync"))))

    if __name__ == "__main__":
        where = dict(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
        with package.Client(**where, protocol="tcp://") as client:
            x = da.arange(8, chunks=2)
            assert x.sum().compute() == 28
            context = multiprocessing.get_context("{method}")
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            print(*queue.get(timeout=200))
            process.join(200)
            print(process.exitcode)
            assert x.max().compute() == 7
        print(said())
"""

JOINING = """
    import multiprocessing
    import dask, dask.array as da
    from cachingclient import Client

    def child(address):
        with Client(address) as client:
            return int(da.arange(8, chunks=2).sum().compute()), client.cache.info().hits > 0

    if __name__ == "__main__":
        where = dict(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
        settings = {{"cachingclient.min-cost": "0s", "cachingclient.task-overhead": "0s"}}
        with dask.config.set(settings), Client(**where, protocol="tcp://") as client:
            assert da.arange(8, chunks=2).sum().compute() == 28
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print(pool.map(child, [client.scheduler.address] * 2))
            print(int(da.arange(8, chunks=2).max().compute()))
"""


def run(tmp_path, code, **what):
    """What a script prints."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(code).format(**what))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(cachingclient.__file__))},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_a_process_with_a_client(tmp_path, method):
    ours, plain = (
        run(tmp_path, FORKED, package=package, method=method)
        for package in ("cachingclient", "distributed")
    )
    assert ours == plain
    assert ours[0].endswith(" 28") and ours[1:] == ["0", "none"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_with_clients_of_their_own(tmp_path, method):
    assert run(tmp_path, JOINING, method=method) == ["[(28, True), (28, True)]", "7"]


def test_a_future_travels_alone(cluster):
    """A future is its key: nothing of a session travels with it."""
    with Client(cluster) as client:
        future = client.submit(abs, -1, pure=True)
        assert future.result() == 1
        assert len(pickle.dumps(future)) < 200
