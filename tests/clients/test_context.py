"""What client libraries find in the context lane: they are told a base URL, and know nothing of rounds and tools."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletionToolParam, ChatCompletionUserMessageParam

from gateway.demo.script import GREETING
from tests.clients.ask import Ask, Client
from tests.clients.breaking import breaking
from tests.clients.conftest import running
from tests.clients.libraries import Libraries
from tests.clients.provider import FAILURES, PROVIDER_KEY, Provider, Seen
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

PYTHON = ("openai", "openai .stream()", "openai async", "langchain-openai", "langchain-openai async", "llm")
NODE = ("openai", "openai .stream()", "langchain", "ai-sdk")
LITELLM = "litellm"
CLIENTS = (*(f"python {name}" for name in PYTHON), *(f"node {name}" for name in NODE), LITELLM)
#: A new process for each question, which takes more than a second: it is asked for what may differ.
LLM = "python llm"
#: Their limit of silence holds between two pieces of a stream; for the async LangChain, between two chunks.
IMPATIENT = tuple(f"python {name}" for name in PYTHON if name != "llm")
#: It repeats what was answered with 422, whatever `x-should-retry` says, and does not say that it does.
REPEATING = ("node langchain",)
#: They try again by themselves when a connection breaks.
RETRYING = ("python openai", "python openai async", "python langchain-openai", "node openai", "node ai-sdk")

HELLO = f'{GREETING} You said: "Say hello"'
READ = 'tool file_operations {"operation": "read", "path": "note.txt"}'
NOTE = "Two lanes on one base URL."
SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
EVENTS = {"X-Context-Events": "1"}
KEEPALIVE_S, TIMEOUT_S = 0.1, 1.0
CALL = 'native lookup {"id": 7}'
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
}


@dataclass(frozen=True, slots=True)
class Lane:
    """The context lane of a gateway with two tools; `root` is the base URL without `/v1`."""

    root: str
    database: Path

    def insertion(self, name: str) -> str:
        """The words for a call that writes; of each round, something else."""
        statement = json.dumps({"sql": f"INSERT INTO log VALUES ('{name}', $step)"})
        return f"risk_level low, tool execute_sql {statement}"

    def count(self, name: str) -> int:
        """How often that call was executed."""
        with closing(sqlite3.connect(self.database)) as database:
            [[count]] = database.execute("SELECT count(*) FROM log WHERE name = ?", (name,))
        return int(count)

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """The tool waits so long for its database."""
        with closing(sqlite3.connect(self.database, isolation_level=None, check_same_thread=False)) as database:
            database.execute("BEGIN EXCLUSIVE")
            timer = threading.Timer(seconds, database.execute, ("ROLLBACK",))
            timer.start()
            try:
                yield
            finally:
                timer.join()


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


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    folder = tmp_path_factory.mktemp("tools")
    folder.joinpath("note.txt").write_text(NOTE, encoding="utf-8")
    database = folder / "shop.db"
    with closing(sqlite3.connect(database)) as shop:
        shop.executescript(
            "CREATE TABLE fruit (name, price); INSERT INTO fruit VALUES ('apple', 3), ('fig', 7);"
            "CREATE TABLE log (name, round)"
        )
    config = {
        "upstreams": [{"name": "provider", "base_url": f"{provider.base_url}/v1"}],
        "tools": {
            "file_operations": {"roots": [str(folder)]},
            "execute_sql": {"url": f"sqlite:///{database}", "read_only": False},
        },
        "context": {"stream": {"keepalive": KEEPALIVE_S}},
        "store": "sqlite:///:memory:",
    }
    with running(json.dumps(config)) as process:
        yield Lane(f"{process.base_url}/context", database)


@pytest.fixture
def client_id(request: pytest.FixtureRequest) -> str:
    """Another one for each test."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)


