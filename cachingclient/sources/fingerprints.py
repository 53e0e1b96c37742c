"""Fingerprints: what tells cheaply that a file is another one than before.

A file of this machine has its size, its times of change and its inode. ctime is among them, since
programs put mtime back (``cp -p``, ``rsync -t``, ``tar x``), but nobody puts back ctime. A
directory has those of all that is in it.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from cachingclient.sources.source import ELSEWHERE, Source, protocol

#: Nanoseconds for which a change may be followed by another one without moving the clock of the
#: file system: its time stamps are as coarse as the kernel's ticks, 1 to 10 ms.
COARSE = 20_000_000
#: Nanoseconds that looking may take; clocks of file servers run ahead, too.
AHEAD = 2_000_000_000
#: Files of one directory or pattern that are looked at; of what has more nothing is known.
MOST_FILES = 20_000
#: Nanoseconds after which a directory in which more is than is looked at is looked at again.
AGAIN = 60_000_000_000
#: Files in directories whose content is remembered.
MOST_REMEMBERED = 200_000
#: In directories, what only bookkeeping changes.
IGNORED = frozenset(
    {".git", "__pycache__", ".ipynb_checkpoints", "dask-scratch-space", "dask-worker-space"}
)

#: One tuple for each file: its path, and what was found out about it
Fingerprint = tuple[tuple[Any, ...], ...]
MISSING: Fingerprint = ()

_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.EILSEQ}
)


def _entry(path: str, s: os.stat_result) -> tuple[Any, ...]:
    return path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino


def settled(fingerprint: Fingerprint, now: int) -> bool:
    """Whether a change after a moment would have shown in the fingerprint taken then.

    Parameters
    ----------
    fingerprint
        Of a local file or directory.
    now : int
        The moment before it was taken, in nanoseconds since the epoch.

    Examples
    --------
    >>> second = 1_000_000_000
    >>> file = (("x.csv", 100, 5 * second, 5 * second, 42),)
    >>> settled(file, 5 * second + 10_000_000), settled(file, 6 * second)
    (False, True)
    """
    earliest, latest = now - COARSE, now + AHEAD
    for entry in fingerprint:
        if len(entry) == 5:
            _, _, mtime, ctime, _ = entry
            if earliest < mtime < latest or earliest < ctime < latest:
                return False
    return True


class _Listing(NamedTuple):
    """What is in a directory, and in those in it."""

    #: as they were when they were listed: they tell what comes and goes
    directories: tuple[tuple[Any, ...], ...]
    files: tuple[str, ...]


class Fingerprints:
    """Takes fingerprints, and remembers what is in directories.

    Parameters
    ----------
    cheap : frozenset of str
        Protocols of fsspec file systems that are asked for checksums.
    """

    def __init__(self, cheap: frozenset[str]) -> None:
        self.cheap = cheap
        self._listings: OrderedDict[str, _Listing] = OrderedDict()
        #: {directory of which more is in than is looked at: when to look again}
        self._large: dict[str, int] = {}

    def take(self, source: Source, now: int) -> Fingerprint | None:
        """The fingerprint of a source; None if it cannot be known, MISSING if nothing is there.

        Parameters
        ----------
        source : Source
        now : int
            In nanoseconds since the epoch.
        """
        path, fs = source
        if fs is not None:
            return None if fs is ELSEWHERE else self._remote(path, fs)
        try:
            s = os.stat(path)
        except OSError as e:
            return self._absent(path, now) if e.errno in _ABSENT else None
        except ValueError:
            return MISSING
        if stat.S_ISREG(s.st_mode):
            return (_entry("", s),)
        return self._directory(path, now) if stat.S_ISDIR(s.st_mode) else None

    def _absent(self, path: str, now: int) -> Fingerprint | None:
        """Nothing is there; but a path may be short for others."""
        if path.startswith("~") and (full := os.path.expanduser(path)) != path:
            return self.take(Source(full), now)
        return self._matching(path, now) if glob.has_magic(path) else MISSING

    def _matching(self, pattern: str, now: int) -> Fingerprint | None:
        paths = list(islice(glob.iglob(pattern, recursive=True), MOST_FILES + 1))
        return None if len(paths) > MOST_FILES else tuple(_entries(sorted(paths)))

    def _directory(self, path: str, now: int) -> Fingerprint | None:
        if now < self._large.get(path, 0):
            return None
        listing = self._listings.get(path)
        if listing is None or not _unchanged(listing.directories):
            listing = self._list(path, now)
        return listing and listing.directories + tuple(_entries(listing.files))

    def _list(self, path: str, now: int) -> _Listing | None:
        self._listings.pop(path, None)
        self._large.pop(path, None)
        try:
            listing = _list(path)
        except OSError:
            return None
        if listing is None:
            self._large[path] = now + AGAIN
        elif settled(listing.directories, now):
            self._listings[path] = listing
            while sum(len(known.files) for known in self._listings.values()) > MOST_REMEMBERED:
                self._listings.popitem(last=False)
        return listing

    def _remote(self, path: str, fs: Any) -> Fingerprint | None:
        if protocol(fs) not in self.cheap:
            return None
        try:
            # Else what the file system remembers would be asked, not the files.
            fs.invalidate_cache()
            if not fs.isdir(path):
                return (_checksum(fs, path),)
            paths = fs.find(path)
        except FileNotFoundError:
            return MISSING
        if len(paths) > MOST_FILES:
            return None
        return tuple(_checksum(fs, p) for p in sorted(paths))


def _checksum(fs: Any, path: str) -> tuple[Any, ...]:
    try:
        modified = str(fs.modified(path))
    except NotImplementedError:
        modified = None
    return path, fs.checksum(path), modified


def _entries(paths: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    for path in paths:
        try:
            yield _entry(path, os.stat(path))
        except OSError:
            yield path, None


def _unchanged(directories: tuple[tuple[Any, ...], ...]) -> bool:
    return tuple(_entries(d[0] for d in directories)) == directories


def _list(top: str) -> _Listing | None:
    """What is in a directory; None if that is too much."""
    directories: dict[tuple[int, int], tuple[Any, ...]] = {}
    files: list[str] = []
    work = [top]
    while work:
        path = work.pop()
        # Before its content is read: what comes meanwhile shows in the next fingerprint.
        s = os.stat(path)
        if (s.st_dev, s.st_ino) in directories:  # links may lead in circles
            continue
        directories[s.st_dev, s.st_ino] = _entry(path, s)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name not in IGNORED:
                    (work if entry.is_dir() else files).append(entry.path)
                if len(directories) + len(work) + len(files) > MOST_FILES:
                    return None
    return _Listing(tuple(directories.values()), tuple(sorted(files)))
