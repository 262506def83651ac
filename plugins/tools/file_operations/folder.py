"""Files of one folder and everything beneath it: read, listed, found and written, never through a link.

All functions here block, so call them in a thread.
"""

import heapq
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gateway.sandbox.kernel import get_filesystem_type

from .safe_open import PathRefusedError, open_beneath

Kind = Literal["file", "folder", "link", "other"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
#: Where files are not ordinary files: proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, bpf, nsfs, devpts.
_SPECIAL: Final = frozenset(
    (0x9FA0, 0x62656572, 0x64626720, 0x74726163, 0x73636673, 0x27E0EB, 0x63677270, 0xCAFE4A11, 0x6E736673, 0x1CD1)
)
#: The kernel's facts about the descriptors of this process.
_DESCRIPTORS, _FACTS = Path("/proc/self/fd"), Path("/proc/self/fdinfo")


@dataclass(frozen=True, slots=True)
class FolderEntry:
    name: str
    kind: Kind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Content:
    """The first bytes of a file, and how many it has."""

    data: bytes
    size_bytes: int


class Folder:
    """The folder at `path`. A missing one counts as empty, and the first write makes it if `may_make`.

    Every method raises RefusedError, or OSError as the system does.
    """

    def __init__(self, path: Path, *, may_make: bool) -> None:
        self.path = path
        self._may_make = may_make

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"

    def find(self, names: Sequence[str]) -> FolderEntry | None:
        """Return the entry at `names`, or None if there is none."""
        root = self._open()
        if root is None:
            return None
        try:
            found = open_beneath(root, names, os.O_PATH)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(root)
        try:
            return _build_entry(names[-1] if names else ".", os.fstat(found))
        finally:
            os.close(found)

    def read(self, names: Sequence[str], *, limit_bytes: int) -> Content:
        root = self._open_root()
        try:
            # Looked at before it is opened: opening a device can do something, and closing a locked file does.
            found = _stat_and_close(open_beneath(root, names, os.O_PATH))
            _require_ordinary(found)
            _refuse_locked(found)
            descriptor = open_beneath(root, names, os.O_RDONLY)
        finally:
            os.close(root)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            _require_ordinary(facts)
            _refuse_special(descriptor)
            return Content(file.read(limit_bytes), facts.st_size)

    def list_entries(self, names: Sequence[str], *, limit: int) -> tuple[list[FolderEntry], int]:
        """Return the first entries of a folder in the order of their names, and how many there are."""
        root = self._open()
        if root is None and not names:
            return [], 0
        if root is None:
            raise FileNotFoundError
        try:
            descriptor = open_beneath(root, names, _FOLDER)
        finally:
            os.close(root)
        count = 0
        try:
            _refuse_special(descriptor)
            with os.scandir(descriptor) as found:

                def count_entry(entry: os.DirEntry[str]) -> str:
                    nonlocal count
                    count += 1
                    return entry.name

                first = heapq.nsmallest(limit, (count_entry(entry) for entry in found))
            listed: list[FolderEntry] = []
            for name in first:
                with suppress(FileNotFoundError):
                    listed.append(_build_entry(name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)))
            return listed, count
        finally:
            os.close(descriptor)

    def write(self, names: Sequence[str], data: bytes, *, stopped: Callable[[], bool]) -> bool:
        """Put a file in place atomically and durably, with its folders. Return whether it is a new one.

        Does nothing to an existing file if `stopped()` is true by then.
        """
        if not names:
            raise PathRefusedError("that is a folder, not a file")
        root = self._open_root(make=True)
        try:
            parent = _make_folders(root, names[:-1])
        finally:
            os.close(root)
        try:
            _refuse_special(parent)
            return _replace_file(parent, names[-1], data, stopped=stopped)
        finally:
            os.close(parent)

    def _open(self) -> int | None:
        try:
            return os.open(self.path, _FOLDER | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _open_root(self, *, make: bool = False) -> int:
        root = self._open()
        if root is None and make and self._may_make:
            self.path.mkdir(mode=0o755, exist_ok=True)
            root = self._open()
        if root is None:
            raise FileNotFoundError
        return root


def _make_folders(root: int, names: Sequence[str]) -> int:
    here = open_beneath(root, (), _FOLDER)
    for name in names:
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=here)
            deeper = open_beneath(here, (name,), _FOLDER)
        finally:
            os.close(here)
        here = deeper
    return here


def _replace_file(parent: int, name: str, data: bytes, *, stopped: Callable[[], bool]) -> bool:
    try:
        before: os.stat_result | None = _stat_and_close(open_beneath(parent, (name,), os.O_PATH))
    except FileNotFoundError:
        before = None
    if before is not None:
        _require_ordinary(before)
    mode = stat.S_IMODE(before.st_mode) & 0o777 if before is not None else None
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if stopped():
            raise PathRefusedError("the call was cancelled")
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    os.fsync(parent)
    return before is None


def _stat_and_close(descriptor: int) -> os.stat_result:
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _require_ordinary(facts: os.stat_result) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise PathRefusedError("that is a folder, not a file")
    if not stat.S_ISREG(facts.st_mode):
        raise PathRefusedError("that is not an ordinary file")


def _refuse_locked(facts: os.stat_result) -> None:
    """Raise RefusedError for a file on which this process has POSIX locks, such as the database of the gateway's store.

    A process loses such locks as soon as it closes any descriptor of the file (fcntl(2)), whichever code opened it.
    Another process then takes the database for unused, and ends its log.
    """
    for descriptor in _DESCRIPTORS.iterdir():
        with suppress(OSError):  # closed since
            held = os.fstat(int(descriptor.name))
            if (held.st_dev, held.st_ino) == (facts.st_dev, facts.st_ino) and _has_posix_lock(descriptor.name):
                raise PathRefusedError("the gateway uses this file as a database, so it cannot be read as a file")


def _has_posix_lock(descriptor: str) -> bool:
    """Return whether this process has a POSIX lock by way of a descriptor (proc_pid_fdinfo(5))."""
    with (_FACTS / descriptor).open("rb") as facts:
        return any(line.startswith(b"lock:") and b" POSIX " in line for line in facts)


def _refuse_special(descriptor: int) -> None:
    if get_filesystem_type(descriptor) in _SPECIAL:
        raise PathRefusedError("that is not an ordinary file")


def _build_entry(name: str, facts: os.stat_result) -> FolderEntry:
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return FolderEntry(name, kinds.get(stat.S_IFMT(facts.st_mode), "other"), facts.st_size)
