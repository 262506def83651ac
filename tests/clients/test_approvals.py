"""People who use client libraries as they are approve and reject what the model wants: every client, by every way."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from gateway.remote import Remote
from tests.clients.ask import Ask, Client
from tests.clients.breaking import breaking
from tests.clients.conftest import running
from tests.clients.lane import KEEPALIVE_S, Lane, configuration, shop
from tests.clients.libraries import Libraries
from tests.clients.provider import PROVIDER_KEY, Provider
from tests.clients.test_context import LLM, RETRYING, clients
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

Json = dict[str, Any]

HOLD, TURN = ({"X-Context-Approvals": mode} for mode in ("hold", "turn"))
DECISIONS = ("approve", "reject")
DONE = 'Demo model: round 1 of tool calls is done. The result: {"columns":[],"rows":[],"truncated":false,"changed":1}'
REJECTED = "The call of `execute_sql` was rejected, because: `Not today.` Nothing ran."
#: Before it the loop of openai-python gives up, where there are no keep-alives; how long a stream is held.
TIMEOUT_S, INLINE_WAIT_S = 0.5, 0.3
#: What a person has to decide within.
PATIENCE_S = 20.0

by_both_decisions = pytest.mark.parametrize("decision", DECISIONS)


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@contextmanager
def asking(
    provider: Provider, folder: Path, *, keepalive_s: float = KEEPALIVE_S, **approvals: object
) -> Iterator[Lane]:
    """The lane of a gateway with two tools that change something."""
    database = shop(folder)
    (folder / "work").mkdir()
    tools = {
        "file_operations": {"roots": [str(folder / "work")], "write": True},
        "execute_sql": {"url": f"sqlite:///{database}", "read_only": False},
    }
    config = configuration(provider.base_url, tools=tools, keepalive_s=keepalive_s)
    with running(json.dumps({**json.loads(config), "approvals": approvals})) as process:
        yield Lane(f"{process.base_url}/context", database)


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its streams are held for as long as a test may take."""
    with asking(provider, tmp_path_factory.mktemp("patient"), inline_wait=f"{PATIENCE_S}s") as lane:
        yield lane


@pytest.fixture(scope="module")
def silent_lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its streams say nothing while they are held."""
    with asking(provider, tmp_path_factory.mktemp("silent"), keepalive_s=60.0) as lane:
        yield lane


@pytest.fixture(scope="module")
def brief_lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its streams are held for a moment."""
    with asking(provider, tmp_path_factory.mktemp("brief"), inline_wait=f"{INLINE_WAIT_S}s") as lane:
        yield lane


