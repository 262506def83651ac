"""Refusals and failures, and the errors that a client or a model gets."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from functional.through import ask, error_of, post
from unanswered_ports import refusing_port

from .models import Answer, Json, call, calls, native, refuses, says
from .talking import CHAT, desk, talking

HELLO = [{"role": "user", "content": "Hello?"}]
READ = calls("file_operations", operation="read", path="notes.txt")

# What a client sends.

BODIES: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b'{"messages": [', "invalid_json", None),
    (b"[]", "invalid_json", None),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}', "invalid_json", None),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "invalid_json", None),
    (b'{"messages": [{"role": "user", "content": %b}]}' % (b"[" * 300 + b"]" * 300), "invalid_json", None),
    (b'{"model": "m"}', "missing_field", "messages"),
    (b'{"model": "m", "messages": []}', "invalid_field", "messages"),
    (b'{"model": "m", "messages": "Hi"}', "invalid_field", "messages"),
    (b'{"model": "m", "messages": ["Hi"]}', "invalid_field", "messages[0]"),
    (b'{"model": "m", "messages": [{"content": "Hi"}]}', "missing_field", "messages[0].role"),
    (b'{"model": "m", "messages": [{"role": "robot", "content": "Hi"}]}', "invalid_field", "messages[0].role"),
    (b'{"messages": [{"role": "user", "content": "Hi"}]}', "missing_field", "model"),
    (b'{"messages": [{"role": "user", "content": "Hi"}], "model": ["m"]}', "invalid_field", "model"),
    (b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": "yes"}', "invalid_field", "stream"),
    (b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2}', "unsupported_parameter", "n"),
    (b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": 5}', "invalid_field", "tools"),
]


@pytest.mark.parametrize(("body", "code", "param"), BODIES)
async def test_invalid_request_body_returns_400_with_its_position(body: bytes, code: str, param: str | None) -> None:
    """Told with its place, before any model is asked; also where a stream was wanted."""
    async with talking() as world:
        answer = await world.post(body)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)
        assert answer.error["type"] == "invalid_request_error"
        assert not world.model.asked


async def test_oversized_body_is_refused_with_the_limit_name() -> None:
    """The limit is named."""
    async with talking(limits={"context_body": "2KiB"}) as world:
        answer = await world.chat("x" * 3000)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert "limits.context_body" in answer.error["message"]
        assert not world.model.asked


@pytest.mark.parametrize("path", ["/context/v1/chat/completions", "/context/explain"])
@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": [{"role": "user", "content": "x"}] * 50},
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 50}]},
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "metadata": {str(n): n for n in range(100)}},
    ],
)
async def test_body_with_too_many_values_is_refused_with_the_limit_name(path: str, body: Json) -> None:
    """Counted before it is parsed; the limit is named. A long text is one value, whatever stands in it."""
    async with talking(says("Hi"), limits={"context_values": 100}) as world:
        answer = await world.post(body, path=path)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert "limits.context_values (100)" in answer.error["message"]
        assert (await world.chat('[1, 2], {"a": "b"}\n' * 10_000)).text == "Hi"


HEADERS: list[tuple[tuple[bytes, ...], str, str]] = [
    ((b"X-Context-Chain: nobody",), "invalid_header", "x-context-chain"),
    ((b"X-Context-Prompt: nobody",), "prompt_not_found", "x-context-prompt"),
    ((b"X-Context-Colour: red",), "invalid_header", "x-context-colour"),
    ((b"X-Context-Approvals: maybe",), "invalid_header", "x-context-approvals"),
    ((b"X-Context-Tools: execute_sq",), "invalid_header", "x-context-tools"),
    ((b"X-Context-Events: yes",), "invalid_header", "x-context-events"),
    ((b"X-Context-Mode: both",), "invalid_header", "x-context-mode"),
    ((b"X-Context-User:",), "invalid_header", "x-context-user"),
    ((b"X-Context-Conversation: " + b"x" * 257,), "invalid_header", "x-context-conversation"),
    ((b"X-Context-Chain: assistant", b"X-Context-Chain: assistant"), "invalid_header", "x-context-chain"),
    ((b"X-Context-Events: 1", b"x-context-events: 0"), "invalid_header", "x-context-events"),
]


@pytest.mark.parametrize("path", [CHAT, "/context/chat/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("lines", "code", "param"), HEADERS)
async def test_invalid_context_header_is_refused(lines: tuple[bytes, ...], code: str, param: str, path: str) -> None:
    """Unknown, without a value, with two: never guessed at, on whichever path."""
    body = json.dumps({"model": "m", "messages": HELLO}).encode()
    async with talking() as world:
        response = await ask(world.gateway, post(body, path.encode(), *lines).replace(b"gw.example", b"localhost"))
        error = error_of(response)
        assert (error["code"], error["param"]) == (code, param)
        assert response.status == (404 if code == "prompt_not_found" else 400)
        assert not world.model.asked


KEYS = [
    {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": scopes}
    for name, scopes in (("talker", ["context"]), ("passer", ["passthrough"]))
]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "missing_api_key"),
        ({"X-Gateway-Key": "nobody"}, 401, "invalid_api_key"),
        ({"X-Gateway-Key": "passer"}, 403, "scope_missing"),
        ({"Authorization": "Bearer nobody"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer passer"}, 403, "scope_missing"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/chat/completions", "/context/models"])
async def test_caller_without_the_context_scope_is_refused(
    headers: dict[str, str], status: int, code: str, path: str
) -> None:
    """The context lane wants its own scope, on each of its pages."""
    async with talking(keys=KEYS) as world:
        given = {"X-Context-Mode": "context", **headers}
        answer = await (world.get(path, **given) if "models" in path else world.chat(path=path, headers=given))
        assert (answer.status, answer.error["code"]) == (status, code)
        assert not world.model.asked


async def test_gateway_key_is_not_forwarded_with_client_credentials() -> None:
    """The key stays here; the client's own credential goes on."""
    async with talking(says("Hi."), keys=KEYS) as world:
        headers = {"X-Gateway-Key": "talker", "Authorization": "Bearer mine", "X-Context-Conversation": "c", "X-A": "b"}
        assert (await world.chat(headers=headers)).text == "Hi."
        (request,) = world.model.upstream.requests
        assert request.list_values(b"authorization") == [b"Bearer mine"] and request.list_values(b"x-a") == [b"b"]
        assert b"talker" not in request.raw and b"x-context" not in request.raw.lower()


