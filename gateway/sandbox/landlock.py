"""Landlock, the part of Linux by which a process gives up access to files, TCP and other processes for good.

Named by the versions of its interface (ABI): 1 files (Linux 5.13), 2 renames between folders, 3 truncation, 4 TCP, 5
ioctl on devices, 6 abstract unix sockets and signals (Linux 6.12). Older ones leave what they do not know allowed;
`gateway.sandbox.seccomp` closes these gaps.
"""

import ctypes
import os
import stat
from collections.abc import Sequence
from typing import Final

from gateway.sandbox.kernel import (
    PR_SET_NO_NEW_PRIVS,
    SYS_LANDLOCK_ADD_RULE,
    SYS_LANDLOCK_CREATE_RULESET,
    SYS_LANDLOCK_RESTRICT_SELF,
    call_prctl,
    call_system,
)

_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1

# Access to files, LANDLOCK_ACCESS_FS_*.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_TCP: Final = 0b11  # bind, connect
_SCOPES: Final = 0b11  # abstract unix sockets, signals

_DATA: Final = _READ_FILE | _READ_DIR
_READ: Final = _EXECUTE | _DATA
_WRITE: Final = (
    _READ
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
    | _TRUNCATE
)
_DEVICE: Final = _READ_FILE | _WRITE_FILE
#: What a rule about something that is not a folder may name.
_OF_A_FILE: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

SIGNALS_ABI: Final = 6
TRUNCATE_ABI: Final = 3


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # what `_pack_` means since Python 3.14
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def get_abi() -> int:
    """Return the version of Landlock that this kernel has; 0: none, or switched off."""
    try:
        return call_system(SYS_LANDLOCK_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(
    *, readable: Sequence[str], writable: Sequence[str], devices: Sequence[str], data: Sequence[str] = ()
) -> None:
    """Leave this thread and its children only these paths, no TCP, and no signals to processes outside.

    `data` is read, and not executed. What is `readable` or a device may be missing; all else must be there. Links are
    followed once, now.
    """
    version = get_abi()
    if not version:
        raise OSError("this kernel has no Landlock")
    known = (1 << (13 + (version >= 2) + (version >= TRUNCATE_ABI) + (version >= 5))) - 1
    attributes = (ctypes.c_uint64 * 3)(known, _TCP if version >= 4 else 0, _SCOPES if version >= SIGNALS_ABI else 0)
    size = 8 * (1 + (version >= 4) + (version >= SIGNALS_ABI))
    ruleset = call_system(SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path in readable:
            _allow_path(ruleset, path, _READ & known, optional=True)
        for path in devices:
            _allow_path(ruleset, path, _DEVICE & known, optional=True)
        for path in data:
            _allow_path(ruleset, path, _DATA & known, optional=False)
        for path in writable:
            _allow_path(ruleset, path, _WRITE & known, optional=False)
        call_prctl(PR_SET_NO_NEW_PRIVS, 1)
        call_system(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int, *, optional: bool) -> None:
    """Add a rule that allows `access` below a path; an optional path may be missing."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        if optional:
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_A_FILE
        rule = _PathBeneath(access, descriptor)
        call_system(SYS_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
