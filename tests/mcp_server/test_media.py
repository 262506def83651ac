"""The media types that a client reads: it gets its answer in one of them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import pytest

from gateway.mcp_server.media import MediaTypes, read_accept
from tests.mcp_server.serving import INITIALIZE, World, world

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize(
    ("accept", "has_json", "has_events"),
    [
        (None, True, True),
        ("*/*", True, True),
        (f"{JSON}, {EVENTS}", True, True),
        (JSON, True, False),
        ("Application/JSON; charset=utf-8", True, False),
        ("application/*", True, False),
        ("text/*;q=0.5", False, True),
        (f"*/*, {EVENTS};q=0", True, False),
        (f"{JSON};q=0.000, */*;q=0.1", False, True),
        ("text/html", False, False),
    ],
)
def test_accept_header_is_decided_by_its_most_specific_range(
    accept: str | None, has_json: bool, has_events: bool
) -> None:
    """As RFC 9110 has it; a weight of zero refuses."""
    assert read_accept(accept) == MediaTypes(json=has_json, events=has_events)


async def _sent(
    made: World, message: object, accept: str | None, **fields: str
) -> tuple[int, str, Mapping[str, str], Any]:
    """Send a message, and return the status, the type, the fields and the message of the answer."""
    headers = {**fields, **({} if accept is None else {"Accept": accept})}
    skipped = ("Accept",) if accept is None else ()
    async with (
        aiohttp.ClientSession(made.gateway.base_url, skip_auto_headers=skipped) as http,
        http.post("/mcp", json=message, headers=headers) as response,
    ):
        text = await response.text()
        if response.content_type == EVENTS:
            (text,) = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        return response.status, response.content_type, response.headers, json.loads(text) if text else None


@pytest.mark.parametrize(
    ("accept", "kind"), [(JSON, JSON), (EVENTS, EVENTS), (None, EVENTS), ("application/*", JSON), ("*/*", EVENTS)]
)
async def test_session_responses_use_the_accepted_media_type(
    calm: dict[str, object], accept: str | None, kind: str
) -> None:
    """The older era: a call, and an error."""
    async with world(**calm) as made:
        status, found, fields, opened = await _sent(made, INITIALIZE, accept)
        assert (status, found, opened["id"]) == (200, kind, 1)
        session = {"Mcp-Session-Id": fields["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        assert (await _sent(made, {"jsonrpc": "2.0", "method": "notifications/initialized"}, accept, **session))[
            0
        ] == 202
        call = {"name": "here__echo", "arguments": {"text": "hi"}}
        status, found, _, answer = await _sent(
            made, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, accept, **session
        )
        assert (status, found, answer["result"]["content"][0]["text"]) == (200, kind, "hi")
        unknown = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "nope"}}
        answer = (await _sent(made, unknown, accept, **session))[3]
        assert answer["id"] == 3 and "no such tool" in answer["error"]["message"]


@pytest.mark.parametrize(("accept", "kind"), [(JSON, JSON), (EVENTS, EVENTS)])
async def test_modern_responses_use_the_accepted_media_type(calm: dict[str, object], accept: str, kind: str) -> None:
    """Whatever the SDK writes."""
    call = {"name": "here__echo", "arguments": {"text": "hi"}, "_meta": META}
    fields = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "here__echo"}
    async with world(**calm) as made:
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        status, found, _, answer = await _sent(made, message, accept, **fields)
        assert (status, found, answer["result"]["content"][0]["text"]) == (200, kind, "hi")


async def test_progress_is_omitted_for_clients_without_event_streams(calm: dict[str, object]) -> None:
    """The result comes alone."""
    arguments = {"steps": 3, "pause": 0}
    call = {"name": "here__progress", "arguments": arguments, "_meta": {**META, "progressToken": "p"}}
    fields = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "here__progress"}
    async with world(**calm) as made:
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        status, found, _, answer = await _sent(made, message, JSON, **fields)
        assert (status, found, answer["id"], answer["result"]["isError"]) == (200, JSON, 2, False)


async def test_client_accepting_only_json_is_not_questioned_on_its_stream() -> None:
    """The question could not reach it: the call waits for a person elsewhere, and its result comes as JSON."""
    async with world() as made:
        opening = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": {"elicitation": {}}}}
        fields = (await _sent(made, opening, JSON))[2]
        session = {"Mcp-Session-Id": fields["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        await _sent(made, {"jsonrpc": "2.0", "method": "notifications/initialized"}, JSON, **session)
        call = {"name": "here__echo", "arguments": {"text": "hi"}}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        waiting = asyncio.create_task(_sent(made, message, JSON, **session))
        await made.decide("approve")
        status, found, _, answer = await waiting
        assert (status, found, answer["result"]["content"][0]["text"]) == (200, JSON, "hi")


async def test_stream_request_without_event_stream_acceptance_is_refused() -> None:
    """A subscription is nothing but a stream, and so is a GET; a client that reads neither type gets nothing."""
    fields = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"_meta": META}}
    async with world() as made:
        assert (await _sent(made, listen, JSON, **fields))[0] == 406
        assert (await _sent(made, INITIALIZE, "text/html"))[0] == 406
        session = await made.session()
        http = aiohttp.ClientSession(made.gateway.base_url)
        async with http, http.get("/mcp", headers={**session, "Accept": JSON}) as response:
            assert response.status == 406
