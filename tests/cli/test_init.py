"""`gateway init`: a file to begin with, which is right as it is and never replaces another."""

from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.config import load


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_init_writes_a_valid_default_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """check-config takes it, and every key that stands there has its default."""
    assert main(["init"]) == 0
    assert "wrote gateway.yaml" in capsys.readouterr().out
    assert main(["check-config"]) == 0
    assert capsys.readouterr().out.startswith("gateway.yaml: ok\n")
    written = load(Path("gateway.yaml"), environ={}, flags={})
    assert written.warnings == ()
    assert written.settings == load(None, environ={}, flags={}).settings
    text = Path("gateway.yaml").read_text()
    assert all(f"{section}:" in text for section in ("upstreams", "keys", "tools", "risk"))
    assert "$schema" not in text


def test_init_never_overwrites_an_existing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it is: a file, a folder, a link that leads nowhere."""
    Path("gateway.yaml").write_text("workers: 2\n")
    Path("folder.yaml").mkdir()
    Path("link.yaml").symlink_to("nowhere.yaml")
    for name in ("gateway.yaml", "folder.yaml", "link.yaml"):
        assert main(["init", "-c", name]) == 1
        assert f"'{name}' is there already: it stays as it is" in capsys.readouterr().err
    assert Path("gateway.yaml").read_text() == "workers: 2\n" and not Path("nowhere.yaml").exists()


def test_init_names_a_missing_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 1."""
    assert main(["init", "-c", "nowhere/gateway.yaml"]) == 1
    assert capsys.readouterr().err == "gateway: 'nowhere/gateway.yaml' cannot be written: No such file or directory\n"
