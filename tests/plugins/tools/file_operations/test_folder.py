"""Files of a folder, on the disk itself; the tool's own tests have what a model sees of it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.tools.file_operations.folder import Content, Folder, FolderEntry
from gateway.plugins.tools.file_operations.safe_open import PathRefusedError
from tests.sandbox.machine import ROOT


def never() -> bool:
    return False


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """With its whole size."""
    (tmp_path / "x").write_bytes(b"0123456789")
    assert Folder(tmp_path, may_make=False).read(("x",), limit_bytes=4) == Content(b"0123", 10)


def test_folder_lists_its_first_entries_and_their_count(tmp_path: Path) -> None:
    """With how many there are."""
    for number in range(30):
        (tmp_path / f"f{number:02}").touch()
    listed, count = Folder(tmp_path, may_make=False).list_entries((), limit=2)
    assert (listed, count) == ([FolderEntry("f00", "file", 0), FolderEntry("f01", "file", 0)], 30)


def test_folder_write_replaces_a_file_atomically(tmp_path: Path) -> None:
    """Whoever has the old file open keeps the old text; its mode stays; nothing else is left in the folder."""
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o640)
    folder = Folder(tmp_path, may_make=False)
    with (tmp_path / "x").open() as old:
        assert folder.write(("x",), b"new", stopped=never) is False
        assert old.read() == "old"
    assert (tmp_path / "x").read_text() == "new"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
    assert folder.write(("deep", "er", "y"), b"y", stopped=never) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "x"]


def test_stopped_write_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    """Nor does it leave anything."""
    (tmp_path / "x").write_text("old")
    with pytest.raises(PathRefusedError):
        Folder(tmp_path, may_make=False).write(("x",), b"new", stopped=lambda: True)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"


def test_write_beyond_the_file_size_limit_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    """T5: as on a full disk, here by a limit of the process on the size of files."""
    (tmp_path / "x").write_text("old")
    code = (
        "import resource, signal, pathlib; from gateway.plugins.tools.file_operations.folder import Folder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"folder = Folder(pathlib.Path({str(tmp_path)!r}), may_make=False)\n"
        "try:\n    folder.write(('x',), b'n' * 8192, stopped=lambda: False)\nexcept OSError:\n    print('failed')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "failed\n", done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


@pytest.mark.parametrize("name", ["g.db", "g.db-shm", "second name"])
async def test_folder_refuses_open_store_files_so_database_locks_survive(tmp_path: Path, name: str) -> None:
    """Else another program that reads the store ends its log, and the gateway takes nothing until its next start."""
    place = tmp_path / "g.db"
    store = SqliteStore(str(place))
    await store.open()
    try:
        await store.put_prompt("p", "text", tenant="t", now_s=1.0)
        (tmp_path / "second name").hardlink_to(place)
        before = read_locks()
        with pytest.raises(PathRefusedError, match="uses this file as a database"):
            Folder(tmp_path, may_make=False).read((name,), limit_bytes=1)
        assert read_locks() == before != []
        code = f"import sqlite3; print(*sqlite3.connect({str(place)!r}).execute('SELECT id FROM prompts').fetchone())"
        assert subprocess.check_output([sys.executable, "-c", code], text=True) == "p\n"
        await store.put_prompt("q", "text", tenant="t", now_s=1.0)
        assert await store.find_loss_reason() is None
    finally:
        await store.close()
    assert Folder(tmp_path, may_make=False).read(("g.db",), limit_bytes=6).data == b"SQLite"


def read_locks() -> list[str]:
    """The POSIX locks of this process."""
    lines = Path("/proc/locks").read_text().splitlines()
    return sorted(line.split(maxsplit=1)[1] for line in lines if f" {os.getpid()} " in line and " POSIX " in line)


def test_missing_folder_is_created_only_by_a_permitted_write(tmp_path: Path) -> None:
    """And only by writing."""
    missing = tmp_path / "missing"
    maker = Folder(missing, may_make=True)
    assert maker.find(()) is None and maker.list_entries((), limit=1) == ([], 0)
    assert not missing.exists()
    with pytest.raises(FileNotFoundError):
        Folder(missing, may_make=False).write(("x",), b"", stopped=never)
    assert maker.write(("x",), b"", stopped=never) is True


@pytest.mark.parametrize("path", ["self/environ", "sys/kernel/hostname", "meminfo", "1/status"])
def test_folder_refuses_to_read_proc_files(path: str) -> None:
    """Even where an operator names a folder that holds them."""
    with pytest.raises(PathRefusedError):
        Folder(Path("/proc"), may_make=False).read(path.split("/"), limit_bytes=100)


def test_folder_refuses_to_read_devices() -> None:
    """They are not even opened."""
    with pytest.raises(PathRefusedError):
        Folder(Path("/dev"), may_make=False).read(("zero",), limit_bytes=100)


def test_folder_refuses_pipes_and_sockets_without_blocking(tmp_path: Path) -> None:
    """Neither for reading nor for writing, and nobody waits for them."""
    os.mkfifo(tmp_path / "pipe")
    folder = Folder(tmp_path, may_make=False)
    with pytest.raises(PathRefusedError):
        folder.read(("pipe",), limit_bytes=100)
    with pytest.raises(PathRefusedError):
        folder.write(("pipe",), b"x", stopped=never)
