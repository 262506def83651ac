"""From a name in the configuration to a built plugin, or to a problem that says what to do."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.contracts.plugin import Plugin, PluginKind
from gateway.plugins import list_built_in_plugins
from gateway.registry.loader import PluginProblem, build_plugin, find_plugin

ROOT = Path(__file__).parent.parent.parent
GOOD = """
from pydantic import BaseModel, ConfigDict, Field
from gateway.plugin import Plugin

class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int = Field(default=3, ge=1)
    secret: str = ""

def build(config, host):
    if config.size > 100:
        raise ValueError("a size beyond 100 needs a larger table")
    if config.size == 13:
        raise RuntimeError("no luck")
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
def test_every_built_in_plugin_is_found_by_its_file_name(kind: str) -> None:
    """And takes an empty `with:`, but for a store, whose URL has no default."""
    names = list(list_built_in_plugins(kind))  # type: ignore[arg-type]
    assert names == sorted(path.stem for path in Path(f"plugins/{kind}").glob("[!_]*"))
    for name in names:
        plugin = find_plugin(kind, name)  # type: ignore[arg-type]
        assert isinstance(plugin, Plugin)


def test_dotted_plugin_name_loads_an_installed_module(folder: Path) -> None:
    """Built with its configuration and the host that it is given."""
    del folder
    host = object()
    assert build_plugin("tools", "installed.good", {}, host) == (3, host)
    assert build_plugin("tools", "installed.good", {"size": 7}, host) == (7, host)


def test_missing_plugin_error_names_expected_file_or_module() -> None:
    """Ours by its file, with the nearest name; an installed one as a module; nothing of that name was imported."""
    found = problem("htp_request")
    assert found.path == ("use",)
    assert "expected plugins/tools/htp_request.py" in found.message and "'http_request'" in found.message
    for name in ("no_such_package.thing", "json.nothing"):
        assert f"expected an installed module {name!r}" in problem(name).message


def test_missing_dependency_error_names_the_module(folder: Path) -> None:
    """It is the dependency that is missing, not the plugin."""
    (folder / "needy.py").write_text("import no_such_library_at_all")
    found = problem("installed.needy")
    assert "needs the module 'no_such_library_at_all', which is missing" in found.message


@pytest.mark.parametrize("text", ["def (", "raise OSError('disk')", "from gateway.plugin import Nothing", "1 / 0"])
def test_unimportable_plugin_is_reported_as_a_configuration_problem(folder: Path, text: str) -> None:
    """Whatever its code does."""
    (folder / "broken.py").write_text(text)
    found = problem("installed.broken")
    assert found.path == ("use",) and "'installed.broken' cannot be imported" in found.message


@pytest.mark.parametrize("text", ["", "PLUGIN = 3", "from gateway.plugin import Plugin\nPLUGIN = Plugin"])
def test_module_without_a_plugin_export_is_rejected(folder: Path, text: str) -> None:
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
def test_invalid_plugin_settings_are_reported_without_values(
    folder: Path, settings: dict[str, object], path: tuple[str, ...], words: str
) -> None:
    """The place below the entry, the plugin's name and its words; never a value, which could be a secret."""
    del folder
    found = problem("installed.good", **settings)
    assert found.path == path
    assert "'installed.good'" in found.message and words in found.message and "hunter2" not in found.message


# Plugins of the operator's own (fault case T31).


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the tool `mine`."""
    folder = tmp_path / "plugins"
    write(folder, "mine", GOOD)
    return folder


def write(folder: Path, name: str, text: str, *, kind: str = "tools") -> Path:
    """As a careful operator does."""
    for place in (folder, folder / kind):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    file = folder / kind / f"{name}.py"
    file.write_text(text)
    file.chmod(0o644)
    return file


def own_problem(folder: Path, name: str) -> str:
    with pytest.raises(PluginProblem) as found:
        find_plugin("tools", name, folder=folder)
    assert found.value.path == ("use",)
    return found.value.message


def test_operator_plugin_is_built_like_a_built_in_one(own: Path) -> None:
    """By the name of its file; ours are found all the same; without the folder it is unknown."""
    host = object()
    assert build_plugin("tools", "mine", {"size": 7}, host, folder=own) == (7, host)
    assert find_plugin("tools", "http_request", folder=own) is find_plugin("tools", "http_request")
    assert "no plugin 'mine'" in problem("mine").message


def test_loading_a_plugin_leaves_python_state_unchanged(own: Path) -> None:
    """No path to import from, no module that others could get instead of theirs, no compiled copy, no second file."""
    for name in ("json", "yarl", "other"):
        write(own, name, "raise RuntimeError('imported')")
    path, modules = list(sys.path), set(sys.modules)
    first = find_plugin("tools", "mine", folder=own)
    assert find_plugin("tools", "mine", folder=own) is first  # what was checked is what is built
    assert sys.path == path
    (new,) = set(sys.modules) - modules
    assert "@" in new  # which no import statement can name
    assert sorted(place.name for place in own.rglob("*")) == ["json.py", "mine.py", "other.py", "tools", "yarl.py"]


def test_changed_plugin_file_is_reloaded(own: Path) -> None:
    """At a reload; one of another folder is another plugin."""
    first = find_plugin("tools", "mine", folder=own)
    write(own, "mine", GOOD.replace("default=3", "default=4"))
    assert build_plugin("tools", "mine", {}, None, folder=own) == (4, None)
    other = own.parent / "other"
    write(other, "mine", GOOD)
    assert find_plugin("tools", "mine", folder=other) is not first


def test_operator_plugin_with_a_built_in_name_is_refused(own: Path) -> None:
    """Neither stands in the other's way."""
    file = write(own, "http_request", GOOD)
    said = own_problem(own, "http_request")
    assert (
        repr(str(file)) in said
        and repr(str(ROOT / "plugins/tools/http_request/__init__.py")) in said
        and "rename yours" in said
    )


