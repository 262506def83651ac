"""Conversations of clients that have a tool of their own, `get_weather`, each in the way its documentation shows."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anthropic
import openai
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.libraries import ProgramError, llm_home, pydantic_message
from tests.clients.provider import PROVIDER_KEY
from tests.clients.worker import Worker

Json = dict[str, Any]

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
SUNNY: Final = "Sunny"
_FUNCTION: Final[Json] = TOOL["function"]
_MESSAGES_TOOL: Final[Json] = {
    "name": _FUNCTION["name"],
    "description": _FUNCTION["description"],
    "input_schema": _FUNCTION["parameters"],
}
_MAX_TOKENS: Final = 1000


class Talk(Protocol):
    """One conversation of a client with `get_weather`, behind a history of messages with a role and a text."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None: ...

    def say(self, text: str) -> str:
        """Return its answer, behind whatever calls."""
        ...


class _InProcess:
    """A conversation that needs no process of its own; `_messages` are in the words of the client."""

    def __init__(self, root: str, *, stream: bool, history: Sequence[Json]) -> None:
        self._root, self._stream = root, stream
        self._messages: list[Any] = [*history]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        pass

    def _options(self) -> Json:
        return {"base_url": f"{self._root}/v1", "api_key": PROVIDER_KEY, "max_retries": 0}


class OpenAITalk(_InProcess):
    """openai-python, with the loop that every tutorial has."""

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        with openai.OpenAI(**self._options()) as client:
            while True:
                request: Any = {"model": "demo", "messages": self._messages, "tools": [TOOL]}
                message = self._message(client, request)
                self._messages.append(message)
                if not message.get("tool_calls"):
                    return message["content"] or ""
                self._messages += map(_result, message["tool_calls"])

    def _message(self, client: openai.OpenAI, request: Any) -> Json:
        if not self._stream:
            return client.chat.completions.create(**request).choices[0].message.to_dict()
        assembled = _Assembled()
        for chunk in client.chat.completions.create(**request, stream=True):
            assembled.add(chunk)
        return assembled.message


class OpenAIHelperTalk(OpenAITalk):
    """The same with `.stream()`, which assembles the message itself."""

    def _message(self, client: openai.OpenAI, request: Any) -> Json:
        with client.chat.completions.stream(**request) as stream:
            if self._stream:
                for _ in stream:
                    pass
            return stream.get_final_completion().choices[0].message.to_dict()


class OpenAIAsyncTalk(_InProcess):
    """The asynchronous client."""

    def say(self, text: str) -> str:
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        async with openai.AsyncOpenAI(**self._options()) as client:
            while True:
                message = await self._message(client)
                self._messages.append(message)
                if not message.get("tool_calls"):
                    return message["content"] or ""
                self._messages += map(_result, message["tool_calls"])

    async def _message(self, client: openai.AsyncOpenAI) -> Json:
        request: Any = {"model": "demo", "messages": self._messages, "tools": [TOOL]}
        if not self._stream:
            return (await client.chat.completions.create(**request)).choices[0].message.to_dict()
        assembled = _Assembled()
        async for chunk in await client.chat.completions.create(**request, stream=True):
            assembled.add(chunk)
        return assembled.message


class _Assembled:
    """The message that the chunks of a stream make."""

    def __init__(self) -> None:
        self._text = ""
        self._calls: dict[int, Json] = {}

    def add(self, chunk: ChatCompletionChunk) -> None:
        delta = chunk.choices[0].delta
        self._text += delta.content or ""
        for piece in delta.tool_calls or ():
            call = self._calls.setdefault(piece.index, {"type": "function", "function": {"name": "", "arguments": ""}})
            call.setdefault("id", piece.id)
            if piece.function is not None:
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""

    @property
    def message(self) -> Json:
        called = {"tool_calls": [*self._calls.values()]} if self._calls else {}
        return {"role": "assistant", "content": self._text or None, **called}


