"""The opening of paths beneath a folder: nothing above it is ever reached, and no link is ever followed.

The kernel resolves where it can (openat2, Linux 5.6). Elsewhere each component is opened by itself with O_NOFOLLOW.
Either way nothing is checked first and opened later, so there is no gap in which a path could be changed.
"""

import errno
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gateway.sandbox.kernel import call_openat2

_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_ALWAYS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
#: openat2 does not take them together with O_PATH, which opens nothing anyway.
_WHEN_OPENED: Final = os.O_NONBLOCK | os.O_NOCTTY
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: openat2 answers EAGAIN while another process renames in the tree. So many times in a row are an attack.
_TRIES: Final = 64
#: What Linux accepts (PATH_MAX, NAME_MAX).
_PATH_BYTES, _NAME_BYTES = 4095, 255
#: Deeper than any tree built by hand.
_DEPTH: Final = 64
#: Spellings that mean something to other programs, and never a file here.
_FOREIGN: Final = re.compile(r"~|\$|[A-Za-z][A-Za-z0-9+.-]*:/|.*(?:\\|%(?:2e|2f|5c|00))", re.IGNORECASE | re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class PathRefusedError(Exception):
    """A path that lies outside, leads through a link or is not a plain file. The text is for the caller of the tool."""


def split_components(path: str) -> tuple[str, ...]:
    """Return the names in a relative path, `.` and `..` resolved by spelling. () is the folder itself.

    Raises RefusedError for a path that leaves, is absolute, or is not plainly a path.
    """
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise PathRefusedError("the path is not valid text") from None
    if length > _PATH_BYTES:
        raise PathRefusedError(f"the path is too long: {length} bytes, at most {_PATH_BYTES}")
    if _CONTROL.search(path):
        raise PathRefusedError("the path contains a control character")
    if path.startswith("/") or _FOREIGN.match(path):
        raise PathRefusedError("paths are plain and relative, such as 'notes/today.txt'")
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            if not names:
                raise PathRefusedError("the path leaves the folder")
            names.pop()
        elif name not in ("", "."):
            if len(name.encode()) > _NAME_BYTES:
                raise PathRefusedError(f"a name in the path is longer than {_NAME_BYTES} bytes")
            names.append(name)
    if len(names) > _DEPTH:
        raise PathRefusedError(f"the path is deeper than {_DEPTH} folders")
    return tuple(names)


def open_beneath(root: int, names: Sequence[str], flags: int) -> int:
    """Open `names` beneath the open folder `root` and return the descriptor. It never blocks and is not inherited.

    Raises RefusedError for a link or an escape, OSError for the rest. Creates nothing.
    """
    try:
        return open_by_kernel(root, names, flags)
    except OSError as error:
        # EPERM: container runtimes whose filter is older than the system call.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_by_walk(root, names, flags)


def open_by_kernel(root: int, names: Sequence[str], flags: int) -> int:
    """Open as `open_beneath` does, by openat2 alone."""
    path = "/".join(names) or "."
    resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
    for _ in range(_TRIES):
        try:
            return _refuse_link(call_openat2(root, path, flags=_harden_flags(flags), mode=0, resolve=resolve))
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):
                raise _build_link_error() from None
            if error.errno == errno.ENOTDIR and flags & os.O_DIRECTORY:
                os.close(open_by_kernel(root, names, os.O_PATH))  # a link at the end is reported as what it is
            raise
    raise PathRefusedError("the folder changes too fast to be read safely")


def open_by_walk(root: int, names: Sequence[str], flags: int) -> int:
    """Open as `open_beneath` does, folder by folder."""
    here = os.open(".", _FOLDER, dir_fd=root)
    try:
        for name in names[:-1]:
            deeper = _open_step(here, name, _FOLDER)
            os.close(here)
            here = deeper
        return _refuse_link(_open_step(here, names[-1] if names else ".", _harden_flags(flags)))
    finally:
        os.close(here)


def _harden_flags(flags: int) -> int:
    return flags | _ALWAYS | (0 if flags & os.O_PATH else _WHEN_OPENED)


def _open_step(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # With O_DIRECTORY a link is ENOTDIR. What is looked up again here only words the refusal.
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(folder, name)):
            raise _build_link_error() from None
        raise


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _refuse_link(descriptor: int) -> int:
    """Return the descriptor, or raise RefusedError for a link: O_PATH with O_NOFOLLOW opens the link itself."""
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _build_link_error()
    return descriptor


def _build_link_error() -> PathRefusedError:
    return PathRefusedError("the path leads through a link, and links are not followed")