@pytest.fixture
def openai_client(lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


@clients()
def test_it_gets_the_text(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Letter for letter, from one call of the model."""
    assert client(Ask(root=lane.root, prompt="Say hello", stream=stream)).text == HELLO
    assert [request.target for request in seen] == ["/v1/chat/completions"]


@clients()
def test_a_tool_is_used_unseen(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """One answer: what the model says of the result, and nothing of the call."""
    text = client(Ask(root=lane.root, prompt=READ, stream=stream)).text
    assert text.startswith("Demo model: round 1 of tool calls is done.") and NOTE in text
    assert '"tool"' not in text and len(seen) == 2


@clients(but=[LLM])
def test_three_rounds_are_one_answer(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
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
def test_progress_disturbs_nobody(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Its chunks carry no text; the header that asks for them is ours and goes no further."""
    text = client(Ask(root=lane.root, prompt=READ, stream=stream, headers=EVENTS)).text
    assert text.startswith("Demo model: round 1 of tool calls is done.") and NOTE in text
    assert len(seen) == 2 and not any(set(EVENTS) & set(request.headers) for request in seen)


@clients(IMPATIENT)
def test_a_silent_model_is_waited_for(client: Client, lane: Lane) -> None:
    """Longer than the client would: the keep-alives count, and are no text."""
    ask = Ask(root=lane.root, prompt="slow 1.5 Say hello", stream=True, timeout_s=TIMEOUT_S)
    assert client(ask).text == HELLO


@clients(but=IMPATIENT)
def test_keepalives_are_no_text(client: Client, lane: Lane) -> None:
    """Nor anything else, to a client that would wait anyway."""
    assert client(Ask(root=lane.root, prompt="slow 0.5 Say hello", stream=True)).text == HELLO


@clients(IMPATIENT)
def test_a_silent_tool_is_waited_for(client: Client, lane: Lane) -> None:
    """The same."""
    with lane.locked(1.3):
        text = client(Ask(root=lane.root, prompt=SELECT, stream=True, timeout_s=TIMEOUT_S)).text
    assert "apple" in text


def test_without_keepalives_it_would_not_be_waited_for(libraries: Libraries, gateway: str) -> None:
    """In the passthrough lane, which adds nothing, the silence is the client's affair."""
    ask = Ask(root=gateway, prompt="slow 1.5 Say hello", stream=True, timeout_s=TIMEOUT_S)
    assert "timed out" in libraries.client("openai")(ask).failed.message


@clients()
def test_a_cut_answer_is_an_error(client: Client, stream: bool, lane: Lane) -> None:
    """With our words, behind the text that had come; it never looks whole."""
    outcome = client(Ask(root=lane.root, prompt="cut, drip 2, long 20", stream=stream))
    assert "in the middle of its answer" in outcome.failed.message
    assert "word20" not in "".join(outcome.pieces) and bool(outcome.pieces) == stream


@clients()
def test_the_limit_of_calls_is_an_error(client: Client, stream: bool, lane: Lane) -> None:
    """With our words and, as long as nothing was streamed, our status."""
    outcome = client(Ask(root=lane.root, prompt=f"steps 12 {SELECT}", stream=stream))
    assert "more than 10 tools" in outcome.failed.message and not outcome.pieces
    assert stream or outcome.failed.status in (422, None)


@clients(but=[LLM, *REPEATING])
def test_an_error_after_effects_is_final(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """A client that tries again by itself is told not to: each of the ten calls is executed once."""
    ask = Ask(root=lane.root, prompt=f"steps 12, {lane.insertion(client_id)}", stream=stream, retries=2)
    assert "more than 10 tools" in client(ask).failed.message
    assert lane.count(client_id) == 10


@clients(but=[LLM])
def test_a_mistake_in_the_request_is_told(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Before the first byte of the answer, a stream's too: with status and words."""
    headers = {"X-Context-Chain": "nope"}
    failed = client(Ask(root=lane.root, prompt="Say hello", stream=stream, headers=headers)).failed
    assert failed.status == 400 and "There is no chain of that name" in failed.message
    assert not seen


@clients(but=[LLM])
def test_the_same_key_is_the_same_run(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """Asked twice with one Idempotency-Key, it answers twice and executes once."""
    headers = {"Idempotency-Key": client_id}
    ask = Ask(root=lane.root, prompt=lane.insertion(client_id), stream=stream, headers=headers)
    first, second = client(ask).text, client(ask).text
    assert first == second and '"changed":1' in first
    assert lane.count(client_id) == 1


def test_the_same_key_at_the_same_time_is_the_same_run(lane: Lane, client_id: str) -> None:
    """Both hear the one run's answer."""
    ask = Ask(root=lane.root, prompt=f"slow 0.2, {lane.insertion(client_id)}", headers={"Idempotency-Key": client_id})

    def text(stream: bool) -> str:
        with Libraries() as own:
            return own.client("openai")(ask).text

    with ThreadPoolExecutor(4) as threads:
        [text_of_all] = set(threads.map(text, [False] * 4))
    assert '"changed":1' in text_of_all and lane.count(client_id) == 1


@clients(RETRYING)
def test_a_retry_of_its_own_executes_nothing_again(client: Client, lane: Lane, client_id: str) -> None:
    """The connection breaks after the tool ran: the client tries again by itself, and joins its run."""
    prompt = f"slow 0.3, {lane.insertion(client_id)}"
    with breaking(lane.root, when=lambda: lane.count(client_id) > 0) as root:
        text = client(Ask(root=root, prompt=prompt, retries=2)).text
    assert '"changed":1' in text
    assert lane.count(client_id) == 1


@clients(["python openai", "python openai async", "node openai"])
def test_a_limit_of_the_provider_is_waited_for(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Its 429 is the client's, which tries again."""
    assert client(Ask(root=lane.root, prompt="Say hello", headers={FAILURES: "1"}, retries=2)).text == HELLO
    assert [request.headers["x-stainless-retry-count"] for request in seen] == ["0", "1"]


def test_usage_is_of_the_whole_turn(openai_client: openai.OpenAI) -> None:
    """Also in a stream, when asked for: in one frame, the last and the only one without a choice."""
    whole = openai_client.chat.completions.create(model="demo", messages=said(READ)).usage
    plain = openai_client.chat.completions.create(model="demo", messages=said("Say hello")).usage
    assert whole is not None and plain is not None and whole.prompt_tokens > 2 * plain.prompt_tokens
    asked = list(
        openai_client.chat.completions.create(
            model="demo", messages=said(READ), stream=True, stream_options={"include_usage": True}
        )
    )
    assert [chunk.usage for chunk in asked if not chunk.choices] == [whole] and not asked[-1].choices
    unasked = list(openai_client.chat.completions.create(model="demo", messages=said(READ), stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in unasked)


def test_usage_is_in_the_helpers_completion(openai_client: openai.OpenAI) -> None:
    """Which wants every frame as OpenAI sends it."""
    with openai_client.chat.completions.stream(
        model="demo", messages=said("Say hello"), stream_options={"include_usage": True}
    ) as stream:
        completion = stream.get_final_completion()
    assert completion.usage is not None and completion.usage.completion_tokens > 10
    assert completion.choices[0].finish_reason == "stop" and completion.choices[0].message.content == HELLO


async def test_usage_is_in_langchains_message(lane: Lane) -> None:
    """Whole and as the sum of the chunks."""
    model = ChatOpenAI(
        model="demo", base_url=f"{lane.root}/v1", api_key=lambda: PROVIDER_KEY, max_retries=0, stream_usage=True
    )
    whole = (await model.ainvoke(READ)).usage_metadata
    streamed = [chunk.usage_metadata async for chunk in model.astream(READ) if chunk.usage_metadata]
    assert whole is not None and whole["output_tokens"] > 10 and streamed == [whole]


def test_usage_is_what_openai_node_reads(node: Worker, lane: Lane) -> None:
    """The same three."""
    request = {"model": "demo", "messages": [{"role": "user", "content": READ}]}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    whole = node.call("chat.completions.create", request, root=lane.root)["usage"]
    asked = node.call("chat.completions.create", request | options, root=lane.root)
    unasked = node.call("chat.completions.create", request | {"stream": True}, root=lane.root)
    assert asked[-1]["usage"] == whole and not asked[-1]["choices"]
    assert all(chunk["choices"] and "usage" not in chunk for chunk in unasked)


def test_progress_can_be_read(openai_client: openai.OpenAI) -> None:
    """In the field `context` of chunks that are like any other."""
    chunks = openai_client.chat.completions.create(model="demo", messages=said(READ), stream=True, extra_headers=EVENTS)
    told = [extra["context"] for chunk in chunks if (extra := chunk.model_extra) and "context" in extra]
    assert told[0]["type"] == "run.started"
    about_tools = [event for event in told if event["type"].startswith("tool.")]
    assert [event["type"] for event in about_tools] == ["tool.started", "tool.finished"]
    assert {event["tool"] for event in about_tools} == {"file_operations"}


def test_the_clients_own_tool_stays_its_own(openai_client: openai.OpenAI) -> None:
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
