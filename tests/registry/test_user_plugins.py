"""The operator's folder of plugins: which there are, and where."""

import sys
from pathlib import Path

import pytest

from gateway.registry.user_plugins import _FINDER, MOST_DIGESTS, get_plugin_file, list_plugin_names, load


def test_plugin_names_come_from_public_python_files(tmp_path: Path) -> None:
    """Of one kind; what is no Python file, or private, is none; a folder that is not there has none."""
    get_plugin_file(tmp_path, "tools", "mine").parent.mkdir()
    for name in ("mine.py", "_private.py", "notes.txt", "other.py", "__init__.py"):
        (tmp_path / "tools" / name).touch()
    assert list_plugin_names(tmp_path, "tools") == ["mine", "other"]
    assert list_plugin_names(tmp_path, "stages") == list_plugin_names(tmp_path / "nothing", "tools") == []


def test_plugin_folder_needs_an_init_file(tmp_path: Path) -> None:
    """Others are not; its file is where the plugin begins."""
    for name in ("mine", "_private", "notes"):
        (tmp_path / "tools" / name).mkdir(parents=True)
    for name in ("mine", "_private"):
        (tmp_path / "tools" / name / "__init__.py").touch()
    assert list_plugin_names(tmp_path, "tools") == ["mine"]
    assert get_plugin_file(tmp_path, "tools", "mine") == tmp_path / "tools/mine/__init__.py"
    assert get_plugin_file(tmp_path, "tools", "other") == tmp_path / "tools/other.py"


def loaded_of(name: str) -> set[str]:
    """The modules and the sources that are there of a plugin."""
    return {one for one in (*sys.modules, *_FINDER.list_names()) if one.startswith(f"{name}@")}


def test_failed_plugin_import_leaves_no_modules(tmp_path: Path) -> None:
    """Neither its modules nor their sources, which may be large."""
    file = get_plugin_file(tmp_path, "tools", "broken")
    file.parent.mkdir(mode=0o755)
    file.write_text("raise ValueError('no')\n")
    file.chmod(0o644)
    with pytest.raises(ValueError, match="no"):
        load(file, folder=tmp_path, name="test.broken")
    assert loaded_of("test.broken") == set()


def test_old_sources_of_a_plugin_are_dropped(tmp_path: Path) -> None:
    """A gateway that is reloaded for years does not grow; the newest are there, and are the same module again."""
    file = get_plugin_file(tmp_path, "tools", "mine")
    file.parent.mkdir(mode=0o755)
    for number in range(MOST_DIGESTS + 3):
        file.write_text(f"NUMBER = {number}\n")
        file.chmod(0o644)
        module = load(file, folder=tmp_path, name="test.mine")
        assert number == module.NUMBER and module is load(file, folder=tmp_path, name="test.mine")
    assert len(loaded_of("test.mine")) == MOST_DIGESTS
