"""GET /v1/realtime: a small session over WebSocket that follows the same script, in text only."""

import asyncio
import hashlib
import itertools
from typing import Final

import orjson
from aiohttp import WSMsgType, web

from gateway.demo.conversation import (
    Conversation,
    ConversationEntry,
    Json,
    RefusalError,
    classify_text,
    read_body,
    read_texts,
)
from gateway.demo.delivery import cut_connection, cut_first_half, pace_parts
from gateway.demo.script import DemoAnswer, build_answer, refuse_when_asked
from gateway.demo.words import PromptAsk

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
SUBPROTOCOLS: Final = ("realtime",)


async def serve_realtime(request: web.Request) -> web.WebSocketResponse:
    """Serve one session, until the client closes it or an answer is cut."""
    socket = web.WebSocketResponse(protocols=SUBPROTOCOLS, max_msg_size=MAX_EVENT_BYTES)
    await socket.prepare(request)
    session = RealtimeSession(model=request.query.get("model", "demo"))
    try:
        await socket.send_str(_dump_event(session.build_session_event()))
        async for message in socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            ask, events = session.receive(message.data)
            await asyncio.sleep(ask.delay_s)
            async for event in pace_parts(cut_first_half(events) if ask.cut else events, gap_s=ask.gap_s):
                await socket.send_str(_dump_event(event))
            if ask.cut:
                cut_connection(request)
                break
    except ConnectionError:
        pass  # the client has gone; no reader is left
    return socket


class RealtimeSession:
    """The conversation with one client, without the socket."""

    def __init__(self, *, model: str) -> None:
        self._entries: list[ConversationEntry] = []
        self._event_numbers = itertools.count(1)
        self._item_numbers = itertools.count(1)
        self._last_item_id: str | None = None
        self._session: Json = {
            "id": "sess_demo",
            "object": "realtime.session",
            "type": "realtime",
            "model": model,
            "output_modalities": ["text"],
            "instructions": "",
        }

    def build_session_event(self) -> Json:
        return self._build_event("session.created", session=self._session)

    def receive(self, raw: str | bytes) -> tuple[PromptAsk, list[Json]]:
        """Return the events that answer one event of the client, and the ask that sets how they are sent."""
        event: Json = {}
        try:
            event = read_body(raw)
            match event.get("type"):
                case "session.update":
                    return PromptAsk(), [self._update(event)]
                case "conversation.item.create":
                    return PromptAsk(), [self._add_item(event)]
                case "response.create":
                    answer = self._answer_event()
                    refuse_when_asked(answer)
                    return answer.ask, self._respond(answer)
                case kind:
                    raise RefusalError(
                        f"The event type {kind!r} is unknown. "
                        "Use session.update, conversation.item.create or response.create.",
                        param="type",
                    )
        except RefusalError as refusal:
            return PromptAsk(), [
                self._build_event("error", error={**refusal.build_error(), "event_id": event.get("event_id")})
            ]

    def _update(self, event: Json) -> Json:
        self._session = {**self._session, **_read_object(event, "session")}
        return self._build_event("session.updated", session=self._session)

    def _add_item(self, event: Json) -> Json:
        item = _read_object(event, "item")
        self._entries.append(_read_item(item))
        return self._build_item_event(
            {"id": self._build_next_item_id(), "object": "realtime.item", "status": "completed", **item}
        )

    def _answer_event(self) -> DemoAnswer:
        model, instructions = self._session["model"], self._session["instructions"]
        conversation = Conversation(
            model=model if isinstance(model, str) else "demo",
            entries=(ConversationEntry("system", (str(instructions),)), *self._entries),
            stream=True,
            max_tokens=None,
            native_calls=False,
        )
        return build_answer(conversation, digest=hashlib.sha256(repr(conversation).encode()).hexdigest())

    def _respond(self, answer: DemoAnswer) -> list[Json]:
        text = "".join(answer.text)
        response: Json = {
            "id": f"resp_{answer.digest[:24]}",
            "object": "realtime.response",
            "status": "in_progress",
            "output": [],
            "output_modalities": ["text"],
        }
        item: Json = {
            "id": self._build_next_item_id(),
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        done: Json = {**item, "status": "completed", "content": [{"type": "output_text", "text": text}]}
        at = {"response_id": response["id"], "output_index": 0}
        inside = {**at, "item_id": item["id"], "content_index": 0}
        usage = {
            "input_tokens": answer.prompt_tokens,
            "output_tokens": answer.completion_tokens,
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        }
        self._entries.append(classify_text((text,)))
        return [
            self._build_event("response.created", response=response),
            self._build_event("response.output_item.added", **at, item=item),
            self._build_item_event(item),
            *(self._build_event("response.output_text.delta", **inside, delta=piece) for piece in answer.text),
            self._build_event("response.output_text.done", **inside, text=text),
            self._build_event("response.output_item.done", **at, item=done),
            self._build_event(
                "response.done", response={**response, "status": "completed", "output": [done], "usage": usage}
            ),
        ]

    def _build_item_event(self, item: Json) -> Json:
        before, self._last_item_id = self._last_item_id, item["id"]
        return self._build_event("conversation.item.created", previous_item_id=before, item=item)

    def _build_event(self, kind: str, **fields: object) -> Json:
        return {"type": kind, "event_id": f"event_{next(self._event_numbers)}", **fields}

    def _build_next_item_id(self) -> str:
        return f"item_{next(self._item_numbers)}"


def _read_object(event: Json, name: str) -> Json:
    value = event.get(name)
    if not isinstance(value, dict):
        raise RefusalError(f"{name!r} must be an object.", param=name)
    return value


def _read_item(item: Json) -> ConversationEntry:
    texts = read_texts(item.get("content"), param="item")
    match item.get("type", "message"), item.get("role"):
        case "function_call_output", _:
            return ConversationEntry("result", read_texts(item.get("output"), param="item"))
        case _, "assistant":
            return classify_text(texts)
        case _, "user":
            return ConversationEntry("user", texts)
        case _:
            return ConversationEntry("system", texts)


def _dump_event(event: Json) -> str:
    return orjson.dumps(event).decode()
