"""The Responses API of openai-python and openai-node in the context lane: streams, stored and background responses."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from tests.clients.lane import Lane
from tests.clients.person import ANSWERED_REASON, DONE, HOLD, asking, decide, ended, insertion, pending, person, until
from tests.clients.provider import PROVIDER_KEY, Provider, Seen
from tests.clients.responding import DECISIONS, WEATHER
from tests.clients.test_every_client import HELLO
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
GATEWAY: Any = {"type": "mcp", "server_label": "gateway", "require_approval": "never"}
#: Half a second of sixty events, and a minute of three thousand.
SLOW, ENDLESS = "drip 10 long 60", "drip 20 long 3000"

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("tools")) as lane:
        yield lane


@pytest.fixture(scope="module")
def own_lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """With a key of its own for the model: no run has to wait for its client to bring one."""
    with asking(provider, tmp_path_factory.mktemp("own"), upstreams=provider.keyed) as lane:
        yield lane


@pytest.fixture
def client(lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{lane.root}/v1", api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def own_client(own_lane: Lane) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{own_lane.root}/v1", api_key="unused", max_retries=0) as client:
        yield client


def types(items: Sequence[Any]) -> list[str]:
    return [item.type for item in items]


def decision_on(response: Response, decision: str) -> Any:
    """The item that decides about the only question of a response."""
    [request] = [item for item in response.output if item.type == "mcp_approval_request"]
    return {"type": "mcp_approval_response", "approval_request_id": request.id, **DECISIONS[decision]}


def finished(client: openai.OpenAI, response_id: str) -> Response:
    """A background response once it is over."""
    for _ in client.responses.retrieve(response_id, stream=True):
        pass
    return client.responses.retrieve(response_id)


# What is stored.


def test_stored_response_can_be_retrieved_and_deleted(client: openai.OpenAI) -> None:
    """As it was answered, until it is deleted; with the items that it answers."""
    answered = client.responses.create(model="demo", input="Say hello", metadata={"a": "b"}, instructions="Be short.")
    assert answered.output_text == HELLO and answered.status == "completed"
    kept = client.responses.retrieve(answered.id)
    assert kept == answered and kept.metadata == {"a": "b"} and kept.instructions == "Be short."
    [item] = client.responses.input_items.list(answered.id)
    assert item.to_dict()["content"] == [{"type": "input_text", "text": "Say hello"}] and item.id
    client.responses.delete(answered.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answered.id)


def test_unstored_response_cannot_be_retrieved(client: openai.OpenAI) -> None:
    """Nobody finds it again."""
    answered = client.responses.create(model="demo", input="Say hello", store=False)
    assert answered.output_text == HELLO
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answered.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="demo", input="More", previous_response_id=answered.id)
    assert refused.value.param == "previous_response_id"


def test_chained_responses_keep_context_and_run_tools_once(
    client: openai.OpenAI, lane: Lane, client_id: str, stream: bool
) -> None:
    """Each request has what is new; the model sees the rest, and a tool does not run again."""
    last: str | None = None
    for prompt in (lane.insertion(client_id), "Say hello", lane.insertion(client_id)):
        request: Any = {"model": "demo", "input": prompt, "previous_response_id": last}
        if stream:
            with client.responses.stream(**request) as events:
                response: Response = events.get_final_response()
        else:
            response = client.responses.create(**request)
        assert response.previous_response_id == last and response.output_text
        last = response.id
    assert lane.count(client_id) == 2


def test_conversation_holds_items_of_its_responses(client: openai.OpenAI) -> None:
    """It has the items of the responses that name it."""
    conversation = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "Hi"}], metadata={"a": "b"}
    )
    for prompt in ("Say hello", "Say hello again"):
        assert client.responses.create(model="demo", input=prompt, conversation=conversation.id).output_text
    items = client.conversations.items.list(conversation.id, order="asc").data
    roles = [item.to_dict()["role"] for item in items]
    assert roles == ["user", "user", "assistant", "user", "assistant"]
    assert client.conversations.update(conversation.id, metadata={"c": "d"}).metadata == {"c": "d"}
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="demo", input="More", conversation=conversation.id)


def test_a_compacted_conversation_goes_on(client: openai.OpenAI) -> None:
    """With what `compact` made of it, which the client sends back as it is."""
    compacted = client.responses.compact(model="demo", input=[{"role": "user", "content": "Say hello"}])
    assert compacted.object == "response.compaction"
    # The SDK has no type of an output that is a message of the user, which OpenAI's has, too.
    items: Any = [item.to_dict(warnings=False) for item in compacted.output]
    again = client.responses.create(model="demo", input=[*items, {"role": "user", "content": "Say hello"}])
    assert again.output_text == HELLO


# Tools and approvals.


def test_accumulated_stream_matches_the_stored_response(client: openai.OpenAI, seen: list[Seen]) -> None:
    """Events are numbered without a gap, and the accumulated response is the one that is kept."""
    with client.responses.stream(model="demo", input=SELECT, tools=[GATEWAY]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert types(final.output) == ["mcp_list_tools", "mcp_call", "message"] and len(seen) == 2
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text
    kept = client.responses.retrieve(final.id)
    assert kept.output_text == final.output_text
    assert [item.id for item in kept.output] == [item.id for item in final.output]


def test_reasoning_item_precedes_text_and_can_be_sent_back(client: openai.OpenAI, stream: bool) -> None:
    """Before the text, and they go back with the next request."""
    if stream:
        with client.responses.stream(model="demo", input="think, Say hello") as events:
            response: Response = events.get_final_response()
    else:
        response = client.responses.create(model="demo", input="think, Say hello")
    assert types(response.output) == ["reasoning", "message"] and response.output_text == HELLO
    history: Any = [{"role": "user", "content": "think, Say hello"}, *response.output]
    again = client.responses.create(model="demo", input=[*history, {"role": "user", "content": "Say hello"}])
    assert again.output_text == HELLO


@by_both_decisions
def test_rest_decision_wins_over_a_later_client_decision(
    client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """By REST: the client's own decision comes second and is told; its response still says what was asked."""
    asked = client.responses.create(model="demo", input=insertion(client_id), tools=[GATEWAY])
    assert types(asked.output) == ["mcp_list_tools", "mcp_approval_request"] and asked.status == "completed"
    decide(lane, client_id, decision)
    until(lane, client_id, "awaiting_client")
    late: Any = {"model": "demo", "previous_response_id": asked.id, "tools": [GATEWAY]}
    other = "reject" if decision == "approve" else "approve"
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(**late, input=[decision_on(asked, other)])
    assert refused.value.status_code == 409
    same = client.responses.create(**late, input=[decision_on(asked, decision)])
    assert same.output_text == (DONE if decision == "approve" else ANSWERED_REASON)
    assert client.responses.retrieve(asked.id).output == asked.output
    ended(lane, client_id, decision)


