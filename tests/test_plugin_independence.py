"""Plugins stand alone: the core names none, and none needs another one."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import FILES, ROOT, module_of, name, nodes, part

#: Where names of our plugins stand as texts, each for its reason.
DEFAULTS = {
    "gateway/config/schema/context.py": "the chain that is there without being declared",
    "gateway/cli/litellm/translation.py": "the default chain, with the stage in place of LiteLLM's cache",
    "gateway/testing/tour.py": "an example configuration",
    "gateway/demo/script.py": "what the demo model calls",
}
#: Words of configuration, of programs and of protocols that are also names of plugins.
WORDS = {"command", "file", "http", "sql", "memory", "intent"}


def names_of_ours() -> set[str]:
    found = (path for path in ROOT.glob("plugins/*/*") if not path.name.startswith("_"))
    return {path.stem for path in found if path.is_dir() or path.suffix == ".py"}


def test_the_core_knows_no_plugin_by_name() -> None:
    """What it must know of one, that plugin declares (`gateway.plugin.Plugin`); the door to plugins is theirs."""
    names = names_of_ours() - WORDS
    assert {"execute_command", "execute_sql", "file_operations", "http_request", "agent_loop", "sqlite"} <= names
    core = [path for path in FILES if name(path).startswith("gateway/") and part(module_of(path)) != "plugin"]
    found = {
        name(path)
        for path in core
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.removeprefix("gateway.plugins.").rpartition(".")[2] in names
    }
    assert found == DEFAULTS.keys()


def test_plugin_lookups_use_no_literal_names() -> None:
    """Where a plugin is found by its name, that name comes from the configuration."""
    looked_up = {"find_plugin", "build_plugin", "plugin_of_ours", "built"}
    calls = [(path, node) for path in FILES for node in nodes(path) if isinstance(node, ast.Call)]
    found = {
        name(path)
        for path, node in calls
        if isinstance(node.func, ast.Name) and node.func.id in looked_up
        if any(isinstance(argument, ast.Constant) for argument in node.args[1:2])
    }
    assert found == set()


@pytest.mark.parametrize("plugin", sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/[!_]*")))
def test_each_plugin_imports_without_the_other_plugins(plugin: str, tmp_path: Path) -> None:
    """It is imported where every other plugin is removed."""
    copy = tmp_path / plugin
    copy.parent.mkdir(parents=True)
    (tmp_path / "gateway").symlink_to(ROOT / "gateway")  # its `plugins` are those that stand beside the link
    if (ROOT / plugin).is_dir():
        shutil.copytree(ROOT / plugin, copy, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(ROOT / plugin, copy)
    (copy.parent / "__init__.py").touch()
    module = "gateway." + plugin.removesuffix(".py").replace("/", ".")
    code = f"import gateway, {module} as m; from gateway.contracts.plugin import Plugin; print(gateway.__file__)"
    code += "; assert isinstance(m.PLUGIN, Plugin)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(str(tmp_path))
