"""Other people's tests with our client: what a plain client passes and ours does not.

    python tests/conformance/run.py --distributed CHECKOUT

runs distributed's own tests of its client, dask's tests with distributed and xarray's, first with
`distributed.Client`, then with ours in its place. What only ours fails is run again with both, so
that tests which come out one way and the other don't count, then printed. The exit status is 1
where something differs that `expected.txt` doesn't explain.

- The tests of distributed are not in its package: they are read out of a checkout (a clone, which
  is not changed), at the tag of the installed version or else at the commit nearest to it. They
  test the distributed that is installed. Without a checkout they are left out.
- dask and xarray ship their tests. Where a package does not, `--dask` or `--xarray` names a
  checkout.
- More of xarray's tests run where netCDF4 and h5netcdf are installed, and more of dask's where
  tables and sqlalchemy are.

All of it takes about an hour on one core. What was found stays in the folder `--work`, with what
pytest printed: the same command goes on where it was interrupted. Remove the folder (that of
our client: `ours`) to start over. `--jobs 2` runs two files at once; a test that needs a port of
its own may fail then, and is tried again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from comparing import Comparison, Runner, compare
from suites import FILES, Suite, find_revision, from_checkout, from_installed, released_as

EXPECTED = Path(__file__).with_name("expected.txt")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="files of tests, in place of theirs")
    for package in FILES:
        parser.add_argument(f"--{package}", type=Path, help=f"a checkout of {package}")
    parser.add_argument("--ref", help="revision of the checkout of distributed")
    parser.add_argument("--match", default="", help="only files whose name contains this")
    parser.add_argument(
        "--client",
        choices=["ours", "caching"],
        default="ours",
        help="our Client, or a plain one inside of caching(client)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="plain clients run only what ours does not pass"
    )
    parser.add_argument("--keen", action="store_true", help="keep all that may be kept")
    parser.add_argument("--again", type=int, default=3, help="how often what differs is run again")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one test")
    parser.add_argument("--jobs", type=int, default=1, help="files that are run at once")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="what is explained")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir(), "cachingclient-conformance"),
        help="folder of what is found",
    )
    return parser.parse_args()


def find_suites(options: argparse.Namespace) -> list[Suite]:
    """The files of tests that were asked for."""
    if options.files:
        folder = options.work / "own"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pytest.ini").write_text("[pytest]\n")
        own = ["-c", str(folder / "pytest.ini")]
        return [Suite(path.name, path.resolve(), own) for path in options.files]
    found: list[Suite] = []
    for package in FILES:
        checkout = getattr(options, package)
        if checkout is None:
            suites = from_installed(package, options.work / "installed")
            if not suites:
                print(f"{package}: no tests are installed, and no --{package} was given")
        else:
            names = [options.ref] if options.ref and package == "distributed" else []
            names = names or released_as(package)
            revision = find_revision(checkout, names, version(package))
            print(f"{package} {version(package)}: tests of commit {revision}")
            folder = options.work / f"{package}-{revision[:12]}"
            suites = from_checkout(package, checkout, revision, folder)
        found += suites
    return [s for s in found if options.match in s.name]


def read_expected(path: Path) -> dict[str, str]:
    """Reasons of what may differ: lines of ``file::test: reason``."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return {test: reason for test, reason in pairs}


def report(comparison: Comparison, expected: dict[str, str], seconds: float) -> int:
    """Print what was found in a file; how much of it is not explained."""
    name = comparison.suite.name
    differing = {f"{name}::{v.test}": v for v in comparison.differing}
    unexplained = [v for test, v in differing.items() if test not in expected]
    passed = [list(d.values()).count("passed") for d in (comparison.plain, comparison.ours)]
    print(
        f"{name}: {passed[0]} passed plain, {passed[1]} passed ours, {len(differing)} differ, "
        f"{len(differing) - len(unexplained)} explained ({seconds:.0f} s)"
    )
    for verdict in unexplained:
        print(f"  DIFFERS   {verdict}")
    for test in differing:
        if test in expected:
            print(f"  explained {test}: {expected[test]}")
    for verdict in comparison.unsteady:
        print(f"  unsteady  {verdict}")
    for test in expected:
        if test.startswith(name + "::") and test not in differing:
            print(f"  no longer differs, though explained: {test}")
    sys.stdout.flush()
    return len(unexplained)


def main() -> int:
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    suites = find_suites(options)
    expected = read_expected(options.expected)
    runner = Runner(options.work, options.timeout, options.keen)

    def timed(suite: Suite) -> tuple[Comparison, float]:
        start = time.monotonic()
        prefix = suite.name + "::"
        known = [test.removeprefix(prefix) for test in expected if test.startswith(prefix)]
        comparison = compare(runner.run, suite, options.client, options.again, options.quick, known)
        return comparison, time.monotonic() - start

    with ThreadPoolExecutor(options.jobs) as pool:
        unexplained = sum(report(c, expected, s) for c, s in pool.map(timed, suites))
    print(f"{unexplained} tests differ and are not explained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
