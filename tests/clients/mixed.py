"""Turns that call a tool of the gateway's, then the client's: a model that wants both.

`python -m tests.clients.mixed` records what each client sends back into tests/data/mixed_turns.json.
"""

import json
import re
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tests.clients.in_thread import InThread
from tests.clients.talking import OF_MESSAGES, TALKS, TOOL, talk
from tests.clients.worker import Worker, worker_of

Json = dict[str, Any]

RECORDED: Final = Path(__file__).parents[1] / "data" / "mixed_turns.json"
#: In a spelling of its own, which a client may keep or not.
ARGUMENTS: Final = '{"city": "Malm\\u00f6",  "days": 1.0}'
CALL_ID: Final = "call_0123456789abcdef01234567"
DONE: Final = "Sunny in Malmö, and noted."


class MixedModel(InThread):
    """`with MixedModel() as model`: wants `execute_sql` unless the conversation has it already, then the client's tool.

    `ours` False: wants the client's tool alone, as a client of the gateway sees it. `theirs` is that tool with its
    arguments. `asked` are the messages it got.
    """

    def __init__(self, *, ours: bool = True, theirs: tuple[str, str] = ("get_weather", ARGUMENTS)) -> None:
        super().__init__()
        self.asked: list[list[Json]] = []
        self._ours, self._theirs = ours, theirs

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._answer)])
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body["messages"])
        delta, reason = self._wanted(body)
        common = {"id": "chatcmpl-1", "created": 1, "model": "demo"}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": None, **delta}, "finish_reason": reason}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            return web.json_response({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
        delta["tool_calls"] = [{"index": 0, **call} for call in delta.get("tool_calls", ())]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for choice in ({"delta": {"role": "assistant", **delta}}, {"delta": {}, "finish_reason": reason}):
            frame = {**common, "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}
            await response.write(f"data: {json.dumps(frame)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    def _wanted(self, body: Json) -> tuple[Json, str]:
        called = called_in(body["messages"])
        if self._ours and "execute_sql" not in called:
            return {"content": json.dumps(noting(body["messages"]))}, "stop"
        name, arguments = self._theirs
        if name not in called:
            function = {"name": name, "arguments": arguments}
            return {"tool_calls": [{"id": CALL_ID, "type": "function", "function": function}]}, "tool_calls"
        return {"content": DONE}, "stop"


def called_in(messages: list[Json]) -> set[str]:
    """Return the names of the tools that were called so far."""
    return {call["function"]["name"] for m in messages for call in m.get("tool_calls") or ()}


def noting(messages: list[Json]) -> Json:
    """Return the call of the gateway's tool that notes the name for which a person asks."""
    (name, risk), *_ = re.findall(r"Note (\w+)( at no risk)?, and", json.dumps(messages))
    parameters = {"sql": f"INSERT INTO log VALUES ('{name}', 1)", **({"risk_level": "low"} if risk else {})}
    return {"tool": "execute_sql", "parameters": parameters, "terminate": False}


def _record() -> None:
    told: Json = {"call_id": CALL_ID, "arguments": ARGUMENTS, "answer": DONE, "tool": TOOL, "clients": {}}
    with ExitStack() as workers:

        @cache
        def worker(language: str) -> Worker:
            return workers.enter_context(worker_of(language))

        for name in (name for name in TALKS if name not in OF_MESSAGES):
            for stream in (False, True):
                with (
                    MixedModel(ours=False) as model,
                    talk(name, model.base_url, stream=stream, worker=worker) as client,
                ):
                    assert client.say("Note a at no risk, and the weather.") == client.say("And again?") == DONE
                told["clients"][f"{name} {'stream' if stream else 'whole'}"] = model.asked
    names = ("openai", "langgraph", "langchain", "langchain-openai", "llm", "openai-agents", "pydantic-ai-slim")
    told["versions"] = {name: version(name) for name in names}
    RECORDED.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
