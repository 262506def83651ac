"""pydantic-ai's model for the Responses API in the context lane. It has no way to decide approvals of hosted tools."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeToolReturnPart
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.native_tools import MCPServerTool
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.ask import turns
from tests.clients.lane import Lane
from tests.clients.libraries import pydantic_message
from tests.clients.mixed import DONE as BOTH_DONE
from tests.clients.mixed import MixedModel
from tests.clients.person import DONE, HOLD, REJECTED, asking, behind_question, ended, insertion, line, pending, person
from tests.clients.provider import PROVIDER_KEY, Provider, Seen
from tests.clients.test_every_client import HELLO
from tests.clients.test_long_history import HISTORY, TURNS, said_in

pytestmark = pytest.mark.clients

SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'


class Lookup(BaseModel):
    """An object to be filled."""

    id: int


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("tools")) as lane:
        yield lane


@pytest.fixture(scope="module")
def mixed_lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its model wants a tool of the gateway's, then the client's."""
    with MixedModel() as model, asking(model, tmp_path_factory.mktemp("mixed")) as lane:
        yield lane


async def served(root: str, *, api_key: str = PROVIDER_KEY, **options: Any) -> AsyncIterator[OpenAIResponsesModel]:
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=api_key, max_retries=0, **options) as client:
        yield OpenAIResponsesModel("demo", provider=OpenAICompatibleProvider("gateway", openai_client=client))


@pytest.fixture
async def model(lane: Lane) -> AsyncIterator[OpenAIResponsesModel]:
    async for model in served(lane.root):
        yield model


@pytest.fixture
async def holding_model(lane: Lane) -> AsyncIterator[OpenAIResponsesModel]:
    async for model in served(lane.root, default_headers=HOLD):
        yield model


async def run(agent: Agent[None, Any], text: str, *, stream: bool, **options: Any) -> Any:
    if not stream:
        return await agent.run(text, **options)
    async with agent.run_stream(text, **options) as result:
        await result.get_output()
        return result


async def said(result: Any) -> Any:
    return result.output if hasattr(result, "output") else await result.get_output()


@pytest.mark.cell("turn", row="pydantic-ai, responses")
async def test_pydantic_ai_agent_receives_the_models_text(model: OpenAIResponsesModel, stream: bool) -> None:
    """Letter for letter, with its history in the next turn."""
    agent: Agent[None, Any] = Agent(model, instructions="Be short.")
    first = await run(agent, "think, Say hello", stream=stream)
    assert await said(first) == HELLO
    second = await run(agent, "Say hello", stream=stream, message_history=first.all_messages())
    assert await said(second) == HELLO


async def test_agent_sees_calls_of_named_gateway_tools(model: OpenAIResponsesModel, stream: bool) -> None:
    """It cannot leave out an address: the label again."""
    named = MCPServerTool(id="gateway", url="gateway")
    result = await run(Agent(model, capabilities=[NativeTool(named)]), SELECT, stream=stream)
    returned = [part for each in result.all_messages() for part in each.parts if isinstance(part, NativeToolReturnPart)]
    assert "apple" in str(returned[-1].content) and "apple" in str(await said(result))


@pytest.mark.cell("long history", row="pydantic-ai, responses")
async def test_a_long_history_reaches_the_model(model: OpenAIResponsesModel, stream: bool, seen: list[Seen]) -> None:
    """Whole and in order."""
    history = [pydantic_message(**message) for message in turns(TURNS)]
    assert await said(await run(Agent(model), "Say hello", stream=stream, message_history=history)) == HELLO
    assert said_in(seen)[-len(HISTORY) - 1 :] == [*HISTORY, "Say hello"]


@pytest.mark.cell("error", row="pydantic-ai, responses")
async def test_provider_refusal_raises_model_http_error_with_status_401(lane: Lane, stream: bool) -> None:
    """With its status and its words."""
    async for model in served(lane.root, api_key="wrong"):
        with pytest.raises(ModelHTTPError, match=r"Incorrect API key provided\.") as raised:
            await run(Agent(model), "Say hello", stream=stream)
        assert raised.value.status_code == 401


@pytest.mark.cell("structured output", row="pydantic-ai, responses")
async def test_agent_returns_a_structured_object(model: OpenAIResponsesModel, stream: bool) -> None:
    """By a tool of its own, which it requires."""
    agent: Agent[None, Any] = Agent(model, output_type=Lookup)
    assert await said(await run(agent, 'native final_result {"id": 7}', stream=stream)) == Lookup(id=7)


@pytest.mark.cell("own tool", "mixed", row="pydantic-ai, responses")
async def test_agent_and_gateway_tools_run_once_in_one_turn(stream: bool, mixed_lane: Lane, client_id: str) -> None:
    """Each runs once, in the turn that calls both and in the next one."""

    def get_weather(city: str, days: float) -> str:
        return f"Sunny for {days:g} days in {city}"

    async for model in served(mixed_lane.root):
        agent: Agent[None, Any] = Agent(model, tools=[get_weather])
        first = await run(agent, f"Note {client_id} at no risk, and the weather.", stream=stream)
        assert await said(first) == BOTH_DONE and mixed_lane.count(client_id) == 1
        second = await run(agent, "And again?", stream=stream, message_history=first.all_messages())
        assert await said(second) == BOTH_DONE and mixed_lane.count(client_id) == 1


async def test_next_message_approves_a_pending_call(
    model: OpenAIResponsesModel, stream: bool, lane: Lane, client_id: str
) -> None:
    """The question is text, as in chat."""
    agent: Agent[None, Any] = Agent(model)
    first = await run(agent, insertion(client_id), stream=stream)
    reply = line(pending(lane, client_id))
    assert f"\n{reply}\n" in await said(first)
    second = await run(agent, reply, stream=stream, message_history=first.all_messages())
    assert await said(second) == DONE
    ended(lane, client_id, "approve")


@pytest.mark.cell("approval", row="pydantic-ai, responses")
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_held_answer_continues_after_the_decision(
    holding_model: OpenAIResponsesModel, stream: bool, lane: Lane, client_id: str, decision: str
) -> None:
    """Somebody else decides meanwhile."""
    with person(lane, client_id, decision):
        text = await said(await run(Agent(holding_model), insertion(client_id), stream=stream))
    assert behind_question(text) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)
