"""The access of others to files: one rule for the configuration, the files that it names, and stores.

A file that is writable by all users is refused. A file that its group may write gets a warning, since volumes of
containers are like that. So does a file whose folder others may write, because another file can be put in its place. So
does a file that only seems writable by all: one that is mounted read-only, or whose file system keeps no modes. Code
has a stricter rule (`gateway/config/trusted_file.py`).
"""

import os
import shlex
import stat
from pathlib import Path
from typing import Final

#: Every file of these has the modes of its mount (mount(8)): disks of Windows in WSL and in Docker Desktop, and shares.
_WITHOUT_MODES: Final = frozenset(
    ("9p", "cifs", "drvfs", "exfat", "fuseblk", "msdos", "ntfs", "ntfs3", "smb2", "smb3", "vfat")
)


def find_access_fault(place: Path, mode: int) -> str | None:
    """Return the fault of a file with this `st_mode`, with the next step; None: it may be used."""
    if mode & stat.S_IWOTH and _keeps_modes(place):
        return f"{str(place)!r} can be written by every user, so it is not used: chmod o-w {shlex.quote(str(place))}"
    return None


def find_loose_access(place: Path) -> str | None:
    """Return how others may change or replace a file, with the next step; None: they may not, or it is not there."""
    try:
        file, folder = place.stat().st_mode, place.resolve().parent
        above = folder.stat().st_mode
    except OSError:
        return None
    if file & stat.S_IWOTH and not _keeps_modes(place):
        return f"{str(place)!r} looks as if every user may write it, and its mount lets no mode say otherwise"
    if file & stat.S_IWGRP:
        return f"{str(place)!r} can be written by its group: unless you mean that, chmod g-w {shlex.quote(str(place))}"
    if above & (stat.S_IWGRP | stat.S_IWOTH) and not above & stat.S_ISVTX:
        return (
            f"{str(place)!r} can be replaced by others, who may write its folder: unless you mean that, "
            f"chmod go-w {shlex.quote(str(folder))}"
        )
    return None


def _keeps_modes(place: Path) -> bool:
    """Return whether `chmod` can change the mode of a file where it lies; True if the machine does not report it."""
    try:
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            return False
        device, mounts = place.stat().st_dev, Path("/proc/self/mountinfo").read_text()
    except (OSError, ValueError):
        return True
    return find_file_system_type(device, mounts) not in _WITHOUT_MODES


def find_file_system_type(device: int, mounts: str) -> str | None:
    """Return the type of the file system of a device, by /proc/self/mountinfo (proc(5)); None: it is not there."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for fields in map(str.split, mounts.splitlines()):
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return None
