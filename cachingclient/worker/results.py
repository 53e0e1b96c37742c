"""Results that are handed out as copies.

In its own process a client would get the object that the worker keeps. The worker copies,
and not the client: so it is done for every client, plain ones and the scheduler included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.protocol import to_serialize
from distributed.utils import offload

if TYPE_CHECKING:
    from distributed.comm import Comm

    from cachingclient.worker.plugin import Hooks


class CopyingComm:
    """A comm that writes copies of data."""

    def __init__(self, comm: Comm, hooks: Hooks, large: bool) -> None:
        self.comm, self.hooks, self.large = comm, hooks, large

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    async def write(self, msg: Any, **kwargs: Any) -> Any:
        """Write a message, as `Worker.get_data` makes it."""
        if isinstance(msg, dict) and "data" in msg:
            values = {key: packed.data for key, packed in msg["data"].items()}
            if self.large:
                values = await offload(self.hooks.copies, values, False)
            else:
                values = self.hooks.copies(values, False)
            msg = {**msg, "data": {key: to_serialize(v) for key, v in values.items()}}
        return await self.comm.write(msg, **kwargs)