@pytest.fixture
def openai_client(lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


def insertion(name: str) -> str:
    """The words for a call that needs a person."""
    return "tool execute_sql " + json.dumps({"sql": f"INSERT INTO log VALUES ('{name}', $step)"})


def writing(name: str) -> str:
    """The same of a file."""
    return "tool file_operations " + json.dumps({"operation": "write", "path": f"{name}.txt", "content": name})


def written(lane: Lane, name: str) -> Path:
    return lane.database.with_name("work") / f"{name}.txt"


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def assistant(text: str | None) -> ChatCompletionMessageParam:
    return {"role": "assistant", "content": text}


# The person, apart from the client.


def desk(lane: Lane) -> Remote:
    return Remote(lane.root.removesuffix("/context"), None)


def asked_about(lane: Lane, name: str) -> list[Json]:
    """All approvals of calls with this name in them."""
    found: Any = desk(lane).get("context", "approvals", limit=200)["data"]
    return [approval for approval in found if re.search(rf"\b{name}\b", json.dumps(approval["arguments"]))]


def pending(lane: Lane, name: str) -> Json:
    """The one question about this name, once it is there; nothing has run by then."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (waiting := [each for each in asked_about(lane, name) if each["state"] == "pending"]):
        assert time.monotonic() < give_up_s, f"nobody asks about {name}: {asked_about(lane, name)}"
        time.sleep(0.01)
    [approval] = waiting
    assert lane.count(name) == 0 and not written(lane, name).exists()
    return approval


def decide(lane: Lane, name: str, decision: str) -> Json:
    """By REST."""
    reason = "Not today." if decision == "reject" else None
    return desk(lane).post("context", "approvals", pending(lane, name)["id"], decision=decision, reason=reason)


@contextmanager
def person(lane: Lane, name: str, decision: str) -> Iterator[Future[Json]]:
    """Decides as soon as they are asked."""
    with ThreadPoolExecutor(1) as thread:
        decided = thread.submit(decide, lane, name, decision)
        yield decided
        decided.result()


def ended(lane: Lane, name: str, decision: str) -> None:
    """There was one question, and what was decided became of it, once."""
    [approval] = asked_about(lane, name)
    assert approval["state"] == ("done" if decision == "approve" else "rejected")
    assert lane.count(name) == (decision == "approve")


# Every client.


@clients()
def test_a_held_stream_goes_on(client: Client, lane: Lane, client_id: str) -> None:
    """Decided by REST meanwhile: the client sees the answer, and nothing else."""
    with person(lane, client_id, "approve"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=True)).text
    assert text == DONE
    ended(lane, client_id, "approve")


@clients()
def test_a_held_stream_is_rejected(client: Client, lane: Lane, client_id: str) -> None:
    """It ends like any other, with a text that says so."""
    with person(lane, client_id, "reject"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=True)).text
    assert text == REJECTED
    ended(lane, client_id, "reject")


@clients()
def test_a_held_answer_goes_on(client: Client, lane: Lane, client_id: str) -> None:
    """One that is no stream, where the client asks for it."""
    with person(lane, client_id, "approve"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), headers=HOLD)).text
    assert text == DONE
    ended(lane, client_id, "approve")


@clients()
def test_a_turn_is_approved_in_the_next_message(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """The answer says what would run and what to send; sent twice, it runs once."""
    headers = TURN if stream else {}
    text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=stream, headers=headers)).text
    approval = pending(lane, client_id)
    assert approval["arguments"]["sql"] in text and f"\napprove {approval['id']}\n" in text
    reply = Ask(root=lane.root, prompt=f"approve {approval['id']}", stream=stream)
    assert client(reply).text == DONE
    ended(lane, client_id, "approve")
    assert client(reply).text == DONE
    ended(lane, client_id, "approve")


@clients(but=[LLM])
def test_a_turn_is_rejected_in_the_next_message(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """With a reason, which comes back."""
    headers = TURN if stream else {}
    assert client(Ask(root=lane.root, prompt=insertion(client_id), stream=stream, headers=headers)).text
    reply = f"reject {pending(lane, client_id)['id']}: Not today."
    assert client(Ask(root=lane.root, prompt=reply, stream=stream)).text == REJECTED
    ended(lane, client_id, "reject")


@clients(but=[LLM])
def test_a_stream_that_was_held_long_enough_is_a_turn(client: Client, brief_lane: Lane, client_id: str) -> None:
    """Its text says what to send."""
    text = client(Ask(root=brief_lane.root, prompt=insertion(client_id), stream=True)).text
    approval = pending(brief_lane, client_id)
    assert f"\napprove {approval['id']}\n" in text
    assert client(Ask(root=brief_lane.root, prompt=f"approve {approval['id']}", stream=True)).text == DONE
    ended(brief_lane, client_id, "approve")


@clients(["python openai", "python langchain-openai async", "instructor text"])
def test_keepalives_hold_a_stream(client: Client, lane: Lane, client_id: str) -> None:
    """For longer than the client bears silence."""
    ask = Ask(root=lane.root, prompt=insertion(client_id), stream=True, timeout_s=TIMEOUT_S)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client, ask)
        pending(lane, client_id)
        threading.Event().wait(2 * TIMEOUT_S)
        decide(lane, client_id, "approve")
        assert answer.result().text == DONE
    ended(lane, client_id, "approve")


@clients(RETRYING)
def test_a_retry_of_its_own_asks_nobody_again(client: Client, lane: Lane, client_id: str) -> None:
    """The connection breaks, and a person decides while nobody is there: the client comes back to what became of it."""
    broken = threading.Event()

    def breaks() -> bool:
        if asked_about(lane, client_id):
            broken.set()
        return broken.is_set()

    with breaking(lane.root, when=breaks) as root, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client, Ask(root=root, prompt=insertion(client_id), headers=HOLD, retries=2))
        assert broken.wait(PATIENCE_S)
        decide(lane, client_id, "approve")
        assert answer.result().text == DONE
    ended(lane, client_id, "approve")


# openai-python, step by step.


@by_both_decisions
def test_a_conversation_goes_on(openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str) -> None:
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
def test_a_naive_loop_is_held(openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str) -> None:
    """Each chunk has a choice; what is waited for stands beside the text, and whoever reads it can decide."""
    text, thought, told = "", "", []
    for chunk in openai_client.chat.completions.create(
        model="demo", messages=[user(insertion(client_id))], stream=True
    ):
        delta, extra = chunk.choices[0].delta, chunk.model_extra or {}
        text += delta.content or ""
        thought += (delta.model_extra or {}).get("reasoning_content", "")
        if "context" in extra:
            told.append(extra["context"])
            if extra["context"]["type"] == "approval.required":
                assert extra["context"]["approvals"] == [pending(lane, client_id)] and not text
                decide(lane, client_id, decision)
    assert text == (DONE if decision == "approve" else REJECTED)
    assert [event["type"] for event in told] == ["approval.required", "approval.resolved"]
    [approval] = asked_about(lane, client_id)
    assert thought.startswith("Waiting for approval of `execute_sql ") and f"({approval['id']})" in thought
    ended(lane, client_id, decision)


@by_both_decisions
def test_the_helper_is_held(openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str) -> None:
    """Its events and its final completion have the answer alone."""
    with (
        person(lane, client_id, decision),
        openai_client.chat.completions.stream(model="demo", messages=[user(insertion(client_id))]) as stream,
    ):
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]
    assert text == final.message.content == (DONE if decision == "approve" else REJECTED)
    assert final.finish_reason == "stop"
    ended(lane, client_id, decision)


def test_a_timeout_of_a_held_answer(lane: Lane, client_id: str) -> None:
    """The SDK loses its patience and tries again: it waits for the same person."""
    tries: list[object] = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [tries.append]})
    with (
        openai.OpenAI(
            base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, timeout=1.0, default_headers=HOLD, http_client=http
        ) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        answer = thread.submit(client.chat.completions.create, model="demo", messages=[user(insertion(client_id))])
        while len(tries) < 2:
            time.sleep(0.01)
        decide(lane, client_id, "approve")
        assert answer.result().choices[0].message.content == DONE
    ended(lane, client_id, "approve")


@pytest.mark.parametrize("way", ["stream", "chat", "while away"])
def test_a_timeout_of_a_held_stream(silent_lane: Lane, client_id: str, way: str) -> None:
    """Nobody tries again by itself. Whoever asks the same once more, or answers, comes back to the same question."""
    lane, prompt = silent_lane, insertion(client_id)
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, timeout=TIMEOUT_S) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.APITimeoutError):
            for _ in create(model="demo", messages=[user(prompt)], stream=True):
                pass
        approval = pending(lane, client_id)
        if way == "chat":
            again = [user(prompt), assistant(""), user(f"approve {approval['id']}")]
        else:
            again = [user(prompt)]
        if way == "while away":
            decide(lane, client_id, "approve")
        text = ""
        for chunk in create(model="demo", messages=again, stream=True, timeout=PATIENCE_S):
            if "approval.required" in str(chunk.model_extra):
                decide(lane, client_id, "approve")
            text += chunk.choices[0].delta.content or ""
    assert text == DONE
    ended(lane, client_id, "approve")


# Conversations of the others.


def test_openai_node_keeps_the_conversation(node: Worker, lane: Lane, client_id: str) -> None:
    """The same, in another language."""
    messages = [user(insertion(client_id))]
    asked = node.call("chat.completions.create", {"model": "demo", "messages": messages}, root=lane.root)
    [approval] = asked["context"]["approvals"]
    messages += [assistant(asked["choices"][0]["message"]["content"]), user(f"approve {approval['id']}")]
    answered = node.call("chat.completions.create", {"model": "demo", "messages": messages}, root=lane.root)
    assert answered["choices"][0]["message"]["content"] == DONE and "context" not in answered
    ended(lane, client_id, "approve")


def test_langchain_keeps_the_conversation(lane: Lane, client_id: str) -> None:
    """In messages of its own."""
    model = ChatOpenAI(model="demo", base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY)
    asked = model.invoke([("user", insertion(client_id))])
    reply = f"approve {pending(lane, client_id)['id']}"
    assert model.invoke([("user", insertion(client_id)), asked, ("user", reply)]).content == DONE
    ended(lane, client_id, "approve")


async def test_pydantic_ai_keeps_the_conversation(lane: Lane, client_id: str) -> None:
    """In a history of its own."""
    async with openai.AsyncOpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY) as client:
        agent = Agent(OpenAIChatModel("demo", provider=OpenAICompatibleProvider("gateway", openai_client=client)))
        asked = await agent.run(insertion(client_id))
        reply = f"approve {pending(lane, client_id)['id']}"
        assert (await agent.run(reply, message_history=asked.all_messages())).output == DONE
    ended(lane, client_id, "approve")


def test_llm_keeps_the_conversation(lane: Lane, client_id: str, tmp_path: Path) -> None:
    """`llm -c`, with the log that it keeps."""
    tmp_path.joinpath("extra-openai-models.yaml").write_text(
        f"- {{model_id: gateway-demo, model_name: demo, api_base: '{lane.root}/v1', api_key_name: gateway}}"
    )

    def llm(*words: str) -> str:
        command = [sys.executable, "-m", "llm", *words, "--key", PROVIDER_KEY, "--no-stream"]
        env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout.strip()

    shown = llm("-m", "gateway-demo", insertion(client_id))
    reply = f"approve {pending(lane, client_id)['id']}"
    assert reply in shown and llm("-c", reply) == DONE
    ended(lane, client_id, "approve")


@pytest.mark.parametrize("client", ["instructor rows"], indirect=True)
def test_instructor_waits_for_an_object(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """The text of a turn is no object, so it fails; a held answer has one."""
    returning = f'{insertion(client_id)[:-2]} RETURNING name"}}'
    if not stream:
        assert "Rows" in client(Ask(root=lane.root, prompt=returning)).failed.message
        decide(lane, client_id, "reject")
        returning += " Once more."
    with person(lane, client_id, "approve"):
        outcome = client(Ask(root=lane.root, prompt=returning, stream=stream, headers=HOLD))
    assert outcome.text and json.loads(outcome.pieces[-1]) == {"columns": ["name"], "rows": [[client_id]]}
    assert lane.count(client_id) == 1


# By other ways.


@by_both_decisions
async def test_a_websocket_decides(lane: Lane, client_id: str, decision: str, openai_client: openai.OpenAI) -> None:
    """It hears of the question, answers it, and hears what became of it; the held stream goes on."""

    def answer() -> str:
        chunks = openai_client.chat.completions.create(model="demo", messages=[user(insertion(client_id))], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    async with aiohttp.ClientSession() as session, session.ws_connect(f"{lane.root}/ws") as socket:
        answering = asyncio.create_task(asyncio.to_thread(answer))
        required = await heard(socket, "approval.required")
        [approval] = required["data"]["approvals"]
        assert client_id in approval["arguments"]["sql"] and lane.count(client_id) == 0
        decided = {"id": approval["id"], "decision": decision, "sha256": approval["sha256"]}
        reason = {"reason": "Not today."} if decision == "reject" else {}
        await socket.send_json({"type": "decide", "ref": 1, **decided, **reason})
        told = await heard(socket, "decision")
        assert (told["ref"], told["status"], told["approval"]["via"]) == (1, 200, "websocket")
        finished = await heard(socket, "run.finished")
        assert finished["run_id"] == approval["run_id"]
        assert await answering == (DONE if decision == "approve" else REJECTED)
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
def test_the_terminal_decides(openai_client: openai.OpenAI, lane: Lane, client_id: str, decision: str) -> None:
    """On a turn, whose client is not there: it finds the answer when it asks again."""
    messages = [user(insertion(client_id))]
    asked = openai_client.chat.completions.create(model="demo", messages=messages).choices[0].message.content
    approval = pending(lane, client_id)
    [listed] = [line for line in gateway(lane, "list", "--json").splitlines() if client_id in line]
    assert json.loads(listed) == approval
    reason = ["--reason", "Not today."] if decision == "reject" else []
    assert approval["id"] in gateway(lane, decision, approval["id"], *reason)
    assert approval["id"] not in gateway(lane, "list")
    again = openai_client.chat.completions.create(
        model="demo", messages=[*messages, assistant(asked), user(f"{decision} {approval['id']}")]
    )
    assert again.choices[0].message.content == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


def test_the_terminal_lets_a_held_stream_go_on(libraries: Libraries, lane: Lane, client_id: str) -> None:
    """While the client reads it."""
    ask = Ask(root=lane.root, prompt=insertion(client_id), stream=True)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(libraries.client("openai"), ask)
        gateway(lane, "approve", pending(lane, client_id)["id"])
        assert answer.result().text == DONE
    ended(lane, client_id, "approve")


def test_the_same_request_brings_what_a_decision_lacks(
    openai_client: openai.OpenAI, lane: Lane, client_id: str
) -> None:
    """The call runs without its client, the model's key is the client's: the run waits for who asks the same again."""
    messages = [user(insertion(client_id))]
    openai_client.chat.completions.create(model="demo", messages=messages)
    run_id = decide(lane, client_id, "approve")["run_id"]
    while desk(lane).get("context", "runs", run_id)["state"] != "awaiting_client":
        time.sleep(0.01)
    assert lane.count(client_id) == 1
    again = openai_client.chat.completions.create(model="demo", messages=messages)
    assert again.choices[0].message.content == DONE
    ended(lane, client_id, "approve")
