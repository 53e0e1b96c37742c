"""The cache for people who write no line of code for it.

On a scheduler, so that nothing has to be sent there, nor to be allowed::

    dask scheduler --preload cachingclient.preload --cache-limit 0.3

It keeps nothing until a client asks for caching. For each client that any tool makes::

    DASK_DISTRIBUTED__CLIENT__PRELOAD='["cachingclient.preload"]'

It has ``client.cache`` then, as a `CachingClient` has.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import click
from distributed import Client, Scheduler

from cachingclient.config import parse_limit, read_settings
from cachingclient.context import caching
from cachingclient.scheduler.desk import NAME
from cachingclient.scheduler.plugin import CachePlugin

#: {client: its cache, to be left when it closes}
_caches: WeakKeyDictionary[Client, caching] = WeakKeyDictionary()


def _limit(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    try:
        return None if value is None else parse_limit(value, "--cache-limit")
    except (TypeError, ValueError) as e:
        raise click.BadParameter(str(e)) from e


@click.command()
@click.option(
    "--cache-limit",
    default=None,
    callback=_limit,
    help="How much the workers may keep: a share of the cluster's memory (0 < share <= 1), "
    'bytes, or a text such as "2 GiB".',
)
async def dask_setup(dask_object: Any, cache_limit: Any) -> None:
    """Bring the cache to a scheduler or a client that has just started."""
    if isinstance(dask_object, Scheduler):
        settings = read_settings(cache_limit)
        if settings.cache_limit:
            await dask_object.register_scheduler_plugin(
                CachePlugin(settings), name=NAME, idempotent=True
            )
    elif isinstance(dask_object, Client):
        inside = caching(dask_object, cache_limit)
        cache = await inside.__aenter__()
        _caches[dask_object] = inside
        if not hasattr(dask_object, "cache"):
            setattr(dask_object, "cache", cache)  # noqa: B010
    else:
        raise TypeError(
            "cachingclient.preload is for schedulers and clients, "
            f"got a {type(dask_object).__name__}"
        )


async def dask_teardown(dask_object: Any) -> None:
    """Leave a client as it was; a scheduler's cache goes with the scheduler."""
    inside = _caches.pop(dask_object, None) if isinstance(dask_object, Client) else None
    if inside is not None:
        vars(dask_object).pop("cache", None)
        await inside.__aexit__(None, None, None)