@by_both_decisions
def test_held_response_stream_continues_after_the_decision(
    client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """With `X-Context-Approvals: hold` the question and what comes of it are one response."""
    request: Any = {"model": "demo", "input": insertion(client_id), "tools": [GATEWAY], "extra_headers": HOLD}
    with person(lane, client_id, decision), client.responses.stream(**request) as stream:
        final = stream.get_final_response()
    assert final.output_text == (DONE if decision == "approve" else ANSWERED_REASON)
    kinds = types(final.output)
    assert kinds[:2] == ["mcp_list_tools", "mcp_approval_request"] and kinds[-1] == "message"
    ended(lane, client_id, decision)


def test_repeated_decision_is_applied_once(client: openai.OpenAI, lane: Lane, client_id: str) -> None:
    """Sent twice side by side, one of them may be told that the run goes on; sent later, it has the answer again."""
    asked = client.responses.create(model="demo", input=insertion(client_id), tools=[GATEWAY])

    def approve() -> Response:
        return client.responses.create(
            model="demo", previous_response_id=asked.id, input=[decision_on(asked, "approve")], tools=[GATEWAY]
        )

    with ThreadPoolExecutor(2) as threads:
        answers = [future.result() for future in [threads.submit(approve), threads.submit(approve)]]
    assert DONE in {answer.output_text for answer in answers} and approve().output_text == DONE
    ended(lane, client_id, "approve")


def test_unregistered_mcp_server_is_refused_with_its_position(client: openai.OpenAI) -> None:
    """A server that no operator registered is refused, by its place in the request."""
    stranger: Any = {"type": "mcp", "server_label": "docs", "server_url": "https://example.com/mcp"}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="demo", input="Say hello", tools=[WEATHER, stranger])  # type: ignore[list-item]
    assert refused.value.param is not None and refused.value.param.startswith("tools[1]")


