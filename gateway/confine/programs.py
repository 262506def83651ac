"""Where the programs of the system are; a command's own folder is never among the places."""

import os
from pathlib import Path
from typing import Final

PATH: Final = ("/usr/bin", "/bin")


def program(name: str) -> str | None:
    """The absolute path of the program that a bare name means, or None; a name with a slash means none."""
    if not name or "/" in name:
        return None
    candidates = (f"{folder}/{name}" for folder in PATH)
    return next((path for path in candidates if os.access(path, os.X_OK) and Path(path).is_file()), None)
