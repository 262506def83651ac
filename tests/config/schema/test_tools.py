"""The sections about tools, risk, approvals and MCP servers."""

import subprocess
import sys
from pathlib import Path

import pytest
from config.folder import Folder
from pydantic import ValidationError

from gateway.config.schema.tools import ToolsSettings, find_built_in_settings
from gateway.plugins import list_built_in_plugins, load_built_in_plugin


def test_tools_are_off_by_default() -> None:
    """Without a word about tools there are none."""
    tools = ToolsSettings.model_validate({})
    assert tools.built_in == {}
    assert tools.plugins == {}


def test_a_built_in_tool_that_is_named_has_safe_defaults() -> None:
    """No writing, no private networks, no changes to a database, a sandbox; paths begin at the file."""
    named: dict[str, object] = {"file_operations": {}, "http_request": {}, "execute_sql": {}, "execute_command": {}}
    tools = ToolsSettings.model_validate(named, context={"folder": Path("/f")})
    files, http, sql, command = (getattr(tools, name) for name in BUILT_IN)
    assert (files.roots, files.write) == ((Path("/f/work"),), False)
    assert (http.private_networks, http.untrusted) == (False, True)
    assert sql.read_only and sql.url.reveal() == "sqlite:////f/data.db"
    assert (command.cwd, command.timeout, command.sandbox, command.requires_approval) == (
        Path("/f/work"),
        30.0,
        "auto",
        False,
    )


def test_unknown_tool_names_are_plugin_tools() -> None:
    """By the name of the tool, or another one; keys of built-in tools are not known there."""
    tools = ToolsSettings.model_validate({"mine": {}, "yours": {"use": "theirs", "with": {"a": 1}, "untrusted": True}})
    assert tools.plugins["mine"].use is None
    assert (tools.plugins["yours"].use, tools.plugins["yours"].with_, tools.plugins["yours"].untrusted) == (
        "theirs",
        {"a": 1},
        True,
    )
    with pytest.raises(ValidationError):
        ToolsSettings.model_validate({"mine": {"roots": ["."]}})


BUILT_IN = ("file_operations", "http_request", "execute_sql", "execute_command")


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_plugin_declares_the_settings_of_a_built_in_tool(name: str) -> None:
    """There is one declaration; only the plugin of this name is imported."""
    code = "import sys; from gateway.config.schema.tools import ToolsSettings; "
    code += f"ToolsSettings.model_validate({{{name!r}: {{}}}})"
    code += "; print(*(m for m in sys.modules if m.startswith('gateway.plugins.tools.') and m.count('.') == 3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"gateway.plugins.tools.{name}"]
    assert find_built_in_settings(name) is load_built_in_plugin("tools", name).config


def test_built_in_tools_match_the_plugin_folders() -> None:
    """A new one needs no change elsewhere."""
    assert sorted((*BUILT_IN, "demo_note")) == list(list_built_in_plugins("tools"))
    assert find_built_in_settings("mine") is None


def test_tool_settings_reach_the_plugin_in_base_units(folder: Folder) -> None:
    """Durations as seconds, sizes as bytes, paths from the folder of the file."""
    for name in ("data.db", "work/x", "lib/x"):
        folder.write(name, "")
    tools = folder.load(
        """tools:
  file_operations: {max_read_bytes: 2MiB, max_write_bytes: 5, max_entries: 7}
  http_request: {timeout: 5s, max_bytes: 1KiB, hosts: ["a.example:8443"]}
  execute_sql: {timeout: 2m, max_rows: 3, max_bytes: 4KiB}
  execute_command:
    readable: [lib]
    max_output_bytes: 1KiB
    limits: {cpu_s: 2, memory_bytes: 64MiB, file_bytes: 0, processes: 3, open_files: 20}
"""
    ).settings.tools
    built = tools.built_in
    assert tuple(built) == BUILT_IN
    files, http, sql, command = (built[name].model_dump() for name in BUILT_IN)
    assert (files["max_read_bytes"], files["max_write_bytes"], files["max_entries"]) == (2 << 20, 5, 7)
    assert (http["timeout"], http["max_bytes"], http["hosts"]) == (5.0, 1024, ("a.example:8443",))
    assert (sql["timeout"], sql["max_rows"], sql["max_bytes"]) == (120.0, 3, 4096)
    assert (command["readable"], command["max_output_bytes"]) == ((folder.path / "lib",), 1024)
    assert tuple(command["limits"].values()) == (2, 64 << 20, 0, 3, 20)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tools: {file_operations: {max_read_bytes: lots}}",
            "1:43 tools.file_operations.max_read_bytes: expected a size",
        ),
        ("tools: {http_request: {timeout: 0}}", "1:33 tools.http_request.timeout: must be more than 0"),
        ("tools: {execute_sql: {max_rows: 0}}", "1:33 tools.execute_sql.max_rows: must be between 1 and"),
        ("tools: {execute_command: {limits: {memory_bytes: 1MiB}}}", "memory_bytes: must be between 16MiB and 1024GiB"),
        ("tools: {execute_command: {limits: {cpus: 1}}}", "tools.execute_command.limits.cpus: unknown key 'cpus'"),
        ("tools: {http_request: {max_byte: 1}}", "unknown key 'max_byte'; did you mean 'max_bytes'?"),
    ],
)
def test_invalid_tool_setting_is_reported_at_its_place(folder: Folder, text: str, problem: str) -> None:
    """As every other key."""
    assert any(problem in line for line in folder.problems(text))
