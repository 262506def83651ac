"""Names that no service may have."""

import json
from pathlib import Path

import pytest
from config.folder import Folder

from gateway.dialects.offered_tools import GATEWAY
from gateway.plugins import list_built_in_plugins
from gateway.text.reserved_names import RESERVED
from gateway.tools.results import READ_RESULT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def servers(*names: str) -> str:
    return "mcp:\n  servers:\n" + "".join(f"    {json.dumps(name)}: {{command: x}}\n" for name in names)


def test_the_gateways_own_names_are_reserved() -> None:
    """The label, the built-in tools, and the tools that stand for a long list are reserved."""
    assert {GATEWAY, READ_RESULT, "find_tools", "call_tool", *list_built_in_plugins("tools")} == set(RESERVED.values())


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("gateway",), "3:5 mcp.servers.gateway: the name 'gateway' is the gateway's own: choose another name"),
        (("Gate-Way",), "mcp.servers.Gate-Way: the name 'Gate-Way' imitates 'gateway', which is the gateway's own"),
        (("g\u0430teway",), "the name 'g\\u0430teway' imitates 'gateway'"),
        (("execute.command",), "imitates 'execute_command'"),
        (("Find Tools",), "imitates 'find_tools'"),
        (("box", "B0X"), "4:5 mcp.servers.B0X: the name 'B0X' imitates that of the service 'box': choose another name"),
        (("git", "git.hub"), "tools of 'git.hub' may have the names of tools of the service 'git', because"),
        (("..",), "3:5 mcp.servers['..']: the name '..' cannot stand in the path of a page: it has "),
        (("a/./b",), "the name 'a/./b' cannot stand in the path of a page"),
        (("a%2fb",), "the name 'a%2fb' cannot stand in the path of a page"),
        (("a\\b",), "cannot stand in the path of a page"),
        (("{name}",), "the name '{name}' cannot stand in the path of a page: it has one of \\ % { }, or"),
        (("ti\u200bme",), "the name 'ti\\u200bme' has a character that does not show"),
        (("ti\u3164me",), "the name 'ti\\u3164me' has a character that does not show"),
        (("my\u00a0time",), "the name 'my\\xa0time' has a character that does not show"),
        (("services",), "the name 'services' is that of the page /mcp/services"),
        (("git__hub", "git"), "tools of 'git' may have the names of tools of the service 'git__hub', because"),
    ],
)
def test_mcp_servers_with_reserved_names_are_refused(folder: Folder, names: tuple[str, ...], problem: str) -> None:
    """With the line, the reason and the way out."""
    (found,) = folder.problems(servers(*names))
    assert problem in found and found.endswith(": choose another name")


def test_common_mcp_server_names_are_accepted(folder: Folder) -> None:
    """Words of a name may be those of another."""
    names = ("git", "github", "git_lab", "my gateway", "http", "time", "时间", "天气", "a.b", "a.c", "@a/b", "Services")
    assert list(folder.load(servers(*names)).settings.mcp.servers) == list(names)
