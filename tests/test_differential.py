"""Random sessions show the same on a plain client and on ours.

More of them, and what a session that differs is made of: `benchmarks/differential.py`.
"""

from __future__ import annotations

import distributed
import pytest
from random_sessions import counting
from random_sessions import playing as play_module
from random_sessions.comparing import same, tidy
from random_sessions.playing import Stage, differences
from random_sessions.steps import ALWAYS, THEMES, Step, draw

import cachingclient

SEEDS = range(30)


@pytest.fixture(scope="module")
def stages():
    """A plain client and ours; each has a cluster of its own."""
    plain, ours = Stage(distributed.Client), Stage(cachingclient.Client)
    yield plain, ours
    plain.close()
    ours.close()


def play(stages, steps, top):
    plain, ours = stages
    return differences(steps, plain.play(steps, top / "base"), ours.play(steps, top / "ours"))


@pytest.mark.filterwarnings("ignore")  # of dask, on parquet and on what is deprecated
@pytest.mark.parametrize("seed", SEEDS)
def test_session(stages, tmp_path, seed):
    steps = draw(seed)
    found = play(stages, steps, tmp_path)
    listing = "\n".join(f"{n:3}  {step.code}" for n, step in enumerate(steps))
    assert not found, "\n".join([f"seed {seed}:", listing, *found])


def test_there_is_something_of_everything():
    """All kinds of steps come in some of the first sessions."""
    code = "\n".join(step.code for seed in range(1000) for step in draw(seed))
    words = ["map_blocks", "map_overlap", "map_partitions", "from_zarr", "read_csv", "read_text"]
    words += ["read_parquet", "groupby", "merge", "set_index", "shuffle", "dask_key_name", "key="]
    words += ["scatter", "persist", "cancel", "optimize_graph", "to_parquet", "to_csv", "to_zarr"]
    words += ["to_textfiles", "store", "remove", "inplace", "impure", "clear()", "disabled()"]
    words += ["x.append", "np.add(x", "time.time", "uuid", "random.random", "tick()", "failing"]
    assert [word for word in words if word not in code] == []
    kinds = {kind for theme in THEMES.values() for kind in theme} | ALWAYS.keys()
    assert all(hasattr(draw.__globals__["Author"], kind) for kind in kinds)


def test_the_same_seed_draws_the_same_session():
    assert draw(3) == draw(3) != draw(4)


# -- that it would notice ------------------------------------------------------------------


def wrong(steps, top, change):
    """What is found where the second client does something else."""
    plain = Stage(distributed.Client)
    try:
        one = plain.play(steps, top / "base")
        change()
        return differences(steps, one, plain.play(steps, top / "ours"))
    finally:
        plain.close()


def test_other_answers_calls_and_files_are_noticed(tmp_path, monkeypatch):
    steps = [
        Step("show(tidy([3, 1]))"),
        Step("client.submit(count, 'impure1', pure=False).result()"),
        Step("client.submit(count, 'f1', pure=False).result()", exact=True),
        Step("save_text(HERE + '/f', odd(3))"),
        Step("1 / odd(2)"),
    ]

    def change():
        helpers = play_module.HELPERS
        others = {"odd": lambda v: 5, "count": lambda what: None, "tidy": lambda v: v}
        changed = [named(others.get(h.__name__, h), h.__name__) for h in helpers]
        monkeypatch.setattr(play_module, "HELPERS", tuple(changed))

    found = wrong(steps, tmp_path, change)
    assert [text.split(":")[0] for text in found] == [
        *("step 0", "step 1", "step 2", "step 3", "step 4", "step 4")
    ]


def named(function, name):
    function.__name__ = name
    return function


def test_equality():
    assert tidy([2, 1]) == [1, 2]
    assert not same(1, True) and not same([1], (1,))
    counting.count("x")
    assert counting.counted() == {"x": 1}
