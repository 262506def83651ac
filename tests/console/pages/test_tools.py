"""The page of tools: by source, with parameters, for people without and with the scope of operators; hostile texts."""

from pathlib import Path

from gateways import until_read

from gateway.console.pages.tools import group_tools
from tests.console.browsing import key, served
from tests.mcp.misbehaving import command


def tool(name: str, source: str, service: str | None = None) -> dict[str, object]:
    return {"name": name, "source": source, "service": service, "parameters": {}}


async def test_tools_stand_by_source_with_their_parameters(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "approve")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/tools")
        assert (page.status, page.heading) == (200, "Tools")
        assert "Built in" in page.main
        for text in ("file_operations", "operation required", "JSON Schema"):
            assert text in page.main, text
        assert "Add a service" not in page.main


async def test_an_operator_sees_services_and_their_tools(tmp_path: Path) -> None:
    program, *rest = command("ok")
    sections = {"mcp": {"servers": {"notes": {"command": program, "args": rest, "trigger_keywords": ["memo"]}}}}
    async with served(tmp_path, key("root"), **sections) as browser:
        root = await browser.signed_in("root")
        path = "/mcp/services/notes"
        await until_read(lambda: root.api().get(path), lambda seen: seen.json["state"] == "running")
        page = await root.get("/console/tools")
        assert "/console/services/notes" in page.links
        for text in ("notes.echo", "Service notes", "untrusted", "memo", "Models call it notes__echo."):
            assert text in page.main, text


async def test_hostile_service_texts_are_escaped(tmp_path: Path) -> None:
    program, *rest = command("ok")
    hostile = '<script>alert(1)</script>"><b>\u202e'
    settings = {"command": program, "args": rest, "description": hostile, "trigger_keywords": [hostile]}
    async with served(tmp_path, key("root")) as browser:
        root = await browser.signed_in("root")
        added = await root.api().post("/mcp/services", {"name": "<b>x</b>", **settings})
        assert added.status == 201, added.body
        path = "/mcp/services/%3Cb%3Ex%3C%2Fb%3E"
        await until_read(lambda: root.api().get(path), lambda seen: seen.json["state"] == "running")
        for place in ("/console/tools", "/console/services", "/console/services/%3Cb%3Ex%3C%2Fb%3E"):
            page = await root.get(place)
            assert page.status == 200
            assert "<script>alert" not in page.html and "<b>" not in page.html and "\u202e" not in page.html
        assert "\\u{202e}" in page.main


async def test_empty_tools_page_reports_no_service(tmp_path: Path) -> None:
    async with served(
        tmp_path, key("root"), tools={}, upstreams=[{"name": "up", "base_url": "http://127.0.0.1:9"}]
    ) as (browser):
        root = await browser.signed_in("root")
        page = await root.get("/console/tools")
        assert "There is no service." in page.main
        assert "file_operations" not in page.main


def test_tool_groups_list_built_in_first_and_services_by_name() -> None:
    listed = [
        tool("b.x", "mcp", "b"),
        tool("own", "built_in"),
        tool("a.y", "mcp", "a"),
        tool("mine", "plugin"),
        tool("a.x", "mcp", "a"),
        tool("odd", "later"),
    ]
    found = [(group.source, group.service, [one.tool["name"] for one in group.tools]) for group in group_tools(listed)]
    assert found == [
        ("built_in", None, ["own"]),
        ("plugin", None, ["mine"]),
        ("mcp", "a", ["a.y", "a.x"]),
        ("mcp", "b", ["b.x"]),
        ("later", None, ["odd"]),
    ]
