"""Clients that want more than text of the context lane: objects of a shape, and tools that they run themselves."""

import json
from collections.abc import AsyncIterator
from typing import TypeVar

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.ask import Ask, Client
from tests.clients.lane import Lane
from tests.clients.provider import PROVIDER_KEY, Seen

pytestmark = pytest.mark.clients

SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
APPLE_AND_FIG = {"columns": ["name"], "rows": [["apple"], ["fig"]]}
FIG = {"columns": ["name"], "rows": [["fig"]]}
TIMEOUT_S = 1.0

instructors_rows = pytest.mark.parametrize("client", ["instructor rows"], indirect=True)
instructors_lookup = pytest.mark.parametrize("client", ["instructor lookup"], indirect=True)

T = TypeVar("T")


class Lookup(BaseModel):
    """An object to be filled."""

    id: int


@pytest.fixture
async def model(lane: Lane) -> AsyncIterator[OpenAIChatModel]:
    async with openai.AsyncOpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield OpenAIChatModel("demo", provider=OpenAICompatibleProvider("gateway", openai_client=client))


@pytest.mark.cell("structured output")
@instructors_rows
def test_instructor_reads_an_object_from_the_text(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """Of what the model says after three rounds; a stream's frame of usage is in nobody's way."""
    outcome = client(Ask(root=lane.root, prompt=f"steps 3 {SELECT}", stream=stream, usage=True))
    assert outcome.text and json.loads(outcome.pieces[-1]) == FIG and len(seen) == 4
    assert len(outcome.pieces) > 1 if stream else outcome.usage is not None and outcome.usage.prompt_tokens > 1000


@instructors_rows
def test_instructor_waits_for_a_silent_tool(client: Client, lane: Lane) -> None:
    """As long as there are keep-alives."""
    with lane.locked(1.3):
        outcome = client(Ask(root=lane.root, prompt=SELECT, stream=True, timeout_s=TIMEOUT_S))
    assert outcome.text and json.loads(outcome.pieces[-1]) == APPLE_AND_FIG


@instructors_rows
def test_instructor_raises_on_a_truncated_answer(client: Client, stream: bool, lane: Lane, seen: list[Seen]) -> None:
    """It raises our words, and does not ask again for a better object."""
    outcome = client(Ask(root=lane.root, prompt="cut, drip 2, long 20", stream=stream))
    assert "in the middle of its answer" in outcome.failed.message
    assert not outcome.pieces and len(seen) == 1


@instructors_lookup
def test_instructor_reads_an_object_from_a_forced_tool_call(
    client: Client, stream: bool, lane: Lane, seen: list[Seen]
) -> None:
    """Its own, whose arguments are the object."""
    tool = "PartialLookup" if stream else "Lookup"
    outcome = client(Ask(root=lane.root, prompt=f'native {tool} {{"id": 7}}', stream=stream, usage=True))
    assert outcome.text and json.loads(outcome.pieces[-1]) == {"id": 7} and len(seen) == 1


@pytest.mark.cell("own tool", row="pydantic-ai")
async def test_pydantic_ai_runs_its_own_tool(model: OpenAIChatModel, stream: bool, seen: list[Seen]) -> None:
    """The call is the client's; its result comes back with the next request."""
    agent = Agent(model)

    @agent.tool_plain
    def lookup(id: int) -> str:  # noqa: A002 - the model's name for it
        return f"number {id}"

    said = await _output(agent, 'native lookup {"id": 7}', stream=stream)
    assert said == "Demo model: round 1 of tool calls is done. The result: number 7" and len(seen) == 2


@pytest.mark.cell("structured output", row="pydantic-ai")
async def test_pydantic_ai_fills_an_object(model: OpenAIChatModel, stream: bool, seen: list[Seen]) -> None:
    """From the arguments of the tool that it offers for that."""
    agent = Agent(model, output_type=Lookup)
    assert await _output(agent, 'native final_result {"id": 7}', stream=stream) == Lookup(id=7)
    assert len(seen) == 1


async def _output(agent: Agent[None, T], prompt: str, *, stream: bool) -> T:
    if not stream:
        return (await agent.run(prompt)).output
    async with agent.run_stream(prompt) as result:
        return await result.get_output()
