"""The way into the context lane is one for all dialects: who asks, what may come, which run answers."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from gateway.testing.raw_connection import connect
from tests.api.responses.answering import GATEWAY, KEYS, RESPONSES, Client, answering, text_of
from tests.e2e.models import Answer, calls, says
from tests.e2e.talking import CHAT, Completed, desk
from tests.e2e.workflow_cases import ECHO, folder_of

PATHS = (CHAT, RESPONSES)
MESSAGES = "/context/v1/messages"
WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)
RUNS = calls("file_operations", operation="write", path="new.txt", content="x")
#: What Open WebUI asks for a title with.
TITLE = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."


def body_of(path: str, *texts: str, **fields: object) -> Json:
    """A request of either API: messages of the user and the assistant, in turn."""
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": "m", ("messages" if path == CHAT else "input"): said, **fields}


def text(path: str, answer: Completed) -> str:
    assert answer.status == 200, answer.json
    return answer.text if path == CHAT else text_of(answer.json)


async def asked(client: Client, path: str, *texts: str, **headers: str) -> str:
    return text(path, await client.post(body_of(path, *texts), path, headers=headers))


@pytest.mark.parametrize("path", PATHS)
async def test_unauthenticated_request_is_refused_before_its_body_is_read(path: str) -> None:
    """The refusal comes before a byte of it."""
    async with answering(**KEYS) as client:
        made = client.world.gateway
        async with connect(made.host, made.port) as peer:
            head = [b"POST %b HTTP/1.1" % path.encode(), b"Host: localhost", b"Content-Length: 1000000"]
            await peer.send(b"\r\n".join([*head, b"Content-Type: application/json", b"", b""]))
            answer = await peer.read_response()
        assert (answer.status, json.loads(answer.payload)["error"]["code"]) == (401, "missing_api_key")


@pytest.mark.parametrize("path", PATHS)
async def test_context_request_over_concurrency_limit_returns_503(path: str) -> None:
    """503 with the time to wait; the request under way goes on."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), limits={"concurrent": 1}) as client:
        first = asyncio.create_task(asked(client, path, "1"))
        await client.world.model.upstream.wait_requests(1)
        refused = await client.post(body_of(path, "2"), path)
        assert (refused.status, refused.error["code"]) == (503, "overloaded") and refused.headers["Retry-After"]
        gate.set()
        assert await first == "one two"


@pytest.mark.parametrize("path", PATHS)
async def test_request_id_of_answers_and_errors_is_the_run_id(path: str) -> None:
    """In the answer and in an error."""
    async with answering(says("one")) as client:
        answer = await client.post(body_of(path, "1"), path)
        assert answer.headers["X-Context-Run-Id"] == answer.headers["x-request-id"]
        assert answer.headers["x-request-id"][4:] in answer.json["id"]
        refused = await client.post(body_of(path, "1"), path, headers={"X-Context-Chain": "nope"})
        assert refused.error["code"] == "invalid_header" and refused.headers["x-request-id"].startswith("run_")


async def test_idempotency_key_is_bound_to_one_request() -> None:
    """One of another API is another request."""
    gate, headers = asyncio.Event(), {"Idempotency-Key": "k1"}
    async with answering(says("one ", gate, "two")) as client:
        first = asyncio.create_task(client.post(body_of(CHAT, "1"), CHAT, headers=headers))
        await client.world.model.upstream.wait_requests(1)
        refused = await client.post(body_of(RESPONSES, "1"), RESPONSES, headers=headers)
        assert (refused.status, refused.error["code"]) == (409, "idempotency_mismatch")
        gate.set()
        assert (await first).text == "one two"


@pytest.mark.parametrize("path", PATHS)
async def test_retried_request_gets_the_answer_without_rerunning_tools(tmp_path: Path, path: str) -> None:
    """An SDK marks its retries; no tool runs twice."""
    gate = asyncio.Event()
    answers: Sequence[Answer] = (RUNS, says("one ", gate, "two"), says("one two"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first = asyncio.create_task(asked(client, path, "1"))
        await client.world.model.upstream.wait_requests(2)
        first.cancel()
        await asyncio.wait({first})
        gate.set()
        again = await client.post(body_of(path, "1"), path, headers={"x-stainless-retry-count": "1"})
        assert text(path, again) == "one two"
        assert await client.world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 1


async def test_unmarked_repeat_in_a_session_gets_the_answer_without_rerunning_tools(tmp_path: Path) -> None:
    """Claude Code marks no retry, and drops `stream` from a request whose stream broke."""
    gate = asyncio.Event()
    answers: Sequence[Answer] = (RUNS, says("one ", gate, "two"), says("one two"))
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "1"}]}
    session = {"x-claude-code-session-id": "s"}
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first = asyncio.create_task(client.post({**body, "stream": True}, MESSAGES, headers=session))
        await client.world.model.upstream.wait_requests(2)
        first.cancel()
        await asyncio.wait({first})
        gate.set()
        again = await client.post(body, MESSAGES, headers=session)
        assert again.json["content"] == [{"type": "text", "text": "one two"}]
        assert await client.world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 1


