"""A realtime session over a real WebSocket."""

import aiohttp
import pytest

from .talk import Json

PATH = "/v1/realtime?model=any-name"


def item(text: str, **more: object) -> Json:
    content = [{"type": "input_text", "text": text}]
    message = {"type": "message", "role": "user", "content": content, **more}
    return {"type": "conversation.item.create", "item": message}


async def respond(socket: aiohttp.ClientWebSocketResponse, *items: Json) -> list[Json]:
    """Add the items, ask for a response, and return its events."""
    for event in items:
        await socket.send_json(event)
        assert (await socket.receive_json())["type"] == "conversation.item.created"
    await socket.send_json({"type": "response.create"})
    events: list[Json] = []
    while not events or events[-1]["type"] not in ("response.done", "error"):
        events.append(await socket.receive_json())
    return events


async def test_realtime_session_answers_in_deltas(client: aiohttp.ClientSession) -> None:
    """A session opens, is updated, takes an item, and answers in deltas that add up to the item told as done."""
    async with client.ws_connect(PATH, protocols=("realtime",)) as socket:
        assert socket.protocol == "realtime"
        created = await socket.receive_json()
        assert (created["type"], created["session"]["model"]) == ("session.created", "any-name")
        await socket.send_json({"type": "session.update", "session": {"instructions": "Be kind."}})
        updated = await socket.receive_json()
        assert updated["type"] == "session.updated"
        assert updated["session"] == {**created["session"], "instructions": "Be kind."}
        events = await respond(socket, item("long 3"))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    done = events[-1]["response"]
    assert deltas == ["word1 ", "word2 ", "word3 "]
    assert (done["status"], done["output"][0]["content"][0]["text"]) == ("completed", "".join(deltas))
    assert len({event["event_id"] for event in [created, updated, *events]}) == len(events) + 2


async def test_realtime_session_remembers_the_conversation(client: aiohttp.ClientSession) -> None:
    """The session remembers: a tool's result is mentioned, and the next prompt begins anew."""
    async with client.ws_connect(PATH) as socket:
        await socket.receive_json()
        called = await respond(socket, item("long 9", role="system"), item("native x {}"))
        assert '"tool": "x"' in called[-2]["item"]["content"][0]["text"]
        output = {"type": "conversation.item.create", "item": {"type": "function_call_output", "output": "sunny"}}
        assert "sunny" in (await respond(socket, output))[-2]["item"]["content"][0]["text"]
        assert '"thanks"' in (await respond(socket, item("thanks")))[-2]["item"]["content"][0]["text"]
        replaced = item("Done.", role="assistant")
        assert (
            '"again"'
            in (await respond(socket, item("long 5"), replaced, item("again")))[-2]["item"]["content"][0]["text"]
        )


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ("{", None),
        ('{"type": "nope", "event_id": "e1"}', "type"),
        ('{"type": ["session.update"]}', "type"),
        ('{"type": "session.update"}', "session"),
        ('{"type": "conversation.item.create", "item": 3}', "item"),
    ],
)
async def test_invalid_realtime_event_returns_an_error_event(
    client: aiohttp.ClientSession, sent: str, param: str | None
) -> None:
    """A bad event is answered with an error and the session goes on."""
    async with client.ws_connect(PATH) as socket:
        await socket.receive_json()
        await socket.send_bytes(sent.encode())
        error = await socket.receive_json()
        assert (error["type"], error["error"]["param"]) == ("error", param)
        assert error["error"]["event_id"] == ("e1" if "e1" in sent else None)
        assert (await respond(socket, item("hello")))[-1]["type"] == "response.done"


async def test_error_word_sends_an_error_event(client: aiohttp.ClientSession) -> None:
    """`error CODE` is an error event."""
    async with client.ws_connect(PATH) as socket:
        await socket.receive_json()
        (error,) = await respond(socket, item("error 500"))
        assert error["error"]["type"] == "server_error"


async def test_cut_word_drops_the_websocket_connection(client: aiohttp.ClientSession) -> None:
    """`cut` ends the connection without a closing handshake, in the middle of the answer."""
    async with client.ws_connect(PATH) as socket:
        await socket.receive_json()
        await socket.send_json(item("cut long 4"))
        await socket.send_json({"type": "response.create"})
        kinds = []
        while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            kinds.append(message.json()["type"])
        assert "response.output_text.delta" in kinds and "response.done" not in kinds
        assert socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE


async def test_realtime_request_without_upgrade_returns_400(client: aiohttp.ClientSession) -> None:
    """A plain GET is a 400 in the shape of every error."""
    async with client.get(PATH) as response:
        assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
