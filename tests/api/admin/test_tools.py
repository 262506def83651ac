"""The page of tools: those of the configuration and of services that run, as the catalog in use has them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from gateways import key
from tools.doubles import Source, spec
from tools.managed import Managed

from gateway.api.admin.tools import TOOLS, ToolPages
from gateway.contracts.caller import Caller
from gateway.contracts.tools import ServiceSource
from gateway.testing.local_gateway import LocalGateway
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from tests.api.answering import errors

ANN = Caller("ann", "acme", frozenset(("context",)))


@asynccontextmanager
async def pages(catalog: Catalog) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    app = web.Application(middlewares=[errors])
    for method, path, handler in ToolPages(catalog=lambda: catalog, authorise=lambda *_: ANN).list_routes():
        app.router.add_route(method, path, handler)
    async with TestClient(TestServer(app)) as client:
        yield client


async def listed(client: TestClient[web.Request, web.Application], query: str = "") -> Any:
    response = await client.get(TOOLS + query)
    assert response.status == 200
    return await response.json()


def service(name: str, **tools: str) -> Managed:
    made = Managed(name, {"trigger_keywords": ("时间", "clock")})
    made.start()
    made.becomes("running", **tools)
    return made


async def test_tool_list_shows_schema_flags_and_source() -> None:
    """Its schema, its flags as the operator set them, and where it comes from."""
    further: list[ConfiguredSource[ServiceSource]] = [
        ConfiguredSource(service("time", now="1" * 64), untrusted=True, origin="mcp")
    ]
    mine = ConfiguredSource(Source(spec("note", idempotent=True)), requires_approval=True)
    catalog = await load_catalog({"mine": mine}, further=lambda: further)
    async with pages(catalog) as client:
        answer = await listed(client)
    assert answer == {
        "object": "list",
        "next": None,
        "data": [
            {
                "name": "note",
                "object": "tool",
                "model_name": "note",
                "source": "plugin",
                "service": None,
                "description": "Does note.",
                "parameters": {"type": "object"},
                "category": "general",
                "keywords": [],
                "requires_approval": True,
                "untrusted": False,
                "idempotent": True,
                "changed": False,
            },
            {
                "name": "time.now",
                "object": "tool",
                "model_name": "time__now",
                "source": "mcp",
                "service": "time",
                "description": "Does now.",
                "parameters": {"type": "object"},
                "category": "general",
                "keywords": ["时间", "clock"],
                "requires_approval": False,
                "untrusted": True,
                "idempotent": False,
                "changed": False,
            },
        ],
    }


async def test_tools_come_in_pages() -> None:
    """By name, those of services between the others; a tool that is gone is no place to go on from."""
    further: list[ConfiguredSource[ServiceSource]] = [
        ConfiguredSource(service("m", b="1" * 64, a="2" * 64), origin="mcp")
    ]
    sources = {name: ConfiguredSource(Source(spec(name))) for name in ("z", "a", "q")}
    async with pages(await load_catalog(sources, further=lambda: further)) as client:
        first = await listed(client, "?limit=3")
        assert [one["name"] for one in first["data"]] == ["a", "m.a", "m.b"] and first["next"] == "m.b"
        second = await listed(client, "?limit=3&after=m.b")
        assert [one["name"] for one in second["data"]] == ["q", "z"] and second["next"] is None
        for query, code in (("?after=nope", "invalid_field"), ("?limit=0", "invalid_field"), ("?x=1", "unknown_field")):
            response = await client.get(TOOLS + query)
            assert (response.status, (await response.json())["error"]["code"]) == (400, code)


async def test_tool_list_omits_tools_that_cannot_be_called() -> None:
    """Of two with one name towards models the first; none of a service that does not run."""
    stopped = service("off", tool="1" * 64)
    stopped.becomes("stopped")
    changed = service("a", b="2" * 64, c="3" * 64)
    changed.accept({"c": "4" * 64})
    further: list[ConfiguredSource[ServiceSource]] = [
        ConfiguredSource(stopped),
        ConfiguredSource(changed, origin="mcp"),
    ]
    catalog = await load_catalog({"s": ConfiguredSource(Source(spec("a__b")))}, further=lambda: further)
    async with pages(catalog) as client:
        data = (await listed(client))["data"]
    assert [(one["name"], one["service"], one["changed"]) for one in data] == [
        ("a.c", "a", True),
        ("a__b", None, False),
    ]


CONFIG: Mapping[str, object] = {
    "upstreams": [],
    "keys": [key("user", "context"), key("boss", "approve"), key("root", "admin"), key("guest", "passthrough")],
}


@pytest.mark.parametrize(("caller", "status"), [("user", 200), ("boss", 200), ("root", 403), ("guest", 403)])
async def test_tool_list_allows_context_and_approve_keys(caller: str, status: int) -> None:
    """A key with `context` or `approve` reads the list; other keys get 403."""
    async with (
        LocalGateway(CONFIG) as made,
        ClientSession(made.base_url, headers={"X-Gateway-Key": caller}) as session,
        session.get(TOOLS) as response,
    ):
        assert response.status == status


async def test_tool_list_follows_the_configuration_in_use() -> None:
    """Built-in ones say so, under any name; after a reload it shows the new ones."""
    config = {"upstreams": [], "tools": {"execute_sql": {}, "again": {"use": "http_request"}}}
    async with LocalGateway(config) as made, ClientSession(made.base_url) as session:
        async with session.get(TOOLS) as response:
            found = {one["name"]: one["source"] for one in (await response.json())["data"]}
        assert found == {"execute_sql": "built_in", "http_request": "built_in", "read_result": "built_in"}
        await made.reload({"upstreams": [], "tools": {}})
        async with session.get(TOOLS) as response:
            assert (await response.json())["data"] == []
        async with session.head(TOOLS) as response:
            assert (response.status, await response.read()) == (200, b"")
