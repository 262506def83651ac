"""The access of others to files: one rule for the configuration, the files that it names, and stores.

A file that everybody may write is refused. A file that its group may write gets a warning, since volumes of containers
are like that. So does a file whose folder others may write, because another file can be put in its place. Code has a
stricter rule (`gateway/config/trusted_file.py`).
"""

import shlex
import stat
from pathlib import Path


def refused_access(place: Path, mode: int) -> str | None:
    """Return why a file of this mode (`st_mode`) is not used, with the next step; None: it may be."""
    if mode & stat.S_IWOTH:
        return f"{str(place)!r} can be written by everybody, so it is not used: chmod o-w {shlex.quote(str(place))}"
    return None


def loose_access(place: Path) -> str | None:
    """Return how others may change or replace a file, with the next step; None: they may not, or it is not there."""
    try:
        file, folder = place.stat().st_mode, place.resolve().parent
        above = folder.stat().st_mode
    except OSError:
        return None
    if file & stat.S_IWGRP:
        return f"{str(place)!r} can be written by its group: unless you mean that, chmod g-w {shlex.quote(str(place))}"
    if above & (stat.S_IWGRP | stat.S_IWOTH) and not above & stat.S_ISVTX:
        return (
            f"{str(place)!r} can be replaced by others, who may write its folder: unless you mean that, "
            f"chmod go-w {shlex.quote(str(folder))}"
        )
    return None
