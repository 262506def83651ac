"""Fixtures of the tests of features."""

from pathlib import Path

import pytest
from config.folder import Folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)
