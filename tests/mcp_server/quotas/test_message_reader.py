"""The reading of a message: JSON with one reading, and the sizes of short texts."""

import json
from typing import Any

import pytest

from gateway.contracts.errors import GatewayError
from gateway.jsontext.strict_json import DEPTH_LIMIT
from gateway.mcp_server.quotas.message_reader import SHORT, STATE, check_message, read_message
from tests.mcp_server.serving import ACCEPT, OLDER, World, texts, world

PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "probe", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}


async def called(made: World, params: str, name: str, request_id: str = "1", *, version: str = "2026-07-28") -> Any:
    """Send a call with this JSON text in its parameters, in the older era within a session; return its refusal."""
    body = f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call", "params": {params}}}'
    fields = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        **(await made.session() if version == OLDER else {}),
    }
    status, answer = await made.sent("/mcp", body, **fields)
    assert status == 400
    return answer


@pytest.mark.parametrize("version", ["2026-07-28", OLDER])
async def test_ambiguous_json_message_is_refused_with_its_place(calm: dict[str, object], version: str) -> None:
    """With the reason and the place; the gateway does not fail, and nothing runs."""
    meta = json.dumps(META)
    deep = "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT
    async with world(**calm) as made:
        for inner, place, why in (
            ('{"text": "\\ud800"}', "params.arguments.text", "half of a character"),
            ('{"text": {"a": ["x", {"b": "\\udfff!"}]}}', "params.arguments.text.a[1].b", "half of a character"),
            ('{"text": {"\\ud800": 1}}', "params.arguments.text", "half of a character"),
            ('{"text": NaN}', "params.arguments.text", "NaN is not JSON"),
            ('{"text": [1, -1e400]}', "params.arguments.text[1]", "a number is too large"),
            ('{"text": [1, 18446744073709551616]}', "params.arguments.text[1]", "a number is too large"),
            ('{"text": "a", "text": "b"}', "text", "the key 'text' twice"),
            ('{"text": "a", "\\u0074ext": "b"}', "text", "the key 'text' twice"),
            (f'{{"text": {deep}}}', None, f"nested more than {DEPTH_LIMIT} levels"),
            ('{"text": "a"', None, "The message is not JSON"),
        ):
            params = f'{{"name": "here__echo", "arguments": {inner}, "_meta": {meta}}}'
            answer = await called(made, params, "here__echo", version=version)
            error = answer["error"]
            assert (answer["jsonrpc"], answer["id"], error["code"]) == ("2.0", None, -32700), answer
            assert why in error["message"] and error["data"].get("param") == place
            assert error["data"]["code"] == "invalid_json"
        twice = f'{{"name": "here__echo", "name": "here__pid", "arguments": {{}}, "_meta": {meta}}}'
        assert "'name' twice" in (await called(made, twice, "here__echo", version=version))["error"]["message"]
        assert (await made.get("/context/runs"))["data"] == []
        assert "Traceback" not in made.gateway.get_log()


async def test_message_body_must_be_utf_8_without_bom() -> None:
    """A mark of the order of bytes is no JSON."""
    for content, why in (
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("{}".encode("utf-16"), "not UTF-8"),
    ):
        with pytest.raises(GatewayError, match=why):
            await read_message(content, most_values=100)


async def test_overlong_short_text_is_refused_and_named() -> None:
    """The error names it."""
    long = "x" * (SHORT + 1)
    async with world() as made:
        for params, request_id, place, most in (
            ({"name": "a", "_meta": META}, long, "id", SHORT),
            ({"name": "a", "_meta": {**META, "progressToken": long}}, 1, "params._meta.progressToken", SHORT),
            ({"name": "a", "requestState": "x" * (STATE + 1), "_meta": META}, 1, "params.requestState", STATE),
        ):
            answer = await called(made, json.dumps(params), "a", json.dumps(request_id))
            error = answer["error"]
            assert answer["id"] == (None if request_id == long else request_id)
            assert (error["code"], error["data"]["param"]) == (-32600 if place == "id" else -32602, place)
            assert f"'{place}' is longer than {most} characters" in error["message"]
    with pytest.raises(GatewayError, match=r"'params\.name' is longer"):
        check_message({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": long}})


async def test_overlong_tool_name_in_call_tool_is_refused(calm: dict[str, object]) -> None:
    """As that of any other tool."""
    async with world({"search_over": 3}, **calm) as made, made.client() as client:
        result = await client.call_tool("call_tool", {"name": "x" * (SHORT + 1)})
        assert result.is_error and f"name is longer than {SHORT} characters" in texts(result)


async def test_valid_json_values_are_read_unchanged() -> None:
    """As they are, also those that are no request."""
    deep: Any = "\U0001f600\u00fc"
    for _ in range(DEPTH_LIMIT - 3):
        deep = [deep]
    arguments = {"deep": deep, "number": -0.5, "large": (1 << 64) - 1, "none": None, "ok": True}
    for message in (
        {"id": 1, "params": {"name": "a", "arguments": arguments}},
        {"id": "1"},
        {"params": [1]},
        [1],
        None,
    ):
        assert await read_message(json.dumps(message).encode(), most_values=200) == message


@pytest.mark.parametrize("version", ["2026-07-28", OLDER])
async def test_malformed_message_is_refused_with_its_json_rpc_code(version: str) -> None:
    """With the code of JSON-RPC for it, and words for people: not with those of a library."""
    whole = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with world() as made:
        fields = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/list", **ACCEPT}
        for message, code, why in (
            ([whole], -32600, "a batch"),
            ([], -32600, "a batch"),
            (5, -32600, "no JSON object"),
            ({**whole, "jsonrpc": "1.0"}, -32600, "'jsonrpc'"),
            ({**whole, "method": 5}, -32600, "'method'"),
            ({"jsonrpc": "2.0", "id": 1}, -32600, "no 'method' and is no response"),
            ({"jsonrpc": "2.0", "id": 1, "result": 5}, -32600, "no response"),
            ({"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}}, -32600, "no response"),
            ({**whole, "params": [1]}, -32602, "'params'"),
        ):
            status, answer = await made.post("/mcp", message, **fields)
            assert (status, answer["error"]["code"]) == (400, code), answer
            assert why in answer["error"]["message"] and "validation error" not in answer["error"]["message"]


def test_responses_and_notifications_are_accepted_messages() -> None:
    """Also a response to a question that the gateway put, and one with an error."""
    for message in (
        {"id": 1, "method": "ping"},
        {"method": "notifications/initialized"},
        {"id": "a", "method": "tools/list", "params": None},
        {"id": 0, "result": {}},
        {"id": None, "error": {"code": -1, "message": "no"}},
    ):
        check_message({"jsonrpc": "2.0", **message})


@pytest.mark.parametrize("version", ["2026-07-28", OLDER])
async def test_the_id_of_a_request_is_a_string_or_an_integer(calm: dict[str, object], version: str) -> None:
    """Any other is refused, and no call is lost without a word."""
    params = json.dumps({"name": "here__echo", "arguments": {"text": "a"}, "_meta": META})
    async with world(**calm) as made:
        for request_id in ("null", "true", "[1]", "9.5", "9.0", "1e2"):
            answer = await called(made, params, "here__echo", request_id, version=version)
            assert (answer["id"], answer["error"]["code"], answer["error"]["data"]["param"]) == (None, -32600, "id")
            expected = "The 'id' of a request is a string or an integer: send one of these."
            assert answer["error"]["message"] == expected
        assert (await made.get("/context/runs"))["data"] == []
