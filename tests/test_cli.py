"""``dask cache`` and the preloads, as commands of a shell."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import dask
import helpers
import pytest
import yaml
from click.testing import CliRunner
from distributed import Client as PlainClient
from distributed import LocalCluster, Scheduler
from distributed.utils import open_port
from distributed.utils_test import gen_test
from helpers import KEEN

import cachingclient
from cachingclient import Client, caching, cli
from cachingclient.preload import dask_setup

ROOT = Path(__file__).parent.parent
NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Where ``dask`` finds the command, installed or not."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    if not any(point.name == "cache" for point in entry_points(group="dask_cli")):
        setup = configparser.ConfigParser()
        setup.read(ROOT / "setup.cfg")
        info = tmp_path_factory.mktemp("site") / "cachingclient-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cachingclient\nVersion: 0\n")
        points = setup["options.entry_points"]["dask_cli"].strip()
        (info / "entry_points.txt").write_text(f"[dask_cli]\n{points}\n")
        paths.append(str(info.parent))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture(scope="module")
def dask_(environment):
    """``dask_(...)`` runs it as a shell does."""

    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dask", *args],
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture(scope="module")
def connected():
    with dask.config.set(KEEN), LocalCluster(**helpers.INPROC | {"protocol": "tcp"}) as cluster:
        with Client(cluster, set_as_default=False) as client:
            yield client


@pytest.fixture
def kept(connected):
    """A client of a scheduler that keeps four keys."""
    connected.cache.resize("1 MiB")
    assert connected.gather(connected.map(abs, range(-4, 0), pure=True)) == [4, 3, 2, 1]
    return connected


def address_of(client):
    return client.scheduler.address


def test_info(dask_, kept):
    done = dask_("cache", "info", address_of(kept))
    assert done.returncode == 0, done.stderr
    assert re.search(r"Kept: +112 B of 1\.00 MiB, in 4 keys of 4 layers", done.stdout)
    assert re.search(rf"Misses: +{kept.cache.info().misses}\n", done.stdout)


def test_info_for_programs(dask_, kept):
    found = json.loads(dask_("cache", "info", "--json", address_of(kept)).stdout)
    info = kept.cache.info()
    assert {field: found[field] for field in info._fields} == info._asdict()
    assert (found["keys"], found["maxsize"], len(found["workers"])) == (4, 2**20, 2)


def test_entries(dask_, kept):
    lines = dask_("cache", "entries", address_of(kept)).stdout.splitlines()
    assert lines[0].split()[:3] == ["layer", "kept", "bytes"]
    assert len(lines) == 5 and all(line.startswith("abs-") for line in lines[1:])
    found = json.loads(invoke("entries", address_of(kept), "--json", "--most", "2").stdout)
    assert len(found) == 2
    assert invoke("entries", address_of(kept), "--prefix", "x").stdout == "nothing is kept\n"


def test_resize(dask_, kept):
    assert "512.00 kiB" in dask_("cache", "resize", address_of(kept), "512 kiB").stdout
    assert kept.cache.info().maxsize == 2**19
    found = json.loads(invoke("resize", "--json", address_of(kept), "1 MiB").stdout)
    assert found == {"maxsize": 2**20}


def test_clear(dask_, kept):
    done = invoke("clear", address_of(kept), "--prefix", "other")
    assert done.stdout == "0 keys let go\n"
    assert dask_("cache", "clear", address_of(kept)).stdout == "4 keys let go\n"
    assert kept.cache.info().keys == 0


def test_no_scheduler(dask_):
    done = dask_("cache", "info", NOBODY)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: No scheduler answers at {NOBODY}: ")
    assert "Traceback" not in done.stderr and done.stdout == ""


ALL = pytest.mark.parametrize(
    "command, more", [("info", ()), ("entries", ()), ("clear", ()), ("resize", ("1 MiB",))]
)


def invoke(*args):
    """The same in this process, which takes less time."""
    return CliRunner().invoke(cli.cache, args)


@ALL
@pytest.mark.parametrize("where", [NOBODY, "spam://eggs", "127.0.0.1", ""])
def test_no_scheduler_for_any_command(monkeypatch, command, more, where):
    monkeypatch.setattr(cli, "TIMEOUT", 0.3)
    done = invoke(command, where, *more)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: No scheduler answers at {where}: ")
    assert done.stdout == ""


@ALL
def test_no_cache(command, more):
    with LocalCluster(**helpers.INPROC | {"protocol": "tcp"}) as cluster:
        place = cluster.scheduler_address
        done = invoke(command, place, *more)
    assert done.exit_code == 1
    assert done.stderr == f"Error: The scheduler at {place} keeps no cache.\n"


def test_a_limit_that_makes_no_sense():
    done = invoke("resize", NOBODY, "lots")
    assert done.exit_code == 2
    assert "LIMIT must be" in done.stderr and "'lots'" in done.stderr


def test_help(dask_):
    assert "cache" in dask_("--help").stdout
    for command in ("info", "entries", "clear", "resize"):
        assert command in invoke("--help").stdout
        assert "--json" in invoke(command, "--help").stdout


def test_tls_through_the_configuration(dask_, tmp_path):
    security = helpers.certified(tmp_path)
    with LocalCluster(**helpers.INPROC | {"protocol": "tls"}, security=security) as cluster:
        with Client(cluster, set_as_default=False):
            place = cluster.scheduler_address
            assert place.startswith("tls://")
            tls = "DASK_DISTRIBUTED__COMM__TLS__"
            said = {
                f"{tls}CA_FILE": security.tls_ca_file,
                f"{tls}CLIENT__CERT": security.tls_client_cert,
                f"{tls}CLIENT__KEY": security.tls_client_key,
            }
            done = dask_("cache", "info", place, **said)
            assert done.returncode == 0, done.stderr
            assert "in 0 keys" in done.stdout
            assert invoke("info", place).exit_code == 1


# -- configuration ---------------------------------------------------------------


def test_dask_config_shows_the_settings(dask_):
    said = {"DASK_CACHINGCLIENT__AUDIT": "0.5"}
    shown = yaml.safe_load(dask_("config", "get", "cachingclient", **said).stdout)
    assert shown == {**cachingclient.config.DEFAULTS["cachingclient"], "audit": 0.5}
    assert dask_("config", "get", "cachingclient.halflife").stdout == "100\n"


# -- preloads --------------------------------------------------------------------


@contextlib.contextmanager
def scheduler(environment, *args: str) -> Iterator[tuple[str, subprocess.Popen]]:
    port = open_port()
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--no-dashboard", "--dashboard-address", ":0", *args],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"tcp://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.communicate(timeout=30)


PRELOAD = ("--preload", "cachingclient.preload")


def test_preloaded_scheduler_keeps_nothing_for_plain_clients(environment, dask_):
    """Nothing has to be sent to it, which it would refuse."""
    refusing = {
        **environment,
        "DASK_DISTRIBUTED__SCHEDULER__BLOCKED_HANDLERS": '["register_scheduler_plugin"]',
    }
    with scheduler(refusing, *PRELOAD, "--cache-limit", "3 MiB") as (place, _):
        with PlainClient(place, timeout="30s", set_as_default=False) as plain:
            found = json.loads(dask_("cache", "info", "--json", place).stdout)
            assert (found["maxsize"], found["keys"]) == (3 * 2**20, 0)
            with helpers.worker_of(place):
                assert plain.gather(plain.map(abs, [-1, -2], pure=True)) == [1, 2]
                assert json.loads(dask_("cache", "info", "--json", place).stdout)["misses"] == 0


def test_caching_client_of_a_preloaded_scheduler(environment):
    with scheduler(environment, *PRELOAD) as (place, _), helpers.worker_of(place):
        with dask.config.set(KEEN):
            with Client(place, timeout="30s", set_as_default=False) as client:
                assert not client._session.installed
                assert client.gather(client.map(abs, [-1, -2], pure=True)) == [1, 2]
                # it was told its own min-cost
                assert client.cache.info().misses == 2


def test_preload_refuses_a_limit(environment):
    with scheduler(environment, *PRELOAD, "--cache-limit", "lots") as (_, process):
        assert process.wait(timeout=30) == 2
        assert "--cache-limit must be" in process.stderr.read()


CODE = """
import time
from distributed import Client

