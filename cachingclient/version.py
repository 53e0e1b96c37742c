"""Version of the package: a client and a scheduler have to have the same."""

from __future__ import annotations

#: Kept aligned with setup.cfg.
VERSION = "0.1.0"
