"""A plugin that is registered over another one goes on where that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin


def take_over(new: CachePlugin, old: CachePlugin) -> None:
    """Take over what is held, what is known, and who is served.

    Runs when the old one has stepped aside, and before anything else can happen.
    """
    new.books = old.books
    new.durations, new.overhead, new.freshness = old.durations, old.overhead, old.freshness
    new.frames, new.data = old.frames, old.data
    new.data.limit = new.settings["scheduler_memory"]
    new.freshness.lifetime = new.settings["source_lifetime"]
    # What is on its way keeps what it uses from being evicted.
    new.submissions = old.submissions
    new.submissions.lease_time = new.settings["lease_time"]
    new.ledger.succeed(old.ledger)
    new.history = old.history


def go_on(new: CachePlugin, old: CachePlugin) -> None:
    """Go on serving its clients, when all parts are there, under the new settings."""
    new.guards.succeed(old.guards)
    new.detaching.succeed(old.detaching)
    new.audits.done, new.audits.differing = old.audits.done, old.audits.differing
    new.desk.succeed(old.desk)
    if not new.settings["share_sources"] and new.desk.plain_clients():
        new.release.names(new.freshness.readers())
    new.release.soon(new.ledger.over_limit())