def test_unchanged_copy_of_a_built_in_plugin_is_accepted(own: Path) -> None:
    """The checkout that the gateway was installed from holds one; a file that is changed, or added, is not ours."""
    ours = ROOT / "plugins/tools/http_request"
    copy = own / "tools/http_request"
    shutil.copytree(ours, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert find_plugin("tools", "http_request", folder=own) is find_plugin("tools", "http_request")
    (copy / "more.py").write_text("")
    assert "differs from it" in own_problem(own, "http_request")


def test_built_in_plugin_folder_as_operator_folder_causes_no_conflict() -> None:
    """In a checkout `plugins/` beside gateway.yaml is ours."""
    folder = ROOT / "plugins"
    assert find_plugin("tools", "http_request", folder=folder) is find_plugin("tools", "http_request")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n1 / 0\n", "mine.py:2) cannot be imported: ZeroDivisionError"),
        ("def (\n", "mine.py:1) cannot be imported: SyntaxError"),
        (
            "\n\nimport no_such_library_at_all\n",
            "mine.py:3) needs the module 'no_such_library_at_all', which is missing",
        ),
        ("raise SystemExit(0)\n", "mine.py:1) cannot be imported: SystemExit"),
        ("from . import other\n", "mine.py:1) cannot be imported"),
        ("import other_plugin_of_mine\n", "needs the module 'other_plugin_of_mine'"),
        ("x = 1\n", "mine.py exports no PLUGIN = Plugin(Config, build)"),
    ],
)
def test_broken_operator_plugin_is_reported_with_file_and_line(own: Path, text: str, words: str) -> None:
    """Whatever its code does; and it is tried again once it is mended."""
    write(own, "mine", text)
    said = own_problem(own, "mine")
    assert str(own / "tools") in said and words in said
    write(own, "mine", GOOD)
    assert isinstance(find_plugin("tools", "mine", folder=own), Plugin)


FOLDER = {
    "__init__.py": "from .sizes import DEFAULT\n" + GOOD.replace("default=3", "default=DEFAULT"),
    "sizes.py": "from .tables.small import SMALL\nDEFAULT = SMALL + 1\n",
    "tables/__init__.py": "",
    "tables/small.py": "SMALL = 4\n",
}


def write_folder(folder: Path, name: str, files: dict[str, str]) -> Path:
    """A plugin with modules of its own, as a careful operator writes it."""
    home = write(folder, "other", GOOD).parent / name
    for path, text in files.items():
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        for place in (home, file.parent):
            place.chmod(0o755)
        file.write_text(text)
        file.chmod(0o644)
    return home


def test_plugin_folder_is_loaded_with_its_modules(own: Path) -> None:
    """Its modules are found by relative imports only, whatever their names; no compiled copy is written."""
    home = write_folder(own, "large", FOLDER)
    path, finders = list(sys.path), len(sys.meta_path)
    assert build_plugin("tools", "large", {}, None, folder=own) == (5, None)
    assert find_plugin("tools", "large", folder=own) is find_plugin("tools", "large", folder=own)
    assert (sys.path, len(sys.meta_path)) == (path, finders)
    assert sorted(str(file.relative_to(home)) for file in home.rglob("*.py*")) == sorted(FOLDER)


