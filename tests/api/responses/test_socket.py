"""Responses over a WebSocket: turns behind each other, what a connection remembers, frames that are none, its ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from gateways import until, until_read, until_still
from own_pages import own_pages

from gateway.api.responses.socket import REMEMBERED, WAITING, SocketResponses
from gateway.contracts.storage.store import Json
from gateway.dialects.registry import build_paths
from gateway.server.app import DATA
from tests.e2e.models import Cut, calls, refuses, says
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, GATEWAY, KEYS, RESPONSES, Client, answering, text_of

PATIENCE_S = 30
ENDS = ("response.completed", "response.incomplete", "response.failed")
RUNS = calls("file_operations", operation="write", path="new.txt", content="x")
#: A stage that fails behind the first word of an answer.
FAILING = """
from pydantic import BaseModel

from gateway.plugin import Plugin, Reply


class Config(BaseModel):
    pass


async def failing(exchange, call_next):
    async def stream(emit):
        emit("one")
        raise RuntimeError("a fault of this plugin")

    async def release():
        pass

    return Reply(stream, release)


PLUGIN = Plugin(Config, lambda config, host: failing)
"""


@dataclass
class Talk:
    """A WebSocket as a client has it."""

    socket: ClientWebSocketResponse

    async def say(self, said: object = "Hi", **fields: object) -> None:
        await self.socket.send_json({"type": "response.create", "model": "m", "input": said, **fields})

    async def hear(self) -> Json:
        message: Json = await self.socket.receive_json(timeout=PATIENCE_S)
        return message

    async def turn(self, said: object = "Hi", **fields: object) -> list[Json]:
        """A message, and the events of its response."""
        await self.say(said, **fields)
        return await self.rest()

    async def rest(self) -> list[Json]:
        """The events of a response to its end, or the error in its place."""
        events = [await self.hear()]
        while events[-1]["type"] not in ENDS and "status" not in events[-1]:
            events.append(await self.hear())
        return events

    async def response(self, said: object = "Hi", **fields: object) -> Json:
        found: Json = (await self.turn(said, **fields))[-1]["response"]
        return found

    async def refusal(self, said: object = "Hi", **fields: object) -> Json:
        """The error that a message is answered with."""
        (told,) = await self.turn(said, **fields)
        assert told.keys() == {"type", "status", "error"} and told["type"] == "error"
        assert told["error"].keys() == {"type", "code", "message", "param"}
        error: Json = told["error"]
        return error

    async def code(self) -> int | None:
        """The code of the close that comes next."""
        message = await self.socket.receive(timeout=PATIENCE_S)
        assert message.type is WSMsgType.CLOSE, message
        return self.socket.close_code


@asynccontextmanager
async def talking(client: Client, path: str = RESPONSES, **headers: str) -> AsyncIterator[Talk]:
    async with ClientSession() as session:
        url = client.world.gateway.base_url + path
        async with session.ws_connect(url, headers=client.headers(headers)) as socket:
            yield Talk(socket)


async def pages(client: Client) -> SocketResponses:
    """Those of the gateway."""
    routes = await own_pages(client.world.gateway)
    found = (getattr(handler, "__self__", None) for _, _, handler in routes)
    return next(page for page in found if isinstance(page, SocketResponses))


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_socket_turns_continue_each_other(path: str) -> None:
    """Each with all its events, numbered from 0; they are responses as any others."""
    answers = (says("one ", "two"), says("three"))
    async with answering(*answers) as client, talking(client, path, **{"X-Context-Mode": "context"}) as talk:
        events = await talk.turn("1")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
        first = events[-1]["response"]
        assert text_of(first) == "one two" and (await client.get(first["id"])).json == first
        second = await talk.response("2", previous_response_id=first["id"])
        assert text_of(second) == "three" and client.sent == [user("1"), assistant("one two"), user("2")]


async def test_concurrent_socket_messages_are_answered_in_order() -> None:
    """In their order: the second run begins behind the first one's end."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), says("three")) as client, talking(client) as talk:
        await talk.say("1")
        await talk.say("2")
        while (await talk.hear())["type"] != "response.output_text.delta":
            pass
        assert len(client.world.model.asked) == 1
        gate.set()
        assert text_of((await talk.rest())[-1]["response"]) == "one two"
        assert text_of((await talk.rest())[-1]["response"]) == "three"


