"""What client libraries find in the context lane: they are told a base URL, and know nothing of rounds and tools."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam, ChatCompletionUserMessageParam

from gateway.demo.script import GREETING
from tests.clients.ask import Ask, Client
from tests.clients.breaking import breaking
from tests.clients.lane import NOTE, Lane
from tests.clients.libraries import Libraries
from tests.clients.provider import FAILURES, PROVIDER_KEY, Seen

pytestmark = pytest.mark.clients

PYTHON = (
    "openai",
    "openai .stream()",
    "openai async",
    "langchain-openai",
    "langchain-openai async",
    "pydantic-ai",
    "llm",
)
NODE = ("openai", "openai .stream()", "langchain", "ai-sdk")
INSTRUCTOR = "instructor text"
LITELLM = "litellm"
CLIENTS = (*(f"python {name}" for name in PYTHON), *(f"node {name}" for name in NODE), INSTRUCTOR, LITELLM)
#: A new process for each question, which takes more than a second: it is asked for what may differ.
LLM = "python llm"
#: Their limit of silence holds between two pieces of a stream; for the async LangChain, between two chunks.
IMPATIENT = (*(f"python {name}" for name in PYTHON if name != "llm"), INSTRUCTOR)
#: They ask for the usage of every stream.
ASKING = ("python pydantic-ai", LLM)
#: They try again by themselves when a connection breaks.
RETRYING = (
    "python openai",
    "python openai async",
    "python langchain-openai",
    "python pydantic-ai",
    "node openai",
    "node ai-sdk",
    INSTRUCTOR,
)

HELLO = f'{GREETING} You said: "Say hello"'
READ = 'tool file_operations {"operation": "read", "path": "note.txt"}'
SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
EVENTS = {"X-Context-Events": "1"}
TIMEOUT_S = 1.0
CALL = 'native lookup {"id": 7}'
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
}


def clients(names: Sequence[str] = CLIENTS, *, but: Sequence[str] = ()) -> pytest.MarkDecorator:
    """LiteLLM among them, where the larger tier is asked for."""
    params = [
        pytest.param(name, marks=[pytest.mark.clients_all] if name == LITELLM else [])
        for name in names
        if name not in but
    ]
    return pytest.mark.parametrize("client", params, indirect=True)


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@pytest.fixture
def openai_client(lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


@clients()
def test_client_receives_the_models_text(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Letter for letter, from one call of the model."""
    assert client(Ask(root=lane.root, prompt="Say hello", stream=stream)).text == HELLO
    assert [request.target for request in seen] == ["/v1/chat/completions"]


@clients()
def test_client_sees_no_trace_of_a_gateway_tool_call(
    client: Client, stream: bool, lane: Lane, seen: list[Seen]
) -> None:
    """One answer: what the model says of the result, and nothing of the call."""
    text = client(Ask(root=lane.root, prompt=READ, stream=stream)).text
    assert text.startswith("Demo model: round 1 of tool calls is done.") and NOTE in text
    assert '"tool"' not in text and len(seen) == 2