def slow(x):
    time.sleep(0.1)
    return x + 1

if __name__ == "__main__":
    with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
        assert type(client) is Client
        for _ in range(3):
            assert client.submit(slow, 1, pure=True).result() == 2
        print(client.cache.info().misses, "Cache" in client._repr_html_())
        cluster = client.cluster
        handlers = cluster.scheduler.handlers
    print("cachingclient" in handlers)
"""


def test_client_preload(environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={
            **environment,
            "DASK_DISTRIBUTED__CLIENT__PRELOAD": '["cachingclient.preload"]',
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 True", "False"], done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def preloaded_clients():
    with dask.config.set({"distributed.client.preload": ["cachingclient.preload"], **KEEN}):
        yield


def test_client_preload_leaves_the_client_as_it_was(preloaded_clients):
    with LocalCluster(**helpers.INPROC) as cluster:
        client = PlainClient(cluster, set_as_default=False)
        before = dict(vars(client))
        assert client.submit(abs, -1, pure=True).result() == 1
        assert client.cache.info().keys == 1
        client.close()
        assert "cache" not in vars(client) and "submit" in before
        assert "submit" not in vars(client)
        # what is kept outlives its client, as that of any caching client
        with PlainClient(cluster, set_as_default=False) as again:
            assert again.cache.info().keys == 1


def test_code_that_asks_for_caching_runs_with_a_client_preload(preloaded_clients):
    with PlainClient(**helpers.INPROC) as client:
        with caching(client) as cache:
            assert client.submit(abs, -1, pure=True).result() == 1
            assert cache.info() == client.cache.info()
        assert client.cache.info().keys == 1


@gen_test()
async def test_client_preload_of_an_asynchronous_client():
    with dask.config.set({"distributed.client.preload": ["cachingclient.preload"], **KEEN}):
        async with PlainClient(**helpers.INPROC, asynchronous=True) as client:
            assert await client.submit(abs, -1, pure=True) == 1
            assert (await client.cache.info()).keys == 1


def test_scheduler_preload_through_the_configuration():
    preload = {
        "distributed.scheduler.preload": ["cachingclient.preload"],
        "distributed.scheduler.preload-argv": ["--cache-limit", "3 MiB"],
    }
    with dask.config.set(preload), LocalCluster(**helpers.INPROC) as cluster:
        for _ in range(2):
            with Client(cluster) as client:
                assert client.cache.info().maxsize == 3 * 2**20
                assert not client._session.installed
        assert "cachingclient" in cluster.scheduler.plugins


def test_client_preload_with_a_caching_client(preloaded_clients):
    with LocalCluster(**helpers.INPROC) as cluster, Client(cluster) as client:
        assert client.submit(abs, -1, pure=True).result() == 1
        assert client.cache.info().keys == 1


@gen_test()
async def test_scheduler_preload_with_a_limit_of_zero_keeps_nothing():
    async with Scheduler(dashboard_address=":0", dashboard=False, port=0) as s:
        await dask_setup.callback(s, 0)
        assert "cachingclient" not in s.plugins


@gen_test()
async def test_preload_of_anything_else_is_refused():
    with pytest.raises(TypeError, match="for schedulers and clients, got a str"):
        await dask_setup.callback("a worker", None)