async def test_socket_reads_only_as_many_messages_as_may_wait() -> None:
    """The gateway reads no more of them than may wait, and loses none."""
    gate, texts = asyncio.Event(), [str(number) for number in range(3 * WAITING)]
    answers = (says("one ", gate), *map(says, texts))
    async with answering(*answers) as client, talking(client) as talk:
        await talk.say("Hi")
        while (await talk.hear())["type"] != "response.output_text.delta":
            pass
        for text in texts:
            await talk.say(text)
        await until(lambda: client.world.gateway.gateway._listeners[DATA].paused)
        gate.set()
        assert text_of((await talk.rest())[-1]["response"]) == "one "
        for text in texts:
            assert text_of((await talk.rest())[-1]["response"]) == text
            assert client.sent == [user(text)]


async def test_socket_reads_one_large_message_at_a_time() -> None:
    """Of large ones the first alone is read; the others fill what the kernel has for them, and wait."""
    gate, large, most = asyncio.Event(), "x" * 3_900_000, 10
    answers = (says("one ", gate), *(says(str(number)) for number in range(most)))
    async with answering(*answers, limits={"context_body": "4MiB"}) as client, talking(client) as talk:
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(most):
                await talk.say(large, metadata={"number": str(number)})
                sent += 1

        await talk.say(large)
        while (await talk.hear())["type"] != "response.output_text.delta":
            pass
        sending = asyncio.create_task(send())
        await until(lambda: client.world.gateway.gateway._listeners[DATA].paused)
        await until_still(lambda: 1 + sent)
        assert sent < most / 2
        gate.set()
        await talk.rest()
        for number in range(most):
            found = (await talk.rest())[-1]["response"]
            assert (text_of(found), found["metadata"]) == (str(number), {"number": str(number)})
        await sending


async def test_socket_message_counts_towards_the_concurrency_limit() -> None:
    """`limits.concurrent` counts it; a WebSocket that waits for its client counts as none."""
    gate = asyncio.Event()
    async with (
        answering(says("one ", gate), says("two"), limits={"concurrent": 1}) as client,
        talking(client) as idle,
        talking(client) as busy,
    ):
        await busy.say("1")
        while (await busy.hear())["type"] != "response.output_text.delta":
            pass
        told = (await idle.turn("2"))[-1]
        assert (told["status"], told["error"]["code"]) == (503, "overloaded")
        assert (await client.create("2")).status == 503
        gate.set()
        await busy.rest()
        assert text_of(await idle.response("2")) == "two"


@pytest.mark.parametrize(
    ("headers", "status", "code", "param"),
    [
        ({"X-Context-Nope": "1"}, 400, "invalid_header", "x-context-nope"),
        ({"X-Context-Approvals": "never"}, 400, "invalid_header", "x-context-approvals"),
        ({"X-Context-Chain": "nope"}, 400, "invalid_header", "x-context-chain"),
        ({"X-Context-Tools": "nope*"}, 400, "invalid_header", "x-context-tools"),
        ({"X-Context-Prompt": "nope"}, 404, "prompt_not_found", "x-context-prompt"),
        ({"X-Context-Task": "a b"}, 400, "invalid_header", "x-context-task"),
        ({"Idempotency-Key": "k"}, 400, "invalid_header", "idempotency-key"),
    ],
)
async def test_invalid_socket_handshake_is_refused_before_the_upgrade(
    headers: dict[str, str], status: int, code: str, param: str
) -> None:
    """With the error of HTTP, before the 101."""
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with answering() as client:
        answer = await client.world.get(RESPONSES, **upgrade, **headers)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)


