"""openai-agents in the context lane: hosted tools of the gateway and its services, approvals, sessions, transports."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    HostedMCPTool,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    Runner,
    RunState,
    SQLiteSession,
    Tool,
    function_tool,
    set_tracing_disabled,
)

from tests.clients.lane import Lane
from tests.clients.person import (
    ANSWERED_REASON,
    ANSWERED_REJECTION,
    DONE,
    asked_about,
    asking,
    ended,
    insertion,
    pending,
    until_running,
)
from tests.clients.provider import PROVIDER_KEY, Provider
from tests.clients.responding import DECISIONS, REASON
from tests.clients.test_every_client import HELLO
from tests.mcp.misbehaving import command

pytestmark = pytest.mark.clients

Json = dict[str, Any]

SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
ADD = 'tool numbers.add {"a": 2, "b": 3, "risk_level": "low"}'

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module", autouse=True)
def _traced_nowhere() -> None:
    set_tracing_disabled(True)


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """With a service `numbers` beside the gateway's own tools."""
    program, *args = command("ok")
    mcp = {"servers": {"numbers": {"command": program, "args": args}}}
    with asking(provider, tmp_path_factory.mktemp("agents"), mcp=mcp) as lane:
        until_running(lane, "numbers")
        yield lane


class Asked:
    """Decides about whatever an agent is asked, and remembers it."""

    def __init__(self, decision: str) -> None:
        self._decision = DECISIONS[decision]
        self.names: list[str] = []

    def __call__(self, request: Any) -> Any:
        self.names.append(request.data.name)
        return self._decision


def hosted(label: str = "gateway", *, asked: Asked | None = None, **config: object) -> HostedMCPTool:
    settings: Any = {"type": "mcp", "server_label": label, "require_approval": "never", **config}
    return HostedMCPTool(tool_config=settings, on_approval_request=asked)


@asynccontextmanager
async def model(lane: Lane) -> AsyncIterator[OpenAIResponsesModel]:
    async with openai.AsyncOpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield OpenAIResponsesModel("demo", client)


async def run(agent: Agent[Any], asked: Any, *, stream: bool, **options: Any) -> Any:
    if not stream:
        return await Runner.run(agent, asked, **options)
    streamed = Runner.run_streamed(agent, asked, **options)
    async for _ in streamed.stream_events():
        pass
    return streamed


def calls(result: Any) -> list[Json]:
    """The calls of the gateway's tools that a run shows."""
    items = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    return [item.to_dict() for item in items if item.type == "mcp_call"]


async def say(lane: Lane, text: str, *tools: Tool, stream: bool, **options: Any) -> Any:
    async with model(lane) as served:
        return await run(Agent(name="a", model=served, tools=list(tools)), text, stream=stream, **options)


# The tools that it names.


async def test_agent_calls_service_tools_by_server_label(lane: Lane, stream: bool) -> None:
    """Its tools by their own names; the agent sees the call."""
    result = await say(lane, ADD, hosted("numbers"), stream=stream)
    [call] = calls(result)
    assert (call["server_label"], call["name"], call["output"]) == ("numbers", "add", "5")
    assert json.loads(call["arguments"])["a"] == 2 and "5" in result.final_output


async def test_agent_calls_two_services_under_their_labels(lane: Lane, stream: bool) -> None:
    """Each call under the label that it came by."""
    both = f"{ADD}, tool execute_sql {json.dumps({'sql': 'SELECT name FROM fruit'})}"
    result = await say(lane, both, hosted("numbers"), hosted(), stream=stream)
    assert {(call["server_label"], call["name"]) for call in calls(result)} == {
        ("numbers", "add"),
        ("gateway", "execute_sql"),
    }


async def test_agent_cannot_call_unnamed_tools(lane: Lane, stream: bool) -> None:
    """Tools of another label, and those that `allowed_tools` leaves out."""
    for named in (hosted("numbers"), hosted(allowed_tools=["file_operations"])):
        result = await say(lane, SELECT, named, stream=stream)
        assert "apple" not in json.dumps([call["output"] for call in calls(result)])


@by_both_decisions
async def test_agent_can_require_approval_for_one_tool(lane: Lane, stream: bool, decision: str) -> None:
    """`require_approval` with names asks about the calls of these."""
    asked = Asked(decision)
    wanted = {"always": {"tool_names": ["add"]}}
    result = await say(lane, ADD, hosted("numbers", asked=asked, require_approval=wanted), stream=stream)
    assert asked.names == ["add"] and ("5" in result.final_output) == (decision == "approve")


# Approvals.