async def test_gateway_key_of_the_client_is_not_forwarded() -> None:
    """The upstream needs none: it gets no credential."""
    async with talking(says("Hi."), keys=KEYS) as world:
        assert (await world.chat(headers={"Authorization": "Bearer talker"})).text == "Hi."
        (request,) = world.model.upstream.requests
        assert not request.list_values(b"authorization") and b"talker" not in request.raw


async def test_upstream_key_replaces_the_key_of_the_caller() -> None:
    """With a key for the upstream, the caller's key comes in Authorization, and never leaves."""
    async with talking(says("Hi."), keys=KEYS, upstream={"api_key": "upstream-key"}) as world:
        assert (await world.chat(headers={"Authorization": "Bearer talker"})).text == "Hi."
        (request,) = world.model.upstream.requests
        assert request.list_values(b"authorization") == [b"Bearer upstream-key"]
        assert b"talker" not in request.raw


# What a model's server answers.


@pytest.mark.parametrize(
    ("theirs", "status", "kind", "code"),
    [
        (400, 400, "invalid_request_error", "upstream_rejected"),
        (401, 401, "authentication_error", "upstream_refused"),
        (403, 403, "permission_error", "upstream_refused"),
        (404, 404, "not_found_error", "upstream_rejected"),
        (422, 422, "invalid_request_error", "upstream_rejected"),
        (429, 429, "rate_limit_error", "upstream_limited"),
        (302, 502, "server_error", "upstream_error"),
        (500, 500, "server_error", "upstream_error"),
        (503, 503, "server_error", "upstream_error"),
        (529, 529, "server_error", "upstream_error"),
    ],
)
async def test_upstream_refusal_is_reported_with_status_and_message(
    theirs: int, status: int, kind: str, code: str
) -> None:
    """Its status and its message are told, also where a stream was wanted: SDKs try again by themselves."""
    async with talking(*[refuses(theirs, "the reason")] * 3) as world:
        for more in ({}, {"stream": True}, {"stream": True, "response_format": {"type": "json_object"}}):
            answer = await world.chat(**more)
            assert (answer.status, answer.error["type"], answer.error["code"]) == (status, kind, code)
            assert f"'up' answered {theirs}: the reason" in answer.error["message"]
            assert "x-should-retry" not in answer.headers


