"""Landlock: what is left of the machine afterwards."""

from pathlib import Path

import pytest

from gateway.sandbox import landlock
from tests.sandbox.machine import in_child

TRIED = """
from gateway.sandbox.landlock import restrict
def told(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
def confined(action):
    try:
        restrict(readable=("/usr/lib", "/nowhere"), writable=(r"{folder}",), devices=("/dev/null",))
    except OSError:
        return "no Landlock"
    return told(action)
"""


def expected(outcome: str) -> str:
    return outcome if landlock.get_abi() else "no Landlock"


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("lambda: open(r'{folder}/new', 'w')", "done"),
        ("lambda: __import__('os').mkdir(r'{folder}/sub')", "done"),
        ("lambda: __import__('os').scandir('/usr/lib')", "done"),
        ("lambda: open('/dev/null', 'w')", "done"),
        ("lambda: open(r'{outside}')", "PermissionError"),
        ("lambda: open(r'{outside}', 'a')", "PermissionError"),
        ("lambda: open('/proc/self/environ')", "PermissionError"),
        ("lambda: open('/usr/lib/new', 'w')", "PermissionError"),
        ("lambda: __import__('os').unlink(r'{outside}')", "PermissionError"),
        ("lambda: __import__('os').scandir('/')", "PermissionError"),
        ("lambda: __import__('os').symlink(r'{outside}', r'{folder}/l') or open(r'{folder}/l')", "PermissionError"),
    ],
)
def test_landlock_allows_only_the_configured_paths(action: str, outcome: str, tmp_path: Path) -> None:
    """The writable folder wholly, the readable ones for reading, and nothing else."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("secret")
    code = (TRIED + f"print(confined({action}))").replace("{folder}", str(folder)).replace("{outside}", str(outside))
    assert in_child(code) == expected(outcome)
    assert outside.read_text() == "secret"


def test_a_missing_writable_folder_is_an_error(tmp_path: Path) -> None:
    """Nothing is confined to a folder that is not there."""
    code = TRIED.replace("{folder}", str(tmp_path / "missing")) + (
        "try:\n    restrict(readable=(), writable=(r'%s',), devices=())\n"
        "except OSError as error:\n    print(type(error).__name__)" % (tmp_path / "missing")
    )
    assert in_child(code) in ("FileNotFoundError", "OSError")


def test_landlock_abi_version_is_a_number() -> None:
    """0 where there is none."""
    assert landlock.get_abi() >= 0