async def test_request_of_another_session_gets_no_answer_of_a_lost_client(tmp_path: Path) -> None:
    """Two people of one key, whose programs write no session into the body."""
    gate = asyncio.Event()
    answers: Sequence[Answer] = (RUNS, says("one ", gate, "two"), says("another"), says("one two"))
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "1"}]}
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first = asyncio.create_task(client.post(body, MESSAGES, headers={"x-claude-code-session-id": "s"}))
        await client.world.model.upstream.wait_requests(2)
        first.cancel()
        await asyncio.wait({first})
        gate.set()
        for session, text in (("t", "another"), ("s", "one two")):
            answer = await client.post(body, MESSAGES, headers={"x-claude-code-session-id": session})
            assert answer.json["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("is_over", [False, True])
async def test_equal_requests_of_two_agents_in_a_session_are_two_runs(tmp_path: Path, is_over: bool) -> None:
    """Claude Code's agents may send the same body: each gets its own answer while the first client is not lost."""
    gate = asyncio.Event()
    answers: Sequence[Answer] = (RUNS, says("one ", gate, "first"), RUNS, says("one second"))
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "1"}]}
    session = {"x-claude-code-session-id": "s"}
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first = asyncio.create_task(client.post(body, MESSAGES, headers=session))
        await client.world.model.upstream.wait_requests(2)
        if is_over:
            gate.set()
            await first
        second = await client.post(body, MESSAGES, headers=session)
        gate.set()
        told = [one.json["content"][-1]["text"] for one in (await first, second)]
        assert told == ["one first", "one second"]
        assert await client.world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 2


@pytest.mark.parametrize("path", PATHS)
async def test_approval_message_releases_the_held_call(tmp_path: Path, path: str) -> None:
    """With the words that the question shows; without any, nothing runs."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, path, "Write.")
        (line,) = [line for line in question.splitlines() if line.startswith("approve ap_")]
        assert await asked(client, path, "Write.", question, line) == "Written."
        assert (tmp_path / "work" / "new.txt").read_text() == "x"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", ["content", "model", "stream"])
async def test_approval_message_with_duplicate_json_keys_is_refused(tmp_path: Path, path: str, key: str) -> None:
    """No key is there twice, wherever it is: a proxy before the gateway may have read the other value."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, path, "Write.")
        (line,) = [line for line in question.splitlines() if line.startswith("approve ap_")]
        body = json.dumps(body_of(path, "Write.", question, line, stream=False))
        start = body.rindex(f'"{key}": ')
        twice = f'{body[:start]}"{key}": "reject", {body[start:]}'.encode()
        refused = await client.post(twice, path)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_json", key)
        assert f"'{key}' twice" in refused.error["message"] and not (tmp_path / "work" / "new.txt").exists()
        assert await asked(client, path, "Write.", question, line) == "Written."