class Lookup(BaseModel):
    """An object to be filled."""

    id: int


def test_functions_are_parsed(client: openai.OpenAI) -> None:
    """By `parse`, of the calls that the model makes of them."""
    tool: Any = openai.pydantic_function_tool(Lookup)
    parsed = client.responses.parse(model="demo", input='native Lookup {"id": 7}', tools=[tool])
    [call] = parsed.output
    assert call.type == "function_call" and call.parsed_arguments == Lookup(id=7)


# Background.


def test_background_response_completes(own_client: openai.OpenAI, own_lane: Lane, client_id: str) -> None:
    """It is there at once, and whole when it is over."""
    request: Any = {"model": "demo", "input": f"drip 5, {own_lane.insertion(client_id)}", "tools": [GATEWAY]}
    begun = own_client.responses.create(**request, background=True)
    assert begun.status in ("queued", "in_progress") and begun.background is True
    response = finished(own_client, begun.id)
    assert response.status == "completed" and response.output_text == DONE
    assert types(response.output) == ["mcp_list_tools", "mcp_call", "message"] and own_lane.count(client_id) == 1


@by_both_decisions
def test_background_response_ends_with_an_approval_request(
    own_client: openai.OpenAI, own_lane: Lane, client_id: str, decision: str
) -> None:
    """It ends with the question; what comes of the decision is a background response again."""
    request: Any = {"model": "demo", "tools": [GATEWAY], "background": True}
    asked = finished(own_client, own_client.responses.create(**request, input=insertion(client_id)).id)
    assert asked.status == "completed" and pending(own_lane, client_id)
    answer = [decision_on(asked, decision)]
    begun = own_client.responses.create(**request, previous_response_id=asked.id, input=answer)
    assert finished(own_client, begun.id).output_text == (DONE if decision == "approve" else ANSWERED_REASON)
    ended(own_lane, client_id, decision)


def test_a_stream_is_resumed(own_client: openai.OpenAI) -> None:
    """Behind the last event that came, by an ordinary stream and by the accumulator; it stays as it was."""
    first: list[Any] = []
    with own_client.responses.create(model="demo", input=SLOW, background=True, stream=True) as stream:
        for event in stream:
            first.append(event)
            if len(first) == 20:
                break
    response_id, last = first[0].response.id, first[-1].sequence_number
    rest = list(own_client.responses.retrieve(response_id, stream=True, starting_after=last))
    assert rest[-1].type == "response.completed"
    everything = list(own_client.responses.retrieve(response_id, stream=True))
    assert [event.to_dict() for event in [*first, *rest]] == [event.to_dict() for event in everything]
    assert [event.sequence_number for event in everything] == list(range(len(everything)))
    with own_client.responses.stream(response_id=response_id, starting_after=last) as helper:
        accumulated = list(helper)
        final = helper.get_final_response()
    assert accumulated[0].sequence_number == last + 1 and final.output_text.split()[-1] == "word60"
    assert final.output_text == own_client.responses.retrieve(response_id).output_text