async def test_retried_handshake_does_not_repeat_messages(tmp_path: Path) -> None:
    """A retry count is that of the handshake: each message has an answer of its own."""
    async with (
        answering(RUNS, says("one"), RUNS, says("two"), tools=desk(tmp_path, write=True)) as client,
        talking(client, **{"x-stainless-retry-count": "1"}) as talk,
    ):
        assert text_of(await talk.response(tools=[GATEWAY])) == "one"
        assert text_of(await talk.response(tools=[GATEWAY])) == "two"


async def test_unstored_response_is_known_only_to_its_connection() -> None:
    """And by no other one, nor over HTTP."""
    answers = (says("one"), says("two"), says("three"))
    async with answering(*answers) as client, talking(client) as talk:
        first = await talk.response("1", store=False)
        second = await talk.response("2", store=False, previous_response_id=first["id"])
        await talk.response("3", previous_response_id=second["id"])
        expected = [user("1"), assistant("one"), user("2"), assistant("two"), user("3")]
        assert client.sent == expected
        assert (await client.get(second["id"])).status == 404
        async with talking(client) as other:
            refused = await other.refusal("4", previous_response_id=second["id"])
            assert (refused["code"], refused["param"]) == ("previous_response_not_found", "previous_response_id")


async def test_connection_remembers_only_the_latest_unstored_responses() -> None:
    """The oldest of too many is forgotten; the others are there."""
    answers = [says(str(number)) for number in range(REMEMBERED + 2)]
    async with answering(*answers) as client, talking(client) as talk:
        made = [await talk.response(str(number), store=False) for number in range(REMEMBERED + 1)]
        assert (await talk.refusal(previous_response_id=made[0]["id"]))["code"] == "previous_response_not_found"
        assert (await talk.response("x", previous_response_id=made[1]["id"]))["status"] == "completed"


@pytest.mark.parametrize(
    ("answer", "fields", "code"),
    [
        (refuses(400), {}, "upstream_rejected"),
        (says("tw", Cut(), finish=None), {}, "upstream_error"),
        (None, {"temperature": "hot"}, "invalid_field"),
    ],
)
async def test_failed_turn_drops_its_previous_response_from_the_connection(
    answer: object, fields: Json, code: str
) -> None:
    """The client begins anew, with its whole input."""
    answers = (says("one"), *(() if answer is None else (answer,)))
    async with answering(*answers) as client, talking(client) as talk:  # type: ignore[arg-type]
        first = await talk.response("1", store=False)
        events = await talk.turn("2", previous_response_id=first["id"], **fields)
        told = next(event for event in events if event["type"] == "error")
        assert told["error"]["code"] == code
        refused = await talk.refusal("2", previous_response_id=first["id"])
        assert refused["code"] == "previous_response_not_found"


async def test_warm_up_response_makes_no_model_call() -> None:
    """As Codex begins: its tools and instructions first, then what is new."""
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be terse."}]}
    for store in (True, False):
        async with answering(says("one")) as client, talking(client) as talk:
            events = await talk.turn([developer], generate=False, stream=True, store=store)
            assert [event["type"] for event in events] == [
                "response.created",
                "response.in_progress",
                "response.completed",
            ]
            warm = events[-1]["response"]
            assert (warm["output"], warm["usage"]["total_tokens"]) == ([], 0) and not client.world.model.asked
            assert (await client.get(warm["id"])).status == (200 if store else 404)
            await talk.response([user("1")], previous_response_id=warm["id"], store=store)
            assert client.world.model.asked[-1]["messages"][0]["content"].startswith("Be terse.")