@clients(but=[LLM])
def test_three_tool_rounds_produce_one_answer(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Of four calls of the model the client sees the last one's text."""
    text = client(Ask(root=lane.root, prompt=f"steps 3 {SELECT}", stream=stream)).text
    assert text.startswith("Demo model: round 3 of tool calls is done.") and "fig" in text and "apple" not in text
    assert '"tool"' not in text and len(seen) == 4


@clients(but=[LLM])
def test_a_malformed_call_is_repaired_unseen(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """The model is told what was wrong with it; the client is not."""
    text = client(Ask(root=lane.root, prompt=f"malformed 1 {SELECT}", stream=stream)).text
    assert text.startswith("Demo model: round 1 of tool calls is done.") and "apple" in text
    assert '"tool"' not in text and len(seen) == 3


@clients()
def test_progress_events_do_not_change_the_client_text(
    client: Client, stream: bool, lane: Lane, seen: list[Seen]
) -> None:
    """Its chunks carry no text; the header that asks for them is ours and goes no further."""
    text = client(Ask(root=lane.root, prompt=READ, stream=stream, headers=EVENTS)).text
    assert text.startswith("Demo model: round 1 of tool calls is done.") and NOTE in text
    assert len(seen) == 2 and not any(set(EVENTS) & set(request.headers) for request in seen)


@clients(IMPATIENT)
def test_keepalives_prevent_timeout_on_a_silent_model(client: Client, lane: Lane) -> None:
    """Longer than the client would: the keep-alives count, and are no text."""
    ask = Ask(root=lane.root, prompt="slow 1.5 Say hello", stream=True, timeout_s=TIMEOUT_S)
    assert client(ask).text == HELLO


@clients(but=IMPATIENT)
def test_keepalives_add_no_text(client: Client, lane: Lane) -> None:
    """Nor anything else, to a client that would wait anyway."""
    assert client(Ask(root=lane.root, prompt="slow 0.5 Say hello", stream=True)).text == HELLO


@clients(IMPATIENT)
def test_keepalives_prevent_timeout_on_a_silent_tool(client: Client, lane: Lane) -> None:
    """The same."""
    with lane.locked(1.3):
        text = client(Ask(root=lane.root, prompt=SELECT, stream=True, timeout_s=TIMEOUT_S)).text
    assert "apple" in text


def test_passthrough_stream_without_keepalives_times_out(libraries: Libraries, gateway: str) -> None:
    """In the passthrough lane, which adds nothing, the silence is the client's affair."""
    ask = Ask(root=gateway, prompt="slow 1.5 Say hello", stream=True, timeout_s=TIMEOUT_S)
    assert "timed out" in libraries.client("openai")(ask).failed.message


@clients()
def test_truncated_answer_raises_a_client_error(client: Client, stream: bool, lane: Lane) -> None:
    """With our words, behind the text that had come; it never looks whole."""
    outcome = client(Ask(root=lane.root, prompt="cut, drip 2, long 20", stream=stream))
    assert "in the middle of its answer" in outcome.failed.message
    assert "word20" not in "".join(outcome.pieces) and bool(outcome.pieces) == stream


@clients()
def test_tool_call_limit_raises_a_client_error(client: Client, stream: bool, lane: Lane) -> None:
    """With our words and, as long as nothing was streamed, our status."""
    outcome = client(Ask(root=lane.root, prompt=f"steps 12 {SELECT}", stream=stream))
    assert "more than 10 tools" in outcome.failed.message and not outcome.pieces
    assert stream or outcome.failed.status in (422, None)


@clients(but=[LLM])
def test_retries_after_a_tool_effect_execute_nothing_again(
    client: Client, stream: bool, lane: Lane, client_id: str
) -> None:
    """A client that tries again all the same is told the same error: each of the ten calls is executed once."""
    ask = Ask(root=lane.root, prompt=f"steps 12, {lane.insertion(client_id)}", stream=stream, retries=2)
    assert "more than 10 tools" in client(ask).failed.message
    assert lane.count(client_id) == 10


@clients(but=[LLM])
def test_request_error_reaches_the_client_with_status_and_message(
    client: Client, stream: bool, lane: Lane, seen: list[Seen]
) -> None:
    """Before the first byte of the answer, a stream's too: with status and words."""
    headers = {"X-Context-Chain": "nope"}
    failed = client(Ask(root=lane.root, prompt="Say hello", stream=stream, headers=headers)).failed
    assert failed.status == 400 and "There is no chain" in failed.message
    assert not seen


@clients(but=[LLM])
def test_repeated_idempotency_key_executes_once(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """Asked twice with one Idempotency-Key, it answers twice and executes once."""
    headers = {"Idempotency-Key": client_id}
    ask = Ask(root=lane.root, prompt=lane.insertion(client_id), stream=stream, headers=headers)
    first, second = client(ask).text, client(ask).text
    assert first == second and '"changed":1' in first
    assert lane.count(client_id) == 1


def test_concurrent_requests_with_one_idempotency_key_execute_once(lane: Lane, client_id: str) -> None:
    """Both hear the one run's answer."""
    ask = Ask(root=lane.root, prompt=f"slow 0.2, {lane.insertion(client_id)}", headers={"Idempotency-Key": client_id})

    def text(stream: bool) -> str:
        with Libraries() as own:
            return own.client("openai")(ask).text

    with ThreadPoolExecutor(4) as threads:
        [text_of_all] = set(threads.map(text, [False] * 4))
    assert '"changed":1' in text_of_all and lane.count(client_id) == 1


@clients(RETRYING)
def test_client_retry_joins_the_run_without_repeating_the_tool(client: Client, lane: Lane, client_id: str) -> None:
    """The connection breaks after the tool ran: the client tries again by itself, and joins its run."""
    prompt = f"slow 0.3, {lane.insertion(client_id)}"
    with breaking(lane.root, when=lambda: lane.count(client_id) > 0) as root:
        text = client(Ask(root=root, prompt=prompt, retries=2)).text
    assert '"changed":1' in text
    assert lane.count(client_id) == 1


@clients(["python openai", "python openai async", "node openai"])
def test_client_retries_a_provider_429(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Its 429 is the client's, which tries again."""
    assert client(Ask(root=lane.root, prompt="Say hello", headers={FAILURES: "1"}, retries=2)).text == HELLO
    assert [request.headers["x-stainless-retry-count"] for request in seen] == ["0", "1"]


@clients()
def test_usage_covers_the_whole_turn(client: Client, stream: bool, lane: Lane, openai_client: openai.OpenAI) -> None:
    """And the same for every client; a stream tells it at its end, when asked."""
    whole = openai_client.chat.completions.create(model="demo", messages=said(READ)).usage
    plain = openai_client.chat.completions.create(model="demo", messages=said("Say hello")).usage
    assert whole is not None and plain is not None and whole.prompt_tokens > 2 * plain.prompt_tokens
    outcome = client(Ask(root=lane.root, prompt=READ, stream=stream, usage=True))
    assert NOTE in outcome.text and outcome.usage == (whole.prompt_tokens, whole.completion_tokens)


@clients(but=ASKING)
def test_stream_omits_usage_without_include_usage(client: Client, lane: Lane) -> None:
    """The others hear nothing of it in a stream, and have no use for a frame without a choice."""
    outcome = client(Ask(root=lane.root, prompt=READ, stream=True))
    assert NOTE in outcome.text and outcome.usage is None


def test_usage_arrives_in_a_final_frame_without_choices(openai_client: openai.OpenAI) -> None:
    """The last, and the only one without a choice."""
    asked = list(
        openai_client.chat.completions.create(
            model="demo", messages=said(READ), stream=True, stream_options={"include_usage": True}
        )
    )
    assert [bool(chunk.choices) for chunk in asked] == [True] * (len(asked) - 1) + [False]
    assert [chunk for chunk in asked if chunk.usage is not None] == asked[-1:]
    unasked = openai_client.chat.completions.create(model="demo", messages=said(READ), stream=True)
    assert all(chunk.choices and chunk.usage is None for chunk in unasked)


def test_progress_events_are_readable_in_chunks(openai_client: openai.OpenAI) -> None:
    """In the field `context` of chunks that are like any other."""
    chunks = openai_client.chat.completions.create(model="demo", messages=said(READ), stream=True, extra_headers=EVENTS)
    told = [extra["context"] for chunk in chunks if (extra := chunk.model_extra) and "context" in extra]
    assert told[0]["type"] == "run.started"
    about_tools = [event for event in told if event["type"].startswith("tool.")]
    assert [event["type"] for event in about_tools] == ["tool.started", "tool.finished"]
    assert {event["tool"] for event in about_tools} == {"file_operations"}


@pytest.mark.cell("own tool", row="openai-python")
def test_client_tool_call_is_returned_to_the_client(openai_client: openai.OpenAI) -> None:
    """Called with its finish reason, whole and as a stream, which says the same."""
    whole = openai_client.chat.completions.create(model="demo", messages=said(CALL), tools=[TOOL]).choices[0]
    with openai_client.chat.completions.stream(model="demo", messages=said(CALL), tools=[TOOL]) as stream:
        streamed = stream.get_final_completion().choices[0]
    for choice in (whole, streamed):
        assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
        [call] = choice.message.tool_calls
        assert call.type == "function" and call.function.name == "lookup"
        assert json.loads(call.function.arguments) == {"id": 7}


def test_models_are_listed(openai_client: openai.OpenAI) -> None:
    """The provider's."""
    assert [model.id for model in openai_client.models.list()] == ["demo", "demo-embedding"]


def said(prompt: str) -> list[ChatCompletionUserMessageParam]:
    return [ChatCompletionUserMessageParam(role="user", content=prompt)]
