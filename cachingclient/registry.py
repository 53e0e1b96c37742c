"""Finds the plugin of a scheduler by the scheduler's id: several live in one process at times."""

from __future__ import annotations

import weakref
from typing import Any

#: {id of a scheduler: its plugin}; entries go with their plugins
PLUGINS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
