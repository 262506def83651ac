"""Namespaces of Linux for a command: no network, no foreign processes, everything read-only but one folder."""

import os
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
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_ATTR_RDONLY: Final = 0x1


def enter() -> None:
    """Move this process into namespaces of its own; its next child is the first process there.

    The user keeps its number. Raises OSError where the machine does not let it.
    """
    user, group = os.getuid(), os.getgid()
    unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS)
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
