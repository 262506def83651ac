"""A model of chat completions that says what a test wrote, each reply to the request that it is for."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from tests.clients.in_thread import InThread

Json = dict[str, Any]

#: The answer to a request for which nothing is written.
UNEXPECTED: Final = "Nothing is written for this."


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to a request whose last message contains `to`; it is given once.

    `calls` are native ones. `status` other than 200 is an error, and `cut` ends the connection in the middle.
    """

    to: str
    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    status: int = 200
    cut: bool = False


class ScriptedModel(InThread):
    """`with ScriptedModel(*replies) as model`; `asked` are the requests that it got, `unexpected` their last messages.

    Of several replies that fit, the first one that was not given yet is given.
    """

    def __init__(self, *replies: Reply) -> None:
        super().__init__()
        self.asked: list[Json] = []
        self.unexpected: list[str] = []
        self._left = [*replies]

    @property
    def left(self) -> Sequence[Reply]:
        """The replies that were not given."""
        return self._left

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.add_routes([web.post("/v1/chat/completions", self._answer)])
        return app

    def _choose(self, body: Json) -> Reply:
        last = body["messages"][-1]["content"]
        last = last if isinstance(last, str) else json.dumps(last, ensure_ascii=False)
        for reply in self._left:
            if reply.to in last:
                self._left.remove(reply)
                return reply
        self.unexpected.append(last)
        return Reply("", UNEXPECTED)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        reply = self._choose(body)
        if reply.status != 200:
            error = {"message": "The model is busy.", "type": "overloaded", "param": None, "code": None}
            return web.json_response({"error": error}, status=reply.status)
        calls = [
            {"id": f"call_{len(self.asked)}_{i}", "type": "function", "function": _encode_function(name, arguments)}
            for i, (name, arguments) in enumerate(reply.calls)
        ]
        message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        common = {"id": "chatcmpl-1", "created": 1, "model": "demo"}
        finish = "tool_calls" if calls else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return web.json_response({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        message["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        choices: list[Json] = [{"delta": message}, {"delta": {}, "finish_reason": finish}]
        for choice in choices:
            frame = {**common, "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}], "usage": usage}
            await response.write(f"data: {json.dumps(frame)}\n\n".encode())
            if reply.cut:
                assert request.transport is not None
                request.transport.abort()
                return response
        await response.write(b"data: [DONE]\n\n")
        return response


def _encode_function(name: str, arguments: Json) -> Json:
    return {"name": name, "arguments": json.dumps(arguments)}


def build_prompted_call(name: str, *, risk_level: str | None = None, **parameters: object) -> str:
    """Return the text of a call of a gateway's tool."""
    risk = {} if risk_level is None else {"risk_level": risk_level}
    return json.dumps({"tool": name, "parameters": {**parameters, **risk}, "terminate": False})
