"""Conversations of clients of the Responses API: with tools of the gateway that they name, and a tool of their own."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, TypeAlias

import openai
from agents import (
    Agent,
    HostedMCPTool,
    OpenAIResponsesModel,
    Runner,
    RunResult,
    RunState,
    Tool,
    function_tool,
    set_tracing_disabled,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_openai import ChatOpenAI
from openai.types.responses import Response

from tests.clients.provider import PROVIDER_KEY
from tests.clients.worker import Worker

Json = dict[str, Any]

WEATHER: Final[Json] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "strict": False,
}
REASON: Final = "Not today"
DECISIONS: Final[dict[str, Json]] = {"approve": {"approve": True}, "reject": {"approve": False, "reason": REASON}}
_SUNNY: Final = "Sunny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The tools of the gateway that a client names (`label` None: none), and its answer to whatever it is asked.

    `base_url` ends with `/v1`. `history` are the messages before the conversation, each with a role and a text.
    """

    base_url: str
    stream: bool
    label: str | None = "gateway"
    require_approval: str = "never"
    decision: Json | None = None
    api_key: str = PROVIDER_KEY
    history: Sequence[Json] = ()

    @property
    def named(self) -> list[Any]:
        """The tools of the gateway, as they are named in a request."""
        if self.label is None:
            return []
        return [{"type": "mcp", "server_label": self.label, "require_approval": self.require_approval}]

    @property
    def answer(self) -> Json:
        """The decision; to be asked without one is the test's failure."""
        assert self.decision is not None, "nobody is there to be asked"
        return self.decision


@dataclass(frozen=True, slots=True)
class Told:
    """The text of an answer, the calls that the client was asked about, and those that it was shown.

    Of each call there are its `name`, its `arguments` as JSON text, and `output` and `error` where it ran.
    """

    text: str
    asked: list[Json]
    calls: list[Json]


class Conversation(Protocol):
    """One conversation of a client, which keeps its history itself."""

    def say(self, text: str) -> Told:
        """Its answer, behind whatever calls and questions."""
        ...


Items: TypeAlias = list[Any]


class OpenAIConversation:
    """openai-python, with its whole history in each request."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = openai.OpenAI(base_url=options.base_url, api_key=options.api_key, max_retries=0)
        self._input: Items = [*options.history]

    def say(self, text: str) -> Told:
        told = Told(text, [], [])
        self._input.append({"role": "user", "content": text})
        while True:
            response = self._respond()
            items = [item.to_dict() for item in response.output]
            note(told, items)
            self.keep(response)
            answers = list(filter(None, (answer_to(item, self._options) for item in items)))
            if not answers:
                return Told(response.output_text, told.asked, told.calls)
            self._input += answers

    def request(self) -> Json:
        return {"model": "demo", "input": self._input, "tools": [*self._options.named, WEATHER]}

    def keep(self, response: Response) -> None:
        """Goes on behind this one."""
        self._input += response.output

    def _respond(self) -> Response:
        if not self._options.stream:
            whole: Response = self._client.responses.create(**self.request())
            return whole
        with self._client.responses.stream(**self.request()) as stream:
            return stream.get_final_response()


class ChainedConversation(OpenAIConversation):
    """The same with `previous_response_id`: each request has only what is new."""

    _last: str | None = None

    def request(self) -> Json:
        return {**super().request(), "previous_response_id": self._last}

    def keep(self, response: Response) -> None:
        self._input, self._last = [], response.id


class LangChainConversation:
    """LangChain with `use_responses_api`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        model = ChatOpenAI(
            model="demo",
            base_url=options.base_url,
            api_key=options.api_key,
            max_retries=0,
            use_responses_api=True,
        )
        self._model = model.bind_tools([*options.named, WEATHER])
        self._messages: list[BaseMessage] = convert_to_messages([*options.history])

    def say(self, text: str) -> Told:
        told = Told(text, [], [])
        self._messages.append(HumanMessage(text))
        while True:
            message = self._message()
            self._messages.append(message)
            items = [block for block in message.content if isinstance(block, dict)]
            note(told, items)
            asked = [item for item in items if item["type"] == "mcp_approval_request"]
            self._messages += [ToolMessage(_SUNNY, tool_call_id=call["id"]) for call in message.tool_calls]
            if asked:
                self._messages.append(HumanMessage([answer_to(item, self._options) or {} for item in asked]))
            elif not message.tool_calls:
                return Told(message.text, told.asked, told.calls)

    def _message(self) -> AIMessage:
        if not self._options.stream:
            return self._model.invoke(self._messages)
        first, *rest = self._model.stream(self._messages)
        for chunk in rest:
            first += chunk  # type: ignore[assignment]
        return first


