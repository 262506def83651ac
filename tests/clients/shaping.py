"""Clients that want an object of a shape, behind a tool of the gateway's: the model, and each client's own way.

The model calls the tool, then says a draft, and writes the object where the request names the format.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import openai
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.ask import Ask
from tests.clients.mixed import Json, MixedModel, called_in, noting
from tests.clients.provider import PROVIDER_KEY
from tests.clients.worker import Worker

OBJECT: Final = {"id": 7}
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
        return {"content": "It is seven."}, "stop"


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


async def _langchain(root: str, prompt: str, *, responses: bool) -> Found:
    async with _client(root) as client:
        model = ChatOpenAI(
            model="demo",
            base_url=f"{root}/v1",
            api_key=PROVIDER_KEY,  # type: ignore[arg-type]
            default_headers=_HEADERS,
            root_async_client=client,
            async_client=client.chat.completions,
            use_responses_api=responses,
        )
        return Found.model_validate(await model.with_structured_output(Found, method="json_schema").ainvoke(prompt))


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


def _client(root: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=PROVIDER_KEY, default_headers=_HEADERS, max_retries=0)


#: By the row of the page.
PYTHON: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "openai-python": partial(_openai_blocking, streams=False),
    "openai-python `.stream()`": partial(_openai_blocking, streams=True),
    "openai-python, asynchronous": _openai,
    "openai-python, responses": _openai_responses,
    "langchain-openai, asynchronous": partial(_langchain, responses=False),
    "langchain-openai, responses": partial(_langchain, responses=True),
    "openai-agents": partial(_agents, model_of=OpenAIChatCompletionsModel),
    "openai-agents, responses": partial(_agents, model_of=OpenAIResponsesModel),
    "pydantic-ai": _pydantic_ai,
}
#: Of the same process as its other clients, by its name there.
NODE: Final = {
    "openai-node": "openai object",
    "openai-node, responses": "openai responses object",
    "AI SDK": "ai-sdk object",
    "@langchain/openai": "langchain object",
}


async def shaped(row: str, root: str, prompt: str, *, worker: Worker) -> Json:
    """Return the object that a client makes of the answer."""
    if row in PYTHON:
        found: BaseModel = await PYTHON[row](root, prompt)
        return found.model_dump()
    ask = Ask(root=root, prompt=prompt, headers=_HEADERS)
    made: Json = json.loads(worker.client(NODE[row])(ask).text)
    return made
