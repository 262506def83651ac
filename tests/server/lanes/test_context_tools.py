"""The tools of one configuration; that all of them are built, or told of, is in test_assemble.py."""

from pathlib import Path

import pytest
from tools.toolbox import Toolbox

from gateway.config import ConfigError, Problem, Settings, load
from gateway.contracts.storage.store import Json
from gateway.registry.check import check_plugins
from gateway.server.lanes.context_tools import build_gate, load_tools
from gateway.tools.gate import RiskClaim
from gateway.tools.results import Results
from tests.server.test_context_lane import toolbox

URL, OTHER, PRIVATE = "https://a.example/", "https://b.example/", "http://10.0.0.1/"
_WORK = {"cwd": ".", "sandbox": "none"}


@pytest.mark.parametrize(
    ("use", "options", "harmless", "harmful"),
    [
        ("execute_command", _WORK, {"command": "ls -l"}, {"command": "rm -r x"}),
        ("file_operations", {"roots": ["."]}, {"operation": "read", "path": "a"}, {"operation": "delete", "path": "a"}),
        ("http_request", {}, {"method": "GET", "url": URL}, {"method": "DELETE", "url": URL}),
        ("http_request", {"hosts": ["a.example"]}, {"method": "GET", "url": URL}, {"method": "GET", "url": OTHER}),
        ("http_request", {"private_networks": True}, {"method": "GET", "url": PRIVATE}, {"method": "PUT", "url": URL}),
        ("execute_sql", {}, {"sql": "SELECT 1"}, {"sql": "DELETE FROM t"}),
        ("execute_sql", {"url": "postgresql://h/d"}, {"sql": "SELECT $$a$$"}, {"sql": "SELECT pg_sleep(9)"}),
    ],
)
async def test_assessor_is_chosen_by_the_tool_that_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: str,
    options: Json,
    harmless: Json,
    harmful: Json,
) -> None:
    """A tool of ours under a key of the operator's own is judged as the same tool under its own name."""
    monkeypatch.chdir(tmp_path)
    tools = {"mine": {"use": use, "with": options}}
    settings = Settings.model_validate({"tools": tools, "risk": {"profile": "hardened"}}, context={"folder": tmp_path})
    found: list[Problem] = []
    catalog = await load_tools(settings, None, Results(), found)  # type: ignore[arg-type]  # no host
    gate = build_gate(settings, None, found, at_hand=True)  # type: ignore[arg-type]  # as above
    (spec,) = [spec for source in catalog.sources for spec in await source.list_tools() if spec.name == use]
    judged = [gate.judge(spec, RiskClaim(arguments), tainted=False) for arguments in (harmless, harmful)]
    assert found == [] and [verdict.decision for verdict in judged] == ["auto", "confirm"], judged
    for source in catalog.sources:
        await source.close()


async def test_unknown_tool_in_risk_rules_is_reported_only_with_plugins(tmp_path: Path) -> None:
    """Without plugins the file alone says it: the tools here are those of the file, and nothing is wrong with them."""
    rules = {"rules": {"look": "deny", "lok": "deny", "*": "confirm", "clock.now": "deny"}}
    for tools, told in (({"mine": toolbox("look")}, ["risk.rules.lok"]), ({}, [])):
        settings = Settings.model_validate({"tools": tools, "risk": rules}, context={"folder": tmp_path})
        found: list[Problem] = []
        catalog = await load_tools(settings, None, Results(), found)  # type: ignore[arg-type]  # no host
        assert [problem.path for problem in found] == told
        assert [name for name in catalog.list_names() if name == "look"] == list(tools and ["look"])
    assert len(Toolbox.built) >= 1


async def test_an_assessor_adds_to_a_built_in_one_only(tmp_path: Path) -> None:
    """Beside none it would be alone, which nobody asked for: refused, with the tools that have one."""
    risk = {"assessors": {"docs.search": {"use": "http", "adds": True}, "http_request": {"use": "http", "adds": True}}}
    settings = Settings.model_validate(
        {"tools": {"http_request": {}}, "mcp": {"servers": {"docs": {"url": "https://a.example/mcp"}}}, "risk": risk},
        context={"folder": tmp_path},
    )
    found: list[Problem] = []
    build_gate(settings, None, found)  # type: ignore[arg-type]  # no host
    (problem,) = found
    assert problem.path == "risk.assessors.docs.search.adds"
    assert "'docs.search' has no built-in assessor" in str(problem) and "execute_sql" in str(problem)


