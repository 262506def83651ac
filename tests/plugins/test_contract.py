"""What every plugin keeps to, whoever wrote it: one test for each file and folder in plugins/."""

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import BaseModel
from test_architecture import FOR_PLUGINS, part, runtime_imports, tree

from gateway.contracts.plugin import Plugin, PluginKind
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import Service, ToolSpec
from gateway.plugins import list_built_in_plugins
from gateway.registry.loader import find_plugin
from gateway.testing import FakeHost, check_assessor, check_stage, check_tool, make_exchange
from gateway.testing.contract import check_config

ROOT = Path(__file__).parents[2]
KINDS: Sequence[PluginKind] = ("stages", "tools", "assessors", "stores")
PLUGINS = [(kind, name) for kind in KINDS for name in list_built_in_plugins(kind)]
#: What is made of each kind can do this.
METHODS = {
    "stages": ("__call__",),
    "tools": ("list_tools", "refusal", "call", "close"),
    "assessors": ("assess",),
    "stores": ("open", "close", "list_memories", "write"),
}
#: Packages that plugins may need besides the standard library: those of pyproject.toml.
PACKAGES = {
    "pydantic",
    "cachetools",
    "aiohttp",
    "multidict",
    "yarl",
    "aiohappyeyeballs",
    "asyncpg",
    "orjson",
    "ahocorasick",
}


@dataclass(frozen=True)
class ToolCases:
    """Calls that succeed or fail at their work, and calls that are refused."""

    calls: Sequence[Json]
    refused: Sequence[Json]
    config: Mapping[str, object] = field(default_factory=dict)


#: Calls of tools: what runs, and what never can. The test of a new tool calls `check_tool` with its own.
TOOLS = {
    "execute_command": ToolCases([{"command": "echo hi"}], [{"command": "echo \0"}], {"sandbox": "none", "cwd": "."}),
    "execute_sql": ToolCases([{"sql": "SELECT 1"}], [{"sql": "SELECT 1; SELECT 2"}], {"url": "sqlite:///pets.db"}),
    "file_operations": ToolCases(
        [{"operation": "read", "path": "seen.txt"}, {"operation": "list", "path": "."}],
        [{"operation": "read", "path": "../seen.txt"}, {"operation": "write", "path": "../a", "content": "x"}],
        {"roots": ["."], "write": True},
    ),
    "http_request": ToolCases(
        [{"url": "http://127.0.0.1:9/"}],
        [{"url": "ftp://127.0.0.1/"}, {"url": "http://else.example/"}],
        {"private_networks": True, "hosts": ["127.0.0.1:9"], "timeout": 5},
    ),
}
#: Of assessors: arguments that run by themselves, and arguments about which a person is asked.
ASSESSORS: Mapping[str, tuple[list[Json], list[Json]]] = {
    "command": ([{"command": "ls"}], [{"command": "rm a"}, {"command": "ls", "more": "rm a"}]),
    "file": ([{"operation": "read", "path": "a"}], [{"operation": "write", "path": "a", "content": "x"}]),
    "http": ([{"url": "https://a.example/", "method": "GET"}], [{"url": "https://a.example/", "method": "POST"}]),
    "sql": ([{"sql": "SELECT 1"}], [{"sql": "DROP TABLE pets"}]),
}

each_plugin = pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{kind}/{name}" for kind, name in PLUGINS])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_plugin_folders_contain_only_plugins_of_known_kinds() -> None:
    """The folders hold the kinds that there are, and a plugin for each file or folder."""
    folders = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(KINDS)
    files = {(path.parent.name, path.stem) for path in ROOT.glob("plugins/*/[!_]*")}
    assert files == set(PLUGINS)


@each_plugin
def test_plugin_module_exports_a_plugin_with_a_config_model(kind: PluginKind, name: str) -> None:
    """With a pydantic model of its `with:`."""
    plugin = find_plugin(kind, name)
    assert isinstance(plugin, Plugin) and issubclass(plugin.config, BaseModel)


@each_plugin
def test_plugin_config_is_frozen_strict_defaulted_and_described(kind: PluginKind, name: str) -> None:
    """No unknown key, frozen, a default and a description for every field."""
    check_config(kind, name, find_plugin(kind, name))


@each_plugin
def test_plugin_builds_with_its_defaults_and_creates_no_files(kind: PluginKind, name: str, tmp_path: Path) -> None:
    """In an empty folder, without an event loop, and without making anything there."""
    plugin = find_plugin(kind, name)
    built = plugin.build(plugin.config(), FakeHost())
    assert all(callable(getattr(built, method)) for method in METHODS[kind])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", list_built_in_plugins("stages"))
def test_stage_plugins_satisfy_check_stage(name: str) -> None:
    """Those of `check_stage`, also when there are tools and prompts."""
    spec = ToolSpec(name="look", description="Looks.", parameters={"type": "object"})
    service = Service("git", "Git.", ("commit",), {"log": "Shows commits."}, True)
    host = FakeHost(tools=[spec], services=[service], prompts={"default": "Hi."})
    check_stage(name)
    check_stage(name, host=host, exchanges=[make_exchange("I like tea."), make_exchange("use git", prompt="default")])


@pytest.mark.parametrize("name", list_built_in_plugins("tools"))
def test_tool_plugins_satisfy_check_tool(name: str, tmp_path: Path) -> None:
    """Those of `check_tool`, for calls that succeed and calls that never can."""
    cases = TOOLS.get(name, ToolCases([], []))
    (tmp_path / "seen.txt").write_text("seen")
    sqlite3.connect(tmp_path / "pets.db").close()
    check_tool(
        name,
        cases.config,
        calls=cases.calls,
        refused=cases.refused,
        state=lambda: sorted(path.name for path in tmp_path.iterdir()),
    )


@pytest.mark.parametrize("name", list_built_in_plugins("assessors"))
@pytest.mark.parametrize("profile", ["standard", "literal", "hardened"])
def test_assessor_plugins_satisfy_check_assessor(name: str, profile: str) -> None:
    """Those of `check_assessor`, in each profile if the assessor has profiles."""
    harmless, asked = ASSESSORS.get(name, ([], []))
    has_profile = "profile" in find_plugin("assessors", name).config.model_fields
    check_assessor(name, {"profile": profile} if has_profile else {}, harmless=harmless, asked=asked)


@each_plugin
def test_plugin_imports_only_permitted_modules(kind: PluginKind, name: str) -> None:
    """Of ours only what FOR_PLUGINS names, never another plugin; else the standard library and our dependencies."""
    files = sorted(ROOT.glob(f"plugins/{kind}/{name}/*.py")) or [ROOT / "plugins" / kind / f"{name}.py"]
    for module in (module for file in files for module in runtime_imports(tree(file))):
        top = module.partition(".")[0]
        if top == "gateway":
            assert part(module) in FOR_PLUGINS, module
        else:
            assert top in sys.stdlib_module_names or top in PACKAGES, module
