"""Requests of the Responses API for tests, and what becomes of them."""

import json
from collections.abc import Mapping, Sequence

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.conversation import ResponseAsked, resolve_request
from gateway.dialects.responses.request import ResponseRequest, parse_request

HI: Json = {"type": "message", "role": "user", "content": "Hi"}
CALL: Json = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at":"sky"}'}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
FUNCTION: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
QUESTION: Json = {
    "type": "mcp_approval_request",
    "id": "ap_1",
    "server_label": "gateway",
    "name": "run_command",
    "arguments": '{"command":"ls"}',
}
APPROVAL: Json = {"type": "mcp_approval_response", "approval_request_id": "ap_1", "approve": True}


def request(*items: object, **fields: object) -> ResponseRequest:
    """Return the request with these items, or with one message."""
    body = {"model": "m", "input": list(items) or [HI], **fields}
    return parse_request(json.dumps(body).encode(), needs_model=True)


def asked(
    *items: object, earlier: Sequence[Json] = (), referenced: Mapping[str, Json] | None = None, **fields: object
) -> ResponseAsked:
    """Return what models are asked."""
    return resolve_request(request(*items, **fields), earlier=earlier, referenced=referenced, unseal=opened)


def messages(*items: object, earlier: Sequence[Json] = (), **fields: object) -> list[Json]:
    """Return the messages for models."""
    found: list[Json] = asked(*items, earlier=earlier, **fields).body["messages"]
    return found


def refusal(*items: object, earlier: Sequence[Json] = (), **fields: object) -> GatewayError:
    """Return the error of a request that is refused, which has a status and repeats no long value."""
    with pytest.raises(GatewayError) as caught:
        asked(*items, earlier=earlier, **fields)
    error = caught.value
    assert error.facts.status in (400, 404) and error.facts.source == "client"
    assert len(error.message) < 400 and len(error.param or "") < 200
    return error


def opened(sealed: str) -> str:
    """Open a summary as these tests seal one."""
    if not sealed.startswith("sealed:"):
        raise ValueError("it is none of ours")
    return sealed.removeprefix("sealed:")
