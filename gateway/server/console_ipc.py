"""The folder of the console's sockets: for one process alone, and removed by a later one if that process was killed.

A folder has a lock, which the kernel releases when its process ends in whatever way. A folder without a lock, with
other rights or of another user is left alone.
"""

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "gateway-console-"
LOCK: Final = "lock"
_SOCKET: Final = ".sock"


@dataclass(frozen=True, slots=True)
class SocketFolder:
    """A folder that only the gateway's own user may enter. `lock` is the open file of its lock."""

    path: Path
    lock: int

    @classmethod
    def create(cls) -> Self:
        """Create a folder in the one for temporary files. Raises OSError."""
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            try:
                lock = os.open(path / LOCK, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            except OSError:
                path.rmdir()
                raise
            with suppress(BlockingIOError):  # another process takes it for one that was left behind, and removes it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_nlink:
                    return cls(path, lock)
            os.close(lock)

    def build_socket_path(self, number: int) -> str:
        """Return the path of a socket."""
        return str(self.path / f"{number}{_SOCKET}")

    def remove(self) -> None:
        """Remove the folder with its sockets."""
        for file in self.path.iterdir():
            file.unlink()
        self.path.rmdir()
        os.close(self.lock)


def remove_left_folders() -> None:
    """Remove the folders whose processes were killed."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(path: Path) -> None:
    """Remove a folder of a gateway if no process holds its lock. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(folder)
        if (facts.st_uid, stat.S_IMODE(facts.st_mode)) != (os.geteuid(), 0o700):
            return
        lock = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(folder):  # noqa: PTH208 - pathlib has no open folders
                if name.endswith(_SOCKET):
                    os.unlink(name, dir_fd=folder)
            os.unlink(LOCK, dir_fd=folder)
            path.rmdir()
        finally:
            os.close(lock)
    finally:
        os.close(folder)
