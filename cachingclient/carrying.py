"""The package for schedulers and workers that do not have it: it comes along with what needs it.

It is imported from memory there, as itself, and stays until the process ends. What is sent later
refers to it by name, as it does where the package is installed.
"""

from __future__ import annotations

import inspect
import io
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from distributed.protocol.pickle import dumps

#: Where the modules say that they come from.
ROOT = "carried-by-cachingclient"
#: Whether this is a copy that was carried here.
IS_CARRIED = ROOT in __file__


def lacks_package(error: Any) -> bool:
    """Whether what was sent could not be read for want of this package.

    Examples
    --------
    >>> lacks_package(ModuleNotFoundError("No module named 'cachingclient'"))
    True
    >>> lacks_package(ModuleNotFoundError("No module named 'numpy'"))
    False
    """
    # Some errors arrive as texts of what they were.
    return isinstance(error, Exception) and "No module named 'cachingclient'" in str(error)


def carried(thing: Any) -> bytes:
    """Pickle something of this package, and the package with it.

    Parameters
    ----------
    thing : object

    Returns
    -------
    bytes
        Can be unpickled by any Python that has dask and distributed, and can read this package.
        Where the package is installed that one is used.
    """
    return dumps(_Carried(dumps(thing)))


class _Carried:
    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled

    def __reduce__(self) -> Any:
        # As text: byte code of another version of Python would end the process.
        given = {"text": _text(), "space": {}, "packed": _packed(), "pickled": self.pickled}
        call = f"(exec(text, space), space[{_unpack.__name__!r}](packed, {ROOT!r}, pickled))[1]"
        return eval, (call, given)


@lru_cache(1)
def _packed() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _files():
            # A date of its own would make each package another one.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> list[tuple[str, bytes]]:
    if IS_CARRIED:
        found: list[tuple[str, bytes]] = sorted(__loader__.files.items())  # type: ignore
        return found
    top = Path(__file__).parent
    paths = [p for p in sorted(top.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    return [(p.relative_to(top.parent).as_posix(), p.read_bytes()) for p in paths]


@lru_cache(1)
def _text() -> str:
    return f"from __future__ import annotations\n{inspect.getsource(_unpack)}"


def _unpack(packed: bytes, root: str, pickled: bytes) -> Any:
    # Nothing of this module may be used here: there is none yet.
    import importlib.abc
    import importlib.util
    import io
    import os
    import pickle
    import sys
    import zipfile

    if importlib.util.find_spec("cachingclient") is None:
        top = os.path.join(os.path.abspath(os.sep), root)

        class Carrier(importlib.abc.SourceLoader):
            def __init__(self) -> None:
                with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                    self.files = {name: archive.read(name) for name in archive.namelist()}

            def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
                if self.place(name) in self.files:
                    return importlib.util.spec_from_loader(name, self)
                return None

            def place(self, name: str) -> str:
                stem = name.replace(".", "/")
                return f"{stem}.py" if f"{stem}.py" in self.files else f"{stem}/__init__.py"

            def get_filename(self, name: str) -> str:
                return os.path.join(top, *self.place(name).split("/"))

            def get_data(self, path: Any) -> bytes:
                try:
                    return self.files[os.path.relpath(path, top).replace(os.sep, "/")]
                except KeyError:
                    raise OSError(path) from None

        sys.meta_path.append(Carrier())
    return pickle.loads(pickled)
