"""Messages as a model's API: its path, its key, what it learns, and the names of tools."""

from typing import Literal

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.api import MESSAGES
from gateway.model.http_request import build_list_request, build_model_request
from gateway.upstream.endpoint import Endpoint, ModelAccess
from tests.agent.models import exchange
from tests.model.test_upstream_client import target

ACCESS = ModelAccess(api="messages")
BEARER = b"Authorization: Bearer sk-client\r\n"


def endpoint(**facts: object) -> Endpoint:
    return Endpoint(name="up", host="h", port=1, authority=b"h", models=ACCESS, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base_path", "path"),
    [(b"", b"/v1/messages"), (b"/v1", b"/v1/messages"), (b"/anthropic", b"/anthropic/v1/messages")],
)
def test_request_goes_to_the_path_that_clients_of_the_api_use(base_path: bytes, path: bytes) -> None:
    request = build_model_request(
        exchange(b"X-One: 1\r\n"),
        target(base_path=base_path, api_key=b"k", models=ACCESS),
        frozenset(),
        credential=BEARER,
    )
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.splitlines()[:5] == [
        b"POST %b HTTP/1.1" % path,
        b"Host: h.example",
        b"X-One: 1",
        b"Anthropic-Version: 2023-06-01",
        b"X-Api-Key: k",
    ]
    assert b"sk-client" not in head and orjson.loads(body)["max_tokens"] == ACCESS.max_tokens


@pytest.mark.parametrize(
    ("clients", "lines", "sent"),
    [
        (BEARER, b"", b"X-Api-Key: sk-client\r\n"),
        (b"x-api-key: sk-client\r\n", b"", b"x-api-key: sk-client\r\n"),
        (BEARER, b"anthropic-version: 2023-06-01\r\n", BEARER),
        (b"", b"", b""),
        (b"Authorization: Basic eDp5\r\n", b"", b"Authorization: Basic eDp5\r\n"),
    ],
)
def test_clients_own_key_goes_where_the_api_wants_it(clients: bytes, lines: bytes, sent: bytes) -> None:
    """A client that speaks the API itself may have a token that only its own header takes."""
    assert MESSAGES.select_credential(clients, endpoint(), header=b"authorization", lines=lines) == sent


def test_configured_header_carries_the_gateways_key() -> None:
    own = endpoint(api_key=b"k", auth_header=b"authorization")
    assert MESSAGES.select_credential(BEARER, own, header=b"x-api-key", lines=b"") == b"Authorization: Bearer k\r\n"


def test_list_of_models_is_requested_whole() -> None:
    mine = target(models=ACCESS, api_key=b"k")
    request = build_list_request(mine, b"", credential=BEARER, header=b"authorization")
    assert request.startswith(b"GET /v1/models?limit=1000 HTTP/1.1\r\n") and b"X-Api-Key: k\r\n" in request


def test_refusal_of_a_temperature_is_learnt() -> None:
    body: Json = {"model": "m", "messages": [], "temperature": 0.5}
    refusal = b'{"type":"error","error":{"message":"temperature: this model does not support it"}}'
    learnt = MESSAGES.find_quirk(frozenset(), body, status=400, refusal=refusal)
    assert learnt == {"no_sampling"}
    assert "temperature" not in MESSAGES.build_body(body, learnt, ACCESS)
    assert MESSAGES.build_body(body, frozenset(), ACCESS)["temperature"] == 0.5
    assert MESSAGES.find_quirk(learnt, body, status=400, refusal=refusal) is None
    assert MESSAGES.find_quirk(frozenset(), body, status=429, refusal=refusal) is None
    assert MESSAGES.find_quirk(frozenset(), {"messages": []}, status=400, refusal=refusal) is None


@pytest.mark.parametrize("configured", ["adaptive", "budget"])
def test_refusal_of_a_kind_of_thinking_is_learnt(configured: Literal["adaptive", "budget"]) -> None:
    """Older models take a budget alone, and newer ones none."""
    access = ModelAccess(api="messages", thinking=configured)
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "low"}
    refusal = b'{"error":{"message":"adaptive thinking is not supported on this model"}}'
    if configured == "budget":
        refusal = b'{"error":{"message":"thinking.type.enabled is not supported for this model"}}'
    kinds = [MESSAGES.build_body(body, frozenset(), access)["thinking"]["type"]]
    learnt = MESSAGES.find_quirk(frozenset(), body, status=400, refusal=refusal)
    assert learnt == {"other_thinking"}
    kinds.append(MESSAGES.build_body(body, learnt, access)["thinking"]["type"])
    assert kinds == (["adaptive", "enabled"] if configured == "adaptive" else ["enabled", "adaptive"])
    for other in (
        {**body, "thinking": {"type": "adaptive"}},
        {**body, "messages_api": {"thinking": {}}},
        {"messages": []},
    ):
        assert MESSAGES.find_quirk(frozenset(), other, status=400, refusal=refusal) is None


def test_refusal_of_turns_of_the_system_is_learnt() -> None:
    late: Json = {"role": "system", "content": "It is late."}
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, late]}
    for words in (
        b"role 'system' is not supported on this model",
        b"messages.1.role: Input should be 'user' or 'assistant'",
    ):
        learnt = MESSAGES.find_quirk(frozenset(), body, status=400, refusal=words)
        assert learnt == {"no_system_role"}
        assert [turn["role"] for turn in MESSAGES.build_body(body, learnt, ACCESS)["messages"]] == ["user"]
        first: Json = {**body, "messages": [late, late, {"role": "user", "content": "Hi"}]}
        assert MESSAGES.find_quirk(frozenset(), first, status=400, refusal=words) is None
    assert [turn["role"] for turn in MESSAGES.build_body(body, frozenset(), ACCESS)["messages"]] == ["user", "system"]


def test_tools_get_their_own_names_again() -> None:
    body: Json = {"tools": [{"type": "function", "function": {"name": "files.read"}}]}
    (tool,) = MESSAGES.build_body(body, frozenset(), ACCESS)["tools"]
    told: list[Chunk] = []
    call = {"index": 0, "function": {"name": tool["name"], "arguments": ""}}
    MESSAGES.wrap_emit(told.append, body, frozenset())({"choices": [{"delta": {"tool_calls": [call]}}]})
    (chunk,) = told
    assert isinstance(chunk, dict)
    assert chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "files.read"
    plain: Json = {"tools": [{"type": "function", "function": {"name": "read"}}]}
    emit = told.append
    assert MESSAGES.wrap_emit(emit, plain, frozenset()) is emit
