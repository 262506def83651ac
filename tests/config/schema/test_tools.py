"""The sections about tools, risk, approvals and MCP servers."""

from pathlib import Path

import pytest
from config.folder import Folder
from pydantic import ValidationError

from gateway.config.schema.tools import CommandLimits, Tool, Tools
from gateway.registry.find import find_plugin


def test_nothing_is_on_unless_it_is_named() -> None:
    """Without a word about tools there are none."""
    tools = Tools.model_validate({})
    named = (tools.file_operations, tools.http_request, tools.execute_sql, tools.execute_command)
    assert named == (None, None, None, None)
    assert tools.plugins == {}


def test_a_built_in_tool_that_is_named_has_safe_defaults() -> None:
    """No writing, no private networks, no changes to a database, a sandbox; paths begin at the file."""
    named: dict[str, object] = {"file_operations": {}, "http_request": {}, "execute_sql": {}, "execute_command": {}}
    tools = Tools.model_validate(named, context={"folder": Path("/f")})
    assert tools.file_operations and tools.http_request and tools.execute_sql and tools.execute_command
    assert (tools.file_operations.roots, tools.file_operations.write) == ((Path("/f/work"),), False)
    assert (tools.http_request.private_networks, tools.http_request.untrusted) == (False, True)
    assert tools.execute_sql.read_only and tools.execute_sql.url.reveal() == "sqlite:///./data.db"
    command = tools.execute_command
    assert (command.cwd, command.timeout, command.sandbox, command.requires_approval) == (
        Path("/f/work"),
        30.0,
        "auto",
        False,
    )


def test_every_other_tool_is_a_plugin() -> None:
    """By the name of the tool, or another one; keys of built-in tools are not known there."""
    tools = Tools.model_validate({"mine": {}, "yours": {"use": "theirs", "with": {"a": 1}, "untrusted": True}})
    assert tools.plugins["mine"].use is None
    assert (tools.plugins["yours"].use, tools.plugins["yours"].with_, tools.plugins["yours"].untrusted) == (
        "theirs",
        {"a": 1},
        True,
    )
    with pytest.raises(ValidationError):
        Tools.model_validate({"mine": {"roots": ["."]}})


BUILT_IN = ("file_operations", "http_request", "execute_sql", "execute_command")


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_keys_of_a_built_in_tool_are_those_of_its_plugin(name: str, tmp_path: Path) -> None:
    """With the same defaults and words: each can be set, and means the same wherever it is set."""
    tool = getattr(Tools.model_validate({name: {}}, context={"folder": tmp_path}), name)
    plugin, options = find_plugin("tools", name).config, tool.options()
    flags = set(Tool.model_fields)
    assert options.keys() == plugin.model_fields.keys() - flags
    places = {"roots": [str(tmp_path / "work")], "cwd": str(tmp_path / "work")}
    assert plugin.model_validate(options) == plugin.model_validate(
        {key: places[key] for key in places if key in options}
    )
    for key, field in plugin.model_fields.items():
        assert type(tool).model_fields[key].default == field.default or key in ("roots", "cwd", "url", "limits")
        if key not in ("roots", "cwd", "url"):
            assert type(tool).model_fields[key].description == field.description
    if name == "execute_command":
        limits = plugin.model_fields["limits"].annotation
        for key, field in limits.model_fields.items():
            ours = CommandLimits.model_fields[key]
            assert (ours.default, ours.description) == (field.default, field.description)


def test_what_is_set_reaches_the_plugin(folder: Folder) -> None:
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
    built = {
        name: find_plugin("tools", name).config.model_validate(tool.options()) for name, tool in tools.built_in.items()
    }
    assert tuple(built) == BUILT_IN
    files, http, sql, command = (built[name].model_dump() for name in BUILT_IN)
    assert (files["max_read_bytes"], files["max_write_bytes"], files["max_entries"]) == (2 << 20, 5, 7)
    assert (http["timeout"], http["max_bytes"], http["hosts"]) == (5.0, 1024, ("a.example:8443",))
    assert (sql["timeout"], sql["max_rows"], sql["max_bytes"]) == (120.0, 3, 4096)
    assert (command["readable"], command["max_output_bytes"]) == ((str(folder.path / "lib"),), 1024)
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
def test_what_a_tool_does_not_take_is_told_at_its_place(folder: Folder, text: str, problem: str) -> None:
    """As every other key."""
    assert any(problem in line for line in folder.problems(text))
