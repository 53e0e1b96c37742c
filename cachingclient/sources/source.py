"""What a computation reads from outside: a file, a directory, a store, a database."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NamedTuple

#: Stands for the file system of what can be named, but not be looked at.
ELSEWHERE = "elsewhere"

_URL = re.compile(r"[A-Za-z][\w+.-]*(?:::[\w+.-]+)*:/{2}")
_EXTENSION = re.compile(r"\.(?=\w*[A-Za-z])\w{1,8}$")
#: Longer texts are no paths.
LONGEST = 4096
#: Protocols by which fsspec names this machine's files.
LOCAL = frozenset({"file", "local"})


class Source(NamedTuple):
    """One thing that is read.

    Examples
    --------
    >>> str(Source("data/x.csv"))
    'data/x.csv'
    """

    #: a path as it was given (a relative one is relative to the directory of each moment)
    path: str
    #: an fsspec file system; None for this machine's; ELSEWHERE if it cannot be looked at
    fs: Any = None

    def __str__(self) -> str:
        proto = protocol(self.fs)
        return f"{proto}://{self.path}" if proto else self.path


def unknown(what: str) -> Source:
    """A source that no fingerprint can be taken of.

    Examples
    --------
    >>> str(unknown("a database"))
    'a database'
    """
    return Source(what, ELSEWHERE)


def protocol(fs: Any) -> str:
    """The first name of an fsspec file system's protocol."""
    proto = getattr(fs, "protocol", "")
    return proto if isinstance(proto, str) else proto[0]


def on(fs: Any, path: str) -> Source:
    """What lies on a path of an fsspec file system: local ones count as this machine's.

    Parameters
    ----------
    fs : fsspec.AbstractFileSystem
    path : str
    """
    fs = getattr(fs, "sync_fs", fs)
    inner = getattr(fs, "fs", None)
    if inner is not None and protocol(fs) == "dir":
        return on(inner, fs._join(path))
    if protocol(fs) in LOCAL:
        return Source(path)
    return Source(path, fs)


def is_url(text: str) -> bool:
    """Whether a text names something by a protocol.

    Examples
    --------
    >>> is_url("s3://bucket/x.csv"), is_url("sqlite:///x.db"), is_url("/data/x.csv")
    (True, True, False)
    """
    return _URL.match(text) is not None


def from_url(url: str, cheap: frozenset[str]) -> Source:
    """The source that a URL names.

    Parameters
    ----------
    url : str
    cheap : frozenset of str
        Protocols whose file systems may be asked: making another could mean talking to it.

    Examples
    --------
    >>> from_url("file:///data/x.csv", frozenset())
    Source(path='/data/x.csv', fs=None)
    >>> from_url("postgresql://user:secret@host/db", frozenset()).path
    'postgresql://host/db'
    """
    proto, _, rest = url.partition("://")
    if proto in LOCAL:
        return Source(rest)
    fsspec = sys.modules.get("fsspec")
    if proto in cheap and fsspec is not None:
        return on(*fsspec.core.url_to_fs(url))
    # What is shown to users, and logged, holds no passwords.
    host, slash, path = rest.partition("/")
    return unknown(f"{proto}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}")


def looks_like_path(text: str) -> bool:
    """Whether a text would be a path, even if nothing is there.

    Examples
    --------
    >>> [looks_like_path(t) for t in ("data/x", "x.csv", "C:\\\\x y.csv", "mean", "1.5", "/", "./")]
    [True, True, True, False, False, False, False]
    """
    if len(text) > LONGEST or not ("/" in text or os.sep in text or "." in text):
        return False
    if "\n" in text or "\0" in text or not any(map(str.isalnum, text)):
        return False
    return "/" in text or os.sep in text or _EXTENSION.search(text) is not None
