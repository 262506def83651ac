"""The tools that a request may use, and the tool that a name means."""

import pytest

from gateway.mcp_server.listing import AccessFilter, ToolOffer
from tests.mcp_server.serving import Era, both_eras, server, world

ECHO = ToolOffer("here.echo", "here__echo", "echo", "here", {})
NOTE = ToolOffer("demo_note", "demo_note", "demo_note", None, {})


@pytest.mark.parametrize(
    ("narrowing", "echo", "note", "service"),
    [
        (AccessFilter(), True, True, True),
        (AccessFilter(((), ())), True, True, True),
        (AccessFilter((("here.*",), ())), True, False, True),
        (AccessFilter((("here.*",), ("here.echo",))), True, False, False),
        (AccessFilter((("here.*",), ("there.*",))), False, False, False),
        (AccessFilter((), "here"), True, False, True),
        (AccessFilter((), "there"), False, False, False),
        (AccessFilter((("*",),)), True, True, True),
        (AccessFilter((("demo_note",),)), False, True, False),
    ],
)
def test_access_filter_intersects_all_its_lists(narrowing: AccessFilter, echo: bool, note: bool, service: bool) -> None:
    """An empty one does not; a service as a whole needs all of its tools."""
    assert (narrowing.allows(ECHO), narrowing.allows(NOTE)) == (echo, note)
    assert narrowing.allows_service("here") == service


@pytest.mark.parametrize(
    ("patterns", "whole"),
    [
        (["here.*"], True),
        (["here*"], True),
        (["h*"], True),
        (["**"], True),
        (["*.*"], True),
        (["[gh]er?.*"], True),
        (["demo_note", "here.*"], True),
        (["here.?"], False),
        (["here.?*"], False),
        (["here.[*]"], False),
        (["here.[*"], False),
        (["here.e*"], False),
        (["here.*o"], False),
        (["*.?"], False),
        (["here.a*", "here.b*"], False),
        (["there.*"], False),
    ],
)
def test_filter_allows_a_service_only_with_a_complete_glob(patterns: list[str], whole: bool) -> None:
    """Not with those that look like its glob."""
    assert AccessFilter((patterns,)).allows_service("here") is whole
    assert AccessFilter((["*"], patterns)).allows_service("here") is whole


@both_eras
async def test_clients_get_long_descriptions_whole(era: Era) -> None:
    """Those that real servers have: what a tool needs may stand at the end."""
    async with world(here=server("long-description", "7000")) as made, made.client(era) as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "here__echo")
        assert tool.description == ("word " * 1400).strip()


@both_eras
async def test_hostile_tool_metadata_is_sanitised(era: Era) -> None:
    """Titles are one line, hints are true or false, and icons are pictures."""
    async with world(here=server(module="tests.mcp_server.hostile")) as made, made.client(era) as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "here__marks")
        assert tool.title == "x This call has NOT run held because : y[2Jz" and tool.icons is None
        assert tool.description is not None and not {"\u202e", "\u2028", "\x1b", "\u200b"} & set(tool.description)
        assert tool.annotations is not None and (tool.annotations.title or "\n").isprintable()
        hints = tool.annotations.model_dump(exclude_none=True, by_alias=True)
        assert hints == {"title": tool.annotations.title, "destructiveHint": False}
