"""Tables of rows, and whether what is promised is kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from rows import Row

SIDES = ["plain", "ours", "sketch", "dask.cache", "persist"]
#: What must hold: as fast as a plain client over this, with reuse; as the expert's; without reuse
FASTER, EXPERT, SLOWEST = 3.0, 0.9, 1.02
BEGIN, END = ".. sessions-table-begin", ".. sessions-table-end"


def by_round(rows: Iterable[Row], name: str, side: str, field: str) -> dict[int, float]:
    """What was measured in each round; of a run that was made again, the last one counts."""
    return {
        r["round"]: r[field]
        for r in rows
        if r["session"] == name and r["side"] == side and field in r
    }


def ratios(rows: list[Row], name: str, over: str, under: str, field: str = "wall") -> list[float]:
    """One side's cost over another's, in each round that has both."""
    above = by_round(rows, name, over, field)
    below = by_round(rows, name, under, field)
    return [above[n] / below[n] for n in sorted(above.keys() & below.keys()) if below[n]]


def names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["session"] for row in rows))


def geometric(
    rows: list[Row], sessions: list[str], over: str, under: str
) -> tuple[float, float, float] | None:
    """The geometric mean over sessions of medians, and the least and most of single rounds."""
    pairs = [ratios(rows, name, over, under) for name in sessions]
    pairs = [found for found in pairs if found]
    if not pairs or len(pairs) < len(sessions):
        return None
    middle = statistics.geometric_mean(statistics.median(found) for found in pairs)
    rounds = [statistics.geometric_mean(each) for each in zip(*pairs)]
    return middle, min(rounds), max(rounds)


def equal(rows: Iterable[Row], name: str, side: str) -> str:
    """Whether the answers were those of the other sides, in all rounds."""
    mine = [r for r in rows if r["session"] == name and r["side"] == side]
    if not mine:
        return ""
    if any("error" in r for r in mine):
        return "failed"
    return "differ" if any(r["different"] for r in mine) else "equal"


def interval(values: Iterable[float], form: str) -> str:
    """Median, and in brackets the least and the most."""
    values = list(values)
    if not values:
        return "-"
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):{form}}-{max(values):{form}})"


def grid(head: list[str], body: list[list[str]]) -> str:
    """A simple table of reStructuredText."""
    widths = [max(map(len, column)) for column in zip(head, *body)]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in [head, *body]]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def session(name: str, rows: list[Row]) -> str:
    """All that was measured of one session."""
    body = []
    for side in SIDES:
        state = equal(rows, name, side)
        if not state:
            continue

        def column(field: str, form: str, unit: float = 1) -> str:
            values = by_round(rows, name, side, field).values()
            return interval((value / unit for value in values), form)

        body.append(
            [
                side,
                column("wall", ".2f"),
                interval(ratios(rows, name, "plain", side), ".2f"),
                column("cpu", ".1f"),
                column("task_seconds", ".1f"),
                column("tasks", ".0f"),
                column("memory", ".0f", 2**20),
                state,
            ]
        )
    head = [
        name,
        "wall s",
        "times plain's speed",
        "CPU s",
        "task s",
        "tasks",
        "memory MiB",
        "answers",
    ]
    return grid(head, body) + "\n"


def summary(rows: list[Row], titles: Mapping[str, str], no_reuse: Iterable[str] = ()) -> str:
    """The table for the README, with machine and date."""
    body = []
    for name in names(rows):
        plain, ours = (by_round(rows, name, side, "wall").values() for side in ("plain", "ours"))
        tasks = (by_round(rows, name, side, "tasks").values() for side in ("plain", "ours"))
        body.append(
            [
                titles.get(name, name),
                interval(plain, ".1f").partition(" ")[0],
                interval(ours, ".1f").partition(" ")[0],
                *(speed(rows, name, side) for side in SIDES[1:]),
                " / ".join(f"{statistics.median(t):.0f}" if t else "-" for t in map(list, tasks)),
            ]
        )
    reuse = [name for name in names(rows) if name not in set(no_reuse)]
    means = []
    for side in SIDES[1:]:
        found = geometric(rows, reuse, "plain", side)
        means.append("-" if found is None else "{:.2f} ({:.2f}-{:.2f})".format(*found))
    body.append(["**geometric mean, with reuse**", "", "", *means, ""])
    head = ["session", "plain s", "ours s", *(f"{side} x" for side in SIDES[1:]), "tasks"]
    dates = sorted({row["date"] for row in rows})
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""
    count = len({row["round"] for row in rows})
    machines = "; ".join(dict.fromkeys(row["machine"] for row in rows))
    text = (
        "Seconds with a plain client and with ours, and how many times a plain client's\n"
        f"speed each side has (x): medians of {count} rounds, in brackets the least and the\n"
        f"most. *tasks* that ran: plain / ours. {answers(rows)}\n"
        f"{expert_sentence(rows, reuse)}"
        f"Measured on {when}: {machines}, two workers of one thread.\n"
    )
    return f"{text}\n{grid(head, body)}"


def expert_sentence(rows: list[Row], sessions: list[str]) -> str:
    found = geometric(rows, sessions, "persist", "ours")
    if found is None:
        return ""
    share = "{:.2f} ({:.2f}-{:.2f})".format(*found)
    return f"Over the sessions with reuse ours has {share} of the speed of persist.\n"


def speed(rows: list[Row], name: str, side: str) -> str:
    """How many times as fast as plain, or what went wrong."""
    state = equal(rows, name, side)
    if state in ("failed", "differ"):
        return state
    return interval(ratios(rows, name, "plain", side), ".2f")


def answers(rows: list[Row]) -> str:
    wrong = [
        f"{name} with {side}"
        for name in names(rows)
        for side in SIDES
        if equal(rows, name, side) in ("failed", "differ")
    ]
    if not wrong:
        return "All answers are equal."
    return f"Answers are equal, but for {', '.join(wrong)}."


def missed(rows: list[Row], no_reuse: Iterable[str] = ()) -> list[str]:
    """The bars that were missed, each in a sentence."""
    found = []
    reuse = [name for name in names(rows) if name not in set(no_reuse)]
    plain = geometric(rows, reuse, "plain", "ours")
    if plain and plain[0] < FASTER:
        found.append(f"ours is {plain[0]:.2f} times as fast as plain, not {FASTER}")
    expert = geometric(rows, reuse, "persist", "ours")
    if expert and expert[0] < EXPERT:
        found.append(f"ours has {expert[0]:.2f} of the speed of persist, not {EXPERT}")
    for name in names(rows):
        slower = ratios(rows, name, "ours", "plain")
        if slower and statistics.median(slower) > SLOWEST:
            found.append(f"{name} takes {statistics.median(slower):.3f} of plain's time")
        if equal(rows, name, "ours") in ("failed", "differ"):
            found.append(f"{name}: answers of ours {equal(rows, name, 'ours')}")
    return found


def put(text: str, table: str) -> str:
    """Return a text with a table between the two comments that mark its place."""
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place for it: two lines, {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"
