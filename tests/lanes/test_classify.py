"""The lane of a request is decided by its raw path and its X-Context-* headers, and by nothing else."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits, parse_request_head
from gateway.lanes.classify import Mode, classify, collect_context_headers

OWN = frozenset((b"/", b"/metrics", b"/health/live", b"/v1/system-prompts"))
CHAT = b"/v1/chat/completions"
CANARY = b"cAnArY-5f3d"


def lane(target: bytes, *fields: bytes, method: bytes = b"POST", own: frozenset[bytes] = OWN) -> Mode:
    head = b"\r\n".join((b"%b %b HTTP/1.1" % (method, target), b"Host: h", *fields, b"", b""))
    return classify(parse_request_head(head, HeadLimits()), target, own)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE"])
def test_own_routes_come_first_by_exact_path(method: bytes) -> None:
    """Whatever the method, the query and the context headers."""
    for target in (b"/metrics", b"/metrics?x=y", b"/metrics?", b"/health/live", b"/?", b"/v1/system-prompts"):
        assert lane(target, b"X-Context-Mode: context", b"X-Context-Mode: x", method=method) == "own"


@pytest.mark.parametrize(
    "target",
    b"//metrics|/metrics/|/%6detrics|/metrics;x|/v1/../metrics|/METRICS|/metrics%3Fx|/v1/system-promptsx".split(b"|"),
)
def test_path_resembling_an_own_route_is_passthrough(target: bytes) -> None:
    """K6: the raw path decides; nothing is decoded or normalised. `Host`, queries and overrides do not matter."""
    assert lane(target) == "passthrough"
    assert lane(b"/v1/x?/metrics", b"X-HTTP-Method-Override: GET", b"X-Original-URL: /metrics") == "passthrough"


@pytest.mark.parametrize(
    "target", [b"/v1/system-prompts/x", b"/v1/system-prompts/x/enhanced?y", b"/v1/system-prompts/"]
)
def test_paths_below_system_prompts_are_classified_as_own(target: bytes) -> None:
    """The pages of single prompts, whatever their ids; the prefix counts as written."""
    for method in (b"GET", b"PUT", b"DELETE"):
        assert lane(target, b"X-Context-Mode: passthrough", method=method) == "own"
    assert lane(target.replace(b"/v1", b"//v1")) == lane(target.upper()) == "passthrough"


@pytest.mark.parametrize("target", [b"/console", b"/console/", b"/console/runs/run_1?from=2", b"/console/static/x.css"])
def test_console_paths_are_own_only_when_the_console_is_served(target: bytes) -> None:
    """Where it is off, moved to another address, or an upstream has its path, nothing below it is ours either."""
    own = OWN | {b"/console"}
    assert lane(target, b"X-Context-Mode: context", own=own, method=b"GET") == "own" and lane(target) == "passthrough"
    for other in (b"/consolex", b"/Console", b"//console", b"/%63onsole", b"/v1/../console"):
        assert lane(other, own=own) == "passthrough"


@pytest.mark.parametrize("target", [b"/mcp/services/x", b"/mcp/services/x/tools?y", b"/mcp/services/"])
def test_mcp_service_paths_are_own_only_when_configured(target: bytes) -> None:
    """Where they moved to another address, or an upstream has their path, nothing below them is ours either."""
    own = OWN | {b"/mcp/services"}
    assert lane(target, b"X-Context-Mode: passthrough", own=own) == "own" and lane(target) == "passthrough"
    for other in (target.replace(b"/mcp", b"//mcp"), target.upper(), b"/mcp/servicesx", b"/mcp"):
        assert lane(other, own=own) == "passthrough"


@pytest.mark.parametrize(
    "target",
    b"/context|/context/chat/completions|/context/v1/chat/completions|/context/models?x|/context/|/context?x".split(
        b"|"
    ),
)
def test_paths_below_context_are_context_lane(target: bytes) -> None:
    """Whatever the method and the headers say."""
    assert lane(target) == lane(target, b"X-Context-Mode: passthrough", method=b"GET") == "context"


@pytest.mark.parametrize("target", [b"/contextual", b"/Context/x", b"/v1/context", b"/%63ontext/x", b"//context/x"])
def test_paths_outside_context_are_passthrough(target: bytes) -> None:
    """Only whole segments of the raw path count."""
    assert lane(target) == "passthrough"


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ((), "passthrough"),
        ((b"X-Context-Mode: context",), "context"),
        ((b"x-context-mode: context",), "context"),
        ((b"X-Context-Mode: passthrough",), "passthrough"),
        ((b"X-Context-Chain: a",), "context"),
        ((b"X-Context-Anything:",), "context"),
        ((b"X-Context-Chain: a", b"X-Context-Mode: passthrough"), "passthrough"),
        ((b"X-Context: context",), "passthrough"),
        ((b"X-Contextual-Mode: context",), "passthrough"),
        ((b"Accept: text/event-stream",), "passthrough"),
    ],
)
def test_a_chat_completion_with_a_context_header_is_context(fields: tuple[bytes, ...], mode: Mode) -> None:
    """Unless X-Context-Mode says passthrough."""
    assert lane(CHAT, *fields) == lane(CHAT + b"?x", *fields) == lane(CHAT + b"/", *fields) == mode


@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE", b"PUT"])
@pytest.mark.parametrize(
    "target",
    [
        b"/v1/responses",
        b"/v1/responses?x",
        b"/v1/responses/",
        b"/v1/responses/resp_1",
        b"/v1/responses/resp_1?stream=true&starting_after=5",
        b"/v1/responses/resp_1/input_items",
        b"/v1/responses/resp_1/cancel",
        b"/v1/responses/compact",
        b"/v1/responses/x/%2e%2e",
        b"/v1/conversations",
        b"/v1/conversations/conv_1/items/msg_1",
    ],
)
def test_responses_and_conversations_with_a_context_header_are_context(target: bytes, method: bytes) -> None:
    """With all that is below them, whatever the method; without a header, or with `passthrough`, the upstream's."""
    for line in (b"X-Context-Mode: context", b"X-Context-Chain: a", b"X-Context-Anything:"):
        assert lane(target, line, method=method) == "context"
    assert lane(target, method=method) == lane(target, b"Accept: text/event-stream", method=method) == "passthrough"
    both = (b"X-Context-Chain: a", b"X-Context-Mode: passthrough")
    assert lane(target, *both, method=method) == "passthrough"