def test_changed_plugin_module_is_reloaded(own: Path) -> None:
    """At a reload; the plugin that is in use stays as it was."""
    home = write_folder(own, "large", FOLDER)
    first = find_plugin("tools", "large", folder=own)
    (home / "tables" / "small.py").write_text("SMALL = 40\n")
    assert build_plugin("tools", "large", {}, None, folder=own) == (41, None)
    assert first.build(first.config(), None) == (5, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0\n", "large/sizes.py:1) cannot be imported: ZeroDivisionError"),
        ("def (\n", "large/sizes.py:1) cannot be imported: SyntaxError"),
        ("from .nothing import X\n", "large/sizes.py:1) needs the module '.nothing', which is missing"),
        ("from ..mine import Config\n", "needs the module 'gateway.plugins.tools.mine', which is missing"),
    ],
)
def test_error_in_a_plugin_module_names_its_file(own: Path, text: str, words: str) -> None:
    """And it is tried again once it is mended; another plugin's folder is none of its own."""
    home = write_folder(own, "large", {**FOLDER, "sizes.py": text})
    assert words in own_problem(own, "large")
    (home / "sizes.py").write_text(FOLDER["sizes.py"])
    assert isinstance(find_plugin("tools", "large", folder=own), Plugin)


def test_plugin_module_writable_by_others_is_not_run(own: Path) -> None:
    """Nor anything else of the plugin; nor one behind a link that leads out of the folder."""
    home = write_folder(own, "large", {**FOLDER, "__init__.py": "raise RuntimeError('run')"})
    (home / "tables" / "small.py").chmod(0o666)
    assert "small.py' can be written by others than its owner" in own_problem(own, "large")
    (home / "tables" / "small.py").unlink()
    outside = own.parent / "outside.py"
    outside.write_text("SMALL = 1")
    (home / "tables" / "small.py").symlink_to(outside)
    assert "is behind a link that leads out of" in own_problem(own, "large")


def test_plugin_file_and_folder_of_the_same_name_are_refused(own: Path) -> None:
    """Neither is run."""
    write_folder(own, "mine", FOLDER)
    said = own_problem(own, "mine")
    assert "tools/mine.py" in said and "tools/mine'" in said and "remove one" in said


def test_plugin_file_writable_by_others_is_not_run(own: Path) -> None:
    """And says so."""
    write(own, "mine", "raise RuntimeError('run')").chmod(0o664)
    assert "can be written by others than its owner" in own_problem(own, "mine")


def test_missing_operator_plugin_error_names_expected_file_and_suggestion(own: Path) -> None:
    """With the nearest name of both folders."""
    assert own_problem(own, "mien").endswith(f"expected {own}/tools/mien.py; did you mean 'mine'?")
    assert "did you mean 'http_request'?" in own_problem(own, "http_reqest")


@pytest.mark.parametrize("kind", ["stages", "tools", "assessors", "stores"])
def test_a_plugin_of_an_installed_distribution_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: PluginKind
) -> None:
    """Of each kind, by the name that the distribution declares; the operator's own file wins, and ours always."""
    home = tmp_path / "site"
    (home / "theirs-1.0.dist-info").mkdir(parents=True)
    (home / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = f"[twolane.{kind}]\nmine = theirs_of_{kind}\nsqlite = theirs_of_{kind}\nhttp_request = theirs_of_{kind}\n"
    (home / "theirs-1.0.dist-info" / "entry_points.txt").write_text(points)
    (home / f"theirs_of_{kind}.py").write_text(GOOD)
    monkeypatch.syspath_prepend(home)
    assert build_plugin(kind, "mine", {"size": 7}, None) == (7, None)
    for name in {"sqlite", "http_request"} & set(list_built_in_plugins(kind)):
        assert find_plugin(kind, name).config.__module__.startswith("gateway.plugins.")
    folder = tmp_path / "plugins"
    write(folder, "mine", GOOD.replace("return (", "return ('own', "), kind=kind)
    assert find_plugin(kind, "mine", folder=folder) is not find_plugin(kind, "mine")


def test_failing_plugin_build_is_reported_as_a_configuration_problem(folder: Path) -> None:
    """Whatever it raises: a start reports all that is wrong, and a reload goes on with the old configuration."""
    del folder
    with pytest.raises(PluginProblem, match=r"'installed\.good' cannot be built: RuntimeError: no luck") as found:
        build_plugin("tools", "installed.good", {"size": 13}, None)
    assert found.value.path == ("with",)


def test_a_name_that_two_distributions_declare_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modules are named: one of them might judge calls by chance."""
    for theirs in ("one", "two"):
        home = tmp_path / f"{theirs}-1.0.dist-info"
        home.mkdir()
        (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {theirs}\nVersion: 1.0\n")
        (home / "entry_points.txt").write_text(f"[twolane.assessors]\nkubectl = theirs_{theirs}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginProblem, match=r"several installed modules \(theirs_one, theirs_two\)"):
        find_plugin("assessors", "kubectl")
