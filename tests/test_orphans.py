"""What a plain client's graph leaves behind beside kept keys is forgotten."""

from __future__ import annotations

import dask.array as da
import distributed
import helpers
import numpy as np
import pytest

META = np.empty((0, 0))


def slow(block):
    helpers.count()
    return block + 1


def build():
    x = da.from_array(np.ones((6, 4)), chunks=(2, 2))
    return x.map_blocks(slow, dtype="f8", meta=META)


@pytest.fixture
def plain(keen):
    """A plain client of the same scheduler."""
    with distributed.Client(keen.cluster, set_as_default=False) as client:
        yield client


def test_what_another_client_fuses_is_forgotten(keen, plain):
    x = build()
    assert x.sum().compute() == 48
    assert x.mean().compute() == 2
    helpers.forgotten(keen)
    known = helpers.look(keen)["tasks"]
    with helpers.logged("distributed.scheduler") as messages:
        assert plain.compute(x.rechunk((3, 4), method="tasks").sum()).result() == 48
    assert any("Detected different" in m for m in messages), "there is nothing to forget"
    helpers.forgotten(plain)
    helpers.wait_until(lambda: helpers.look(keen)["tasks"] == known)
    keen.cache.clear()
    helpers.wait_until(lambda: not helpers.look(keen)["tasks"])