class AnthropicTalk(_InProcess):
    """anthropic-python."""

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        with anthropic.Anthropic(base_url=self._root, api_key=PROVIDER_KEY, max_retries=0) as client:
            while True:
                message = self._message(client)
                said = _goes_on(self._messages, message)
                if said is not None:
                    return said

    def _message(self, client: anthropic.Anthropic) -> Any:
        if not self._stream:
            return client.messages.create(**_messages_request(self._messages))
        with client.messages.stream(**_messages_request(self._messages)) as stream:
            return stream.get_final_message()


class AnthropicAsyncTalk(_InProcess):
    """The asynchronous client."""

    def say(self, text: str) -> str:
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        async with anthropic.AsyncAnthropic(base_url=self._root, api_key=PROVIDER_KEY, max_retries=0) as client:
            while True:
                message = await self._message(client)
                said = _goes_on(self._messages, message)
                if said is not None:
                    return said

    async def _message(self, client: anthropic.AsyncAnthropic) -> Any:
        if not self._stream:
            return await client.messages.create(**_messages_request(self._messages))
        async with client.messages.stream(**_messages_request(self._messages)) as stream:
            return await stream.get_final_message()


@anthropic.beta_tool(name="get_weather")
def _anthropic_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"{SUNNY} for {days:g} days in {city}"


class AnthropicRunnerTalk(_InProcess):
    """The runner of tools that anthropic-python has."""

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        with anthropic.Anthropic(base_url=self._root, api_key=PROVIDER_KEY, max_retries=0) as client:
            request: Any = {"model": "demo", "max_tokens": _MAX_TOKENS, "messages": [*self._messages]}
            runner: Any = client.beta.messages.tool_runner(tools=[_anthropic_weather], stream=self._stream, **request)
            for each in runner:
                message = each.get_final_message() if self._stream else each
                self._messages.append({"role": "assistant", "content": message.content})
                if (results := runner.generate_tool_call_response()) is not None:
                    self._messages.append(results)
        return "".join(block.text for block in message.content if block.type == "text")


def _messages_request(messages: list[Any]) -> Json:
    return {"model": "demo", "max_tokens": _MAX_TOKENS, "messages": messages, "tools": [_MESSAGES_TOOL]}


def _goes_on(messages: list[Any], message: Any) -> str | None:
    """Add a message of Anthropic's API and the results of its calls; return its text if it calls nothing."""
    messages.append({"role": "assistant", "content": message.content})
    used = [block.id for block in message.content if block.type == "tool_use"]
    if not used:
        return "".join(block.text for block in message.content if block.type == "text")
    results = [{"type": "tool_result", "tool_use_id": each, "content": SUNNY} for each in used]
    messages.append({"role": "user", "content": results})
    return None


@tool("get_weather")
def _langchain_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"{SUNNY} for {days:g} days in {city}"


def _chat_openai(options: Json, **more: Any) -> ChatOpenAI:
    # A timeout of this type keeps its connections out of a cache that outlives them.
    return ChatOpenAI(model="demo", timeout=openai.Timeout(60), **options, **more)


class LangChainTalk(_InProcess):
    """langchain-openai with `bind_tools`."""

    def say(self, text: str) -> str:
        chat = _chat_openai(self._options())
        with chat.root_client:
            return self._say(chat.bind_tools([_langchain_weather]), text)

    def _say(self, model: Any, text: str) -> str:
        self._messages.append(("user", text))
        while True:
            message: Any = _joined([*model.stream(self._messages)]) if self._stream else model.invoke(self._messages)
            self._messages.append(message)
            if not message.tool_calls:
                return str(message.text)
            self._messages += map(_ran, message.tool_calls)


class LangChainAnthropicTalk(LangChainTalk):
    """langchain-anthropic with `bind_tools`."""

    def say(self, text: str) -> str:
        options: Any = {"model": "demo", "base_url": self._root, "api_key": PROVIDER_KEY, "max_retries": 0}
        chat = ChatAnthropic(max_tokens=_MAX_TOKENS, **options)
        return self._say(chat.bind_tools([_langchain_weather]), text)


