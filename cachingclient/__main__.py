"""``python -m cachingclient demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from cachingclient import demo


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """A converter for argparse that takes positive numbers only."""

    def convert(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise ValueError(text)
        return value

    convert.__name__ = f"positive {kind.__name__}"  # argparse shows this in its message
    return convert


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser("python -m cachingclient")
    commands = main.add_subparsers(dest="command", required=True)
    sub = commands.add_parser(
        "demo",
        help="run one session with a plain and with a caching client, and compare",
        description=demo.__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    sub.add_argument("--rows", type=positive(int), default=2_000_000, help="rows of the CSV files")
    sub.add_argument("--gib", type=positive(float), default=1.0, help="size of the array in GiB")
    sub.add_argument("--workers", type=positive(int), default=2, help="worker processes")
    return main


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return demo.main(rows=args.rows, gib=args.gib, workers=args.workers)


if __name__ == "__main__":
    sys.exit(main())