@pytest.mark.parametrize("generate", [False, True])
async def test_stored_response_behind_unstored_one_cannot_be_continued_over_http(*, generate: bool) -> None:
    """The second response is stored, and the first never was: the error says so, and what to do."""
    async with answering(says("one"), says("two")) as client, talking(client) as talk:
        first = await talk.response("1", store=False)
        second = await talk.response("2", generate=generate, previous_response_id=first["id"])
        refused = (await client.create("3", previous_response_id=second["id"])).error
        assert (refused["code"], refused["param"]) == ("previous_response_not_found", "previous_response_id")
        assert first["id"] in refused["message"] and "'store' false" in refused["message"]
        assert "send the whole input" in refused["message"]


async def test_warm_up_message_with_a_decision_is_refused(tmp_path: Path) -> None:
    """Nobody would see what came of it; the call goes on waiting."""
    write = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)
    async with answering(write, tools=desk(tmp_path, write=True)) as client, talking(client) as talk:
        question = (await talk.response("Write.", tools=[GATEWAY]))["output"][-1]
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        refused = await talk.refusal([decision], generate=False)
        assert (refused["code"], refused["param"]) == ("invalid_field", "generate")
        waiting = await client.world.get(f"/context/approvals/{question['id']}")
        assert waiting.json["state"] == "pending" and not (tmp_path / "work" / "new.txt").exists()


async def test_call_is_approved_on_the_same_connection(tmp_path: Path) -> None:
    """By an item of the next message, also where nothing is stored."""
    write = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)
    for store in (True, False):
        (folder := tmp_path / str(store)).mkdir()
        async with answering(write, says("ok"), tools=desk(folder, write=True)) as client, talking(client) as talk:
            asked = await talk.response("Write.", tools=[GATEWAY], store=store)
            question = asked["output"][-1]
            decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
            done = await talk.response([decision], previous_response_id=asked["id"], tools=[GATEWAY], store=store)
            assert text_of(done) == "ok" and (folder / "work" / "new.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("7", "invalid_json", None),
        ("[" * 5_000, "invalid_json", None),
        ("{}", "invalid_field", "type"),
        ('{"type": "ping"}', "invalid_field", "type"),
        ('{"type": ["response.create"]}', "invalid_field", "type"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream": false}', "invalid_field", "stream"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream": 1}', "invalid_field", "stream"),
        ('{"type": "response.create", "model": "m", "input": "x", "generate": 0}', "invalid_field", "generate"),
        ('{"type": "response.create", "model": "m", "input": "x", "background": true}', "unsupported_parameter",
         "background"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream_options": {}}', "unsupported_parameter",
         "stream_options"),
        ('{"type": "response.create", "model": "m", "input": "x", "nope": 1}', "unknown_parameter", "nope"),
        ('{"type": "response.create", "input": "x"}', "missing_field", "model"),
        ('{"type": "response.create", "model": "m"}', "missing_field", "input"),
        ('{"type": "response.create", "model": "m", "input": "x", "previous_response_id": 5}', "invalid_field",
         "previous_response_id"),
    ],
)  # fmt: skip
async def test_invalid_frame_gets_a_400_error_and_connection_continues(text: str, code: str, param: str | None) -> None:
    """And the connection goes on."""
    async with answering(says("one")) as client, talking(client) as talk:
        await talk.socket.send_str(text)
        (told,) = await talk.rest()
        assert (told["status"], told["error"]["code"], told["error"]["param"]) == (400, code, param)
        assert text_of(await talk.response(stream=True, generate=True)) == "one"


async def test_binary_frame_is_refused_as_invalid_json() -> None:
    """Even if it holds one."""
    async with answering(says("one")) as client, talking(client) as talk:
        await talk.socket.send_bytes(b'{"type": "response.create", "model": "m", "input": "x"}')
        (told,) = await talk.rest()
        assert told["error"]["code"] == "invalid_json"
        assert text_of(await talk.response()) == "one"


