"""From a name in the configuration to a built plugin, or to a problem that says what to do."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.contracts import Plugin
from gateway.registry import PluginProblem, build_plugin, find_plugin, plugin_names

GOOD = """
from pydantic import BaseModel, ConfigDict, Field
from gateway.contracts import Plugin

class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int = Field(default=3, ge=1)
    secret: str = ""

def build(config, host):
    if config.size > 100:
        raise ValueError("a size beyond 100 needs a larger table")
    return config.size, host

PLUGIN = Plugin(Config, build)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `installed` of modules, forgotten afterwards."""
    package = tmp_path / "installed"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "good.py").write_text(GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "installed"]:
        del sys.modules[name]


def problem(name: str, **settings: object) -> PluginProblem:
    with pytest.raises(PluginProblem) as found:
        build_plugin("tools", name, settings, None)
    return found.value


@pytest.mark.parametrize("kind", ["stages", "tools", "assessors", "stores"])
def test_every_plugin_of_ours_is_found_by_the_name_of_its_file(kind: str) -> None:
    """And takes an empty `with:`, but for a store, whose URL has no default."""
    names = plugin_names(kind)  # type: ignore[arg-type]
    assert names == sorted(path.stem for path in Path(f"plugins/{kind}").glob("[!_]*.py"))
    for name in names:
        plugin = find_plugin(kind, name)  # type: ignore[arg-type]
        assert isinstance(plugin, Plugin)


def test_a_dotted_name_is_an_installed_module(folder: Path) -> None:
    """Built with its configuration and the host that it is given."""
    del folder
    host = object()
    assert build_plugin("tools", "installed.good", {}, host) == (3, host)
    assert build_plugin("tools", "installed.good", {"size": 7}, host) == (7, host)


def test_a_plugin_that_is_not_there_is_told_with_where_it_would_be() -> None:
    """Ours by its file, with the nearest name; an installed one as a module; nothing of that name was imported."""
    found = problem("htp_request")
    assert found.path == ("use",)
    assert "expected plugins/tools/htp_request.py" in found.message and "'http_request'" in found.message
    for name in ("no_such_package.thing", "json.nothing"):
        assert f"expected an installed module {name!r}" in problem(name).message


def test_a_missing_dependency_is_told_by_its_name(folder: Path) -> None:
    """It is the dependency that is missing, not the plugin."""
    (folder / "needy.py").write_text("import no_such_library_at_all")
    found = problem("installed.needy")
    assert "needs the module 'no_such_library_at_all', which is missing" in found.message


@pytest.mark.parametrize("text", ["def (", "raise OSError('disk')", "from gateway.contracts import Nothing", "1 / 0"])
def test_a_plugin_that_cannot_be_imported_is_a_problem_of_the_configuration(folder: Path, text: str) -> None:
    """Whatever its code does."""
    (folder / "broken.py").write_text(text)
    found = problem("installed.broken")
    assert found.path == ("use",) and "'installed.broken' cannot be imported" in found.message


@pytest.mark.parametrize("text", ["", "PLUGIN = 3", "from gateway.contracts import Plugin\nPLUGIN = Plugin"])
def test_a_module_that_is_no_plugin_is_told_what_it_lacks(folder: Path, text: str) -> None:
    """`PLUGIN = Plugin(Config, build)`."""
    (folder / "odd.py").write_text(text)
    assert "installed.odd exports no PLUGIN = Plugin(Config, build)" in problem("installed.odd").message


@pytest.mark.parametrize(
    ("settings", "path", "words"),
    [
        ({"sise": 3}, ("with", "sise"), "unknown key 'sise'; did you mean 'size'?"),
        ({"size": 0}, ("with", "size"), "greater than or equal to 1"),
        ({"size": "hunter2"}, ("with", "size"), "valid integer"),
        ({"secret": {"hunter2": 1}}, ("with", "secret"), "valid string"),
        ({"size": 101}, ("with",), "a size beyond 100 needs a larger table"),
    ],
)
def test_a_configuration_that_a_plugin_does_not_take(
    folder: Path, settings: dict[str, object], path: tuple[str, ...], words: str
) -> None:
    """The place below the entry, the plugin's name and its words; never a value, which could be a secret."""
    del folder
    found = problem("installed.good", **settings)
    assert found.path == path
    assert "'installed.good'" in found.message and words in found.message and "hunter2" not in found.message
