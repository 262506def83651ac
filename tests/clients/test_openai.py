"""The features of openai-python beyond a chat, through the gateway."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam
from unanswered_ports import refusing_port

from gateway.demo.embeddings import build_vector
from tests.clients.conftest import GATEWAY_KEY, running
from tests.clients.provider import PROVIDER_KEY, Seen

pytestmark = pytest.mark.clients

MEBIBYTE = 1024 * 1024
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
}
CALL = 'native lookup {"id": 7}'


@pytest.fixture
def client(gateway: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def unreachable() -> Iterator[str]:
    """A gateway whose upstream refuses connections."""
    with refusing_port() as port:
        config = f"upstreams: [{{name: nobody, base_url: 'http://127.0.0.1:{port}/v1'}}]"
        with running(config) as process:
            yield process.base_url


def test_models_are_listed(client: openai.OpenAI) -> None:
    """The provider's, and one by its name."""
    assert [model.id for model in client.models.list()] == ["demo", "demo-embedding"]
    assert client.models.retrieve("demo").owned_by == "twolane-demo"
    with pytest.raises(openai.NotFoundError, match="'nope' does not exist"):
        client.models.retrieve("nope")


def test_embeddings_request_returns_the_providers_vectors(client: openai.OpenAI) -> None:
    """In the client's default encoding, base64, and as numbers."""
    expected = build_vector(b"two lanes", dimensions=256)
    default = client.embeddings.create(model="demo-embedding", input="two lanes")
    numbers = client.embeddings.create(model="demo-embedding", input=["two lanes"], encoding_format="float")
    assert default.data[0].embedding == pytest.approx(expected) and numbers.data[0].embedding == expected


def test_legacy_completions_request_is_answered(client: openai.OpenAI) -> None:
    """The API before chat."""
    assert client.completions.create(model="demo", prompt="Say hello").choices[0].text.endswith('"Say hello"')


def test_client_tool_call_is_returned_whole_and_streamed(client: openai.OpenAI) -> None:
    """Whole and as a stream, which says the same."""
    messages = [openai.types.chat.ChatCompletionUserMessageParam(role="user", content=CALL)]
    whole = client.chat.completions.create(model="demo", messages=messages, tools=[TOOL]).choices[0]
    with client.chat.completions.stream(model="demo", messages=messages, tools=[TOOL]) as stream:
        streamed = stream.get_final_completion().choices[0]
    for choice in (whole, streamed):
        assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
        [call] = choice.message.tool_calls
        assert call.type == "function" and (call.function.name, call.function.arguments) == ("lookup", '{"id": 7}')


def test_stream_contains_usage_only_with_include_usage(client: openai.OpenAI) -> None:
    """In the frame without choices that the provider sends, and only then."""
    messages = [openai.types.chat.ChatCompletionUserMessageParam(role="user", content="long 3")]
    asked = client.chat.completions.create(
        model="demo", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    assert [chunk.usage.completion_tokens for chunk in asked if chunk.usage] == [3]
    assert all(chunk.choices for chunk in client.chat.completions.create(model="demo", messages=messages, stream=True))


def test_responses_stream_their_events(client: openai.OpenAI) -> None:
    """From `response.created` to `response.completed`."""
    with client.responses.stream(model="demo", input="Say hello") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text.endswith('"Say hello"')
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


def test_200_megabytes_are_uploaded(client: openai.OpenAI, tmp_path: Path) -> None:
    """As multipart, and what arrives has the hash of what was sent."""
    path, digest = tmp_path / "large.bin", hashlib.sha256()
    with path.open("wb") as file:
        for number in range(200):
            block = hashlib.shake_128(b"%d" % number).digest(MEBIBYTE)
            digest.update(block)
            file.write(block)
    uploaded = client.files.create(file=path, purpose="user_data")
    assert uploaded.bytes == 200 * MEBIBYTE and uploaded.filename == "large.bin"
    assert uploaded.model_extra == {"sha256": digest.hexdigest()}


def test_client_and_provider_headers_are_forwarded(client: openai.OpenAI, seen: list[Seen]) -> None:
    """The provider sees what the client says of itself, the client what the provider says of its limits."""
    answer = client.with_options(default_headers={"X-Own": "kept"}).models.with_raw_response.list()
    assert answer.headers["x-ratelimit-remaining-requests"] == "59"
    assert answer.headers["openai-processing-ms"] == "7"
    assert seen[0].headers["X-Own"] == "kept" and seen[0].headers["x-stainless-lang"] == "python"


def test_gateway_error_reaches_the_client_with_type_and_code(keyed_gateway: str) -> None:
    """With status, type and code, and what to do in the message."""
    with openai.OpenAI(base_url=f"{keyed_gateway}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="gateway key is not valid") as refused:
            client.models.list()
        assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
        known = client.with_options(api_key=GATEWAY_KEY)
        with pytest.raises(openai.AuthenticationError, match="gateway key is not valid"):
            client.with_options(base_url=f"{keyed_gateway}/context/v1").chat.completions.create(
                model="demo", messages=[{"role": "user", "content": "Say hello"}]
            )
        assert known.with_options(base_url=keyed_gateway).models.list().data  # understood without its /v1, too


def test_chat_request_without_v1_prefix_is_answered(gateway: str) -> None:
    """The commonest mistake in a base URL is served as what was meant."""
    with openai.OpenAI(base_url=gateway, api_key=PROVIDER_KEY) as client:
        answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Say hello"}])
    assert answer.choices[0].message.content is not None


def test_an_upstream_that_is_down_is_a_502(unreachable: str) -> None:
    """Of the gateway, which says so."""
    with (
        openai.OpenAI(base_url=f"{unreachable}/v1", api_key=PROVIDER_KEY, max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as failed,
    ):
        client.models.list()
    assert (failed.value.status_code, failed.value.code) == (502, "upstream_error")
