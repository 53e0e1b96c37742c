"""Settings: what is wrong is refused by name, before anything uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask.config
import pytest

from cachingclient import config
from cachingclient.config import DEFAULTS, Settings, parse_limit, read_settings

ROOT = Path(__file__).parent.parent
YAML = Path(config.__file__).with_name("cachingclient.yaml")


def in_fresh_process(code: str, **environment: str) -> str:
    """Output of code in a process whose environment says something: dask reads it at import."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- limits ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (0, 0),
        (0.0, 0),
        ("0", 0),
        (0.2, 0.2),
        ("0.2", 0.2),
        (1, 1),
        (2, 2),
        (10**9, 10**9),
        ("1e9", 10**9),
        ("2 GiB", 2 * 2**30),
        ("2GB", 2 * 10**9),
        (2**60, 2**60),
    ],
)
def test_limits(value, limit):
    assert parse_limit(value) == limit


@pytest.mark.parametrize(
    "value",
    [-1, -0.1, float("nan"), float("inf"), 2**60 + 1, pytest.param(10**400, id="huge")]
    + ["", " ", "lots", "2 GiBB", "-1 GiB", "nan", "inf", "-inf", "2.5e99 GiB", "1e999 GiB"],
)
def test_limits_that_make_no_sense_are_refused_by_name(value):
    with pytest.raises(ValueError, match="my_limit must"):
        parse_limit(value, "my_limit")


@pytest.mark.parametrize("value", [None, True, False, [1], {}, 1j, b"2 GiB", object()])
def test_limits_of_a_wrong_type_are_refused_by_name(value):
    with pytest.raises(TypeError, match="my_limit must"):
        parse_limit(value, "my_limit")


def test_the_message_shows_the_value():
    with pytest.raises(ValueError, match="'lots'"):
        parse_limit("lots")


# -- settings --------------------------------------------------------------------


def test_defaults_can_be_read():
    settings = read_settings()
    assert (settings.cache_limit, settings.halflife, settings.barriers) == (0.2, 100, True)
    assert (settings.min_cost, settings.task_overhead) == (0.005, 0.004)
    assert (settings.first_sight_overhead, settings.recent_keys) == (0.5, 10_000)
    assert (settings.lease_time, settings.idle_time) == (30, 600)


@pytest.mark.parametrize("key", config._READERS)
@pytest.mark.parametrize("value", [None, object(), {"a": 1}], ids=["None", "object", "dict"])
def test_what_makes_no_sense_for_any_setting_is_refused_by_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((ValueError, TypeError), match=rf"cachingclient\.{key} "):
            read_settings()


def test_each_setting_has_a_default_and_a_reader():
    assert set(DEFAULTS) == {"cachingclient"}
    assert list(DEFAULTS["cachingclient"]) == list(config._READERS)
    fields = [key.replace("-", "_") for key in config._READERS]
    assert fields == list(Settings.__dataclass_fields__)


def test_each_line_of_the_defaults_has_one_comment():
    lines = YAML.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "cachingclient:"
    assert len(lines) == 1 + len(config._READERS)
    for line in lines[1:]:
        setting, *comments = line.split(" # ")
        assert setting.startswith("  ") and ": " in setting
        assert len(comments) == 1 and comments[0].strip()


TIMES = [
    "min-cost",
    "first-sight-overhead",
    "task-overhead",
    "lease-time",
    "idle-time",
    "source-lifetime",
]
COUNTS = ["halflife", "recent-keys"]
SWITCHES = ["barriers", "impure", "share-sources", "hints"]
LISTS = ["never", "always", "effects", "checksums"]
SHARES = ["audit"]
BYTES = ["scheduler-memory"]
CHOICES = ["policy"]


@pytest.mark.parametrize("value", ["fifo", "", "LRU", None, 1, True, ["lru"]])
def test_no_such_policy(value):
    with dask.config.set({"cachingclient.policy": value}):
        with pytest.raises(ValueError, match="cachingclient.policy must be one of cachey, group,"):
            read_settings()


@pytest.mark.parametrize("value", ["group", "cachey", "lru"])
def test_policies(value):
    assert read_settings().policy == "group"
    with dask.config.set({"cachingclient.policy": value}):
        assert read_settings().policy == value


