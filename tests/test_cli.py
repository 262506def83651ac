"""The command line: what each command says, and one line instead of a traceback when it cannot."""

import runpy
import sys
from pathlib import Path

import pytest
from running import config, key

from gateway import __version__
from gateway.cli import main
from gateway.testing.ports import refusing_port


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without a gateway.yaml, and without settings from the environment."""
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command."""
    try:
        code = main(argv)
    except SystemExit as end:  # argparse: wrong usage, --help, --version
        code = int(str(end.code))
    out, err = capsys.readouterr()
    return code, out, err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The distribution's name and version."""
    assert said(capsys, "--version") == (0, f"twolane {__version__}\n", "")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """And each command has a help of its own."""
    code, out, _ = said(capsys, "--help")
    assert code == 0
    for command in ("run", "check-config", "selftest", "healthcheck"):
        assert f"\n    {command}" in out
        code, text, _ = said(capsys, command, "--help")
        assert code == 0 and f"usage: gateway {command}" in text


def test_without_a_command_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags alone are those of `run`."""
    for argv in ((), ("run",)):
        code, out, err = said(capsys, *argv, "--listen", "0.0.0.0:0")
        assert (code, out) == (1, "") and "there are no keys" in err


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["nonsense"], id="command"),
        pytest.param(["run", "--nope"], id="option"),
        pytest.param(["run", "extra"], id="argument"),
        pytest.param(["run", "--port"], id="no-value"),
        pytest.param(["healthcheck", "--timeout", "soon"], id="not-a-number"),
        pytest.param(["healthcheck", "--timeout", "-1"], id="negative"),
        pytest.param(["healthcheck", "--timeout", "inf"], id="endless"),
    ],
)
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With the usage on standard error."""
    code, out, err = said(capsys, *argv)
    assert (code, out) == (2, "") and err.startswith("usage: gateway")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(["--port", "abc"], "--port", id="port-text"),
        pytest.param(["--port", "70000"], "--port", id="port-too-high"),
        pytest.param(["--workers", "0"], "--workers", id="no-workers"),
        pytest.param(["--listen", "256.1.1.1:1"], "--listen", id="no-address"),
        pytest.param(["--listen", "0.0.0.0:0"], "--listen", id="wide-without-keys"),
        pytest.param(["--upstream", "ftp://x"], "--upstream", id="no-http"),
        pytest.param(["--upstream", "http://user:secret@x"], "--upstream", id="password"),
        pytest.param(["-c", "missing.yaml"], "missing.yaml", id="no-file"),
        pytest.param(["-c", "."], "Is a directory", id="folder"),
        pytest.param(
            ["--listen", "localhost:1", "--upstream", "http://x", "--port", "-1"], "--port", id="port-negative"
        ),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_1(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the flag or the file; nothing was started, nothing secret is repeated."""
    code, out, err = said(capsys, "run", *argv)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert expected in err and "Traceback" not in err and "secret" not in err


def test_a_bad_file_is_told_with_its_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it at once, a line each, with file, line and column; by `run` and by `check-config` alike."""
    file = tmp_path / "bad.yaml"
    file.write_text("lisen: 127.0.0.1:1\nworkers: many\n")
    texts = []
    for command in ("run", "check-config"):
        code, out, err = said(capsys, command, "-c", str(file))
        assert (code, out) == (1, "")
        texts.append(err)
    assert texts[0] == texts[1] and texts[0].count("\n") == 2
    assert f"{file}:1:" in texts[0] and "listen" in texts[0] and f"{file}:2:" in texts[0]


def test_a_good_file_is_told_without_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it listens on, upstreams, keys by name."""
    file = tmp_path / "good.yaml"
    secret = "sk-0123456789abcdef"
    file.write_text(config("http://127.0.0.1:9", upstream={"api_key": secret}, keys=[key("mine")], workers=3))
    code, out, err = said(capsys, "check-config", "-c", str(file))
    assert (code, err) == (0, "")
    assert out.startswith(f"{file}: ok\n") and "workers 3" in out and "up (http://127.0.0.1:9)" in out
    assert secret not in out and "mine" not in out


def test_gateway_yaml_of_the_folder_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it: defaults, and the demo model."""
    code, out, _ = said(capsys, "check-config")
    assert code == 0 and "defaults, no file" in out and "demo model" in out
    (tmp_path / "gateway.yaml").write_text("workers: 2\n")
    code, out, _ = said(capsys, "check-config")
    assert code == 0 and out.startswith("gateway.yaml: ok") and "workers 2" in out


def test_healthcheck_asks_the_configured_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`admin.listen` if there is one; 1 when nobody is there."""
    with refusing_port() as port:
        (tmp_path / "gateway.yaml").write_text(f"admin: {{listen: 127.0.0.1:{port}}}\n")
        code, out, err = said(capsys, "healthcheck")
    assert (code, out) == (1, "") and f"127.0.0.1:{port} does not answer" in err


def test_python_m_gateway(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Is the same command."""
    monkeypatch.setattr(sys, "argv", ["gateway", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("gateway", run_name="__main__")
    assert end.value.code == 0 and capsys.readouterr().out == f"twolane {__version__}\n"
