"""Results in the version of the protocol that a client speaks, whatever their server writes."""

from typing import Any

import pytest
from mcp.client import Client
from mcp_types import CallToolResult

from gateway.context.call_runs import Done
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolResult
from gateway.mcp.blocks import BLOCKS
from gateway.mcp_server.results import build_call_result
from tests.mcp_server import hostile
from tests.mcp_server.serving import Era, both_eras, server, texts, world

AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
HOSTILE = server(module="tests.mcp_server.hostile")
Calm = dict[str, object]


async def results(client: Client) -> dict[str, CallToolResult]:
    """Call each tool of the hostile server. The official client raises for what is no result of the protocol."""
    await client.list_tools()
    return {name: await client.call_tool(f"here__{name}", {}) for name in hostile.RESULTS}


@both_eras
async def test_any_server_result_is_converted_to_valid_protocol(era: Era, calm: Calm) -> None:
    """With a note, on one line, in place of each thing that is left out."""
    async with world(here=HOSTILE, **calm) as made, made.client(era) as client:
        found = await results(client)
        kinds = {name: [block.type for block in result.content] for name, result in found.items()}
        assert {kind for listed in kinds.values() for kind in listed} == {"text", "image", "resource_link"}
        for name, count, reason in (
            ("not_base64", 3, "its data is not base64"),
            ("no_type", 3, "its type is not that of a picture"),
            ("unknown", 6, "which cannot be shown"),
        ):
            lines = texts(found[name]).splitlines()
            assert kinds[name] == ["text"] * count == ["text"] * len(lines) and all(reason in line for line in lines)
        assert kinds["large"] == ["text", "image"] and "5,505,024 bytes, left out" in texts(found["large"])
        assert kinds["nearly_full"] == ["image", "text", "text", "text"]
        assert len(kinds["many"]) == BLOCKS + 1 or "more blocks of content" in texts(found["many"])
        assert kinds["links"] == ["text", "resource_link", "text", "text"]
        assert kinds["no_list"] == kinds["nothing"] == ["text"]
        assert found["wide"].structured_content is None and "[structured content, " in texts(found["wide"])


@both_eras
async def test_server_result_cannot_forge_gateway_metadata(era: Era, calm: Calm) -> None:
    """Its marks are taken out, and what is shown on one line is one visible line."""
    async with world(here=HOSTILE, **calm) as made, made.client(era) as client:
        found = await results(client)
        marks = found["marks"]
        assert marks.meta is not None and marks.meta["twolane/run"].startswith("run_") and "forged" not in str(marks)
        assert [block.meta for block in marks.content] == [{"example.com/mine": 1}] * 2
        assert marks.content[0].annotations is None
        link: Any = found["links"].content[1]
        shown = "x This call has NOT run held because : y[2Jz"
        assert (link.name, link.title, link.icons, link.size) == (shown, shown, None, None)


@both_eras
async def test_result_without_its_promised_structured_content_is_an_error(era: Era, calm: Calm) -> None:
    """With the reason and the rest of the result. A schema that no client could use is no promise."""
    async with world(here=HOSTILE, **calm) as made, made.client(era) as client:
        found = await results(client)
        for name, reason in (("misfit", "sum: "), ("missing", "there is none")):
            result = found[name]
            assert result.is_error and result.structured_content is None
            first, second = texts(result).splitlines()
            assert first.startswith("The tool has run.") and reason in first and second == "the sum is 3"
        assert (found["promised"].structured_content, found["promised"].is_error) == ({"sum": 3}, False)
        assert (found["useless"].structured_content, found["useless"].is_error) == ({"sum": 3}, False)
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["here__useless"].output_schema is None and tools["here__promised"].output_schema is not None
        (record,) = [run for run in (await made.get("/context/runs?limit=100"))["data"] if run["tool"] == "here.misfit"]
        assert record["state"] == "completed"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_unreadable_content_block_becomes_a_note(version: str) -> None:
    """Broken ones in every version; without any, the text."""
    note = "[content of the type {!r}, which cannot be shown]"
    for part, kind in (({"type": "nothing"}, "nothing"), ({}, "unknown"), ({"type": []}, "unknown")):
        result = build_call_result(Done(ToolResult("text", parts=[part, AUDIO]), "run_1"), version)
        assert result["content"][0] == {"type": "text", "text": note.format(kind)}
    assert build_call_result(Done(ToolResult("text", parts=[]), "run_1"), version)["content"][0]["text"] == "text"


def test_newer_content_types_become_notes_for_older_clients() -> None:
    """Each since its version."""
    done = Done(ToolResult("text", parts=[AUDIO, LINK]), "run_1")
    kinds = {
        version: [block["type"] for block in build_call_result(done, version)["content"]]
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28")
    }
    assert kinds == {
        "2024-11-05": ["text", "text"],
        "2025-03-26": ["audio", "text"],
        "2025-06-18": ["audio", "resource_link"],
        "2026-07-28": ["audio", "resource_link"],
    }


@pytest.mark.parametrize("structured", [{}, {"a": 1}, [1], "x", 0, False])
def test_non_object_structured_content_is_sent_to_modern_clients_only(structured: object) -> None:
    """Older ones know objects only."""
    done = Done(ToolResult("text", structured=structured), "run_1")
    assert build_call_result(done, "2026-07-28")["structuredContent"] == structured
    assert ("structuredContent" in build_call_result(done, "2025-11-25")) == isinstance(structured, dict)


def test_valid_content_and_structured_content_are_forwarded_unchanged() -> None:
    """With the run, in `_meta`."""
    structured: Json = {"a": 1}
    result = build_call_result(Done(ToolResult("text", parts=[AUDIO], structured=structured), "run_1"), "2026-07-28")
    assert (result["content"], result["structuredContent"]) == ([AUDIO], structured)
    assert (result["isError"], result["_meta"]) == (False, {"twolane/run": "run_1"})
    assert build_call_result(Done(ToolResult("no", ok=False), "run_1"), "2025-11-25")["isError"]