async def test_socket_frame_has_the_body_limits() -> None:
    """So many values; and a frame that is longer than a body may be ends the connection (1009)."""
    limits = {"context_body": "20KiB", "context_values": 1000}
    async with answering(says("one"), limits=limits) as client, talking(client) as talk:
        assert (await talk.refusal([1] * 2000))["code"] == "request_too_large"
        assert text_of(await talk.response("x" * 19_000)) == "one"
        await talk.say("x" * 21_000)
        assert await talk.code() == 1009


async def test_model_error_before_output_is_reported_with_its_status() -> None:
    """It is an error with the status that a request over HTTP gets."""
    async with answering(refuses(429), says("one")) as client, talking(client) as talk:
        (told,) = await talk.turn()
        assert (told["status"], told["error"]["code"]) == (429, "upstream_limited")
        assert text_of(await talk.response()) == "one"


async def test_plugin_error_ends_only_its_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`error`, then the response that failed; the next message is answered."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "failing.py").write_text(FAILING)
    chains = {"assistant": [{"use": "agent_loop"}], "failing": [{"use": "failing"}]}
    settings: Json = {"plugins": {"folder": str(tmp_path)}, "chains": chains, "context": {"chain": "failing"}}
    async with answering(**settings) as client, talking(client) as talk:
        for _ in range(2):
            events = await talk.turn()
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            assert events[-2]["code"] == "internal_error" and text_of(events[-1]["response"]) == "one"
        assert caplog.text.count("RuntimeError: a fault of this plugin") == 2


async def test_socket_error_names_the_logged_request_id() -> None:
    """Each message has a line in the access log, as a request over HTTP."""
    answers = (says("one"), refuses(429), says("tw", Cut(), finish=None))
    async with answering(*answers, logging={"access": True}) as client:
        async with talking(client) as talk:
            first = await talk.response()
            refused = await talk.refusal(temperature="hot")
            limited = await talk.refusal()
            broken = await talk.turn()
        lines = map(json.loads, client.world.gateway.get_log().splitlines())
        done, *others = (line for line in lines if line.get("mode") == "websocket")
        response_id = "resp_" + done["request_id"].removeprefix("run_")
        assert (done["status"], response_id, done["path"]) == (200, first["id"], RESPONSES)
        assert done["completion_tokens"] == first["usage"]["output_tokens"]
        assert [(line["status"], line["error_code"]) for line in others] == [
            (400, "invalid_field"),
            (429, "upstream_limited"),
            (200, "upstream_error"),
        ]
        told = (refused["message"], limited["message"], broken[-2]["message"])
        ids = [line["request_id"] for line in others]
        assert all(one in text for one, text in zip(ids, told, strict=True)) and len(set(ids)) == 3


async def test_unauthorized_handshake_is_refused_before_the_upgrade() -> None:
    """401 and 403 before the upgrade; nor does a request that is none."""
    async with answering(**KEYS) as client:
        for name, status in (("", 401), ("nobody", 401), ("low", 403), ("con", 403)):
            with pytest.raises(WSServerHandshakeError) as refused:
                async with talking(client.of(name)):
                    pass
            assert refused.value.status == status
        async with client.world.session.get(RESPONSES, headers=client.of("ann").headers()) as answer:
            assert answer.status == 400 and (await answer.json())["error"]["param"] == "upgrade"


async def test_removed_key_is_refused_on_the_next_turn() -> None:
    """Each turn looks at the keys that there are."""
    async with answering(says("one"), **KEYS) as client, talking(client.of("ann")) as talk:
        assert text_of(await talk.response()) == "one"
        await client.world.reload(
            keys=KEYS["keys"][1:], upstreams=[{**client.world.config["upstreams"][0], "api_key": "sk-upstream"}]
        )
        assert (await talk.refusal())["code"] == "invalid_api_key"


async def test_response_of_another_tenant_cannot_be_continued() -> None:
    """It is told as one that is not there."""
    async with answering(says("one"), **KEYS) as client, talking(client.of("eve")) as talk:
        made = (await client.of("ann").create("1")).json
        assert (await talk.refusal(previous_response_id=made["id"]))["code"] == "previous_response_not_found"