@function_tool(name_override="get_weather", strict_mode=False)
def _weather(city: str, days: float) -> str:
    """The weather in a city."""
    return _SUNNY


class AgentsConversation:
    """openai-agents, which decides in the callback of its tool."""

    def __init__(self, options: Options) -> None:
        set_tracing_disabled(True)
        self._options = options
        self._history: Items = [*options.history]
        self._told = Told("", [], [])

    def say(self, text: str) -> Told:
        return asyncio.run(self._say(text))

    def tools(self) -> list[Tool]:
        return [HostedMCPTool(tool_config=each, on_approval_request=self._decide) for each in self._options.named]

    async def _say(self, text: str) -> Told:
        self._told = Told(text, [], [])
        options = self._options
        async with openai.AsyncOpenAI(base_url=options.base_url, api_key=options.api_key, max_retries=0) as client:
            agent = Agent(name="a", model=OpenAIResponsesModel("demo", client), tools=[*self.tools(), _weather])
            result = await self.run(agent, [*self._history, {"role": "user", "content": text}])
        self._history = result.to_input_list()
        calls = [raw for item in result.new_items if getattr(raw := item.raw_item, "type", None) == "mcp_call"]
        note(self._told, [raw.to_dict() for raw in calls])
        return Told(str(result.final_output), self._told.asked, self._told.calls)

    async def run(self, agent: Agent[Any], asked: Any) -> Any:
        if not self._options.stream:
            return await Runner.run(agent, asked)
        streamed = Runner.run_streamed(agent, asked)
        async for _ in streamed.stream_events():
            pass
        return streamed

    def _decide(self, request: Any) -> Any:
        return self.decided(request.data.to_dict())

    def decided(self, item: Json) -> Json:
        note(self._told, [item])
        return self._options.answer


class InterruptedConversation(AgentsConversation):
    """The same where whoever runs the agent decides between two runs, over a state that was stored."""

    def tools(self) -> list[Tool]:
        return [HostedMCPTool(tool_config=each) for each in self._options.named]

    async def run(self, agent: Agent[Any], asked: Any) -> Any:
        result: RunResult = await super().run(agent, asked)
        while result.interruptions:
            state: Any = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
            for interruption in state.get_interruptions():
                decision = self.decided(interruption.raw_item)
                if decision["approve"]:
                    state.approve(interruption)
                else:
                    state.reject(interruption, rejection_message=decision["reason"])
            result = await super().run(agent, state)
        return result


class NodeConversation:
    """A client in JavaScript, by its name in responses.mjs."""

    _numbers = itertools.count(1)

    def __init__(self, options: Options, *, worker: Worker, name: str) -> None:
        self._worker, self._name = worker, name
        self._id = str(next(self._numbers))
        self._options = {**asdict(options), "tool": WEATHER}

    def say(self, text: str) -> Told:
        told = self._worker.converse(self._name, self._id, text, self._options)
        return Told(told["text"], told["asked"], told["calls"])


def note(told: Told, items: Items) -> None:
    """Adds the calls in these items."""
    for item in items:
        call = {name: item.get(name) for name in ("name", "arguments", "output", "error")}
        if item["type"] == "mcp_approval_request":
            told.asked.append(call)
        elif item["type"] == "mcp_call":
            told.calls.append(call)


def answer_to(item: Json, options: Options) -> Json | None:
    """The item that answers this one of an output, if it wants an answer."""
    if item["type"] == "function_call":
        return {"type": "function_call_output", "call_id": item["call_id"], "output": _SUNNY}
    if item["type"] == "mcp_approval_request":
        return {"type": "mcp_approval_response", "approval_request_id": item["id"], **options.answer}
    return None


PYTHON: Final[Mapping[str, Callable[[Options], Conversation]]] = {
    "openai-python": OpenAIConversation,
    "openai-python chained": ChainedConversation,
    "langchain": LangChainConversation,
    "openai-agents": AgentsConversation,
    "openai-agents interrupted": InterruptedConversation,
}
NODE: Final = {
    "openai-node": "openai",
    "langchain-js": "langchain",
    "agents-js": "agents",
    "agents-js interrupted": "agents interrupted",
    "ai-sdk": "ai-sdk",
}
#: It sends its whole conversation without calls of the gateway's tools, so a later turn does not know what they did.
UNSTORED: Final = "ai-sdk unstored"
CONVERSATIONS: Final = (*PYTHON, *NODE)
#: They do not send the reason of a rejection.
SILENT_ABOUT_REASONS: Final = ("langchain-js", "ai-sdk", UNSTORED)


def conversation(name: str, options: Options, *, worker: Worker) -> Conversation:
    if name in NODE or name == UNSTORED:
        return NodeConversation(options, worker=worker, name=NODE.get(name, name))
    return PYTHON[name](options)
