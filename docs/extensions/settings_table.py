"""``.. settings-table::``: all settings, their defaults and meanings, from their YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import cachingclient

FILE = Path(cachingclient.__file__).with_name("cachingclient.yaml")
_SETTING = re.compile(r"^  ([\w-]+): (.*?) +# (.*)$", re.MULTILINE)


def settings() -> list[tuple[str, str, str]]:
    """(setting, its default, its meaning), in the order of their file."""
    return _SETTING.findall(FILE.read_text(encoding="utf-8"))


def rows() -> list[str]:
    """Lines of a table in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 24 16 60", ""]
    for cells in [("setting", "default", "meaning"), *settings()]:
        name, default, meaning = cells
        if name != "setting":
            name, default = f"``{name}``", f"``{default}``"
        lines += [f"   * - {name}", f"     - {default}", f"     - {meaning}"]
    return lines


class SettingsTable(SphinxDirective):
    """The table, in place of the directive."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(FILE))
        node = nodes.container()
        self.state.nested_parse(StringList(rows(), source=str(FILE)), self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by sphinx."""
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
