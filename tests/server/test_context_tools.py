"""The tools of one configuration; that all of them are built, or told of, is in test_assemble.py."""

from pathlib import Path

import pytest
from tools.toolbox import Toolbox

from gateway.config import Problem, Settings
from gateway.contracts.store import Json
from gateway.server.context_tools import gate_of, load_tools
from gateway.tools.gate import RiskClaim
from gateway.tools.results import Results

from .test_context_lane import toolbox

URL, OTHER, PRIVATE = "https://a.example/", "https://b.example/", "http://10.0.0.1/"
_WORK = {"cwd": ".", "sandbox": "none"}


@pytest.mark.parametrize(
    ("use", "options", "harmless", "harmful"),
    [
        ("execute_command", _WORK, {"command": "ls -l"}, {"command": "rm -r x"}),
        ("file_operations", {"roots": ["."]}, {"operation": "read", "path": "a"}, {"operation": "delete", "path": "a"}),
        ("http_request", {}, {"method": "GET", "url": URL}, {"method": "DELETE", "url": URL}),
        ("http_request", {"hosts": ["a.example"]}, {"method": "GET", "url": URL}, {"method": "GET", "url": OTHER}),
        ("http_request", {"private_networks": True}, {"method": "GET", "url": PRIVATE}, {"method": "PUT", "url": URL}),
        ("execute_sql", {}, {"sql": "SELECT 1"}, {"sql": "DELETE FROM t"}),
        ("execute_sql", {"url": "postgresql://h/d"}, {"sql": "SELECT $$a$$"}, {"sql": "SELECT pg_sleep(9)"}),
    ],
)
async def test_an_assessor_follows_the_tool_that_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    use: str,
    options: Json,
    harmless: Json,
    harmful: Json,
) -> None:
    """A tool of ours under a key of the operator's own is judged as the same tool under its own name."""
    monkeypatch.chdir(tmp_path)
    tools = {"mine": {"use": use, "with": options}}
    settings = Settings.model_validate({"tools": tools, "risk": {"profile": "hardened"}}, context={"folder": tmp_path})
    found: list[Problem] = []
    catalog = await load_tools(settings, None, Results(), found)  # type: ignore[arg-type]  # no host
    gate = gate_of(settings, None, found, at_hand=True)  # type: ignore[arg-type]  # as above
    (spec,) = [spec for source in catalog.sources for spec in await source.list_tools() if spec.name == use]
    judged = [gate.judge(spec, RiskClaim(arguments), tainted=False) for arguments in (harmless, harmful)]
    assert found == [] and [verdict.decision for verdict in judged] == ["auto", "confirm"], judged
    for source in catalog.sources:
        await source.close()


async def test_rules_for_no_tool_are_told_of_where_plugins_know_the_names(tmp_path: Path) -> None:
    """Without plugins the file alone says it: the tools here are those of the file, and nothing is wrong with them."""
    rules = {"rules": {"look": "deny", "lok": "deny", "*": "confirm", "clock.now": "deny"}}
    for tools, told in (({"mine": toolbox("look")}, ["risk.rules.lok"]), ({}, [])):
        settings = Settings.model_validate({"tools": tools, "risk": rules}, context={"folder": tmp_path})
        found: list[Problem] = []
        catalog = await load_tools(settings, None, Results(), found)  # type: ignore[arg-type]  # no host
        assert [problem.path for problem in found] == told
        assert [name for name in catalog.names() if name == "look"] == list(tools and ["look"])
    assert len(Toolbox.built) >= 1


async def test_an_assessor_adds_to_a_built_in_one_only(tmp_path: Path) -> None:
    """Beside none it would be alone, which nobody asked for: refused, with the tools that have one."""
    risk = {"assessors": {"docs.search": {"use": "http", "adds": True}, "http_request": {"use": "http", "adds": True}}}
    settings = Settings.model_validate(
        {"tools": {"http_request": {}}, "mcp": {"servers": {"docs": {"url": "https://a.example/mcp"}}}, "risk": risk},
        context={"folder": tmp_path},
    )
    found: list[Problem] = []
    gate_of(settings, None, found)  # type: ignore[arg-type]  # no host
    (problem,) = found
    assert problem.path == "risk.assessors.docs.search.adds"
    assert "'docs.search' has no built-in assessor" in str(problem) and "execute_sql" in str(problem)


async def test_what_adds_changes_the_policy_of_its_tool(tmp_path: Path) -> None:
    """An approval that waits was asked for under the other one."""
    hashes = set()
    for adds in (False, True):
        risk = {"assessors": {"http_request": {"use": "http", "adds": adds}}}
        settings = Settings.model_validate({"tools": {"http_request": {}}, "risk": risk}, context={"folder": tmp_path})
        hashes.add(gate_of(settings, None, []).configured["http_request"])  # type: ignore[arg-type]  # no host
    assert len(hashes) == 2
