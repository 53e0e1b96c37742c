"""``dask cache``: look at the cache of a scheduler, and steer it, from the command line.

``dask`` imports this on each of its runs: what is slow to import is imported when it is needed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import click

#: Seconds after which a scheduler that does not answer is none.
TIMEOUT = 5.0

CONTEXT = {"help_option_names": ["-h", "--help"]}


@click.group(name="cache", context_settings=CONTEXT)
def cache() -> None:
    """Look at the cache of a dask scheduler, and steer it.

    ADDRESS is the scheduler's, such as tcp://127.0.0.1:8786. Certificates for TLS are taken from
    the configuration (distributed.comm.tls), as by other dask commands.
    """


def command(function: Callable[..., Any]) -> Any:
    """A command on one scheduler that can print JSON."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    address = click.argument("address")
    return cache.command()(address(as_json(function)))


@command
def info(address: str, as_json: bool) -> None:
    """Show how much is kept, and what it has saved."""
    found = ask(address, "overview")
    echo(found, as_json, lambda: "\n".join(_lines(found)))


@command
@click.option("--prefix", default=None, help="Only layers whose name starts with it.")
@click.option("--most", type=click.IntRange(min=1), default=None, help="So many layers at most.")
def entries(address: str, as_json: bool, prefix: str | None, most: int | None) -> None:
    """List what is kept, one line a layer, most valuable first."""
    from cachingclient.info import entries_from_message

    found = ask(address, "entries", prefix=prefix, most=most)
    echo(found, as_json, lambda: repr(entries_from_message(found)))


@command
@click.option("--prefix", default=None, help="Only layers whose name starts with it.")
def clear(address: str, as_json: bool, prefix: str | None) -> None:
    """Let go of what is kept."""
    number = ask(address, "clear", prefix=prefix)
    echo({"cleared": number}, as_json, lambda: f"{number:,} keys let go")


@command
@click.argument("limit")
def resize(address: str, as_json: bool, limit: str) -> None:
    """Change how much may be kept.

    LIMIT is a share of the cluster's memory (up to 1), bytes, or a text such as "2 GiB".
    """
    from dask.utils import format_bytes

    from cachingclient.config import parse_limit

    try:
        number = parse_limit(limit, "LIMIT")
    except (TypeError, ValueError) as e:
        raise click.BadParameter(str(e)) from e
    nbytes = ask(address, "resize", limit=number)
    echo({"maxsize": nbytes}, as_json, lambda: f"Up to {format_bytes(nbytes)} may be kept now")


def ask(address: str, method: str, **kwargs: Any) -> Any:
    """Ask a scheduler's cache; end with a sentence where there is none.

    Parameters
    ----------
    address : str
    method : str
        Of the scheduler's desk.
    **kwargs
        For the method.
    """
    from distributed.core import rpc
    from distributed.security import Security

    from cachingclient.scheduler.desk import NAME

    async def call() -> Any:
        args = Security().get_connection_args("client")
        scheduler = rpc(address, connection_args=args, timeout=TIMEOUT)
        try:
            return await asyncio.wait_for(
                getattr(scheduler, NAME)(method=method, **kwargs), 2 * TIMEOUT
            )
        finally:
            await scheduler.close_rpc()

    try:
        answer = asyncio.run(call())
    except (OSError, ValueError, TypeError, RuntimeError, asyncio.TimeoutError) as e:
        reason = str(e).strip() or type(e).__name__
        raise click.ClickException(f"No scheduler answers at {address}: {reason}") from e
    if answer is None:
        raise click.ClickException(f"The scheduler at {address} keeps no cache.")
    return answer


def echo(found: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print what was found, for a program or for a person."""
    click.echo(json.dumps(found, indent=2) if as_json else text())


def _lines(found: dict[str, Any]) -> list[str]:
    from dask.utils import format_bytes, format_time

    lines = [
        f"Kept:        {format_bytes(found['currsize'])} of {format_bytes(found['maxsize'])}, "
        f"in {found['keys']:,} keys of {found['layers']:,} layers",
        f"Hits:        {found['hits']:,}",
        f"Misses:      {found['misses']:,}",
        f"Skipped:     {found['skipped']:,} tasks",
        f"Saved:       {format_time(found['saved']) if found['saved'] else 'nothing yet'}",
        f"Spent again: {format_time(found['recomputed']) if found['recomputed'] else 'nothing'}",
        f"Evictions:   {found['evictions']:,}",
    ]
    lines += [
        f"  {cause}: {gone['keys']:,} keys, {format_bytes(gone['nbytes'])}"
        for cause, gone in found["evicted"].items()
    ]
    if found["audits"]:
        lines.append(f"Audits:      {found['audits']:,}, {found['differing']:,} differing")
    lines.append(f"Workers:     {len(found['workers']):,}")
    lines += [
        f"  {worker['address']}: {format_bytes(worker['nbytes'])}"
        + (f" of {format_bytes(worker['limit'])}" if worker["limit"] is not None else "")
        for worker in found["workers"]
    ]
    if found["hint"]:
        lines.append(f"Hint:        {found['hint']}")
    return lines


if __name__ == "__main__":
    cache()