class LangChainAsyncTalk(_InProcess):
    """The same with `ainvoke` and `astream`."""

    def say(self, text: str) -> str:
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        chat = _chat_openai(self._options())
        model = chat.bind_tools([_langchain_weather])
        self._messages.append(("user", text))
        async with chat.root_async_client:
            while True:
                if self._stream:
                    message: Any = _joined([chunk async for chunk in model.astream(self._messages)])
                else:
                    message = await model.ainvoke(self._messages)
                self._messages.append(message)
                if not message.tool_calls:
                    return str(message.content)
                self._messages += map(_ran, message.tool_calls)


def _joined(chunks: list[AIMessage]) -> Any:
    first: Any
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def _ran(call: Any) -> ToolMessage:
    ran: ToolMessage = _langchain_weather.invoke(call)
    return ran


class LangGraphTalk(_InProcess):
    """An agent of LangGraph's, which keeps its state."""

    def say(self, text: str) -> str:
        model = _chat_openai(self._options(), streaming=self._stream)
        agent: Any = create_agent(model, tools=[_langchain_weather])
        with model.root_client:
            self._messages = agent.invoke({"messages": [*self._messages, ("user", text)]})["messages"]
        return str(self._messages[-1].content)


@function_tool(name_override="get_weather")
def _agents_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"{SUNNY} for {days:g} days in {city}"


class AgentsTalk(_InProcess):
    """An agent of openai-agents, in chat completions mode."""

    def say(self, text: str) -> str:
        set_tracing_disabled(True)
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        async with openai.AsyncOpenAI(**self._options()) as client:
            agent = Agent(name="a", model=OpenAIChatCompletionsModel("demo", client), tools=[_agents_weather])
            items = [*self._messages, {"role": "user", "content": text}]
            if not self._stream:
                result: Any = await Runner.run(agent, items)
            else:
                result = Runner.run_streamed(agent, items)
                async for _ in result.stream_events():
                    pass
            self._messages = result.to_input_list()
            return str(result.final_output)


def get_weather(city: str, days: float) -> str:
    """The weather in a city."""
    return f"{SUNNY} for {days:g} days in {city}"


class PydanticAITalk(_InProcess):
    """An agent of pydantic-ai, in chat completions mode."""

    def __init__(self, root: str, *, stream: bool, history: Sequence[Json]) -> None:
        super().__init__(root, stream=stream, history=[])
        self._messages = [pydantic_message(**message) for message in history]

    def say(self, text: str) -> str:
        return asyncio.run(self._say(text))

    async def _say(self, text: str) -> str:
        async with openai.AsyncOpenAI(**self._options()) as client:
            provider = OpenAICompatibleProvider("gateway", openai_client=client)
            return await self._run(OpenAIChatModel("demo", provider=provider), text)

    async def _run(self, model: Model, text: str) -> str:
        agent = PydanticAgent(model, tools=[get_weather])
        if not self._stream:
            whole = await agent.run(text, message_history=self._messages)
            self._messages = whole.all_messages()
            return whole.output
        async with agent.run_stream(text, message_history=self._messages) as result:
            said = await result.get_output()
        self._messages = result.all_messages()
        return said


class PydanticAIMessagesTalk(PydanticAITalk):
    """The same with its model for Anthropic's API."""

    async def _say(self, text: str) -> str:
        async with anthropic.AsyncAnthropic(base_url=self._root, api_key=PROVIDER_KEY, max_retries=0) as client:
            return await self._run(AnthropicModel("demo", provider=AnthropicProvider(anthropic_client=client)), text)


