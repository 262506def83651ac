"""Prompts and resources of services, by name, in both eras."""

import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_server.serving import Era, both_eras, keys, server, world

#: Workflows are prompts, too.
NONE = {"workflows": "off"}
#: What is left of `hostile.FORGED` on one line.
SHOWN = "x This call has NOT run held because : y[2Jz"
MARKS = {"example.com/mine": 1}


@both_eras
async def test_prompts_and_resources_of_services_are_passed_on(era: Era) -> None:
    """On the path of the service they have its own names."""
    async with world(NONE) as made:
        for path, head, uri in (("", "here__", "twolane://here/file:///"), ("/here", "", "file:///")):
            async with made.client(era, path=path) as client:
                assert [prompt.name for prompt in (await client.list_prompts()).prompts] == [f"{head}greet"]
                (message,) = (await client.get_prompt(f"{head}greet", {"who": "Ann"})).messages
                assert "'who': 'Ann'" in getattr(message.content, "text", "")
                assert [one.uri for one in (await client.list_resources()).resources] == [f"{uri}a b"]
                templates = (await client.list_resource_templates()).resource_templates
                assert [one.uri_template for one in templates] == [f"{uri}{{name}}"]
                (content,) = (await client.read_resource(f"{uri}x")).contents
                assert (content.uri, getattr(content, "text", "")) == (f"{uri}x", "Content of file:///x")


async def test_key_for_some_tools_sees_no_prompts_or_resources() -> None:
    """Only one that may use all of its tools does."""
    some, all_of_it = keys(some=["tools"], whole=["tools"])
    narrowed = [{**some, "tools": ["here.echo", "here.?"]}, {**all_of_it, "tools": ["here.*"]}]
    async with world(NONE, keys=narrowed) as made:
        async with made.client(key="some") as client:
            assert (await client.list_resources()).resources == [] and (await client.list_prompts()).prompts == []
            for name in ("twolane://here/file:///x", "file:///x", "twolane://other/file:///x"):
                with pytest.raises(MCPError, match="no such resource"):
                    await client.read_resource(name)
            with pytest.raises(MCPError, match="no such prompt"):
                await client.get_prompt("here__greet", {})
        async with made.client(key="whole") as client:
            assert len((await client.list_resources()).resources) == 1


async def test_server_without_prompts_and_resources_lists_none() -> None:
    """The server offers tools only."""
    async with world(NONE, here=server("ok")) as made, made.client() as client:
        assert (await client.list_prompts()).prompts == [] and (await client.list_resources()).resources == []


@both_eras
async def test_hostile_prompts_and_resources_are_converted_to_valid_protocol(era: Era) -> None:
    """What does not fit is left out; each entry is there once, so that a client comes to the end of a list."""
    async with world(NONE, here=server(module="tests.mcp_server.hostile")) as made:
        for path, head, uri in (("", "here__", "twolane://here/file:///"), ("/here", "", "file:///")):
            async with made.client(era, path=path) as client:
                same, last = (await client.list_prompts()).prompts
                assert (same.name, last.name) == (f"{head}same", f"{head}last")
                assert same.title == SHOWN and "\u202e" not in (same.description or "\u202e")
                assert same.icons is None and same.meta == MARKS
                first, second = (await client.list_resources()).resources
                assert (first.uri, second.uri) == (f"{uri}same", f"{uri}last")
                assert (first.name, first.size, first.mime_type, first.icons) == (SHOWN, None, None, None)
                (template,) = (await client.list_resource_templates()).resource_templates
                assert template.uri_template == f"{uri}{{a}}"
                noted, kept = (await client.get_prompt(f"{head}same", {})).messages
                assert "its data is not base64" in getattr(noted.content, "text", "")
                assert kept.content.type == "image" and kept.content.meta == MARKS
                with pytest.raises(MCPError, match="service 'here' is left out: it has 2,000 messages"):
                    await client.get_prompt(f"{head}last", {})
                (content,) = (await client.read_resource(f"{uri}same")).contents
                assert content.meta == MARKS
                with pytest.raises(MCPError, match="its data is not base64"):
                    await client.read_resource(f"{uri}last")
