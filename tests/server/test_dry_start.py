"""What keeps a gateway from starting keeps `gateway check-config` from saying that all is well."""

import io
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import ConfigError, LoadedConfig, load
from gateway.registry.check import check_plugins
from gateway.server.app import Gateway
from gateway.server.dry_start import rehearse_start
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics

#: By what is wrong: the configuration, and the key at fault.
REFUSED: Mapping[str, tuple[str, str]] = {
    "store without a folder": ("store: sqlite:///./nowhere/gateway.db", "store"),
    "store beneath a file": ("store: sqlite:///./gateway.yaml/gateway.db", "store"),
    "store that is a folder": ("store: sqlite:///./work", "store"),
    "store that cannot be written": ("store: sqlite:////proc/gateway.db", "store"),
    "base prompt that is no text": ("prompts: {mine: {file: ./mine.md}}", "prompts.mine.file"),
    "two tools of one name": ("tools: {http_request: {}, web: {use: http_request}}", ""),
    "plugin that is a service": ("tools: {time: {use: mcp, with: {command: uvx}}}", "tools.time"),
    "rule of no tool": (
        "tools: {web: {use: http_request}}\nrisk: {rules: {htp_request: deny}}",
        "risk.rules.htp_request",
    ),
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "mine.md").write_bytes(b"\xff")


def loaded(text: str) -> LoadedConfig:
    file = Path("gateway.yaml")
    file.write_text(text)
    return load(file, environ={}, flags={}, checks=(check_plugins,))


async def started(configuration: LoadedConfig) -> None:
    """A worker that starts and ends."""
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=lambda: None)
    gateway = Gateway(configuration, load=lambda: configuration, sink=sink, metrics=Metrics())
    try:
        await gateway.start()
    finally:
        await gateway.close()
        sink.close()


@pytest.mark.parametrize("name", REFUSED)
async def test_dry_start_refuses_configurations_that_the_start_refuses(name: str) -> None:
    """Each at its key, in words that say what to do; the start says it of the same key."""
    text, path = REFUSED[name]
    configuration = loaded(text)
    with pytest.raises(ConfigError) as said:
        await rehearse_start(configuration)
    assert path in [problem.path.partition("[")[0] for problem in said.value.problems]
    with pytest.raises(ConfigError) as refused:
        await started(configuration)
    assert path in [problem.path.partition("[")[0] for problem in refused.value.problems]


async def test_rehearsal_reports_all_problems_together() -> None:
    """The store, a prompt and a tool."""
    text = "store: sqlite:///./nowhere/x.db\nprompts: {mine: {file: ./mine.md}}\n"
    text += "tools: {http_request: {}, web: {use: http_request}}"
    with pytest.raises(ConfigError) as said:
        await rehearse_start(loaded(text))
    assert len(said.value.problems) == 3


async def test_missing_database_driver_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PostgreSQL for `execute_sql`: with the command that installs it."""
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"pip install 'twolane\[postgres\]'"):
        await rehearse_start(loaded("tools: {execute_sql: {url: postgresql://me@db/shop}}"))


async def test_unstartable_mcp_server_is_reported_as_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway starts without them: no SDK, no such program; those that are off are left out."""
    configuration = loaded(
        "mcp: {servers: {a: {command: no-such-program}, b: {command: ./work},\n"
        "  off: {command: nowhere, enabled: false}, c: {command: 'true', cwd: ./nowhere}, good: {command: 'true'},\n"
        "  web: {url: 'https://mcp.example/mcp'}}}"
    )
    warnings = await rehearse_start(configuration)
    assert [warning.partition(":")[0] for warning in warnings] == ["MCP server 'a'", "MCP server 'c'"]
    assert "is not in PATH: install it" in warnings[0] and "make it, or correct `cwd`" in warnings[1]
    monkeypatch.setitem(sys.modules, "mcp", None)
    sdk, *_ = await rehearse_start(configuration)
    assert sdk == "MCP servers (a, b, c, good, web): the SDK for MCP is not installed: pip install 'twolane[mcp]'"


async def test_an_endpoint_without_the_sdk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the start refuses it: the endpoint was asked for."""
    configuration = loaded("mcp: {serve: {}}")
    assert await rehearse_start(configuration) == []
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ConfigError, match=r"mcp\.serve.*the SDK for MCP is not installed"):
        await rehearse_start(configuration)


async def test_unavailable_confinement_is_reported_as_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every call of the tool would be refused: the operator reads it before the first one is."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await rehearse_start(loaded("tools: {execute_command: {cwd: ./work, sandbox: bubblewrap}}")) == [
        "execute_command runs nothing: this machine cannot confine commands (bubblewrap: the program "
        "bwrap is not installed). Install bubblewrap, or set tools.execute_command.sandbox"
    ]
    assert await rehearse_start(loaded("tools: {execute_command: {cwd: ./work, sandbox: none}}")) == []


async def test_dry_start_creates_and_changes_nothing() -> None:
    """No store, no process, no file; what is there stays as it is, and so does the log."""
    configuration = loaded("tools: {http_request: {}, file_operations: {roots: [./work]}}")
    assert await rehearse_start(configuration) == []
    assert sorted(path.name for path in Path().iterdir()) == ["gateway.yaml", "mine.md", "work"]
    Path("gateway.db").write_bytes(b"")
    assert await rehearse_start(configuration) == []
    assert Path("gateway.db").read_bytes() == b""


async def test_rule_that_matches_no_tool_is_reported_as_a_warning() -> None:
    """A name that no tool has is refused; a glob may be there before its tools are."""
    rules = "risk: {rules: {'exec_*': deny, 'execute_*': confirm, 'time.*': deny}}\n"
    (warning,) = await rehearse_start(loaded(rules + "mcp: {servers: {time: {command: 'true'}}}"))
    assert warning.startswith("risk.rules.exec_*: no tool has a name like 'exec_*'")
    (warning, other) = await rehearse_start(loaded(rules + "tools: {web: {use: http_request}}"))
    assert warning.startswith("risk.rules.exec_*") and other.startswith("risk.rules.time.*")
