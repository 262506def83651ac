"""Namespaces of Linux for a command: no network, no foreign processes, everything read-only but one folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.sandbox.kernel import mount, set_mount_attributes, unshare

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
#: Folders and files of a scratch folder together.
SCRATCH_INODES: Final = 4096


def enter(*, mounts_only: bool = False) -> None:
    """Move this process into namespaces of its own; its next child is the first process there.

    `mounts_only`: network, processes and IPC stay those of the machine. The user keeps its number. Raises OSError where
    the machine does not let it.
    """
    user, group = os.getuid(), os.getgid()
    unshare(_NEWUSER | _NEWNS | (0 if mounts_only else _NEWPID | _NEWNET | _NEWIPC | _NEWUTS))
    own = Path("/proc/self")
    own.joinpath("setgroups").write_text("deny")
    own.joinpath("uid_map").write_text(f"{user} {user} 1")
    own.joinpath("gid_map").write_text(f"{group} {group} 1")


def make_read_only_except(folder: str) -> None:
    """Every mount of this namespace read-only, but for the folder itself."""
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    mount(folder, folder, flags=_MS_BIND)
    set_mount_attributes("/", add=_MOUNT_ATTR_RDONLY, recursive=True)
    set_mount_attributes(folder, clear=_MOUNT_ATTR_RDONLY)


def cover(folders: Sequence[str], *, scratch: str, size_bytes: int, overlay: bool) -> None:
    """Put an overlay, which is read-only, over each folder, and an empty folder in memory over `scratch`.

    Beneath the overlay FIFOs and sockets lead nowhere, and locks on files are locks on other files. Where this kernel
    cannot do that, or mounts lie beneath a folder, it stays as it is, unless `overlay` is required. A folder in another
    one comes behind that.
    """
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    options = f"size={size_bytes},nr_inodes={SCRATCH_INODES},mode=0755"
    mount("tmpfs", scratch, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options=options)
    inner, empty = f"{scratch}/inner", f"{scratch}/empty"
    for path, mode in ((inner, 0o1777), (empty, 0o555)):
        os.mkdir(path)  # noqa: PTH102
        os.chmod(path, mode)  # noqa: PTH101 (whatever the umask is)
    covered: list[str] = []
    for folder in folders:
        try:
            if not any(folder.startswith(f"{outer}/") for outer in covered):
                _overlay(folder, empty)
                covered.append(folder)
                continue
        except OSError:
            if overlay:
                raise
        mount(folder, folder, flags=_MS_BIND | _MS_REC)
    mount(inner, scratch, flags=_MS_BIND)


def _overlay(folder: str, empty: str) -> None:
    os.chdir(folder)
    try:
        # An overlay without an upper layer needs two lower ones. A relative path needs no quotes.
        flags = _MS_RDONLY | _MS_NODEV | _MS_NOSUID
        mount("overlay", folder, kind="overlay", flags=flags, options=f"lowerdir=.:{empty}")
    finally:
        os.chdir("/")


def make_read_only(folders: Sequence[str], *, scratch: str) -> None:
    """Make every mount of this namespace read-only, but for `scratch`; the folders have no devices."""
    set_mount_attributes("/", add=_MOUNT_ATTR_RDONLY, recursive=True)
    for folder in folders:
        set_mount_attributes(folder, add=_MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOSUID, recursive=True)
    set_mount_attributes(scratch, clear=_MOUNT_ATTR_RDONLY)
