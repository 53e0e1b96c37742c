"""The sessions there are, and their data, which is made once."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

#: Beside this folder is what makes tables of rides.
BENCHMARKS = str(Path(__file__).parent.parent)

#: Modules of sessions, and what they are called in tables
SESSIONS = {
    "climate": "array statistics (xarray, zarr)",
    "images": "image stack (filters, windows)",
    "rides": "dataframe of taxi rides (CSV)",
    "learning": "features and model search",
    "logs": "bag of log lines",
    "pipeline": "delayed pipeline, edited",
    "dashboard": "dashboard, 8 readers (parquet)",
    "oneoff": "one-off job (no reuse)",
}
#: Those that ask for nothing twice
NO_REUSE = {"oneoff"}


def load(name: str) -> Any:
    """Return the module of a session."""
    if BENCHMARKS not in sys.path:
        sys.path.append(BENCHMARKS)
    return importlib.import_module(name)


def data(name: str, top: Path, scale: float) -> Path:
    """Return the folder of a session's data, and make it unless it is there."""
    folder = top / f"{name}-{scale:g}"
    done = folder / "made"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        load(name).make(folder, scale)
        done.touch()
    return folder