async def test_client_close_ends_its_turn() -> None:
    """The model's call ends with it, and what was said is there."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        async with talking(client) as talk:
            await talk.say("1")
            while (event := await talk.hear())["type"] != "response.output_text.delta":
                pass
            response_id = "resp_" + event["item_id"].removeprefix("msg_")[:24]
        await client.world.model.upstream.wait_open(0)
        assert text_of(await client.until(response_id, "cancelled")) == "one "
        assert not (await pages(client))._open


async def test_lost_websocket_ends_the_turn_under_way() -> None:
    """Without a goodbye, as Codex leaves."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client:
        async with talking(client) as talk:
            await talk.say("1")
            await talk.say("2")
            while (await talk.hear())["type"] != "response.output_text.delta":
                pass
            connection = talk.socket._conn  # type: ignore[union-attr]
            assert connection is not None and connection.transport is not None
            connection.transport.abort()
        await client.world.model.upstream.wait_open(0)
        await until_read(lambda: _nothing(client))
        assert len(client.world.model.asked) == 1


async def _nothing(client: Client) -> bool:
    return not (await pages(client))._open


async def test_run_with_effects_is_readable_after_a_lost_connection(tmp_path: Path) -> None:
    """The response tells what was done, and how it ended."""
    gate = asyncio.Event()
    async with answering(RUNS, says("one ", gate), tools=desk(tmp_path, write=True)) as client:
        async with talking(client) as talk:
            await talk.say("1", tools=[GATEWAY])
            created = await talk.hear()
            while (await talk.hear())["type"] != "response.output_text.delta":
                pass
        response = await client.until(created["response"]["id"], "failed", "completed", "cancelled")
        print(response)
        assert [item["name"] for item in response["output"] if item["type"] == "mcp_call"] == ["file_operations"]


async def test_connection_is_closed_at_its_maximum_lifetime() -> None:
    """Then an error says so, and the client opens another one."""
    async with answering(says("one")) as client:
        (await pages(client)).life_s = 0.05
        async with talking(client) as talk:
            told = await talk.hear()
            assert (told["status"], told["error"]["code"]) == (400, "websocket_connection_limit_reached")
            assert await talk.code() == 1000
        (await pages(client)).life_s = 3600.0
        async with talking(client) as talk:
            assert text_of(await talk.response()) == "one"


async def test_gateway_stop_closes_sockets_with_1001() -> None:
    """1001, also in the middle of a turn."""
    gate = asyncio.Event()
    async with answering(says("one ", gate)) as client, talking(client) as idle, talking(client) as busy:
        await busy.say()
        while (await busy.hear())["type"] != "response.output_text.delta":
            pass
        draining = asyncio.create_task(client.world.gateway.gateway.drain())
        assert await idle.code() == 1001
        while (message := await busy.socket.receive(timeout=PATIENCE_S)).type is WSMsgType.TEXT:
            assert "response.completed" not in message.data
        assert (message.type, busy.socket.close_code) == (WSMsgType.CLOSE, 1001)
        await draining
        assert not (await pages(client))._open


async def test_a_conversation_grows_over_a_connection() -> None:
    """As over HTTP."""
    async with answering(says("one"), says("two")) as client, talking(client) as talk:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        await talk.response("1", conversation=conversation)
        await talk.response("2", conversation=conversation)
        assert client.sent == [user("1"), assistant("one"), user("2")]


async def test_frames_have_no_line_ends() -> None:
    """Each message is one JSON object, whatever the model says."""
    async with answering(says("a\n\nb\ndata: {}\n\n")) as client, talking(client) as talk:
        await talk.say()
        heard = []
        while not heard or json.loads(heard[-1])["type"] != "response.completed":
            heard.append((await talk.socket.receive(timeout=PATIENCE_S)).data)
        assert text_of(json.loads(heard[-1])["response"]) == "a\n\nb\ndata: {}\n\n"
        assert not any("\n" in text for text in heard)
