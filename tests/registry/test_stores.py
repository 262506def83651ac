"""The store of a configuration: the scheme of its URL is the name of a plugin, ours or the operator's."""

import os
import shutil
from pathlib import Path

import pytest

from gateway.config import ConfigError, Settings, load
from gateway.registry.check import check_plugins
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import build_scratch_store, build_store, get_store_address, is_store_shared, resolve_store

SQLITE = Path(__file__).parents[2] / "plugins" / "stores" / "sqlite"


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder of the operator's with the SQLite store under another scheme."""
    copy = tmp_path / "plugins" / "stores" / "lite"
    shutil.copytree(SQLITE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    face = copy / "__init__.py"
    face.write_text(face.read_text().replace('PREFIX = "sqlite:///"', 'PREFIX = "lite:///"'))
    for path in (copy.parent.parent, *copy.parent.parent.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)  # noqa: PTH101 (as a checkout may not have it)
    return copy.parent.parent


async def test_store_plugin_works_under_another_url_scheme(plugins: Path, tmp_path: Path) -> None:
    """It is checked, opened, described, read for the audit log and copied by its own plugin."""
    file = tmp_path / "gateway.yaml"
    file.write_text("store: lite:///x.db\n")
    settings = load(file, environ={}, flags={}, checks=(check_plugins,)).settings
    assert settings.plugins.folder == plugins
    address = get_store_address(settings, folder=tmp_path)
    assert (address.redacted_url, address.file, address.problem()) == ("lite:///x.db", tmp_path / "x.db", None)
    store = build_store(settings, folder=tmp_path)
    await store.open()
    await store.put_prompt("p", "text", tenant="t", now_s=0.0)
    await store.close()
    assert list(address.get_reader().audit_log(after=-1, size=10)) == []
    address.get_reader().write_copy(str(tmp_path / "copy.db"), progress=lambda _remaining, _total: None)
    assert (tmp_path / "copy.db").stat().st_size > 0


def test_a_tool_that_reaches_the_store_of_an_operators_plugin_is_refused(plugins: Path, tmp_path: Path) -> None:
    """As with ours."""
    (tmp_path / "files").mkdir()
    file = tmp_path / "gateway.yaml"
    file.write_text("store: lite:///./files/x.db\ntools: {file_operations: {roots: [files], write: true}}\n")
    with pytest.raises(ConfigError, match="reaches the store of the gateway"):
        load(file, environ={}, flags={}, checks=(check_plugins,))
    assert plugins.is_dir()


def test_store_scheme_without_a_plugin_is_reported_at_its_place(tmp_path: Path) -> None:
    """The message names the schemes that there are, and no password."""
    file = tmp_path / "gateway.yaml"
    file.write_text("listen: 127.0.0.1:1\nstore: mysql://me:hunter2@db/gateway\n")
    with pytest.raises(ConfigError) as refused:
        load(file, environ={}, flags={}, checks=(check_plugins,))
    (problem,) = refused.value.problems
    assert str(problem).startswith(f"{file}:2:8 store: no plugin 'mysql' of kind 'stores'")
    assert "sqlite://" in problem.message and "hunter2" not in problem.message
    with pytest.raises(PluginProblem):
        resolve_store("mysql://me:hunter2@db/gateway", folder=tmp_path, plugins=None)


async def test_a_scratch_store_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For dry runs, whatever store is configured."""
    monkeypatch.chdir(tmp_path)
    store = build_scratch_store()
    await store.open()
    await store.close()
    assert list(tmp_path.iterdir()) == [] and Settings().store.reveal()


@pytest.mark.parametrize("url", ["sqlite://gateway.db", "sqlite:///"])
def test_a_url_that_the_store_does_not_accept_is_reported_before_the_start(tmp_path: Path, url: str) -> None:
    """Otherwise the check of a tool's paths would know no file of the store, and find nothing wrong."""
    file = tmp_path / "gateway.yaml"
    file.write_text(f"store: {url}\n")
    with pytest.raises(ConfigError, match="yaml:1:8 store: "):
        load(file, environ={}, flags={}, checks=(check_plugins,))


@pytest.mark.parametrize(
    ("url", "shared"),
    [("postgresql://gateway@db/gateway", True), ("sqlite:///gateway.db", False), ("mysql://db/x", False)],
)
def test_database_server_is_shared_by_machines(url: str, shared: bool) -> None:
    """The start reports a URL that names no store."""
    assert is_store_shared(Settings.model_validate({"store": url})) is shared
