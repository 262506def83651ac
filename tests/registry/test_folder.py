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
