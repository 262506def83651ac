"""The operator's own plugins: read where nobody else can have written them (fault case T31)."""

import os
from pathlib import Path

import pytest

from gateway.config.trusted_file import MAX_SOURCE_BYTES, UnsafePluginError, read_trusted_file
from gateway.registry.user_plugins import get_plugin_file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the tool `mine`."""
    folder = tmp_path / "plugins"
    (folder / "tools").mkdir(parents=True, mode=0o755)
    get_plugin_file(folder, "tools", "mine").write_bytes(b"PLUGIN = 1\n")
    for place in (folder, folder / "tools"):
        place.chmod(0o755)
    get_plugin_file(folder, "tools", "mine").chmod(0o644)
    return folder


def refusal(home: Path, name: str = "mine") -> str:
    with pytest.raises(UnsafePluginError) as refused:
        read_trusted_file(get_plugin_file(home, "tools", name), folder=home)
    return str(refused.value)


def test_plugin_file_owned_by_the_operator_is_read(home: Path) -> None:
    """As its bytes, also through links that stay in the folder, and where the folder itself is one."""
    (home / "tools" / "linked.py").symlink_to("mine.py")
    elsewhere = home.parent / "elsewhere"
    elsewhere.symlink_to(home)
    for folder, name in ((home, "mine"), (home, "linked"), (elsewhere, "mine")):
        assert read_trusted_file(get_plugin_file(folder, "tools", name), folder=folder) == b"PLUGIN = 1\n"


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("place", ["", "tools", "tools/mine.py"])
def test_plugin_file_writable_by_others_is_refused(home: Path, place: str, mode: int) -> None:
    """The file, its folder, and the one above: with each of them it could be replaced."""
    target = home / place
    target.chmod(target.stat().st_mode | mode)
    said = refusal(home)
    assert f"{str(target)!r} can be written by others than its owner" in said and f"chmod go-w {target}" in said


@pytest.mark.parametrize("place", ["", "tools", "tools/mine.py"])
def test_plugin_file_owned_by_another_user_is_refused(home: Path, place: str) -> None:
    """Unless the gateway runs as root: of root's files and the user's own one knows who wrote them."""
    file, owner = get_plugin_file(home, "tools", "mine"), (home / place).stat().st_uid
    if owner == 0:
        owner = 1234
        os.chown(home / place, owner, -1)
    with pytest.raises(UnsafePluginError, match=rf"mine\.py'|plugins'|tools' belongs to user {owner}.*\(4321\)"):
        read_trusted_file(file, folder=home, user=4321)
    assert read_trusted_file(file, folder=home, user=0)


def test_a_link_out_of_the_folder_is_refused(home: Path) -> None:
    """A file's, and a folder's."""
    outside = home.parent / "outside"
    outside.mkdir()
    (outside / "evil.py").write_text("raise SystemExit")
    (home / "tools" / "evil.py").symlink_to("../../outside/evil.py")
    assert "behind a link that leads out of" in refusal(home, "evil")
    (home / "tools").rename(home / "away")
    (home / "tools").symlink_to(outside)
    assert "behind a link that leads out of" in refusal(home, "evil")


def test_unreadable_plugin_file_is_refused_with_its_reason(home: Path) -> None:
    """What is not there, a folder, a pipe (without waiting for a writer), a circle, a giant."""
    (home / "tools" / "folder.py").mkdir(mode=0o755)
    os.mkfifo(home / "tools" / "pipe.py", 0o644)
    (home / "tools" / "circle.py").symlink_to("circle.py")
    giant = home / "tools" / "giant.py"
    with giant.open("wb") as file:
        file.truncate(MAX_SOURCE_BYTES + 1)
    giant.chmod(0o644)
    for name, words in (
        ("nothing", "No such file"),
        ("folder", "no ordinary file"),
        ("pipe", "no ordinary file"),
        ("circle", "circle"),
        ("giant", "larger than"),
    ):
        assert words in refusal(home, name), name