async def test_unreachable_upstream_is_answered_with_502() -> None:
    """502, as in the other lane."""
    with refusing_port() as port:
        async with talking(upstream={"base_url": f"http://127.0.0.1:{port}/v1"}) as world:
            answer = await world.chat()
            assert (answer.status, answer.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("phase", ["head", "body"])
async def test_slow_upstream_is_answered_with_504(phase: str) -> None:
    """504, once it was silent for as long as the operator allows."""
    never = asyncio.Event()
    slow = says("Hi", never) if phase == "body" else says("Hi", before=never)
    async with talking(slow, upstream={"timeouts": {"first_byte": "100ms", "idle": "100ms"}}) as world:
        answer = await world.chat()
        assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
        await world.model.upstream.wait_open(0)


async def test_upstream_key_is_removed_from_error_messages() -> None:
    """Some do; it is told without it."""
    refused = refuses(401, "bad key sekrit-key-of-4711")
    async with talking(refused, upstream={"api_key": "sekrit-key-of-4711"}) as world:
        assert "sekrit-key-of-4711" not in (await world.chat()).error["message"]


# What a client brings along.

OWN_TOOL = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("format_type", ["json_object", "json_schema"])
@pytest.mark.parametrize("stream", [False, True])
async def test_answer_in_json_format_is_not_scanned_for_calls(
    tmp_path: Path, format_type: str, *, stream: bool
) -> None:
    """No tools of ours, no scanning: JSON that looks like a call is the answer."""
    written = json.dumps(call("file_operations", operation="read", path="notes.txt"))
    async with talking(says(written), tools=desk(tmp_path)) as world:
        asked = {"response_format": {"type": format_type}}
        answer = await (world.stream if stream else world.chat)("Give me JSON.", **asked)
        assert answer.text == written
        (request,) = world.model.asked
        assert request["response_format"] == {"type": format_type}
        assert "<tool>" not in world.model.prompts[0] and "terminate" not in world.model.prompts[0]


async def test_text_response_format_changes_nothing(tmp_path: Path) -> None:
    """It is what the loop runs in."""
    async with talking(READ, says("Done."), tools=desk(tmp_path)) as world:
        assert (await world.chat(response_format={"type": "text"})).text == "Done."


async def test_call_of_a_client_tool_is_returned_to_the_client(tmp_path: Path) -> None:
    """A call of one ends the turn: the client runs it, and sends its result in the next request."""
    asked = native(("theirs", {"x": 1}))
    async with talking(asked, says("It is 2."), tools=desk(tmp_path)) as world:
        answer = await world.chat(tools=[OWN_TOOL], temperature=0.5)
        assert answer.finish == "tool_calls"
        (own,) = answer.message["tool_calls"]
        assert own["function"] == {"name": "theirs", "arguments": '{"x": 1}'} and own["id"] == "call_model_0"
        assert answer.message["content"] in (None, "")
        (request,) = world.model.asked
        assert (request["tools"], request["temperature"]) == ([OWN_TOOL], 0.5)
        said = [*HELLO, answer.message, {"role": "tool", "tool_call_id": own["id"], "content": "2"}]
        assert (await world.chat(said, tools=[OWN_TOOL])).text == "It is 2."
        assert world.model.asked[1]["messages"][-1] == said[-1]


async def test_client_tool_call_in_the_prompted_format_reaches_the_client(tmp_path: Path) -> None:
    """A model that mixes the formats up means the same tool."""
    async with talking(calls("theirs", risk_level=None, x=1), tools=desk(tmp_path)) as world:
        answer = await world.chat(tools=[OWN_TOOL])
        (own,) = answer.message["tool_calls"]
        assert (answer.finish, own["function"]) == ("tool_calls", {"name": "theirs", "arguments": '{"x":1}'})


async def test_mixed_answer_runs_gateway_tools_and_returns_client_tools(tmp_path: Path) -> None:
    """Ours has run when the client gets its own."""
    path = {"operation": "write", "path": "new.txt", "content": "x", "risk_level": "low"}
    async with talking(native(("file_operations", path), ("theirs", {})), tools=desk(tmp_path, write=True)) as world:
        answer = await world.chat(tools=[OWN_TOOL])
        assert answer.finish == "tool_calls"
        assert [own["function"]["name"] for own in answer.message["tool_calls"]] == ["theirs"]
        assert (tmp_path / "work" / "new.txt").read_text() == "x"
        assert len(world.model.asked) == 1


async def test_client_tool_takes_precedence_over_a_gateway_tool(tmp_path: Path) -> None:
    """Ours of that name is not offered, and its calls are the client's."""
    clash = {"type": "function", "function": {"name": "execute_sql", "parameters": {"type": "object"}}}
    async with talking(native(("execute_sql", {"sql": "SELECT 1"})), tools=desk(tmp_path)) as world:
        answer = await world.chat(tools=[clash])
        assert answer.finish == "tool_calls"
        assert "<name>execute_sql</name>" not in world.model.prompts[0]


# Lanes, headers, pages.


@pytest.mark.parametrize("path", ["/context/chat/completions", CHAT])
async def test_chat_is_served_on_both_base_paths(path: str) -> None:
    """A base URL with and without `/v1`."""
    async with talking(says("Hi.")) as world:
        assert (await world.chat(path=path)).text == "Hi."
        assert world.model.upstream.requests[0].target == b"/v1/chat/completions"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
@pytest.mark.parametrize(
    ("headers", "context"),
    [
        ({"X-Context-Mode": "context"}, True),
        ({"X-Context-Conversation": "c"}, True),
        ({"X-Context-Mode": "passthrough", "X-Context-Conversation": "c"}, False),
        ({}, False),
    ],
)
async def test_context_headers_switch_lanes(headers: dict[str, str], path: str, *, context: bool) -> None:
    """On the plain path; none of them ever reaches the upstream."""
    async with talking(says("Hi."), enhancer={"custom_context": "We sell pets."}) as world:
        async with world.session.post(
            path, json={"model": "m", "messages": HELLO, "stream": True}, headers=headers
        ) as response:
            await response.read()
            assert ("X-Context-Run-Id" in response.headers) is context
        assert ("We sell pets." in world.model.prompts[0]) is context
        assert b"x-context" not in world.model.upstream.requests[0].raw_head.lower()


async def test_answer_headers_name_run_chain_and_intent() -> None:
    """The headers name the run, the chain and the intent."""
    async with talking(says("Hi.")) as world:
        answer = await world.chat("Remember that I like tea.")
        assert answer.headers["X-Context-Run-Id"] == answer.headers["x-request-id"]
        assert answer.headers["X-Context-Run-Id"].removeprefix("run_") in answer.json["id"]
        assert answer.headers["X-Context-Chain"] == "assistant"
        assert answer.headers["X-Context-Intent"] == "memory"
        assert "Server" not in answer.headers


@pytest.mark.parametrize("path", ["/context/models", "/context/v1/models"])
async def test_model_list_is_forwarded_from_the_upstream(path: str) -> None:
    """The upstream's own, for clients that ask before they talk."""
    models = {"object": "list", "data": [{"id": "m", "object": "model"}]}
    async with talking(Answer(status=203, content=json.dumps(models).encode())) as world:
        answer = await world.get(path, Authorization="Bearer mine")
        assert (answer.status, answer.json) == (203, models)
        (request,) = world.model.upstream.requests
        assert (request.method, request.target) == (b"GET", b"/v1/models")
        assert request.list_values(b"authorization") == [b"Bearer mine"]


async def test_unknown_context_route_is_answered_with_404() -> None:
    """404 in OpenAI's shape, another method 405."""
    async with talking() as world:
        assert (await world.get("/context/nothing")).error["code"] == "unknown_route"
        assert (await world.get(CHAT)).error["code"] == "method_not_allowed"
