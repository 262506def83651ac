"""Base prompts of the configuration: the texts of those in files, and what is said of files that cannot be read."""

from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.config.prompts import read_prompt_texts
from gateway.config.schema.context import Prompt


def test_texts_come_from_the_file_and_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "kind.md"
    file.write_text("Be kind.")
    assert read_prompt_texts({"a": Prompt(text="Be short."), "b": Prompt(file=file)}) == {
        "a": "Be short.",
        "b": "Be kind.",
    }


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """At the place of its prompt, also where it was there when the configuration was checked."""
    folder, latin = tmp_path / "folder", tmp_path / "latin.md"
    folder.mkdir()
    latin.write_bytes(b"\xe9")
    prompts = {name: Prompt.model_construct(text=None, file=file) for name, file in (("a", folder), ("b", latin))}
    with pytest.raises(ConfigError) as found:
        read_prompt_texts(prompts)
    first, second = str(found.value).splitlines()
    assert "prompts.a.file" in first and "Is a directory" in first
    assert "prompts.b.file" in second and "not UTF-8" in second