@by_both_decisions
async def test_interrupted_agent_state_resumes_in_a_new_client(
    lane: Lane, client_id: str, stream: bool, decision: str
) -> None:
    """An interrupted run goes on from text, in another client."""
    tools: list[Tool] = [hosted(require_approval="always")]
    interrupted = await say(lane, insertion(client_id), *tools, stream=stream)
    [interruption] = interrupted.interruptions
    assert interruption.raw_item.id == pending(lane, client_id)["id"]
    text = interrupted.to_state().to_string()
    async with model(lane) as served:
        agent: Agent[Any] = Agent(name="a", model=served, tools=tools)
        state: Any = await RunState.from_string(agent, text)
        [interruption] = state.get_interruptions()
        if decision == "approve":
            state.approve(interruption)
        else:
            state.reject(interruption, rejection_message=REASON)
        result = await run(agent, state, stream=stream)
    assert result.final_output == (DONE if decision == "approve" else ANSWERED_REASON)
    ended(lane, client_id, decision)


async def test_agent_rejection_without_a_reason_is_accepted(lane: Lane, client_id: str, stream: bool) -> None:
    """It needs none."""
    tools: list[Tool] = [hosted()]
    async with model(lane) as served:
        agent: Agent[Any] = Agent(name="a", model=served, tools=tools)
        interrupted = await run(agent, insertion(client_id), stream=stream)
        state = interrupted.to_state()
        state.reject(interrupted.interruptions[0])
        result = await run(agent, state, stream=stream)
    assert result.final_output == ANSWERED_REJECTION
    assert asked_about(lane, client_id)[0]["comment"] is None
    ended(lane, client_id, "reject")


@function_tool
def lookup(id: int) -> str:  # noqa: A002
    """Looks an object up."""
    return f"number {id}"


async def test_approval_and_client_call_in_one_turn_are_both_handled(lane: Lane, client_id: str, stream: bool) -> None:
    """A model that wants both in one turn gets both, and the agent is asked once."""
    asked = Asked("approve")
    statement = json.dumps({"sql": f"INSERT INTO log VALUES ('{client_id}', 1)"})
    text = f'native execute_sql {statement}, native lookup {{"id": 7}}'
    result = await say(lane, text, hosted(asked=asked), lookup, stream=stream)
    assert asked.names == ["execute_sql"] and "number 7" in result.final_output
    ended(lane, client_id, "approve")


# Sessions: where the history is.


@by_both_decisions
async def test_agent_decides_through_previous_response_id(
    lane: Lane, client_id: str, stream: bool, decision: str
) -> None:
    """`auto_previous_response_id`: the decision is all that the second request has."""
    asked = Asked(decision)
    options = {"auto_previous_response_id": True}
    result = await say(lane, insertion(client_id), hosted(asked=asked), stream=stream, **options)
    assert result.final_output == (DONE if decision == "approve" else ANSWERED_REASON)
    ended(lane, client_id, decision)


@by_both_decisions
async def test_agent_decides_through_a_gateway_conversation(
    lane: Lane, client_id: str, stream: bool, decision: str
) -> None:
    """`conversation_id`: the gateway keeps the history, across runs."""
    asked = Asked(decision)
    async with model(lane) as served:
        agent: Agent[Any] = Agent(name="a", model=served, tools=[hosted(asked=asked)])
        conversation = await served._client.conversations.create()
        options: Any = {"stream": stream, "conversation_id": conversation.id}
        result = await run(agent, insertion(client_id), **options)
        assert result.final_output == (DONE if decision == "approve" else ANSWERED_REASON)
        assert (await run(agent, "Say hello", **options)).final_output == HELLO
    ended(lane, client_id, decision)


@pytest.mark.parametrize("kind", ["local", "conversation"])
async def test_agent_session_applies_a_decision_only_once(lane: Lane, client_id: str, stream: bool, kind: str) -> None:
    """The agent keeps its history, or has it kept: an old decision decides nothing again."""
    asked = Asked("approve")
    async with model(lane) as served:
        session: Any = (
            SQLiteSession(client_id) if kind == "local" else OpenAIConversationsSession(openai_client=served._client)
        )
        agent: Agent[Any] = Agent(name="a", model=served, tools=[hosted(asked=asked)])
        assert (await run(agent, insertion(client_id), stream=stream, session=session)).final_output == DONE
        assert (await run(agent, "Say hello", stream=stream, session=session)).final_output == HELLO
        if kind == "local":
            session.close()
    assert asked.names == ["execute_sql"]
    ended(lane, client_id, "approve")


# WebSocket.


@by_both_decisions
async def test_agent_decides_over_one_websocket_connection(lane: Lane, client_id: str, decision: str) -> None:
    """Its transport for many responses."""
    async with openai.AsyncOpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        served = OpenAIResponsesWSModel("demo", openai_client=client)
        try:
            agent: Agent[Any] = Agent(name="a", model=served, tools=[hosted(asked=Asked(decision))])
            result = await run(agent, insertion(client_id), stream=True)
        finally:
            await served.close()
    assert result.final_output == (DONE if decision == "approve" else ANSWERED_REASON)
    ended(lane, client_id, decision)
