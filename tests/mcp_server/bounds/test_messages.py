"""The check of a request: texts, numbers, and their sizes."""

import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.mcp_server.bounds.messages import SHORT, STATE, check_message
from tests.mcp_server.serving import World, world

PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "probe", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}


async def called(made: World, params: str, name: str, request_id: str = "1") -> Any:
    """Send a call with this JSON text in its parameters, and return what is answered."""
    body = f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call", "params": {params}}}'
    fields = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    return await made.sent("/mcp", body, **fields)


async def test_what_no_json_can_hold_is_refused(calm: dict[str, object]) -> None:
    """With the place; the gateway does not fail, and nothing runs."""
    meta = json.dumps(META)
    async with world({"search_over": 3}, **calm) as made:
        for inner, place, why in (
            ('{"text": "\\ud800"}', "params.arguments.text", "surrogate"),
            ('{"text": {"a": ["x", {"b": "\\udfff!"}]}}', "params.arguments.text.a[1].b", "surrogate"),
            ('{"text": {"\\ud800": 1}}', "params.arguments.text", "surrogate"),
            ('{"text": NaN}', "params.arguments.text", "finite"),
            ('{"text": [1, -1e999]}', "params.arguments.text[1]", "finite"),
        ):
            answer = await called(
                made, f'{{"name": "here__echo", "arguments": {inner}, "_meta": {meta}}}', "here__echo"
            )
            error = answer["error"]
            assert error["code"] == -32602 and why in error["message"] and error["data"]["param"] == place
            by_call = (
                f'{{"name": "call_tool", "arguments": {{"name": "here__echo", "arguments": {inner}}}, "_meta": {meta}}}'
            )
            error = (await called(made, by_call, "call_tool"))["error"]
            assert error["data"]["param"] == place.replace("arguments", "arguments.arguments", 1)
        key = meta[:-1] + ', "twolane/idempotency-key": "\\ud800"}'
        answer = await called(made, f'{{"name": "here__echo", "arguments": {{}}, "_meta": {key}}}', "here__echo")
        assert answer["error"]["data"]["param"] == "params._meta.twolane/idempotency-key"
        assert (await made.get("/context/runs"))["data"] == []
        assert "Traceback" not in made.gateway.logged()


async def test_short_texts_have_a_limit() -> None:
    """The error names it."""
    long = "x" * (SHORT + 1)
    async with world() as made:
        for params, request_id, place, most in (
            ({"name": "a", "_meta": META}, long, "id", SHORT),
            ({"name": "a", "_meta": {**META, "progressToken": long}}, 1, "params._meta.progressToken", SHORT),
            ({"name": "a", "requestState": "x" * (STATE + 1), "_meta": META}, 1, "params.requestState", STATE),
        ):
            error = (await called(made, json.dumps(params), "a", json.dumps(request_id)))["error"]
            assert (error["code"], error["data"]["param"]) == (-32602, place)
            assert f"'{place}' is longer than {most} characters" in error["message"]
    with pytest.raises(GatewayError, match=r"'params\.name' is longer"):
        check_message(1, {"name": long})


def test_whole_values_pass() -> None:
    """However deeply they are nested."""
    deep: Any = "\U0001f600\u00fc"
    for _ in range(5000):
        deep = [deep]
    check_message("1", None)
    check_message(1, {"name": "a", "arguments": {"deep": deep, "number": 1.5, "none": None, "ok": True}})
