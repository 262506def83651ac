"""People decide by chat, REST, WebSocket and terminal; client libraries, step by step, keep their conversations."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import openai
import pytest
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.lane import Lane
from tests.clients.libraries import llm_home
from tests.clients.person import (
    DONE,
    HOLD,
    PATIENCE_S,
    REJECTED,
    Json,
    asked_about,
    asking,
    behind_question,
    decide,
    ended,
    insertion,
    line,
    pending,
    person,
    until,
    writing,
    written,
)
from tests.clients.provider import PROVIDER_KEY, Provider
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

#: Before it openai-python gives up, where there are no keep-alives.
TIMEOUT_S = 0.5

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("tools")) as lane:
        yield lane


@pytest.fixture(scope="module")
def silent_lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its streams say nothing while they are held."""
    with asking(provider, tmp_path_factory.mktemp("silent"), keepalive_s=2 * PATIENCE_S) as lane:
        yield lane


@pytest.fixture
def openai_client(lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def assistant(text: str | None) -> ChatCompletionMessageParam:
    return {"role": "assistant", "content": text}


# openai-python, step by step.


@by_both_decisions
def test_conversation_continues_after_an_approval(
    openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """The history comes back with each message, as the client keeps it; the file is written once."""
    messages = [user(writing(client_id))]
    create = openai_client.chat.completions.create
    asked = create(model="demo", messages=messages)
    told: Any = asked.model_extra
    [approval] = told["context"]["approvals"]
    assert told["context"]["status"] == "awaiting_approval" and asked.choices[0].finish_reason == "stop"
    assert pending(lane, client_id) == approval and approval["arguments"]["content"] == client_id
    messages += [assistant(asked.choices[0].message.content), user(f"{decision} {approval['id']}")]
    answered = create(model="demo", messages=messages).choices[0].message.content
    assert answered is not None and written(lane, client_id).exists() == (decision == "approve")
    assert answered.startswith("Demo model: round 1 of" if decision == "approve" else "The call of `file_operations`")
    if decision == "approve":
        assert written(lane, client_id).read_text(encoding="utf-8") == client_id
        written(lane, client_id).unlink()
    assert create(model="demo", messages=messages).choices[0].message.content == answered
    assert create(model="demo", messages=[*messages, assistant(answered), user("Say hello")]).choices[0].message.content
    assert not written(lane, client_id).exists() and len(asked_about(lane, client_id)) == 1


@by_both_decisions
def test_plain_stream_loop_shows_question_and_decision(
    openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """Each chunk has a choice; what is waited for stands in the text and beside it, and whoever reads it can decide."""
    text, told = "", []
    for chunk in openai_client.chat.completions.create(
        model="demo", messages=[user(insertion(client_id))], stream=True, extra_headers=HOLD
    ):
        text += chunk.choices[0].delta.content or ""
        extra = chunk.model_extra or {}
        if "context" in extra:
            told.append(extra["context"])
            if extra["context"]["type"] == "approval.required":
                assert extra["context"]["approvals"] == [pending(lane, client_id)]
                assert behind_question(text) == ""
                decide(lane, client_id, decision)
    assert behind_question(text) == (DONE if decision == "approve" else REJECTED)
    assert [event["type"] for event in told] == ["approval.required", "approval.resolved"]
    ended(lane, client_id, decision)


@by_both_decisions
def test_stream_helper_shows_question_and_decision(
    openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """Its events and its final completion have the question and the answer."""
    with (
        person(lane, client_id, decision),
        openai_client.chat.completions.stream(
            model="demo", messages=[user(insertion(client_id))], extra_headers=HOLD
        ) as stream,
    ):
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]
    assert text == final.message.content and behind_question(text) == (DONE if decision == "approve" else REJECTED)
    assert final.finish_reason == "stop"
    ended(lane, client_id, decision)


def test_timed_out_held_answer_raises_only_one_question(lane: Lane, client_id: str) -> None:
    """The SDK loses its patience and tries again: it is told what is waited for, and nobody is asked twice."""
    messages = [user(insertion(client_id))]
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, default_headers=HOLD, max_retries=1) as client:
        create = client.with_options(timeout=TIMEOUT_S).chat.completions.create
        asked = create(model="demo", messages=messages).choices[0].message.content
        reply = line(pending(lane, client_id))
        assert asked is not None and f"\n{reply}\n" in asked
        messages += [assistant(asked), user(reply)]
        assert client.chat.completions.create(model="demo", messages=messages).choices[0].message.content == DONE
    ended(lane, client_id, "approve")


@pytest.mark.parametrize("way", ["asks again", "answers", "is decided for"])
def test_timed_out_held_stream_returns_to_the_same_question(silent_lane: Lane, client_id: str, way: str) -> None:
    """It is not repeated by itself. Whoever asks the same once more, or answers, comes back to the same question."""
    lane, messages = silent_lane, [user(insertion(client_id))]
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, default_headers=HOLD) as client:
        with pytest.raises(openai.APITimeoutError):
            streamed(client.with_options(timeout=TIMEOUT_S), messages)
        reply = line(pending(lane, client_id))
        if way == "asks again":
            assert f"\n{reply}\n" in streamed(client, messages)
        if way == "is decided for":
            decide(lane, client_id, "approve")
            until(lane, client_id, "awaiting_client")
        else:
            messages += [assistant(""), user(reply)]
        assert streamed(client, messages) == DONE
    ended(lane, client_id, "approve")


def streamed(client: openai.OpenAI, messages: list[ChatCompletionMessageParam]) -> str:
    """As every tutorial does it."""
    chunks = client.chat.completions.create(model="demo", messages=messages, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


# Conversations of the others.


def test_openai_node_keeps_the_conversation(node: Worker, lane: Lane, client_id: str) -> None:
    """The same, in another language."""
    messages = [user(insertion(client_id))]
    asked = node.call("chat.completions.create", {"model": "demo", "messages": messages}, root=lane.root)
    [approval] = asked["context"]["approvals"]
    messages += [assistant(asked["choices"][0]["message"]["content"]), user(line(approval))]
    answered = node.call("chat.completions.create", {"model": "demo", "messages": messages}, root=lane.root)
    assert answered["choices"][0]["message"]["content"] == DONE and "context" not in answered
    ended(lane, client_id, "approve")


def test_langchain_keeps_the_conversation(lane: Lane, client_id: str) -> None:
    """In messages of its own."""
    model = ChatOpenAI(model="demo", base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY)
    asked = model.invoke([("user", insertion(client_id))])
    reply = line(pending(lane, client_id))
    assert model.invoke([("user", insertion(client_id)), asked, ("user", reply)]).content == DONE
    ended(lane, client_id, "approve")


async def test_pydantic_ai_keeps_the_conversation(lane: Lane, client_id: str) -> None:
    """In a history of its own."""
    async with openai.AsyncOpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY) as client:
        agent = Agent(OpenAIChatModel("demo", provider=OpenAICompatibleProvider("gateway", openai_client=client)))
        asked = await agent.run(insertion(client_id))
        reply = line(pending(lane, client_id))
        assert (await agent.run(reply, message_history=asked.all_messages())).output == DONE
    ended(lane, client_id, "approve")


@pytest.mark.cell("approval", row="llm")
@by_both_decisions
def test_llm_keeps_the_conversation(lane: Lane, client_id: str, decision: str) -> None:
    """`llm -c`, with the log that it keeps."""
    with llm_home(lane.root) as env:

        def llm(*words: str) -> str:
            command = [sys.executable, "-m", "llm", *words, "--key", PROVIDER_KEY, "--no-stream"]
            return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout.strip()

        shown = llm("-m", "gateway-demo", insertion(client_id))
        approval = pending(lane, client_id)
        assert line(approval) in shown
        reply = line(approval) if decision == "approve" else f"{line(approval, 'reject')}: Not today"
        assert llm("-c", reply) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


# By other ways.


@by_both_decisions
async def test_websocket_client_decides_a_held_call(
    lane: Lane, client_id: str, decision: str, openai_client: openai.OpenAI
) -> None:
    """It hears of the question, answers it, and hears what became of it; the held stream goes on."""
    holding = openai_client.with_options(default_headers=HOLD)
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{lane.root}/ws") as socket:
        answering = asyncio.create_task(asyncio.to_thread(streamed, holding, [user(insertion(client_id))]))
        approval = (await heard(socket, "approval.required"))["data"]
        assert client_id in approval["arguments"]["sql"] and lane.count(client_id) == 0
        decided = {"id": approval["id"], "decision": decision, "sha256": approval["sha256"]}
        reason = {"reason": "Not today"} if decision == "reject" else {}
        await socket.send_json({"type": "decide", "ref": 1, **decided, **reason})
        told = await heard(socket, "decision")
        assert (told["ref"], told["status"], told["approval"]["via"]) == (1, 200, "websocket")
        finished = await heard(socket, "run.finished")
        assert finished["run_id"] == approval["run_id"]
        assert behind_question(await answering) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


async def heard(socket: aiohttp.ClientWebSocketResponse, kind: str) -> Json:
    """The next message of this type, or event of this kind."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message: Json = await socket.receive_json()
            if kind in (message["type"], message.get("event")):
                return message


def gateway(lane: Lane, *words: str) -> str:
    """What a command of the operator prints."""
    command = [sys.executable, "-m", "gateway", "approvals", *words, "--url", lane.root.removesuffix("/context")]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@by_both_decisions
def test_terminal_command_decides_a_pending_call(
    openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """On a turn, whose client is not there: it finds the answer when it asks again."""
    messages = [user(insertion(client_id))]
    asked = openai_client.chat.completions.create(model="demo", messages=messages).choices[0].message.content
    approval = pending(lane, client_id)
    [listed] = [line for line in gateway(lane, "list", "--json").splitlines() if client_id in line]
    assert json.loads(listed) == {**approval, "assigned_to": None, "notes": []}
    reason = ["--reason", "Not today"] if decision == "reject" else []
    assert approval["id"] in gateway(lane, decision, approval["id"], *reason)
    assert approval["id"] not in gateway(lane, "list")
    again = openai_client.chat.completions.create(
        model="demo", messages=[*messages, assistant(asked), user(f"{decision} {approval['id']}")]
    )
    assert again.choices[0].message.content == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


def test_terminal_approval_resumes_a_held_stream(openai_client: openai.OpenAI, lane: Lane, client_id: str) -> None:
    """While the client reads it."""
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(streamed, openai_client.with_options(default_headers=HOLD), [user(insertion(client_id))])
        gateway(lane, "approve", pending(lane, client_id)["id"])
        assert behind_question(answer.result()) == DONE
    ended(lane, client_id, "approve")


def test_approved_run_waits_for_its_client_to_supply_the_key(
    openai_client: openai.OpenAI, lane: Lane, client_id: str
) -> None:
    """The call runs without its client, but the model's key is the client's: the run waits until it asks again."""
    create, messages = openai_client.chat.completions.create, [user(insertion(client_id))]
    create(model="demo", messages=messages)
    decide(lane, client_id, "approve")
    until(lane, client_id, "awaiting_client")
    assert lane.count(client_id) == 1
    assert create(model="demo", messages=messages).choices[0].message.content == DONE
    ended(lane, client_id, "approve")
