"""What a client says ahead of its graphs, as long as the scheduler has an ear for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cachingclient import internals
from cachingclient.scheduler.permits import PERMIT

if TYPE_CHECKING:
    from distributed import Client


class Voice:
    """Says things on the stream that graphs are sent on, from any thread.

    A message that nobody listens to would end the connection: nothing follows the last word.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard = False
        self._order = threading.Lock()

    def start(self) -> None:
        """The scheduler listens from now on."""
        with self._order:
            self._heard = True

    def stop(self) -> None:
        """The scheduler is gone."""
        with self._order:
            self._heard = False

    def say(self, **message: Any) -> None:
        """Say something, if the scheduler listens."""
        with self._order:
            if self._heard:
                self._send(message)

    def last_word(self) -> None:
        """Tell the scheduler that nothing more will be said."""
        with self._order:
            if self._heard:
                self._heard = False
                self._send({"last": True})

    def _send(self, message: dict[str, Any]) -> None:
        if self._client.status == "closed":
            return  # what is said next fails with an error that the user understands
        internals.send(self._client, {"op": PERMIT, "client": self._client.id, **message})