@pytest.mark.parametrize(
    "target", b"/context/v1/responses|/context/v1/responses/resp_1/cancel|/context/v1/conversations/c/items".split(b"|")
)
def test_responses_and_conversations_below_context_are_context(target: bytes) -> None:
    """Whatever the method and the headers say."""
    for method in (b"GET", b"POST", b"DELETE"):
        assert lane(target, method=method) == lane(target, b"X-Context-Mode: passthrough", method=method) == "context"


@pytest.mark.parametrize(
    "target",
    b"/v1/responsesx|/v1//responses/x|/v1/Responses/x|/v1/respons%65s/x|/v1/conversations%2fx|/v2/responses".split(
        b"|"
    ),
)
def test_paths_resembling_responses_are_passthrough(target: bytes) -> None:
    """Where something is only read, the headers have no effect."""
    assert lane(target, b"X-Context-Mode: context", method=b"GET") == "passthrough"


def test_context_headers_are_ignored_on_other_endpoints() -> None:
    """They are for chat completions, responses and conversations."""
    for target in (b"/v1/embeddings", b"/v1/models", CHAT + b"/x", b"/v1/Chat/completing"):
        assert lane(target, b"X-Context-Mode: context") == "passthrough"
    assert lane(CHAT, b"X-Context-Mode: context", method=b"GET") == "passthrough"


@pytest.mark.parametrize("value", [b"Context", b"", b"both", b"context, passthrough", b"context;x", CANARY])
def test_unknown_context_mode_is_refused(value: bytes) -> None:
    """One name, one value; the value is not repeated."""
    for target in (CHAT, b"/v1/models"):
        with pytest.raises(GatewayError) as refused:
            lane(target, b"X-Context-Mode: " + value)
        error = refused.value
        assert (error.facts.status, error.code, error.param) == (400, "invalid_header", "x-context-mode")
        assert CANARY.decode() not in error.message


