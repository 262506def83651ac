"""The folder of the console's sockets: it goes with its process, at once or when the next one looks."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.server.console_ipc import LOCK, PREFIX, SocketFolder, remove_left_folders

KILLED = """
import os, signal, socket
from gateway.server.console_ipc import SocketFolder
socket.socket(socket.AF_UNIX).bind(SocketFolder.create().build_socket_path(0))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A socket's path has at most 107 characters. pytest's own folders are made before."""
    with tempfile.TemporaryDirectory(prefix="con-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def test_socket_folder_is_private_and_removed_with_its_sockets(folder: Path) -> None:
    made = SocketFolder.create()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(made.build_socket_path(0))
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700 and made.path.parent == folder
    made.remove()
    assert list(folder.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(folder: Path) -> None:
    """And that of a process that lives is not."""
    subprocess.run((sys.executable, "-c", KILLED), env={**os.environ, "TMPDIR": str(folder)}, check=False)
    (left,) = folder.iterdir()
    assert sorted(file.name for file in left.iterdir()) == ["0.sock", LOCK]
    living = SocketFolder.create()
    remove_left_folders()
    assert list(folder.iterdir()) == [living.path]
    living.remove()


@pytest.mark.parametrize("kind", ["no lock", "open to others", "a link", "a file", "more in it"])
def test_cleanup_keeps_folders_that_may_belong_to_another_program(folder: Path, tmp_path: Path, kind: str) -> None:
    """Nothing but sockets and the lock is ever removed."""
    place = folder / f"{PREFIX}x"
    target = tmp_path / "target" if kind == "a link" else place
    if kind == "a file":
        place.write_text("content")
    else:
        target.mkdir(mode=0o700)
        (target / "precious").write_text("content")
        if kind != "no lock":
            (target / LOCK).touch()
    if kind == "open to others":
        target.chmod(0o755)
    if kind == "a link":
        place.symlink_to(target)
    remove_left_folders()
    found = place if kind == "a file" else target / "precious"
    assert found.read_text() == "content" and place.exists()


def test_missing_temp_folder_fails_creation_but_not_cleanup(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    remove_left_folders()
    with pytest.raises(FileNotFoundError):
        SocketFolder.create()
