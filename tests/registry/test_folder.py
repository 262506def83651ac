"""The operator's folder of plugins: which there are, and where."""

from pathlib import Path

from gateway.registry.folder import file_of, names_in


def test_names_are_those_of_the_files(tmp_path: Path) -> None:
    """Of one kind; what is no Python file, or private, is none; a folder that is not there has none."""
    file_of(tmp_path, "tools", "mine").parent.mkdir()
    for name in ("mine.py", "_private.py", "notes.txt", "other.py", "__init__.py"):
        (tmp_path / "tools" / name).touch()
    assert names_in(tmp_path, "tools") == ["mine", "other"]
    assert names_in(tmp_path, "stages") == names_in(tmp_path / "nothing", "tools") == []


def test_a_folder_with_an_init_is_a_plugin(tmp_path: Path) -> None:
    """Others are not; its file is where the plugin begins."""
    for name in ("mine", "_private", "notes"):
        (tmp_path / "tools" / name).mkdir(parents=True)
    for name in ("mine", "_private"):
        (tmp_path / "tools" / name / "__init__.py").touch()
    assert names_in(tmp_path, "tools") == ["mine"]
    assert file_of(tmp_path, "tools", "mine") == tmp_path / "tools/mine/__init__.py"
    assert file_of(tmp_path, "tools", "other") == tmp_path / "tools/other.py"
