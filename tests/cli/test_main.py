"""The command line: what each command says, and one line instead of a traceback when it cannot."""

import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from gateways import config, key
from unanswered_ports import refusing_port

from gateway import __version__
from gateway.cli.main import main

ROOT = Path(__file__).parent.parent.parent


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


def test_version_flag_prints_name_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The distribution's name and version."""
    assert said(capsys, "--version") == (0, f"twolane {__version__}\n", "")


def test_version_imports_neither_the_configuration_nor_a_server() -> None:
    """In a process of its own: what a script calls for each of its steps answers without a second of imports."""
    code = (
        "import sys; from gateway.cli.main import main; main(['version']);"
        "print(*sorted(name for name in sys.modules if name.startswith('gateway.')), file=sys.stderr);"
        "print(*sys.modules.keys() & {'aiohttp', 'asyncio', 'orjson', 'pydantic', 'yaml'}, file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    own = "gateway.cli gateway.cli.commands gateway.cli.gc_tuning gateway.cli.main gateway.features"
    assert (ended.stdout, ended.stderr) == (f"twolane {__version__}\n", f"{own} gateway.features.registry\n\n")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """And each command has a help of its own."""
    code, out, _ = said(capsys, "--help")
    assert code == 0
    alone = ("run", "check-config", "selftest", "healthcheck", "explain", "scan", "assess")
    for command in (*alone, "approvals", "runs", "audit", "plugin"):
        assert f"\n    {command}" in out
        code, text, _ = said(capsys, command, "--help")
        assert code == 0 and f"usage: gateway {command}" in text


def test_unknown_command_error_lists_all_commands_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the help."""
    code, out, err = said(capsys, "nonsense")
    assert (code, out) == (2, "") and "there is no command 'nonsense': expected one of run, init" in err
    places = [err.find(name) for name in ("run", "init", "healthcheck", "approvals", "mcp", "audit", "completion")]
    assert places == sorted(places) and min(places) > 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["aprovals", "list"], "approvals"), (["approvals", "aprove", "ap_1"], "approve"), (["mcp", "tool"], "tools")],
)
def test_mistyped_command_suggests_the_nearest_command(
    capsys: pytest.CaptureFixture[str], words: list[str], meant: str
) -> None:
    """At each level of words."""
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "") and f"did you mean '{meant}'?" in err and err.startswith("usage: gateway")


def test_gateway_without_a_command_runs_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags alone are those of `run`."""
    for argv in ((), ("run",)):
        code, out, err = said(capsys, *argv, "--listen", "0.0.0.0:0")
        assert (code, out) == (1, "") and "there are no keys" in err


@pytest.mark.parametrize("argv", [(), ("run",), ("--workers", "1"), ("version",)])
def test_command_imports_no_module_of_another_command(argv: tuple[str, ...], tmp_path: Path) -> None:
    """A gateway keeps for life what its start has loaded; here it gets as far as its port, which is taken."""
    code = "import sys; from gateway.__main__ import main; main(); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with refusing_port() as port:
        (tmp_path / "gateway.yaml").write_text(f"listen: 127.0.0.1:{port}\n")
        command = [sys.executable, "-c", code, *argv]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    modules = done.stdout.split()
    assert ("gateway.server.serve" in modules) == (f"127.0.0.1:{port}" in done.stderr) == (argv != ("version",))
    loaded = {module.removeprefix("gateway.cli.") for module in modules if module.startswith("gateway.cli.")}
    assert loaded == {"main", "commands", "gc_tuning"}
    late = ("command", "pages", "openapi", "console")
    assert [module for module in modules if module.startswith("gateway.features.") and module.endswith(late)] == []


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
        pytest.param(["plugin"], id="no-subcommand"),
        pytest.param(["plugin", "new", "stores", "mine"], id="kind"),
        pytest.param(["plugin", "new", "stages"], id="no-name"),
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
def test_unstartable_run_exits_1_with_one_error_line(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the flag or the file; nothing was started, nothing secret is repeated."""
    code, out, err = said(capsys, "run", *argv)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert expected in err and "Traceback" not in err and "secret" not in err


def test_run_and_check_config_report_all_errors_with_positions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_check_config_summarizes_a_valid_file_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it listens on, upstreams, keys by name."""
    file = tmp_path / "good.yaml"
    secret = "sk-0123456789abcdef"
    file.write_text(config("http://127.0.0.1:9", upstream={"api_key": secret}, keys=[key("mine")], workers=3))
    code, out, err = said(capsys, "check-config", "-c", str(file))
    assert (code, err) == (0, "")
    assert out.startswith(f"{file}: ok\n") and "workers 3" in out and "up (http://127.0.0.1:9)" in out
    assert secret not in out and "mine" not in out


def test_gateway_yaml_in_the_current_folder_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it: defaults, and the demo model."""
    code, out, _ = said(capsys, "check-config")
    assert code == 0 and "defaults, no file" in out and "demo model" in out
    (tmp_path / "gateway.yaml").write_text("workers: 2\n")
    code, out, _ = said(capsys, "check-config")
    assert code == 0 and out.startswith("gateway.yaml: ok") and "workers 2" in out


def test_healthcheck_connects_to_the_configured_admin_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`admin.listen` if there is one; 1 when nobody is there."""
    with refusing_port() as port:
        (tmp_path / "gateway.yaml").write_text(f"admin: {{listen: 127.0.0.1:{port}}}\n")
        code, out, err = said(capsys, "healthcheck")
    assert (code, out) == (1, "") and f"127.0.0.1:{port} does not answer" in err


def test_plugins_are_checked_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `run` and by `check-config`; a command that asks a running gateway does not look at them."""
    (tmp_path / "gateway.yaml").write_text("listen: 127.0.0.1:1\nchains: {c: [{use: memry}]}\n")
    for command in ("run", "check-config", "assess"):
        code, out, err = said(capsys, command)
        assert (code, out) == (1, "") and "gateway.yaml:2:20 chains.c[0].use: no plugin 'memry'" in err
    for argv in (("healthcheck",), ("explain", "x")):
        code, out, err = said(capsys, *argv)
        assert (code, out) == (1, "") and "127.0.0.1:1 does not answer" in err


def test_check_config_refuses_a_risk_rule_for_an_unknown_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the nearest name that there is; the start refuses it as well (tests/server/test_context_lane.py)."""
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o700)
    assert said(capsys, "plugin", "new", "tools", "greet")[0] == 0
    file = tmp_path / "gateway.yaml"
    text = "listen: 127.0.0.1:0\nstore: 'sqlite:///:memory:'\ntools: {greet: {}}\nrisk: {rules: {%s: deny}}\n"
    file.write_text(text % "gret")
    code, out, err = said(capsys, "check-config", "-c", str(file))
    assert (code, out) == (1, "") and "risk.rules.gret: there is no tool 'gret'; did you mean 'greet'?" in err
    file.write_text(text % "greet")
    assert said(capsys, "check-config", "-c", str(file))[0] == 0


def test_check_config_shows_the_chains(capsys: pytest.CaptureFixture[str]) -> None:
    """As trees, with the tools and the store."""
    code, out, err = said(capsys, "check-config")
    assert (code, err) == (0, "")
    assert "  chain       assistant (default)\n              intent\n                memory\n" in out
    assert "  tools       demo_note\n  trust       A call that the model itself calls low in risk" in out
    assert "  services    none\n  workflows   none\n  store       sqlite:///./gateway.db\n" in out


def typed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """What stands on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_assess_judges_each_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """By the risk section, whichever tools are on; also where a line is not even text; nothing is made."""
    Path("gateway.yaml").write_text("risk: {default: deny}\n")
    typed(monkeypatch, b'{"tool": "execute_sql", "arguments": {"sql": "DROP TABLE x"}}\n\n\xff\n')
    code, out, err = said(capsys, "assess")
    assert (code, err) == (1, "")
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["deny", "confirm"]
    typed(monkeypatch, b'{"tool": "execute_command", "arguments": {"command": "ls"}}')
    code, out, _ = said(capsys, "assess")
    assert (code, json.loads(out)["verdict"]) == (0, "auto")
    assert [file.name for file in Path().iterdir()] == ["gateway.yaml"]


def test_scan_finds_the_calls_of_each_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One answer for each."""
    call = {"tool": "now", "parameters": {}, "terminate": False}
    typed(monkeypatch, json.dumps({"text": json.dumps(call)}).encode() + b'\n{"text": "Hello"}\n')
    code, out, err = said(capsys, "scan")
    assert (code, err) == (0, "")
    assert [json.loads(line)["kind"] for line in out.splitlines()] == ["tool_call", "text"]


def test_closed_output_pipe_ends_a_command_without_traceback() -> None:
    """Without a traceback, however much there is left to say."""
    line = '{"arguments": {"command": "ls"}}'
    pipe = f"yes '{line}' | head -n 5000 | {sys.executable} -m gateway assess | head -n 1"
    done = subprocess.run(["sh", "-c", pipe], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_explain_reads_standard_input_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From standard input unless it is given; `--url` names another gateway."""
    for argv in (("explain",), ("explain", "-"), ("explain", "text")):
        typed(monkeypatch, "Grüße".encode())
        with refusing_port() as port:
            code, out, err = said(capsys, *argv, "--url", f"http://127.0.0.1:{port}")
        assert (code, out) == (1, "") and f"127.0.0.1:{port} does not answer" in err


def test_plugin_new_writes_into_this_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says which files; a second time it refuses."""
    code, out, err = said(capsys, "plugin", "new", "assessors", "mine")
    assert (code, err) == (0, "")
    assert out.startswith("wrote plugins/assessors/mine.py\nwrote tests/plugins/assessors/test_mine.py\n")
    assert (tmp_path / "plugins/assessors/mine.py").is_file()
    code, out, err = said(capsys, "plugin", "new", "assessors", "mine")
    assert (code, out) == (1, "") and "is there already" in err


def test_python_m_gateway_runs_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Is the same command."""
    monkeypatch.setattr(sys, "argv", ["gateway", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("gateway", run_name="__main__")
    assert end.value.code == 0 and capsys.readouterr().out == f"twolane {__version__}\n"


def test_help_and_version_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Of all, of a group, of one command; a word that is none is answered with those there are."""
    assert said(capsys, "version") == (0, f"twolane {__version__}\n", "")
    code, out, err = said(capsys, "help")
    assert (code, err) == (0, "") and "check-config" in out and "completion" in out
    assert "approve" in said(capsys, "help", "approvals")[1]
    assert "--status" in said(capsys, "help", "approvals", "list")[1]
    code, out, err = said(capsys, "help", "approvals", "lst")
    assert (code, out) == (1, "") and "there is no command 'lst'; there are list, groups, show" in err
