"""Clusters that give away clients of their own, other subclasses, and TLS, through `caching`."""

from __future__ import annotations

import os
import shutil
import subprocess

import dask
import dask.array as da
import distributed
import helpers
import numpy as np
import pytest
from distributed import LocalCluster
from distributed.comm import registry
from distributed.security import Security
from helpers import INPROC, KEEN, count, ran

from cachingclient import Client, caching

META = np.empty((0,))
SCHEME = "detour"


def slow(block):
    count()
    return block + 1


def build(blocks=4):
    x = da.ones(10 * blocks, chunks=10, dtype="f8")
    return x.map_blocks(slow, dtype="f8", meta=META)


def check_it_caches(client, cache):
    x = build()
    assert client.compute(x.sum()).result() == 80
    assert client.compute(x.mean()).result() == 2
    assert client.compute(x.sum()).result() == 80
    assert ran() == 4
    assert cache.info().keys > 0
    helpers.validate(client)


# -- a cluster behind a gateway -----------------------------------------------------------


class Detour(registry.Backend):
    """Addresses ``detour://host:port/name`` of schedulers that are reached by another way."""

    def get_connector(self):
        plain = registry.get_backend("tcp").get_connector()

        class Connector:
            async def connect(self, address, deserialize=True, **kwargs):
                return await plain.connect(address.split("/")[0], deserialize, **kwargs)

        return Connector()

    def get_listener(self, *args, **kwargs):
        raise NotImplementedError("nobody listens there")

    def get_address_host(self, loc):
        return loc.split(":")[0]

    def get_address_host_port(self, loc):
        host, port = loc.split("/")[0].split(":")
        return host, int(port)

    def resolve_address(self, loc):
        return loc

    def get_local_address_for(self, loc):
        return loc


class GatewayClient(distributed.Client):
    """Has arguments of its own, and computes in its own way."""

    def __init__(self, cluster, *, tenant="me", **kwargs):
        self.tenant = tenant
        self.computed = self.started = 0
        super().__init__(cluster, **kwargs)

    async def _start(self, **kwargs):
        await super()._start(**kwargs)
        self.started += 1

    def compute(self, collections, **kwargs):
        self.computed += 1
        return super().compute(collections, **kwargs)

    async def _close(self, *args, **kwargs):
        await super()._close(*args, **kwargs)
        self.tenant = None


class GatewayCluster(LocalCluster):
    """Schedulers are reached by another address, with a client of its own kind."""

    @property
    def scheduler_address(self):
        plain = super().scheduler_address
        return plain and plain.replace("tcp://", f"{SCHEME}://") + "/name"

    def get_client(self, **kwargs):
        return GatewayClient(self, **kwargs)


@pytest.fixture
def gateway(monkeypatch):
    monkeypatch.setitem(registry.backends, SCHEME, Detour())
    with dask.config.set(KEEN), GatewayCluster(**INPROC, protocol="tcp://") as cluster:
        yield cluster


def test_client_of_a_gateway(gateway):
    with gateway.get_client(tenant="you") as client:
        before = helpers.look(client), dict(vars(client))
        with caching(client) as cache:
            assert client.scheduler.address.startswith(f"{SCHEME}://")
            check_it_caches(client, cache)
            assert client.computed == 3 and client.tenant == "you"
        for handle in ("_graph_to_futures", "submit", "map", "scatter", "_cachingclient"):
            assert handle not in vars(client)
        helpers.wait_until(lambda: helpers.look(client) == before[0])
        assert set(vars(client)) == set(before[1])
        assert client.compute(build().sum()).result() == 80
    assert client.started == 1 and client.tenant is None


def test_caching_client_of_a_gateway(gateway):
    with Client(gateway) as client:
        check_it_caches(client, client.cache)
        assert gateway.get_client().__class__ is GatewayClient


@pytest.mark.parametrize("away", [False, True], ids=["here", "away"])
def test_files_behind_a_gateway_are_elsewhere(gateway, monkeypatch, away):
    """Its address may be one of this machine: a path that is not here may be there."""
    if away:
        monkeypatch.setattr("cachingclient.session.gethostname", lambda: "my-laptop")
    with Client(gateway) as client:
        assert client._session.watch.elsewhere is away


