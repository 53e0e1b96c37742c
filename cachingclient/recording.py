"""Writing what happens in the cache to a file, on the client's machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import IO, TYPE_CHECKING, Any

from cachingclient.telling import tell

if TYPE_CHECKING:
    from cachingclient.session import Session

#: Seconds between two fetches.
INTERVAL = 1.0


def open_trace(path: Any) -> IO[str]:
    """Open a file for a trace.

    Parameters
    ----------
    path : str or path
        A new file, or one to be overwritten.

    Raises
    ------
    TypeError, OSError
        If `path` is no path, or cannot be written.

    Examples
    --------
    >>> open_trace(7)
    Traceback (most recent call last):
        ...
    TypeError: path must be a text or a path, got 7
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise TypeError(f"path must be a text or a path, got {path!r}")
    try:
        # What is there is overwritten when the recording begins, and not if it cannot.
        return open(path, "a", encoding="utf-8")
    except OSError as e:
        raise type(e)(e.errno, f"path cannot be written: {e.strerror}", str(path)) from e


class Recording:
    """What `Cache.record` began; ends with `stop`, or with ``with``.

    Parameters
    ----------
    session : Session
    file : file
        Where it is written, a line of JSON an event.
    """

    def __init__(self, session: Session, file: IO[str]) -> None:
        self._session = session
        self._file = file
        self._task: asyncio.Task[None] | None = None
        #: whether no more events come, although nobody has stopped it
        self._ended = False
        #: events that were written
        self.events = 0

    def __repr__(self) -> str:
        state = "closed" if self._file.closed else "going on"
        return f"<Recording to {self._file.name!r}, {self.events} events, {state}>"

    async def begin(self) -> Recording:
        """Have the scheduler take notes, and come for them from time to time."""
        try:
            client = self._session.client.id
            header = await self._session.call("record", client=client)
            if header is None:
                raise RuntimeError("a recording is going on already: stop() that first")
        except BaseException:
            self._file.close()
            if not os.path.getsize(self._file.name):
                os.unlink(self._file.name)
            raise
        self._file.truncate(0)
        self._write([header])
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._go_on())
        return self

    async def _go_on(self) -> None:
        while not self._ending.is_set() and await self._fetch():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), INTERVAL)

    async def _fetch(self, stop: bool = False) -> bool:
        """Write what is new; returns whether there will be more."""
        if self._ended:
            return False
        session, answer = self._session, None
        if session.scheduler_id is not None and session.client.status == "running":
            with contextlib.suppress(OSError):
                answer = await session.call("recorded", client=session.client.id, stop=stop)
        if answer is None:  # the scheduler has gone, or its cache, or the client
            self._incomplete()
            return False
        self._write(answer["events"])
        self.events += len(answer["events"])
        if answer["overrun"]:
            self._incomplete()
        return not answer["overrun"]

    def _incomplete(self) -> None:
        if not self._ended:
            self._ended = True
            tell("The recording is not complete")

    def _write(self, lines: list[Any]) -> None:
        for line in lines:
            json.dump(line, self._file, separators=(",", ":"))
            self._file.write("\n")
        self._file.flush()

    async def _stop(self) -> None:
        if self._file.closed:
            return
        if self._task is not None:
            # A fetch that is under way has taken its events from the scheduler: it goes on.
            self._ending.set()
            await self._task
        try:
            await self._fetch(stop=True)
        finally:
            self._file.close()

    def stop(self) -> Any:
        """End the recording; a second time does nothing. Awaitable on an asynchronous client."""
        client = self._session.client
        if client.status == "closed" and not client.asynchronous:
            # Its event loop may be closed as well.
            if not self._file.closed:
                self._incomplete()
                self._file.close()
            return None
        return client.sync(self._stop)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    async def __aenter__(self) -> Recording:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._stop()
