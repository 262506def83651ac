"""anthropic-python in the context lane, which checks each body and event against its own models."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import BaseModel

from gateway.demo.script import GREETING
from tests.clients.conftest import GATEWAY_KEY, running
from tests.clients.provider import Provider

pytestmark = pytest.mark.clients

HELLO: Final = f'{GREETING} You said: "Say hello"'
#: A body that is larger than the gateway of these tests takes.
LARGE: Final = 20_000
TOOL: Final[Any] = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
OWN: Final[Any] = {"type": "url", "name": "gateway", "url": "gateway"}
READ: Final = 'tool file_operations {"operation": "read", "path": "note.txt"}'


@pytest.fixture(scope="module")
def root(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "note.txt").write_text("Two lanes.")
    sha256 = hashlib.sha256(GATEWAY_KEY.encode()).hexdigest()
    config = {
        "keys": [{"name": "tests", "sha256": sha256, "scopes": ["context"]}],
        "upstreams": provider.keyed,
        "tools": {"file_operations": {"roots": [str(folder)]}},
        "limits": {"context_body": LARGE},
    }
    with running(json.dumps(config)) as process:
        yield f"{process.base_url}/context"


@pytest.fixture
def client(root: str) -> Iterator[anthropic.Anthropic]:
    """It raises for what its models do not allow."""
    with anthropic.Anthropic(
        base_url=root, api_key=GATEWAY_KEY, max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def ask(text: str, **fields: object) -> Any:
    return {"model": "demo", "max_tokens": 1000, "messages": [{"role": "user", "content": text}], **fields}


def check_known(value: object) -> None:
    """Check that an object, and all in it, have no field that their models lack."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, (type(value).__name__, value.model_extra)
        for name in type(value).model_fields:
            check_known(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            check_known(each)


@pytest.mark.parametrize(
    ("text", "fields", "kinds", "reason"),
    [
        ("Say hello", {}, ["text"], "end_turn"),
        (
            "think, say hello",
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            ["thinking", "text"],
            "end_turn",
        ),
        ('native get_weather {"city": "Oslo"}', {"tools": [TOOL]}, ["tool_use"], "tool_use"),
        (READ, {}, ["text"], "end_turn"),
        ("long 50", {"max_tokens": 10}, ["text"], "max_tokens"),
    ],
)
def test_answers_are_those_of_the_models(
    client: anthropic.Anthropic, text: str, fields: dict[str, Any], kinds: list[str], reason: str
) -> None:
    """Whole and streamed, with the same message in the end."""
    request = ask(text, **fields)
    whole: Message = client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        events = [*stream]
        accumulated = stream.get_final_message()
    raw: list[RawMessageStreamEvent] = [*client.messages.create(**request, stream=True)]
    assert [block.type for block in whole.content] == kinds and whole.stop_reason == reason
    assert whole.usage.input_tokens > 0 and whole.usage.output_tokens > 0
    dumped = [message.model_dump(exclude={"id": True}) for message in (whole, accumulated)]
    for message in dumped:
        for block in message["content"]:
            block.pop("id", None)
            block.pop("parsed_output", None)
    assert dumped[0] == dumped[1]
    assert raw[0].type == "message_start" and raw[-1].type == "message_stop"
    for each in (whole, *raw):
        check_known(each)
    assert events[-1].type == "message_stop"


def test_shown_calls_are_those_of_the_beta_models(client: anthropic.Anthropic) -> None:
    """A tool of the gateway as a call of a server's, with its result."""
    tools: list[Any] = [{"type": "mcp_toolset", "mcp_server_name": "gateway"}]
    request = ask(READ, mcp_servers=[OWN], tools=tools, betas=["mcp-client-2025-11-20"])
    whole: BetaMessage = client.beta.messages.create(**request)
    raw: list[BetaRawMessageStreamEvent] = [*client.beta.messages.create(**request, stream=True)]
    kinds = ["mcp_tool_use", "mcp_tool_result", "text"]
    assert [block.type for block in whole.content] == kinds
    assert [event.content_block.type for event in raw if event.type == "content_block_start"] == kinds
    for each in (whole, *raw):
        check_known(each)


def test_tokens_and_models_are_those_of_the_models(client: anthropic.Anthropic) -> None:
    """The count includes what context mode adds."""
    alone = client.messages.count_tokens(**{name: value for name, value in ask("Say").items() if name != "max_tokens"})
    page = client.models.list()
    found = client.models.retrieve(page.data[0].id)
    assert alone.input_tokens > 10 and found == page.data[0]
    for each in (alone, *page.data, found):
        check_known(each)


@pytest.mark.parametrize(
    ("fields", "kind", "word"),
    [
        ({"extra_body": {"temperature": "hot"}}, anthropic.BadRequestError, "temperature"),
        ({"extra_body": {"odd": 1}}, anthropic.BadRequestError, "odd"),
        ({"messages": [{"role": "user", "content": [{"type": "odd"}]}]}, anthropic.BadRequestError, "'odd'"),
        ({"messages": [{"role": "user", "content": "error 404"}]}, anthropic.NotFoundError, "error 404"),
        ({"messages": [{"role": "user", "content": "x" * LARGE}]}, anthropic.RequestTooLargeError, "limits"),
        ({"messages": [{"role": "user", "content": "error 429"}]}, anthropic.RateLimitError, "error 429"),
        ({"messages": [{"role": "user", "content": "error 529"}]}, anthropic.OverloadedError, "error 529"),
    ],
)
def test_errors_are_raised_by_their_status(
    client: anthropic.Anthropic, stream: bool, fields: dict[str, Any], kind: type[anthropic.APIStatusError], word: str
) -> None:
    """With the envelope, the type and the id that the SDK reads."""
    with pytest.raises(kind, match=word) as raised:
        client.messages.create(**{**ask("Say hello"), **fields}, stream=stream)
    check_envelope(raised.value)


def check_envelope(error: anthropic.APIStatusError) -> None:
    body: Any = error.body
    assert body["type"] == "error" and body["error"]["type"] == error.type
    assert body["request_id"] == error.request_id and error.request_id


def test_wrong_key_is_an_authentication_error(client: anthropic.Anthropic, stream: bool) -> None:
    """In either header."""
    for wrong in (client.with_options(api_key="wrong"), client.with_options(api_key=None, auth_token="wrong")):
        with pytest.raises(anthropic.AuthenticationError, match="not valid") as raised:
            wrong.messages.create(**ask("Say hello"), stream=stream)
        check_envelope(raised.value)


def test_missing_model_is_not_found(client: anthropic.Anthropic) -> None:
    """As a page of its own."""
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("none")


def test_error_behind_the_first_piece_ends_a_stream(client: anthropic.Anthropic) -> None:
    """As an exception, behind the text that came."""
    pieces: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError, match="middle of its answer"),
        client.messages.stream(**ask("cut, drip 2, long 100")) as stream,
    ):
        pieces.extend(stream.text_stream)
    assert pieces and "word100" not in "".join(pieces)


def test_retries_are_those_of_the_sdk(root: str) -> None:
    """It tries again what the gateway calls overloaded, and gives up with the last error."""
    with (
        anthropic.Anthropic(base_url=root, api_key=GATEWAY_KEY, max_retries=1) as client,
        pytest.raises(anthropic.OverloadedError) as raised,
    ):
        client.messages.create(**ask("error 529"))
    assert raised.value.response.request.headers["x-stainless-retry-count"] == "1"
