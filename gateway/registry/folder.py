"""The operator's folder of plugins: which there are, and where."""

import os
from pathlib import Path

_SUFFIX = ".py"


def names_in(folder: Path, kind: str) -> list[str]:
    """The names of the plugins of one kind, sorted; a folder that is not there has none."""
    try:
        files = [entry.name for entry in os.scandir(folder / kind)]
    except OSError:
        return []
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX) and not name.startswith("_"))


def file_of(folder: Path, kind: str, name: str) -> Path:
    """Where the plugin of this name stands, or would."""
    return folder / kind / f"{name}{_SUFFIX}"
