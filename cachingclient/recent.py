"""Keys of final results that the scheduler said it keeps."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Collection

from dask.typing import Key


class RecentKeys:
    """An LRU of tokenized keys.

    Parameters
    ----------
    maxsize : int
        Keys to remember at most.

    Examples
    --------
    >>> recent = RecentKeys(2)
    >>> recent.kept(["a", "b"])
    >>> recent.knows(["a"])
    True
    >>> recent.kept(["c"])
    >>> recent.knows(["b"]), recent.knows([])
    (False, False)
    """

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def kept(self, keys: Collection[Key]) -> None:
        """Note keys that are kept."""
        for key in keys:
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self.maxsize:
            self._keys.popitem(last=False)

    def dropped(self, keys: Collection[Key]) -> None:
        """Note keys that are no longer kept."""
        for key in keys:
            self._keys.pop(key, None)

    def knows(self, keys: Collection[Key]) -> bool:
        """Whether all of some keys are kept, as far as is known; these are the most recent then."""
        found = bool(keys) and all(k in self._keys for k in keys)
        if found:
            for key in keys:
                # Another thread may hear just now that it was dropped: it must not come back.
                with contextlib.suppress(KeyError):
                    self._keys.move_to_end(key)
        return found

    def clear(self) -> None:
        """Forget all: there is another scheduler, or it was restarted."""
        self._keys.clear()
