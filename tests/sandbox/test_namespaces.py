"""Namespaces: tried in a process of their own, with the outcome that this machine allows."""

from pathlib import Path

from tests.sandbox.machine import CONFINED, in_child

CODE = """
import os
from gateway.sandbox import namespaces
try:
    namespaces.enter_namespaces()
except OSError:
    print("not allowed")
    raise SystemExit
pid = os.fork()
if pid == 0:
    namespaces.make_read_only_except({folder!r})
    print(os.getpid(), os.getuid() == {user}, end=" ")
    for path in ({folder!r}, {outside!r}):
        try:
            os.chmod(path, 0o700)
            open(path + "/new", "w").close()
            print("writable", end=" ")
        except OSError as error:
            print(os.strerror(error.errno), end=" ")
    print(flush=True)
    os._exit(0)
os.wait()
"""


def test_namespace_leaves_only_the_work_folder_writable(tmp_path: Path) -> None:
    """The first process there, as the same user."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    user = folder.stat().st_uid
    printed = in_child(CODE.format(folder=str(folder), outside=str(outside), user=user))
    allowed = "1 True writable Read-only file system"
    assert printed == (allowed if "namespaces" in CONFINED else "not allowed")