async def test_adds_setting_changes_the_policy_hash(tmp_path: Path) -> None:
    """An approval that waits was asked for under the other one."""
    hashes = set()
    for adds in (False, True):
        risk = {"assessors": {"http_request": {"use": "http", "adds": adds}}}
        settings = Settings.model_validate({"tools": {"http_request": {}}, "risk": risk}, context={"folder": tmp_path})
        hashes.add(build_gate(settings, None, []).configured["http_request"])  # type: ignore[arg-type]  # no host
    assert len(hashes) == 2


# Tools of the operator's own with an assessor of their own.

TOOL = """
from gateway.plugin import Plugin, Reach, ToolResult, ToolSpec
from gateway.plugin.settings import Config, FilePath
from .assessor import PLUGIN as ASSESSOR


class Settings(Config):
    verbs: tuple[str, ...] = ("get",)
    kubeconfig: FilePath = "work/kubeconfig"


class Kubectl:
    async def list_tools(self):
        return [ToolSpec(name=name, description="", parameters={"type": "object"}) for name in ("look", "list")]

    async def close(self):
        pass


PLUGIN = Plugin(
    Settings,
    lambda config, host: Kubectl(),
    assessor=ASSESSOR,
    assessor_options=lambda config: {"verbs": config.verbs},
    reaches=lambda config: [Reach(key=("kubeconfig",), place=config.kubeconfig, kind="either", writable=True)],
)
"""
ASSESSOR = """
from gateway.plugin import Plugin, Verdict
from gateway.plugin.settings import Config


class Settings(Config):
    verbs: tuple[str, ...] = ()
    profile: str = ""


class Assessor:
    def __init__(self, config):
        self._config = config

    def assess(self, arguments):
        if arguments.get("verb") in self._config.verbs:
            return Verdict("auto", "whitelist", self._config.profile, "")
        return Verdict("confirm", "default", "verb", "")


PLUGIN = Plugin(Settings, lambda config, host: Assessor(config))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plugin of the operator's: a tool with its assessor in one folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "plugins" / "tools" / "kubectl"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(TOOL)
    (folder / "assessor.py").write_text(ASSESSOR)
    for path in (tmp_path / "plugins").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (tmp_path / "plugins").chmod(0o755)
    return tmp_path


def of_file(text: str) -> Settings:
    Path("gateway.yaml").write_text(text)
    return load(Path("gateway.yaml"), environ={}, flags={}, checks=(check_plugins,)).settings


async def judged(settings: Settings, tool: str, arguments: Json) -> tuple[str, str]:
    found: list[Problem] = []
    catalog = await load_tools(settings, None, Results(), found)  # type: ignore[arg-type]  # no host
    gate = build_gate(settings, None, found, at_hand=True, names=catalog.map_names_by_source())  # type: ignore[arg-type]  # as above
    assert found == []
    entry = catalog.find_by_name(tool)
    assert entry is not None
    verdict = gate.judge(entry.spec, RiskClaim(arguments), tainted=False)
    return verdict.decision, verdict.rule


@pytest.mark.usefixtures("site")
async def test_plugin_tool_is_judged_by_the_assessor_in_its_folder() -> None:
    """It judges each of its tools, whatever their names, with the tool's settings and the profile."""
    settings = of_file("tools: {k8s: {use: kubectl, with: {verbs: [top]}}}\nrisk: {profile: hardened}\n")
    for tool in ("look", "list"):
        assert await judged(settings, tool, {"verb": "top"}) == ("auto", "hardened")
        assert await judged(settings, tool, {"verb": "get"}) == ("confirm", "verb")


@pytest.mark.usefixtures("site")
async def test_configured_assessor_replaces_the_declared_one() -> None:
    """It replaces the one that the plugin declares."""
    settings = of_file("tools: {kubectl: {}}\nrisk: {assessors: {look: {use: file}}}\n")
    assert (await judged(settings, "look", {"verb": "get"}))[1] == "file.shape"
    assert await judged(settings, "list", {"verb": "get"}) == ("auto", "standard")


