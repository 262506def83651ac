"""The tools that a client sees and calls, by its key and its path, in both eras."""

import re
from pathlib import Path

import pytest
from gateways import until_read
from mcp.shared.exceptions import MCPError

from gateway.testing.local_gateway import LocalGateway
from tests.mcp_server.serving import Era, World, both_eras, keys, server, texts, world

Calm = dict[str, object]


@both_eras
async def test_listed_tools_keep_title_annotations_schema_and_icons(era: Era) -> None:
    """On the path of the service they have its own names."""
    async with world() as made:
        for path, name in (("", "here__add"), ("/here", "add")):
            async with made.client(era, path=path) as client:
                tool = next(tool for tool in (await client.list_tools()).tools if tool.name == name)
                assert tool.title == "Adder" and tool.annotations and tool.annotations.read_only_hint
                assert tool.output_schema is not None and tool.input_schema["required"] == ["a", "b"]
                assert tool.icons and [icon.src for icon in tool.icons] == ["https://example.com/add.png"]


@both_eras
async def test_tool_call_returns_all_content_blocks_of_the_server(era: Era, calm: Calm) -> None:
    """A result has all blocks, also those that are no text, and the structured content; a failure is a result."""
    async with world(**calm) as made, made.client(era) as client:
        added = await client.call_tool("here__add", {"a": 1, "b": 2})
        assert (texts(added), added.structured_content, added.is_error) == ("3", {"sum": 3}, False)
        image = await client.call_tool("here.image", {})
        assert [block.type for block in image.content] == ["image", "text"]
        failed = await client.call_tool("here__fail", {})
        assert failed.is_error and "it does not work" in texts(failed)
        hurt = await client.call_tool("here__hurt", {})
        assert texts(hurt) == "[content of the type 'no such kind', which cannot be shown]\nread this"


@both_eras
async def test_key_and_configuration_restrict_the_listed_and_callable_tools(era: Era, calm: Calm) -> None:
    """A tool that a key may not use does not exist for it."""
    agent = {**keys(agent=["tools"])[0], "tools": ["here.a*", "here.echo", "read_result"]}
    async with world({"tools": ["here.*"]}, **calm, keys=[agent]) as made, made.client(era, key="agent") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"here__add", "here__echo"}
        assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        for name in ("here__pid", "here.pid", "read_result", "no_such"):
            with pytest.raises(MCPError, match="no such tool"):
                await client.call_tool(name, {})


async def test_service_path_serves_the_tools_of_that_service_only(calm: Calm) -> None:
    """Tools of the gateway itself are on the whole endpoint only; another service has none."""
    servers = {"here": server(), "off": {"command": "none", "enabled": False}}
    async with world(**calm, mcp={"servers": servers, "serve": {}}) as made:
        async with made.client(path="/here") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "echo" in names and "read_result" not in names
            assert texts(await client.call_tool("echo", {"text": "hi"})) == "hi"
        async with made.client(path="/off") as client:
            assert (await client.list_tools()).tools == []


@both_eras
async def test_held_call_result_is_delivered_after_its_service_is_gone(era: Era) -> None:
    """A call that is new then is refused with what to do; a tool that the key may not use is none."""
    agent, anna = keys(agent=["tools"], anna=["approve", "context", "admin"])
    team = [{**agent, "tools": ["here.echo", "here.no*"]}, anna]
    async with world({"wait": "1s"}, keys=team) as made, made.client(era, key="agent") as client:
        assert "has NOT run" in texts(await client.call_tool("here__echo", {"text": "hi"}))
        await made.decide("approve", key="anna")
        await until_read(lambda: made.get("/context/runs?state=completed", key="anna"), lambda page: page["data"])
        status, _ = await made.post("/mcp/services/here/stop", {}, key="anna")
        assert status < 300 and (await client.list_tools()).tools == []
        assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        for name in ("here__echo", "here.echo", "here__no_such"):
            result = await client.call_tool(name, {"text": "hi"})
            assert result.is_error and re.search("'here' of this tool is not running.*gateway mcp list", texts(result))
        for name in ("here__add", "here.add", "there__echo"):
            with pytest.raises(MCPError, match="no such tool"):
                await client.call_tool(name, {})
        async with made.client(era, path="/here", key="agent") as plain:
            result = await plain.call_tool("echo", {"text": "hi"})
            assert result.is_error and "call it again later" in texts(result)


async def test_owed_result_is_delivered_after_restart_without_its_service(tmp_path: Path) -> None:
    """Its tools are known by their names from the store: a client that is owed a result gets that at once."""
    team, store = keys(agent=["tools"], anna=["approve", "context"]), f"sqlite:///{tmp_path}/gateway.db"
    async with world({"wait": "1s"}, keys=team, store=store) as made:
        async with made.client(key="agent") as client:
            assert "has NOT run" in texts(await client.call_tool("here__echo", {"text": "hi"}))
        await made.decide("approve", key="anna")
        await until_read(lambda: made.get("/context/runs?state=completed", key="anna"), lambda page: page["data"])
    config = {**made.config, "mcp": {**made.config["mcp"], "servers": {"here": {"command": "/nowhere/at/all"}}}}
    async with LocalGateway(config) as gateway, World(gateway, config).client(key="agent") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} <= {"read_result"}
        assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        result = await client.call_tool("here__echo", {"text": "hi"})
        assert result.is_error and re.search("'here' of this tool is (not running|starting)", texts(result))


@both_eras
async def test_long_tool_list_is_replaced_by_find_and_call_tools(era: Era, calm: Calm) -> None:
    """The first finds, the second calls; a name that is known works as well."""
    async with world({"search_over": 3}, **calm) as made, made.client(era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["find_tools", "call_tool"]
        found = texts(await client.call_tool("find_tools", {"query": "adds two numbers", "limit": 1}))
        assert '"here__add"' in found and '"here__echo"' not in found
        called = await client.call_tool("call_tool", {"name": "here__add", "arguments": {"a": 2, "b": 2}})
        assert (texts(called), called.structured_content) == ("4", {"sum": 4})
        assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        wrong = await client.call_tool("call_tool", {"arguments": {}})
        assert wrong.is_error and "name must be a text" in texts(wrong)


async def test_a_resource_that_a_tool_names_can_be_read(calm: Calm) -> None:
    """The address of the resource leads to the service."""
    async with world(**calm) as made, made.client() as client:
        (link,) = (await client.call_tool("here__link", {})).content
        assert link.type == "resource_link" and link.uri == "twolane://here/file:///a b"
        (content,) = (await client.read_resource(link.uri)).contents
        assert content.uri == link.uri and getattr(content, "text", "") == "Content of file:///a b"