@pytest.mark.parametrize("key", BYTES)
@pytest.mark.parametrize("value", [0, 0.5, 1, -1, "lots", "", None, True, [1]])
def test_bad_bytes(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((TypeError, ValueError), match=f"cachingclient.{key}"):
            read_settings()


@pytest.mark.parametrize("key", BYTES)
@pytest.mark.parametrize("value, expected", [("3 MiB", 3 * 2**20), (5000, 5000), ("1e6", 1e6)])
def test_bytes(key, value, expected):
    with dask.config.set({f"cachingclient.{key}": value}):
        assert getattr(read_settings(), key.replace("-", "_")) == expected


def test_each_setting_is_of_a_kind_that_is_tested_here():
    tested = {"cache-limit", *TIMES, *COUNTS, *SWITCHES, *LISTS, *SHARES, *BYTES, *CHOICES}
    assert tested == set(config._READERS)


@pytest.mark.parametrize("key", TIMES)
@pytest.mark.parametrize("value", ["5ms", "0.005", "0.005 s", 0.005])
def test_times(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        assert getattr(read_settings(), key.replace("-", "_")) == pytest.approx(0.005)


@pytest.mark.parametrize("key", TIMES)
@pytest.mark.parametrize(
    "value",
    [None, True, False, -1, "-1s", float("nan"), float("inf"), "nan", "inf", "", "soon"]
    + ["5 parsecs", [], {}, {"s": 1}],
)
def test_bad_times_are_refused_by_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((ValueError, TypeError), match=rf"cachingclient\.{key} "):
            read_settings()


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, float("nan"), "many", "", []])
def test_bad_counts_are_refused_by_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((ValueError, TypeError), match=rf"cachingclient\.{key} "):
            read_settings()


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize("value", [None, 0, 1, "yes", "", []])
def test_bad_switches_are_refused_by_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((ValueError, TypeError), match=rf"cachingclient\.{key} "):
            read_settings()


@pytest.mark.parametrize("key", LISTS)
@pytest.mark.parametrize("value", [None, True, 1, 1.5, [1], ["a", None], {"a": "b"}])
def test_bad_lists_are_refused_by_key(key, value):
    with dask.config.set({f"cachingclient.{key}": value}):
        with pytest.raises((ValueError, TypeError), match=rf"cachingclient\.{key} "):
            read_settings()


@pytest.mark.parametrize(
    "value", [None, True, float("nan"), -1, "lots", "2.5e99 GiB", 2**61, [], {"share": 0.2}]
)
def test_bad_limits_are_refused_by_key(value):
    with dask.config.set({"cachingclient.cache-limit": value}):
        with pytest.raises((ValueError, TypeError), match=r"cachingclient\.cache-limit "):
            read_settings()


def test_a_bad_argument_is_told_from_a_bad_setting():
    with pytest.raises(ValueError, match="^cache_limit must"):
        read_settings("lots")


def test_the_argument_takes_the_place_of_the_setting():
    with dask.config.set({"cachingclient.cache-limit": "1 GiB"}):
        assert read_settings().cache_limit == 2**30
        assert read_settings(0.5).cache_limit == 0.5
        assert read_settings(0).cache_limit == 0


def test_a_bad_setting_is_refused_beside_a_good_argument():
    with dask.config.set({"cachingclient.cache-limit": "lots"}):
        with pytest.raises(ValueError, match=r"cachingclient\.cache-limit"):
            read_settings("1 GiB")


def test_unknown_settings_are_refused_by_name():
    with dask.config.set({"cachingclient.min-costs": "5ms"}):
        with pytest.raises(ValueError, match=r"cachingclient\.min-costs is no setting.*min-cost"):
            read_settings()


@pytest.mark.parametrize("value", [None, 0.2, "2 GiB", ["cache-limit"]])
def test_a_configuration_that_is_no_table_is_refused(value):
    with dask.config.set({"cachingclient": value}):
        with pytest.raises(ValueError, match="^cachingclient must be a table"):
            read_settings()


# -- other ways to say it ----------------------------------------------------------

READ = "from cachingclient.config import read_settings as r; print(r().{})"


@pytest.mark.parametrize("spelling", ["min_cost", "min-cost"])
def test_both_spellings_are_read(spelling):
    with dask.config.set({f"cachingclient.{spelling}": "7ms"}):
        assert read_settings().min_cost == pytest.approx(0.007)


def test_environment_variables_are_read():
    printed = in_fresh_process(READ.format("min_cost"), DASK_CACHINGCLIENT__MIN_COST="7ms")
    assert float(printed) == pytest.approx(0.007)


def test_a_limit_from_the_environment_is_a_share_too():
    printed = in_fresh_process(READ.format("cache_limit"), DASK_CACHINGCLIENT__CACHE_LIMIT="0.3")
    assert float(printed) == 0.3


def test_an_unknown_environment_variable_is_refused_by_name():
    code = (
        "from cachingclient.config import read_settings\n"
        "try: read_settings()\n"
        "except ValueError as e: print(e)"
    )
    printed = in_fresh_process(code, DASK_CACHINGCLIENT__MIN_COSTS="7ms")
    assert printed.startswith("cachingclient.min_costs is no setting")


def test_the_users_configuration_wins_over_the_defaults(tmp_path):
    (tmp_path / "mine.yaml").write_text("cachingclient:\n  halflife: 7\n", encoding="utf-8")
    printed = in_fresh_process(READ.format("halflife"), DASK_CONFIG=str(tmp_path))
    assert int(printed) == 7


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "half", None, [0.5]])
def test_bad_shares_are_refused_by_key(value):
    with dask.config.set({"cachingclient.audit": value}):
        with pytest.raises(ValueError, match="cachingclient.audit"):
            read_settings()
