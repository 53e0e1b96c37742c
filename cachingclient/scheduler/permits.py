"""What clients say ahead of their graphs, on the stream that these come on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

#: Name of the stream handler.
PERMIT = "cachingclient-permit"
#: Seconds that a client has to say its last word.
PATIENCE = 10
#: Seconds after which it is looked whether clients without a last word have gone.
LINGER = 1.0


class Permits:
    """A stream handler that outlives the cache while somebody may speak to it.

    A message without a handler would end the connection of the client that sent it, and
    cancel all its futures. So each client says that it has said its last word.

    Parameters
    ----------
    scheduler : Scheduler
    permit : callable
        Takes a client and what it says.
    """

    def __init__(self, scheduler: Scheduler, permit: Callable[..., Any]) -> None:
        self.scheduler = scheduler
        #: {client that may speak: set when it will not any more}
        self.clients: dict[str, asyncio.Event] = {}
        self._permit: Callable[..., Any] | None = permit
        self._handle: asyncio.TimerHandle | None = None
        self._handlers: dict[str, Any] = scheduler.stream_handlers
        before = self._handlers.get(PERMIT)
        if isinstance(before, Permits):
            self.clients.update(before.clients)
        self._handlers[PERMIT] = self

    def __call__(self, client: str, last: bool = False, **said: Any) -> None:
        if last:
            self.discard(client)
        elif self._permit is not None and client in self.clients:
            self._permit(client, **said)

    def add(self, client: str) -> None:
        """A client may speak from now on."""
        self.clients.setdefault(client, asyncio.Event())

    def discard(self, client: str) -> None:
        """A client will not speak any more."""
        heard = self.clients.pop(client, None)
        if heard is not None:
            heard.set()
        if self._permit is None:
            self._finish()

    async def last_word(self, client: str) -> None:
        """Wait until a client has said its last word; one that does not is not waited for."""
        heard = self.clients.get(client)
        if heard is not None:
            try:
                await asyncio.wait_for(heard.wait(), PATIENCE)
            except asyncio.TimeoutError:
                self.discard(client)

    def close(self) -> None:
        """Hear nothing more, and go when nobody can speak any more."""
        self._permit = None
        self._finish()

    def _finish(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._handlers.get(PERMIT) is not self:
            return  # a successor listens
        self.clients = {c: heard for c, heard in self.clients.items() if self._is_connected(c)}
        if not self.clients:
            del self._handlers[PERMIT]
        else:
            self._handle = asyncio.get_running_loop().call_later(LINGER, self._finish)

    def _is_connected(self, client: str) -> bool:
        return client in self.scheduler.clients
