"""The tools of a first visit: on by themselves, until somebody configures upstreams or tools."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.demo import is_demo_workflow
from gateway.config.load import load

OFF: Mapping[str, str] = {}
UPSTREAM = 'upstreams: [{name: up, base_url: "http://localhost:1/v1"}]\n'


def tools_of(tmp_path: Path, text: str, environ: Mapping[str, str] = OFF, **flags: object) -> list[str]:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    return list(load(file, environ=environ, flags=flags).settings.tools.all)


def test_demo_tool_is_on_without_a_configuration_file() -> None:
    """`gateway run` alone."""
    assert list(load(None, environ={}, flags={}).settings.tools.all) == ["demo_note"]


@pytest.mark.parametrize("text", ["", "upstreams:\ntools:\n", "upstreams: []\nworkers: 2\n"])
def test_demo_tool_is_on_without_configured_upstreams_and_tools(tmp_path: Path, text: str) -> None:
    """An empty section is none, as everywhere."""
    assert tools_of(tmp_path, text) == ["demo_note"]


@pytest.mark.parametrize(
    ("text", "tools"),
    [(UPSTREAM, []), ("tools: {}", []), ("tools: {http_request: {}}", ["http_request"])],
)
def test_demo_tool_is_off_once_upstreams_or_tools_are_configured(tmp_path: Path, text: str, tools: list[str]) -> None:
    """A tool that the configuration does not name is not there."""
    assert tools_of(tmp_path, text) == tools


def test_demo_tool_is_off_with_upstreams_from_variables_or_flags(tmp_path: Path) -> None:
    """Wherever an upstream or a tool is named."""
    assert tools_of(tmp_path, "", upstream="http://localhost:1/v1") == []
    variables = {"GATEWAY__TOOLS__HTTP_REQUEST__TIMEOUT": "5s"}
    assert tools_of(tmp_path, "", variables) == ["http_request"]


def test_demo_tool_can_be_enabled_beside_upstreams(tmp_path: Path) -> None:
    """Beside upstreams, with the settings that every tool has."""
    assert tools_of(tmp_path, UPSTREAM + "tools: {demo_note: {untrusted: true}}") == ["demo_note"]


@pytest.mark.parametrize(
    ("category", "called", "tools", "is_one"),
    [
        ("demo", ["demo_note"], [], True),
        ("demo", ["demo_note"], ["demo_note"], False),
        ("demo", ["execute_sql"], [], False),
        ("demo", [], [], False),
        ("reports", ["demo_note"], [], False),
    ],
)
def test_demo_workflows_are_recognised_only_without_their_tool(
    category: str, called: list[str], tools: list[str], is_one: bool
) -> None:
    """Only those that say so, and only without their tool: a workflow of an operator's is never hidden."""
    assert is_demo_workflow(category, called, tools=tools) is is_one