def test_plugin_reaching_gateway_files_or_failing_to_report_is_refused(site: Path) -> None:
    """Files of the gateway among it are refused at their place, and code that fails at that of its settings."""
    with pytest.raises(ConfigError, match=r"yaml:1:38 tools.kubectl.with.kubeconfig: reaches the configuration"):
        of_file("tools: {kubectl: {with: {kubeconfig: gateway.yaml}}}\n")
    tool = site / "plugins" / "tools" / "kubectl" / "__init__.py"
    tool.write_text(TOOL.replace("place=config.kubeconfig", "place=1 / 0"))
    with pytest.raises(ConfigError, match="its plugin does not report what it reaches: ZeroDivisionError"):
        of_file("tools: {kubectl: {}}\n")
    for wrong in ("key=()", "key=None", "key=([],)", 'key=("a",), place="a\\0b"'):
        junk = TOOL.replace(
            'key=("kubeconfig",), place=config.kubeconfig', wrong + ("" if "place" in wrong else ', place="."')
        )
        tool.write_text(junk)
        with pytest.raises(ConfigError, match="its plugin does not report what it reaches: "):
            of_file("tools: {kubectl: {}}\n")


@pytest.mark.usefixtures("site")
def test_missing_declared_assessor_is_a_configuration_problem(site: Path) -> None:
    """Its calls would not be judged: the message names both, where the tool stands."""
    tool = site / "plugins" / "tools" / "kubectl" / "__init__.py"
    tool.write_text(TOOL.replace("assessor=ASSESSOR", "assessor='kubctl'"))
    with pytest.raises(ConfigError) as refused:
        of_file("tools:\n  k8s: {use: kubectl}\n")
    (problem,) = refused.value.problems
    assert str(problem).startswith("gateway.yaml:2:3 tools.k8s: the plugin 'kubectl' declares the assessor 'kubctl': ")
    settings = Settings.model_validate({"tools": {"kubectl": {}}}, context={"folder": site})
    found: list[Problem] = []
    build_gate(settings, None, found, at_hand=True)  # type: ignore[arg-type]  # no host
    assert [each.path for each in found] == ["tools.kubectl.use"]


@pytest.mark.parametrize(
    ("declared", "wrong", "told"),
    [
        ('{"verbs": config.verbs}', "{}['x']", "KeyError"),
        ('{"verbs": config.verbs}', '{"verbs": {1}}', "TypeError: Type is not JSON serializable: set"),
        ("assessor=ASSESSOR", "assessor=5", "TypeError: the assessor is neither a name nor a Plugin"),
    ],
)
@pytest.mark.usefixtures("site")
def test_unreadable_assessor_settings_prevent_the_start(site: Path, declared: str, wrong: str, told: str) -> None:
    """Without them it may judge too freely."""
    tool = site / "plugins" / "tools" / "kubectl" / "__init__.py"
    tool.write_text(TOOL.replace(declared, wrong))
    found: list[Problem] = []
    build_gate(of_file("tools: {kubectl: {}}\n"), None, found, at_hand=True)  # type: ignore[arg-type]  # no host
    assert f"the settings of its assessor cannot be read: {told}" in found[0].message


@pytest.mark.usefixtures("site")
def test_insecure_assessor_file_of_a_loaded_tool_is_reported(site: Path) -> None:
    """The tool was built, so nothing else would report its file."""
    settings = of_file("tools: {k8s: {use: kubectl}}\n")
    (site / "plugins" / "tools" / "kubectl" / "assessor.py").chmod(0o666)
    found: list[Problem] = []
    build_gate(settings, None, found, at_hand=True, names={"k8s": ["look"]})  # type: ignore[arg-type]  # no host
    (problem,) = found
    assert problem.path == "tools.k8s" and "can be written by others" in problem.message


def test_changed_assessor_source_changes_the_policy_hash(site: Path) -> None:
    """An approval from before the change does not hold for what the new one judges."""
    settings, hashes = of_file("tools: {kubectl: {}}\n"), set()
    for source in (ASSESSOR, ASSESSOR.replace('"auto", "whitelist"', '"confirm", "default"'), ASSESSOR):
        (site / "plugins" / "tools" / "kubectl" / "assessor.py").write_text(source)
        gate = build_gate(settings, None, [], at_hand=True, names={"kubectl": ["look"]})  # type: ignore[arg-type]  # no host
        hashes.add(gate.hash_policy("look"))
    assert len(hashes) == 2


@pytest.mark.parametrize(
    "tools", ["{http_request: {hosts: ['*.a.example']}}", "{w: {use: http_request, with: {hosts: ['*']}}}"]
)
def test_http_request_refuses_host_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: str) -> None:
    """The assessor knows patterns and would let such calls run, which the tool then refuses."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="expected the name of one host"):
        of_file(f"tools: {tools}\n")
