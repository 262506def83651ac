"""The gate of `gateway assess`: what the configuration says about risk, and nothing that runs."""

from pathlib import Path

import pytest

from gateway.config import ConfigError, Settings
from gateway.contracts.storage.store import Json
from gateway.server.offline_gate import build_offline_gate, list_asking_services
from gateway.tools.gate import RiskClaim

BUILT_IN = {"demo_note", "execute_sql", "execute_command", "file_operations", "http_request"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def decision(settings: Json, tool: str, arguments: Json, *, risk_level: str | None = None) -> str:
    gate, specs = await build_offline_gate(Settings.model_validate(settings, context={"folder": Path.cwd()}))
    claim = RiskClaim(arguments) if risk_level is None else RiskClaim(arguments, risk_level)
    return gate.judge(specs.get(tool), claim, tainted=False).decision


async def test_offline_gate_knows_built_in_tools_and_creates_nothing(tmp_path: Path) -> None:
    """Although none is enabled; no file, no folder, no database."""
    _, specs = await build_offline_gate(Settings())
    assert set(specs) == BUILT_IN
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "work").write_text("where the tools' folder would be")
    assert set((await build_offline_gate(Settings()))[1]) == BUILT_IN


async def test_risk_settings_change_offline_decisions() -> None:
    """Default, trust in the model, profile, assessors of the operator's own."""
    drop, values = {"sql": "DROP TABLE x"}, {"sql": "VALUES (1)"}
    assert await decision({}, "execute_sql", drop) == "confirm"
    assert await decision({"risk": {"default": "deny"}}, "execute_sql", drop) == "deny"
    assert await decision({}, "execute_sql", drop, risk_level="low") == "auto"
    assert await decision({"risk": {"trust_llm": "never"}}, "execute_sql", drop, risk_level="low") == "confirm"
    assert await decision({}, "execute_sql", values) == "auto"
    assert await decision({"risk": {"profile": "literal"}}, "execute_sql", values) == "confirm"
    own = {"risk": {"assessors": {"execute_sql": {"use": "file"}}}}
    assert await decision(own, "execute_sql", {"sql": "SELECT 1"}) == "confirm"


async def test_requires_approval_flag_forces_confirmation() -> None:
    """`requires_approval` of a tool that is enabled."""
    flagged = {"tools": {"execute_sql": {"requires_approval": True}, "http_request": {}}}
    assert await decision(flagged, "execute_sql", {"sql": "SELECT 1"}) == "confirm"
    assert await decision(flagged, "http_request", {"method": "GET", "url": "http://a.example"}) == "auto"


async def test_a_built_in_tool_under_another_key_is_the_same_tool() -> None:
    """Its flag and its hosts count by the name of the tool, whatever the key that uses it."""
    tools = {
        "shell": {"use": "execute_command", "requires_approval": True},
        "web": {"use": "http_request", "with": {"hosts": ["a.example:8443"]}},
    }
    assert await decision({"tools": tools}, "execute_command", {"command": "ls"}) == "confirm"
    for host, wanted in (("a.example:8443", "auto"), ("c.example", "confirm")):
        call = {"method": "GET", "url": f"https://{host}/"}
        assert await decision({"tools": tools}, "http_request", call) == wanted


async def test_the_hosts_of_the_operator_count_with_and_without_a_port() -> None:
    """Which port is asked is the tool's business; another host needs a person."""
    settings = {"tools": {"http_request": {"hosts": ["a.example:8443", "b.example"]}}}
    for host, wanted in (("a.example:8443", "auto"), ("b.example", "auto"), ("c.example", "confirm")):
        assert await decision(settings, "http_request", {"method": "GET", "url": f"https://{host}/"}) == wanted


async def test_unknown_assessor_plugin_is_reported_with_its_place() -> None:
    """With its place."""
    with pytest.raises(ConfigError, match=r"risk\.assessors\.x\.use: no plugin 'nope'"):
        await decision({"risk": {"assessors": {"x": {"use": "nope"}}}}, "x", {})


TOOL = """
from pydantic import BaseModel
from gateway.plugin import Plugin, ToolSpec
from .judge import PLUGIN as JUDGE

class Settings(BaseModel):
    verbs: tuple[str, ...] = ("get",)

class Source:
    async def list_tools(self):
        return [ToolSpec(name="look", description="Looks.", parameters={"type": "object"})]
    async def close(self):
        pass

PLUGIN = Plugin(
    Settings, lambda config, host: Source(), assessor=JUDGE, assessor_options=lambda config: {"verbs": config.verbs}
)
"""
JUDGE = """
from pydantic import BaseModel
from gateway.plugin import Plugin, Verdict

class Settings(BaseModel):
    verbs: tuple[str, ...] = ()

class Assessor:
    def __init__(self, verbs):
        self.verbs = verbs
    def assess(self, arguments):
        return Verdict("auto" if arguments.get("verb") in self.verbs else "confirm", "whitelist", "verb", "A verb.")

PLUGIN = Plugin(Settings, lambda config, host: Assessor(config.verbs))
"""


@pytest.fixture
def look(tmp_path: Path) -> None:
    """A tool of the operator's with its assessor."""
    folder = tmp_path / "plugins" / "tools" / "kubectl"
    folder.mkdir(parents=True, mode=0o755)
    for name, text in (("__init__.py", TOOL), ("judge.py", JUDGE)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)


@pytest.mark.usefixtures("look")
async def test_plugin_tool_is_judged_offline_as_online() -> None:
    """By the name of the tool: with its assessor, its settings and its flag; one that is not configured is unknown."""
    verb = {"verb": "top"}
    assert await decision({}, "look", verb) == "error"
    assert await decision({"tools": {"k8s": {"use": "kubectl"}}}, "look", verb) == "confirm"
    k8s: Json = {"use": "kubectl", "with": {"verbs": ["top"]}}
    assert await decision({"tools": {"k8s": k8s}}, "look", verb) == "auto"
    assert await decision({"tools": {"k8s": {**k8s, "requires_approval": True}}}, "look", verb) == "confirm"


async def test_unknown_tool_plugin_is_reported_with_its_place() -> None:
    """Without it the verdicts on its calls would be wrong."""
    with pytest.raises(ConfigError, match=r"tools\.k8s.*no plugin 'kubectl'"):
        await decision({"tools": {"k8s": {"use": "kubectl"}}}, "look", {})


def test_servers_that_require_approval_are_listed() -> None:
    """Their tools are known to a running gateway only."""
    server = {"command": "uvx", "args": ["x"]}
    servers = {"git": {**server, "requires_approval": True}, "time": server}
    assert list_asking_services(Settings.model_validate({"mcp": {"servers": servers}})) == {"git"}
