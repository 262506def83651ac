"""Clients that want an object of a shape, behind a tool of the gateway's: the model, and each client's own way.

The model calls the tool, then says a draft, and writes the object where the request names the format.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anthropic
import openai
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from aiohttp import web
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.ask import Ask
from tests.clients.libraries import llm_home
from tests.clients.mixed import Json, MixedModel, called_in, noting
from tests.clients.provider import PROVIDER_KEY
from tests.clients.worker import Worker

OBJECT: Final = {"id": 7}
_DRAFT: Final = "It is seven."
#: Beside a format the gateway offers those of its tools only that the request names.
_HEADERS: Final = {"X-Context-Tools": "execute_sql"}


class Found(BaseModel):
    """The object."""

    model_config = ConfigDict(extra="forbid")
    id: int


class ShapingModel(MixedModel):
    """`formatted` says of each request whether it named a format."""

    def __init__(self) -> None:
        super().__init__()
        self.formatted: list[bool] = []

    def _wanted(self, body: Json) -> tuple[Json, str]:
        self.formatted.append("response_format" in body)
        if self.formatted[-1]:
            return {"content": json.dumps(OBJECT)}, "stop"
        if "execute_sql" not in called_in(body["messages"]):
            return {"content": json.dumps(noting(body["messages"]))}, "stop"
        return {"content": _DRAFT}, "stop"

    def _app(self) -> web.Application:
        app = super()._app()
        app.add_routes([web.post("/v1/messages", self._message)])
        return app

    async def _message(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.formatted.append("format" in body.get("output_config", {}))
        text = json.dumps(OBJECT) if self.formatted[-1] else _DRAFT
        return web.json_response(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "demo",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )


async def _openai(root: str, prompt: str) -> Found | None:
    async with _client(root) as client:
        messages: Any = [{"role": "user", "content": prompt}]
        answer = await client.chat.completions.parse(model="demo", messages=messages, response_format=Found)
        return answer.choices[0].message.parsed


async def _openai_blocking(root: str, prompt: str, *, streams: bool) -> Found | None:
    messages: Any = [{"role": "user", "content": prompt}]
    options: Any = {"model": "demo", "messages": messages, "response_format": Found}
    with openai.OpenAI(base_url=f"{root}/v1", api_key=PROVIDER_KEY, default_headers=_HEADERS, max_retries=0) as client:
        if not streams:
            return client.chat.completions.parse(**options).choices[0].message.parsed
        with client.chat.completions.stream(**options) as stream:
            return stream.get_final_completion().choices[0].message.parsed


async def _openai_responses(root: str, prompt: str) -> Found | None:
    async with _client(root) as client:
        return (await client.responses.parse(model="demo", input=prompt, text_format=Found)).output_parsed


def _chat_openai(root: str, client: openai.AsyncOpenAI | None = None, **options: Any) -> ChatOpenAI:
    clients = {} if client is None else {"root_async_client": client, "async_client": client.chat.completions}
    # A timeout of this type keeps its connections out of a cache that outlives them.
    given = {"api_key": PROVIDER_KEY, "default_headers": _HEADERS, "timeout": openai.Timeout(60)}
    return ChatOpenAI(model="demo", base_url=f"{root}/v1", **given, **clients, **options)


async def _langchain(root: str, prompt: str, *, responses: bool) -> Found:
    async with _client(root) as client:
        model = _chat_openai(root, client, use_responses_api=responses)
        return Found.model_validate(await model.with_structured_output(Found, method="json_schema").ainvoke(prompt))


async def _langchain_blocking(root: str, prompt: str) -> Found:
    model = _chat_openai(root)
    shaping = model.with_structured_output(Found, method="json_schema")
    with model.root_client:
        return Found.model_validate(await asyncio.to_thread(shaping.invoke, prompt))


async def _langgraph(root: str, prompt: str) -> Found:
    async with _client(root) as client:
        agent: Any = create_agent(_chat_openai(root, client), response_format=ProviderStrategy(Found))
        state = await agent.ainvoke({"messages": [("user", prompt)]})
        return Found.model_validate(state["structured_response"])


async def _agents(root: str, prompt: str, *, model_of: Callable[..., Model]) -> Found:
    set_tracing_disabled(True)
    async with _client(root) as client:
        agent = Agent(name="a", model=model_of(model="demo", openai_client=client), output_type=Found)
        return (await Runner.run(agent, prompt)).final_output_as(Found)


async def _pydantic_ai(root: str, prompt: str) -> Found:
    async with _client(root) as client:
        provider = OpenAICompatibleProvider("gateway", openai_client=client)
        agent = PydanticAgent(OpenAIChatModel("demo", provider=provider), output_type=NativeOutput(Found))
        return (await agent.run(prompt)).output


async def _llm(root: str, prompt: str) -> Found:
    """The command, which takes a shape in words of its own."""
    with llm_home(root, f"headers: {json.dumps(_HEADERS)}, supports_schema: true") as env:
        command = [sys.executable, "-m", "llm", "-m", "gateway-demo", "--key", PROVIDER_KEY, "--schema", "id int"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, prompt], env=env, capture_output=True, check=True, text=True
        )
    return Found.model_validate_json(done.stdout)


def _client(root: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=PROVIDER_KEY, default_headers=_HEADERS, max_retries=0)


async def _anthropic(root: str, prompt: str) -> Found | None:
    def parse() -> Found | None:
        with anthropic.Anthropic(base_url=root, api_key=PROVIDER_KEY, max_retries=0) as client:
            return client.messages.parse(**_messages_request(prompt)).parsed_output

    return await asyncio.to_thread(parse)


async def _anthropic_async(root: str, prompt: str) -> Found | None:
    async with anthropic.AsyncAnthropic(base_url=root, api_key=PROVIDER_KEY, max_retries=0) as client:
        return (await client.messages.parse(**_messages_request(prompt))).parsed_output


def _messages_request(prompt: str) -> Any:
    messages = [{"role": "user", "content": prompt}]
    return {"model": "demo", "max_tokens": 1000, "messages": messages, "output_format": Found}


#: By the row of the page.
PYTHON: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "openai-python": partial(_openai_blocking, streams=False),
    "openai-python `.stream()`": partial(_openai_blocking, streams=True),
    "openai-python, asynchronous": _openai,
    "openai-python, responses": _openai_responses,
    "langchain-openai": _langchain_blocking,
    "langchain-openai, asynchronous": partial(_langchain, responses=False),
    "langchain-openai, responses": partial(_langchain, responses=True),
    "langgraph": _langgraph,
    "openai-agents": partial(_agents, model_of=OpenAIChatCompletionsModel),
    "openai-agents, responses": partial(_agents, model_of=OpenAIResponsesModel),
    "pydantic-ai": _pydantic_ai,
    "llm": _llm,
}
#: Clients with a process of their own: its language, and their names there.
APART: Final = {
    "openai-node": ("node", "openai"),
    "openai-node `.stream()`": ("node", "openai .stream()"),
    "openai-node, responses": ("node", "openai responses"),
    "AI SDK": ("node", "ai-sdk"),
    "AI SDK, responses": ("node", "ai-sdk responses"),
    "@openai/agents": ("node", "agents"),
    "@langchain/openai": ("node", "langchain"),
    "@langchain/openai, responses": ("node", "langchain responses"),
    "LiteLLM": ("litellm", ""),
}
#: Clients of Messages, in passthrough.
OF_MESSAGES: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "anthropic-python": _anthropic,
    "anthropic-python, asynchronous": _anthropic_async,
}
OF_MESSAGES_APART: Final = {"@anthropic-ai/sdk": ("node", "anthropic")}


async def shaped(row: str, root: str, prompt: str, *, worker: Callable[[str], Worker]) -> Json:
    """Return the object that a client makes of the answer; `worker` finds the process of those that have one."""
    made = {**PYTHON, **OF_MESSAGES}.get(row)
    if made is not None:
        found: BaseModel = await made(root, prompt)
        return found.model_dump()
    language, name = {**APART, **OF_MESSAGES_APART}[row]
    return worker(language).shape(name, Ask(root=root, prompt=prompt, headers=_HEADERS))