def test_a_background_response_is_cancelled(own_client: openai.OpenAI, own_lane: Lane) -> None:
    """Whoever reads it is told, and nothing more comes."""
    with own_client.responses.create(model="demo", input=ENDLESS, background=True, stream=True) as stream:
        events = iter(stream)
        response_id = next(events).response.id  # type: ignore[union-attr]
        assert own_client.responses.cancel(response_id).status == "cancelled"
        assert "response.completed" not in {event.type for event in events}
    assert own_client.responses.retrieve(response_id).status == "cancelled"
    assert own_client.responses.cancel(response_id).status == "cancelled"


def test_only_background_responses_are_cancelled(client: openai.OpenAI) -> None:
    """Any other is answered where it was asked."""
    answered = client.responses.create(model="demo", input="Say hello")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(answered.id)


# WebSocket.


@by_both_decisions
def test_websocket_connection_carries_chained_responses(
    client: openai.OpenAI, lane: Lane, client_id: str, decision: str
) -> None:
    """One behind the other, chained by their ids, which need not be stored."""
    with client.responses.connect() as connection:

        def response_to(**request: Any) -> Response:
            connection.response.create(model="demo", tools=[GATEWAY], store=False, **request)
            for event in connection:
                assert event.type not in ("error", "response.failed"), event
                if event.type == "response.completed":
                    return event.response
            raise AssertionError("the connection ended")

        assert response_to(input="Say hello").output_text == HELLO
        asked = response_to(input=insertion(client_id))
        assert pending(lane, client_id)
        answer = response_to(previous_response_id=asked.id, input=[decision_on(asked, decision)])
        assert answer.output_text == (DONE if decision == "approve" else ANSWERED_REASON)
    ended(lane, client_id, decision)


# openai-node.


def test_node_client_accumulates_response_events(node: Worker, lane: Lane) -> None:
    """Calls of the gateway's tools, thoughts and text; it refuses events that it does not know."""
    request = {"model": "demo", "input": f"think, {SELECT}", "tools": [GATEWAY]}
    told = node.call("responses.stream", request, root=lane.root)
    kept = node.call("responses.retrieve", told["final"]["id"], root=lane.root)
    kinds = [item["type"] for item in told["final"]["output"]]
    assert kinds[0] == "mcp_list_tools" and "mcp_call" in kinds and "reasoning" in kinds and kinds[-1] == "message"
    assert [item["id"] for item in kept["output"]] == [item["id"] for item in told["final"]["output"]]
    assert "apple" in told["final"]["output_text"] == kept["output_text"]


def test_node_follows_a_background_response(node: Worker, own_lane: Lane) -> None:
    """From its beginning, from behind an event, and to its end."""
    root = own_lane.root
    begun = node.call("responses.create", {"model": "demo", "input": SLOW, "background": True}, root=root)
    assert begun["status"] in ("queued", "in_progress")
    everything = node.call("responses.retrieve", [begun["id"], {"stream": True}], root=root)
    rest = node.call("responses.retrieve", [begun["id"], {"stream": True, "starting_after": 30}], root=root)
    assert rest == everything[31:] and rest[-1]["type"] == "response.completed"
    resumed = {"response_id": begun["id"], "starting_after": 30}
    told = node.call("responses.stream", resumed, root=root)
    assert [event["sequence_number"] for event in told["chunks"]] == [event["sequence_number"] for event in rest]
    assert told["final"]["output_text"].split()[-1] == "word60"
    [item] = node.call("responses.inputItems.list", begun["id"], root=root)["data"]
    assert item["content"][0]["text"] == SLOW


def test_node_client_cancels_and_deletes_a_response(node: Worker, own_lane: Lane) -> None:
    """A background response under way."""
    root = own_lane.root
    begun = node.call("responses.create", {"model": "demo", "input": ENDLESS, "background": True}, root=root)
    assert node.call("responses.cancel", begun["id"], root=root)["status"] == "cancelled"
    assert node.call("responses.retrieve", begun["id"], root=root)["status"] == "cancelled"
    assert node.call("responses.delete", begun["id"], root=root)["deleted"] is True