@pytest.mark.parametrize("values", [(b"context", b"passthrough"), (b"context", b"context"), (b"", b"")])
@pytest.mark.parametrize("name", [b"X-Context-Mode", b"X-Context-Chain"])
def test_duplicate_context_header_is_refused(name: bytes, values: tuple[bytes, bytes]) -> None:
    """Two values would be a choice of the reader's."""
    with pytest.raises(GatewayError) as refused:
        lane(CHAT, *(spelled + b": " + value for spelled, value in zip((name, name.upper()), values, strict=True)))
    assert (refused.value.facts.status, refused.value.code, refused.value.param) == (
        400,
        "invalid_header",
        name.decode().lower(),
    )


def test_context_headers_are_read_by_lowercase_name() -> None:
    """By their names in lower case, with their values as they came; no other header."""
    head = b"POST / HTTP/1.1\r\nHost: h\r\nX-Context-Chain: a\r\nX-Other: b\r\nx-context-mode: context\r\n\r\n"
    read = collect_context_headers(parse_request_head(head, HeadLimits()))
    assert read == {b"x-context-chain": b"a", b"x-context-mode": b"context"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1//responses", "/v1/messages;x", "/v1/completions", "/v1/responses;x", "/v1/respons%65s", "/V1/Messages",
        "/openai/v1/chat/completions", "/v1/chat/completions//", "/api/chat", "/v1beta/models/g:streamGenerateContent",
        "/v1/chat/completions;x", "/v1/chat/completions/.", "/v1//chat//completions", "/v1/chat/x/../completions",
        "/v1/chat\\completions", "/v1/chat;a=b/completions", "/openai/v1/responses", "/v1/x/../responses",
    ],
)  # fmt: skip
def test_context_headers_on_other_generating_endpoints_are_refused(path: str) -> None:
    """400 that names the header; `passthrough` says that nothing is meant."""
    for line in (b"X-Context-Mode: context", b"X-Context-Chain: a", b"X-Context-Whatever: 1"):
        with pytest.raises(GatewayError, match="no context mode on this path") as caught:
            lane(path.encode(), line)
        assert (caught.value.code, caught.value.param) == ("invalid_header", line.partition(b":")[0].lower().decode())
    assert lane(path.encode(), b"X-Context-Mode: passthrough") == "passthrough"
    assert lane(path.encode()) == "passthrough"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/", "/v1/messages/count_tokens"])
def test_messages_are_in_the_lane_that_their_header_says(path: str) -> None:
    """Without one they go to the upstream, as they came. Beneath `/context` they are in the context lane."""
    assert lane(path.encode()) == "passthrough"
    assert lane(path.encode(), b"X-Context-Mode: context") == "context"
    assert lane(path.encode(), b"X-Context-Mode: passthrough") == "passthrough"
    assert lane(b"/context" + path.encode()) == "context"


def test_single_models_are_the_lanes_for_clients_of_messages() -> None:
    """Clients of Messages send the version of their API; requests of other clients go to the upstream."""
    assert lane(b"/context/v1/models/m", b"anthropic-version: 2023-06-01") == "context"
    assert lane(b"/context/v1/models/m") == "passthrough"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/embeddings", "/v1/files", "/v1/threads/t_1/messages"])
def test_context_headers_on_nongenerating_endpoints_are_ignored(path: str) -> None:
    """Clients send the headers of a connection with everything."""
    assert lane(path.encode(), b"X-Context-Mode: context", b"X-Context-Chain: a") == "passthrough"


@pytest.mark.parametrize("method", [b"post", b"Post", b"PUT"])
def test_methods_servers_may_read_as_post_are_treated_as_generating(method: bytes) -> None:
    """So it is no way around the chain for keys of the context lane; neither is another method with a body."""
    for asked, more in ((method, ()), (b"GET", (b"Content-Length: 2",)), (b"DELETE", (b"Transfer-Encoding: chunked",))):
        with pytest.raises(GatewayError) as raised:
            lane(b"/context/v1/completions", *more, method=asked)
        assert raised.value.code == "unsupported_endpoint"
        with pytest.raises(GatewayError):
            lane(CHAT, b"X-Context-Chain: plain", *more, method=asked)
    assert lane(b"/context/v1/completions", method=b"GET") == "passthrough"