def test_preload_of_a_gateways_client(gateway):
    with dask.config.set({"distributed.client.preload": ["cachingclient.preload"]}):
        with gateway.get_client() as client:
            check_it_caches(client, client.cache)


class GatewayCaching(GatewayClient, Client):
    """Somebody who made his client a caching one."""


def test_a_subclass_of_both(gateway):
    with GatewayCaching(gateway, tenant="us", cache_limit="1 GiB") as client:
        check_it_caches(client, client.cache)
        assert client.cache.info().maxsize == 2**30
        with caching(client) as cache:
            assert cache.info().keys > 0
        assert client.cache.info().keys > 0
    assert client.started == 1 and client.tenant is None


# -- a cluster that starts without workers ------------------------------------------------


class QueueCluster(LocalCluster):
    """Workers come when the queue lets them."""

    def __init__(self):
        super().__init__(**INPROC | {"n_workers": 0})


def test_a_cluster_whose_workers_come_later():
    with dask.config.set(KEEN), QueueCluster() as cluster:
        with cluster.get_client() as client, caching(client) as cache:
            x = build()
            waiting = client.compute(x.sum())
            cluster.scale(2)
            assert waiting.result() == 80
            assert client.compute(x.mean()).result() == 2
            # what ran before its worker was guarded is not kept
            assert 4 <= ran() <= 8
            assert client.compute(x.std()).result() == 0
            assert ran() == 0
            cluster.scale(1)
            helpers.wait_until(lambda: len(cluster.scheduler.workers) == 1, 30)
            assert client.compute(x.max()).result() == 2
            assert cache.info().maxsize > 0
            helpers.validate(client)


def test_an_adaptive_cluster():
    with dask.config.set(KEEN), QueueCluster() as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="50ms")
        with Client(cluster) as client:
            x = build()
            assert client.compute(x.sum()).result() == 80
            assert client.compute(x.mean()).result() == 2
            helpers.validate(client)


# -- methods that a subclass hides --------------------------------------------------------


class Hiding(distributed.Client):
    """Methods with signatures of their own."""

    asked: list = []

    def submit(self, function, *args):
        self.asked.append("submit")
        return super().submit(function, *args, pure=False)

    def persist(self, collections):
        self.asked.append("persist")
        return super().persist(collections)

    def get(self, graph, keys, **kwargs):
        self.asked.append("get")
        return super().get(graph, keys, **kwargs)

    def scatter(self, data):
        self.asked.append("scatter")
        return super().scatter([data], broadcast=True)[0]


def test_methods_with_signatures_of_their_own():
    Hiding.asked = []
    with dask.config.set(KEEN), Hiding(**INPROC) as client, caching(client) as cache:
        assert client.submit(sum, [1, 2]).result() == 3
        assert client.submit(sum, [client.scatter(4)]).result() == 4
        x = client.persist(build())
        assert x.sum().compute() == 80
        assert Hiding.asked == ["submit", "scatter", "submit", "persist", "get"]
        check_it_caches(client, cache)


# -- TLS ----------------------------------------------------------------------------------


@pytest.fixture
def security(tmp_path):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subject = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(
        [openssl, "req", *subject, "-keyout", key, "-out", cert], check=True, capture_output=True
    )
    assert os.path.exists(cert)
    roles = {
        f"tls_{role}_{part}": path
        for role in ("scheduler", "worker", "client")
        for part, path in (("cert", cert), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=cert, **roles)


@pytest.mark.parametrize("kind", ["client", "caching"])
def test_tls(security, kind):
    how = {**INPROC, "protocol": "tls", "security": security}
    with dask.config.set(KEEN), LocalCluster(**how) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        make = Client if kind == "client" else distributed.Client
        with make(address, security=security) as client:
            if kind == "client":
                check_it_caches(client, client.cache)
            else:
                with caching(client) as cache:
                    check_it_caches(client, cache)
