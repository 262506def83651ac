"""System calls of Linux that Python does not offer, with OSError for what fails."""

import ctypes
import functools
import os
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_SECCOMP: Final = 22
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38

# From 424 on the numbers are the same on every architecture.
_SYS_OPENAT2: Final = 437
_SYS_MOUNT_SETATTR: Final = 442
SYS_LANDLOCK_CREATE_RULESET: Final = 444
SYS_LANDLOCK_ADD_RULE: Final = 445
SYS_LANDLOCK_RESTRICT_SELF: Final = 446

_CAPABILITY_VERSION_3: Final = 0x20080522
_AT_FDCWD: Final = -100


def call_system(number: int, *arguments: Any) -> int:
    """Return the result of `syscall(2)`; whole numbers are passed as C longs, everything else as ctypes passes it."""
    longs = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    libc = _load_libc()
    result: int = libc.syscall(ctypes.c_long(number), *longs)
    return _check_result(result)


def call_prctl(option: int, value: int, pointer: Any = None) -> None:
    zero = ctypes.c_ulong(0)
    _check_result(_load_libc().prctl(ctypes.c_int(option), ctypes.c_ulong(value), pointer or zero, zero, zero))


def call_unshare(flags: int) -> None:
    _check_result(_load_libc().unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, *, flags: int, kind: str | None = None, options: str = "") -> None:
    """Mount a file system (mount(2)); `kind` is the type of a new one, with its options."""
    names = os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None
    _check_result(_load_libc().mount(*names, ctypes.c_ulong(flags), options.encode()))


def set_mount_attributes(target: str, *, add: int = 0, clear: int = 0, recursive: bool = False) -> None:
    """Add and clear attributes of a mount (mount_setattr(2), since Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(add, clear, 0, 0)
    at_recursive = 0x8000 if recursive else 0
    size = ctypes.sizeof(attributes)
    call_system(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), at_recursive, ctypes.byref(attributes), size)


def drop_capabilities() -> None:
    """Give up every capability of this thread."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check_result(_load_libc().capset(ctypes.byref(header), ctypes.byref(nothing)))


def call_openat2(directory: int, path: str, *, flags: int, mode: int, resolve: int) -> int:
    """Open a path below a directory (openat2(2), since Linux 5.6). Return its descriptor."""
    how = (ctypes.c_uint64 * 3)(flags, mode, resolve)
    return call_system(_SYS_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def get_filesystem_type(descriptor: int) -> int:
    """Return the magic number of the file system on which an open file lives (statfs(2), `f_type`)."""
    # struct statfs is 120 bytes on 64-bit machines and begins with f_type; 64 longs are more than any has.
    buffer = (ctypes.c_long * 64)()
    _check_result(_load_libc().fstatfs(ctypes.c_int(descriptor), ctypes.byref(buffer)))
    return int(buffer[0])


@functools.cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check_result(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