@pytest.mark.parametrize("key", ["approve", "approval_request_id", "type", "input", "appr\\u006fve"])
async def test_approval_response_with_duplicate_json_keys_is_refused(tmp_path: Path, key: str) -> None:
    """The same for decisions in fields, however a key is written."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        made = (await client.create("Write.", tools=[GATEWAY])).json
        name = json.loads(f'"{key}"')
        item = {"type": "mcp_approval_response", "approval_request_id": made["output"][-1]["id"], "approve": True}
        body = {"model": "m", "previous_response_id": made["id"], "tools": [GATEWAY], "input": [item]}
        text = json.dumps(body)
        start = text.rindex(f'"{name}": ')
        refused = await client.post(f'{text[:start]}"{key}": false, {text[start:]}'.encode(), RESPONSES)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_json", name)
        assert not (tmp_path / "work" / "new.txt").exists()
        assert (await client.post(body, RESPONSES)).status == 200 and (tmp_path / "work" / "new.txt").exists()


@pytest.mark.parametrize("path", PATHS)
async def test_naming_an_approval_repeats_its_question_without_model_call(tmp_path: Path, path: str) -> None:
    """A message that decides nothing asks no model."""
    async with answering(WRITE, tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, path, "Write.")
        (line,) = [line for line in question.splitlines() if line.startswith("approve ap_")]
        told = await asked(client, path, "Write.", question, f"what is {line.split()[1]}?")
        assert line in told and len(client.world.model.asked) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_repeated_request_gets_the_pending_question_without_a_model_call(tmp_path: Path, path: str) -> None:
    """While it waits, the model is not asked anew."""
    async with answering(WRITE, tools=desk(tmp_path, write=True)) as client:
        first, again = [await asked(client, path, "Write.") for _ in range(2)]
        assert first == again and len(client.world.model.asked) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_next_answer_includes_result_of_a_call_approved_elsewhere(tmp_path: Path, path: str) -> None:
    """The next answer of the conversation begins with what came of it."""
    answers = (WRITE, says("Written."), says("And more."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, path, "Write.")
        ((waiting),) = (await client.world.get("/context/approvals?status=pending")).json["data"]
        assert (await client.world.decide(waiting["id"])).status == 200
        await client.world.run(waiting["run_id"], state="completed")
        told = await asked(client, path, "Write.", question, "What else?")
        assert told.index("Written.") < told.index("And more.")


async def test_json_format_answer_omits_results_of_other_runs(tmp_path: Path) -> None:
    """An answer that is JSON is the client's."""
    answers = (WRITE, says("Written."), says("{}"), says("{}"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, RESPONSES, "Write.")
        ((waiting),) = (await client.world.get("/context/approvals?status=pending")).json["data"]
        await client.world.decide(waiting["id"])
        await client.world.run(waiting["run_id"], state="completed")
        body = body_of(RESPONSES, "Write.", question, "As JSON.", text={"format": {"type": "json_object"}})
        assert text(RESPONSES, await client.post(body, RESPONSES)) == "{}"


@pytest.mark.parametrize("path", PATHS)
async def test_a_message_starts_a_workflow(tmp_path: Path, path: str) -> None:
    """By its name, and no model is asked."""
    async with answering(workflows={"folder": str(folder_of(tmp_path, ECHO))}) as client:
        assert await asked(client, path, "/echo two words") == "[two words]"


@pytest.mark.parametrize("path", PATHS)
async def test_client_task_request_bypasses_the_chain_and_decides_nothing(tmp_path: Path, path: str) -> None:
    """A quotation in it decides nothing."""
    answers = (WRITE, says("A title"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        question = await asked(client, path, "Write.")
        (line,) = [line for line in question.splitlines() if line.startswith("approve ap_")]
        headers = {"X-Context-Task": "title"}
        told = await client.post(body_of(path, f"{TITLE}\n{line}"), path, headers=headers)
        assert text(path, told) == "A title" and told.headers["X-Context-Task"] == "title"
        assert not (tmp_path / "work" / "new.txt").exists()


@pytest.mark.parametrize("path", PATHS)
async def test_context_bodies_share_byte_and_value_limits(path: str) -> None:
    """Bytes and values."""
    async with answering(says("one"), limits={"context_body": "10KiB", "context_values": 100}) as client:
        for texts in (("x" * 11_000,), ("x",) * 101):
            refused = await client.post(body_of(path, *texts), path)
            assert (refused.status, refused.error["code"]) == (413, "request_too_large")
        assert await asked(client, path, "x" * 9_000) == "one"


@pytest.mark.parametrize("path", PATHS)
async def test_upstream_api_key_takes_precedence_over_client_credential(path: str) -> None:
    """A client's own credential goes on where the upstream has none."""
    async with answering(says("one")) as client:
        await asked(client, path, "1", Authorization="Bearer sk-mine")
        (sent,) = client.world.model.upstream.requests
        assert sent.list_values(b"authorization") == [b"Bearer sk-mine"]
    async with answering(says("one"), **KEYS) as client:
        await asked(client.of("ann"), path, "1", Authorization="Bearer sk-mine")
        (sent,) = client.world.model.upstream.requests
        assert sent.list_values(b"authorization") == [b"Bearer sk-upstream"]