class LlmTalk:
    """`llm chat`, in which a person types. It keeps no history but its own, so it is told none."""

    _PROMPT: Final = "\n> "

    def __init__(self, root: str, *, stream: bool, history: Sequence[Json]) -> None:
        assert not history
        self._root, self._stream = root, stream
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        env = self._stack.enter_context(llm_home(self._root, "supports_tools: true"))
        functions = Path(env["LLM_USER_PATH"], "weather.py")
        functions.write_text(
            f'def get_weather(city: str, days: float) -> str:\n    "The weather in a city."\n    return "{SUNNY}"\n'
        )
        options = ["-m", "gateway-demo", "--key", PROVIDER_KEY, "--functions", str(functions)]
        self._program = subprocess.Popen(
            [sys.executable, "-m", "llm", "chat", *options, *([] if self._stream else ["--no-stream"])],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._program.communicate(b"quit\n", timeout=30)
        self._stack.close()

    def say(self, text: str) -> str:
        assert self._program.stdin is not None
        self._program.stdin.write(f"{text}\n".encode())
        return self._read()

    def _read(self) -> str:
        """Return what it prints until it asks again."""
        assert self._program.stdout is not None
        printed = b""
        while not printed.decode(errors="ignore").endswith(self._PROMPT):
            piece = os.read(self._program.stdout.fileno(), 65536)
            if not piece:
                raise ProgramError(printed.decode())
            printed += piece
        return printed.decode().removesuffix(self._PROMPT).strip()


class WorkerTalk:
    """A client in a process of its own, by its name there."""

    def __init__(self, root: str, *, stream: bool, history: Sequence[Json], worker: Worker, name: str) -> None:
        self._root, self._stream, self._worker, self._name = root, stream, worker, name
        self._messages: list[Json] = [*history]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        pass

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        told = self._worker.talk(self._name, self._messages, TOOL, root=self._root, stream=self._stream)
        self._messages = told["messages"]
        return str(told["text"])


def _result(call: Json) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": SUNNY}


PYTHON: Final[Mapping[str, Callable[..., Talk]]] = {
    "openai-python": OpenAITalk,
    "openai-python .stream()": OpenAIHelperTalk,
    "openai-python async": OpenAIAsyncTalk,
    "langchain-openai": LangChainTalk,
    "langchain-openai async": LangChainAsyncTalk,
    "langgraph": LangGraphTalk,
    "openai-agents": AgentsTalk,
    "pydantic-ai": PydanticAITalk,
    "llm": LlmTalk,
    "anthropic-python": AnthropicTalk,
    "anthropic-python async": AnthropicAsyncTalk,
    "anthropic-python runner": AnthropicRunnerTalk,
    "langchain-anthropic": LangChainAnthropicTalk,
    "pydantic-ai messages": PydanticAIMessagesTalk,
}
#: By the language of the worker and the name of the client there.
APART: Final[Mapping[str, tuple[str, str]]] = {
    "openai-node": ("node", "openai"),
    "openai-node .stream()": ("node", "openai .stream()"),
    "ai-sdk": ("node", "ai-sdk"),
    "ai-sdk messages": ("node", "ai-sdk messages"),
    "langchain-js": ("node", "langchain"),
    "anthropic-node": ("node", "anthropic"),
    "anthropic-node runner": ("node", "anthropic runner"),
    "litellm": ("litellm", ""),
    "litellm messages": ("litellm", "anthropic"),
}
#: They speak Messages.
ANTHROPIC: Final = (
    "anthropic-python",
    "anthropic-python async",
    "anthropic-python runner",
    "anthropic-node",
    "anthropic-node runner",
)
OF_MESSAGES: Final = (
    *ANTHROPIC,
    "langchain-anthropic",
    "pydantic-ai messages",
    "ai-sdk messages",
    "litellm messages",
)
#: In an environment of its own.
LITELLM: Final = ("litellm", "litellm messages")
#: Libraries that call the model themselves, as often as the turn needs it.
AGENTS: Final = ("langgraph", "openai-agents")
TALKS: Final = (*PYTHON, *APART)


def talk(name: str, root: str, *, stream: bool, worker: Callable[[str], Worker], history: Sequence[Json] = ()) -> Talk:
    """Return a conversation of this client; `worker` finds the process of those that have one."""
    if name in APART:
        language, of_worker = APART[name]
        return WorkerTalk(root, stream=stream, history=history, worker=worker(language), name=of_worker)
    return PYTHON[name](root, stream=stream, history=history)
