"""The picture of how it works, for README and documentation: ``docs/images/how-it-works.svg``.

Needs nothing but Python::

    python docs/picture.py
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

PATH = Path(__file__).parent / "images" / "how-it-works.svg"
WIDTH, HEIGHT = 960, 400
RUNS, KEPT, ABSENT = "#f9a35c", "#7cc58a", "#ffffff"
INK, FAINT = "#333333", "#b4b4b4"
CHUNKS = 4
#: Heights of the rows: from the result at the top down to the files, as dask draws graphs.
RESULT, PARTIAL, SLOW, READ = 96, 166, 236, 306
#: A task that is drawn: its width and height, and how far chunks lie apart.
BOX, TALL, STEP = 50, 34, 62


def text(x: float, y: float, words: str, size: int = 14, color: str = INK, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="middle"{more}>'
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, words: str, color: str, width: float = BOX, ink: str = INK) -> str:
    dashed = ' stroke-dasharray="4 3"' if color == ABSENT else ""
    return (
        f'<rect x="{x - width / 2:g}" y="{y - TALL / 2:g}" width="{width:g}" height="{TALL}" '
        f'rx="6" fill="{color}" stroke="{ink}"{dashed}/>' + text(x, y + 5, words, 12, ink)
    )


def arrow(x1: float, y1: float, x2: float, y2: float, color: str = INK) -> str:
    """From the top of one task to the bottom of another."""
    head = "faint" if color == FAINT else "head"
    return (
        f'<line x1="{x1:g}" y1="{y1 - TALL / 2:g}" x2="{x2:g}" y2="{y2 + TALL / 2 + 4:g}" '
        f'stroke="{color}" marker-end="url(#{head})"/>'
    )


def columns(center: float) -> list[float]:
    return [center + (i - (CHUNKS - 1) / 2) * STEP for i in range(CHUNKS)]


def question(center: float, title: str, code: str, name: str, again: bool) -> list[str]:
    """One computation; `again` if the slow chunks are there already."""
    parts = [text(center, 28, title, 15, more=' font-weight="bold"')]
    parts.append(text(center, 52, code, 14, more=' font-family="monospace"'))
    for x in columns(center):
        faint = FAINT if again else INK
        parts.append(arrow(x, READ, x, SLOW, faint))
        parts.append(arrow(x, SLOW, x, PARTIAL))
        parts.append(arrow(x, PARTIAL, center + (x - center) * 0.3, RESULT))
        parts.append(box(x, READ, "read", ABSENT if again else RUNS, ink=faint))
        parts.append(box(x, SLOW, "slow", KEPT if again else RUNS))
        parts.append(box(x, PARTIAL, name, RUNS))
    return [*parts, box(center, RESULT, name, RUNS, width=110)]


def memory(center: float) -> list[str]:
    """What the first computation leaves behind."""
    parts = [
        text(center, 28, "on the workers", 15, more=' font-weight="bold"'),
        f'<rect x="{center - 140}" y="66" width="280" height="262" rx="10" fill="#f4f8f4" '
        f'stroke="{KEPT}"/>',
        box(center, RESULT, "mean", KEPT, width=110),
    ]
    parts += [box(x, SLOW, "slow", KEPT) for x in columns(center)]
    lines = ["kept while it is worth its bytes:", "work saved, asked for lately, still needed"]
    parts += [text(center, 152 + 20 * i, line, 13) for i, line in enumerate(lines)]
    lines = ["at most a fifth of the memory;", "running work comes first"]
    parts += [text(center, 288 + 20 * i, line, 13) for i, line in enumerate(lines)]
    return parts


def legend() -> list[str]:
    parts = []
    for x, color, words in [
        (250, RUNS, "runs"),
        (400, KEPT, "is kept"),
        (570, ABSENT, "need not run"),
    ]:
        ink = FAINT if color == ABSENT else INK
        parts.append(box(x, 370, "", color, width=34, ink=ink))
        parts.append(text(x + 28, 375, words, 13, more=' style="text-anchor:start"'))
    return parts


def picture() -> str:
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{color}"/></marker>'
        for name, color in [("head", INK), ("faint", FAINT)]
    )
    parts = [
        *question(160, "the first question", "x.mean().compute()", "mean", again=False),
        *memory(480),
        *question(800, "the next question", "x.std().compute()", "std", again=True),
        *legend(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" role="img">\n'
        "<title>Two questions about one array: the second starts from the kept chunks</title>\n"
        f"<defs>{heads}</defs>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main() -> int:
    """Write it."""
    PATH.write_text(picture(), encoding="utf-8")
    print(PATH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
