"""What every plugin keeps to, whoever wrote it: one test for each file and folder in plugins/."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from test_architecture import FOR_PLUGINS, part, runtime_imports, tree

from gateway.contracts.exchange import Exchange, Stage
from gateway.contracts.plugin import Host, LoopLimits, Plugin
from gateway.contracts.tools import Service, ToolSpec
from gateway.registry.find import Kind, find_plugin, plugin_names
from gateway.testing.clock import ManualClock

ROOT = Path(__file__).parents[2]
KINDS: Sequence[Kind] = ("stages", "tools", "assessors", "stores")
PLUGINS = [(kind, name) for kind in KINDS for name in plugin_names(kind)]
#: What is made of each kind can do this.
METHODS = {
    "stages": ("__call__",),
    "tools": ("list_tools", "refusal", "call", "close"),
    "assessors": ("assess",),
    "stores": ("open", "close", "memories", "write"),
}
#: Packages that plugins may need besides the standard library: those of pyproject.toml.
PACKAGES = {"pydantic", "cachetools", "aiohttp", "multidict", "yarl", "aiohappyeyeballs", "asyncpg", "orjson"}

each_plugin = pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{kind}/{name}" for kind, name in PLUGINS])


class FakeHost:
    """Gives what a stage may ask for while it is built."""

    version = "1"

    def __init__(self) -> None:
        self.hand = ManualClock()

    @property
    def tools(self) -> "FakeHost":
        return self

    prompts = runs = store = counters = clock = tools

    def offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        return ()

    def services(self) -> Sequence[Service]:
        return ()

    def stage(self, limits: LoopLimits) -> Stage:
        return cast(Stage, lambda exchange, call_next: call_next(exchange))

    def monotonic(self) -> float:
        return self.hand()

    time = monotonic


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fields(config: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Those of a configuration and of the sections in it."""
    found = list(config.model_fields.items())
    for field in config.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += fields(field.annotation)
    return found


def test_every_file_is_a_plugin() -> None:
    """The folders hold the kinds that there are, and a plugin for each file or folder."""
    folders = {path.name for path in (ROOT / "plugins").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(KINDS)
    files = {(path.parent.name, path.stem) for path in ROOT.glob("plugins/*/[!_]*")}
    assert files == set(PLUGINS)


@each_plugin
def test_it_exports_a_plugin(kind: Kind, name: str) -> None:
    """With a pydantic model of its `with:`."""
    plugin = find_plugin(kind, name)
    assert isinstance(plugin, Plugin) and issubclass(plugin.config, BaseModel)


@each_plugin
def test_its_config_refuses_unknown_keys_and_is_frozen(kind: Kind, name: str) -> None:
    """A typing error is told, and what was checked stays as it was."""
    config = find_plugin(kind, name).config
    with pytest.raises(ValidationError, match="no_such_key"):
        config.model_validate({"no_such_key": 1})
    made = config()
    for field in config.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(made, field, getattr(made, field))


@each_plugin
def test_its_config_has_defaults_and_descriptions(kind: Kind, name: str) -> None:
    """Every field, in one or more sentences."""
    for field, facts in fields(find_plugin(kind, name).config):
        assert not facts.is_required(), f"{field} has no default"
        assert facts.description and facts.description.endswith("."), field


@each_plugin
def test_it_is_built_with_its_defaults(kind: Kind, name: str, tmp_path: Path) -> None:
    """In an empty folder, without an event loop, and without making anything there."""
    plugin = find_plugin(kind, name)
    built = plugin.build(plugin.config(), cast(Host, FakeHost()))
    assert all(callable(getattr(built, method)) for method in METHODS[kind])
    assert list(tmp_path.iterdir()) == []


@each_plugin
def test_it_imports_what_plugins_may(kind: Kind, name: str) -> None:
    """Of ours only what FOR_PLUGINS names, never another plugin; else the standard library and our dependencies."""
    files = sorted(ROOT.glob(f"plugins/{kind}/{name}/*.py")) or [ROOT / "plugins" / kind / f"{name}.py"]
    for module in (module for file in files for module in runtime_imports(tree(file))):
        top = module.partition(".")[0]
        if top == "gateway":
            assert part(module) in FOR_PLUGINS, module
        else:
            assert top in sys.stdlib_module_names or top in PACKAGES, module
