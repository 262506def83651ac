"""Turns that call a tool of the gateway's, then the client's: a model that wants both, and clients that have one.

`python -m tests.clients.mixed` records what each client sends back into tests/data/mixed_turns.json.
"""

import asyncio
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

import openai
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from aiohttp import web
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.in_thread import InThread
from tests.clients.provider import PROVIDER_KEY
from tests.clients.worker import Worker, worker_of

Json = dict[str, Any]

RECORDED: Final = Path(__file__).parents[1] / "data" / "mixed_turns.json"
TOOL: Final[Json] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
            "required": ["city", "days"],
        },
    },
}
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


class Talk(Protocol):
    """One conversation of a client with `get_weather`."""

    def say(self, text: str) -> str:
        """Its answer, behind whatever calls."""
        ...


class OpenAITalk:
    """openai-python, with the loop that every tutorial has."""

    def __init__(self, root: str, *, stream: bool) -> None:
        self._client = openai.OpenAI(base_url=f"{root}/v1", api_key=PROVIDER_KEY)
        self._stream = stream
        self._messages: list[Any] = []

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        while True:
            options: Any = {"model": "demo", "messages": self._messages, "tools": [TOOL]}
            if self._stream:
                with self._client.chat.completions.stream(**options) as stream:
                    message = stream.get_final_completion().choices[0].message
            else:
                message = self._client.chat.completions.create(**options).choices[0].message
            self._messages.append(message)
            if not message.tool_calls:
                return message.content or ""
            self._messages += [{"role": "tool", "tool_call_id": c.id, "content": "Sunny"} for c in message.tool_calls]


@tool("get_weather")
def _langchain_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"Sunny for {days:g} days in {city}"


class LangGraphTalk:
    """An agent of LangGraph's, which keeps its state."""

    def __init__(self, root: str, *, stream: bool) -> None:
        model = ChatOpenAI(model="demo", base_url=f"{root}/v1", api_key=PROVIDER_KEY, streaming=stream)  # type: ignore[arg-type]
        self._agent = create_agent(model, tools=[_langchain_weather])
        self._messages: list[Any] = []

    def say(self, text: str) -> str:
        state = self._agent.invoke({"messages": [*self._messages, ("user", text)]})
        self._messages = state["messages"]
        return str(self._messages[-1].content)


@function_tool(name_override="get_weather")
def _agents_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"Sunny for {days:g} days in {city}"


class AgentsTalk:
    """An agent of openai-agents, in chat completions mode."""

    def __init__(self, root: str, *, stream: bool) -> None:
        set_tracing_disabled(True)
        self._root = root
        self._stream = stream
        self._items: list[Any] = []

    def say(self, text: str) -> str:
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        async with openai.AsyncOpenAI(base_url=f"{self._root}/v1", api_key=PROVIDER_KEY) as client:
            agent = Agent(name="a", model=OpenAIChatCompletionsModel("demo", client), tools=[_agents_weather])
            items = [*self._items, {"role": "user", "content": text}]
            if self._stream:
                streamed = Runner.run_streamed(agent, items)
                async for _ in streamed.stream_events():
                    pass
                self._items, answer = streamed.to_input_list(), streamed.final_output
            else:
                result = await Runner.run(agent, items)
                self._items, answer = result.to_input_list(), result.final_output
        return str(answer)


class NodeTalk:
    """A client in JavaScript, by its name in clients.mjs."""

    def __init__(self, root: str, *, stream: bool, worker: Worker, name: str) -> None:
        self._root, self._stream, self._worker, self._name = root, stream, worker, name
        self._messages: list[Json] = []

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        told = self._worker.talk(self._name, self._messages, TOOL, root=self._root, stream=self._stream)
        self._messages = told["messages"]
        return str(told["text"])


PYTHON: Final = {"openai-python": OpenAITalk, "langgraph": LangGraphTalk, "openai-agents": AgentsTalk}
NODE: Final = {"openai-node": "openai", "ai-sdk": "ai-sdk"}
TALKS: Final = (*PYTHON, *NODE)


def talk(name: str, root: str, *, stream: bool, worker: Worker) -> Talk:
    if name in NODE:
        return NodeTalk(root, stream=stream, worker=worker, name=NODE[name])
    made: Talk = PYTHON[name](root, stream=stream)
    return made


def _record() -> None:
    told: Json = {"call_id": CALL_ID, "arguments": ARGUMENTS, "answer": DONE, "tool": TOOL, "clients": {}}
    with worker_of("node") as worker:
        for name in TALKS:
            for stream in (False, True):
                with MixedModel(ours=False) as model:
                    client = talk(name, model.base_url, stream=stream, worker=worker)
                    assert client.say("Note a at no risk, and the weather.") == client.say("And again?") == DONE
                told["clients"][f"{name} {'stream' if stream else 'whole'}"] = model.asked
    names = ("openai", "langgraph", "langchain", "langchain-openai", "openai-agents")
    told["versions"] = {name: version(name) for name in names}
    RECORDED.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
