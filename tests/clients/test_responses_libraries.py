"""Client libraries of the Responses API in the context lane: tools of the gateway beside their own, and approvals."""

import json
from collections.abc import Iterator, Sequence

import pytest

from tests.clients.ask import turns
from tests.clients.lane import Lane
from tests.clients.mixed import DONE as BOTH_DONE
from tests.clients.mixed import MixedModel
from tests.clients.person import (
    ANSWERED_REASON,
    ANSWERED_REJECTION,
    DONE,
    asked_about,
    asking,
    ended,
    insertion,
    line,
    pending,
)
from tests.clients.provider import PROVIDER_KEY, Provider, Seen
from tests.clients.responding import (
    CONVERSATIONS,
    DECISIONS,
    REASON,
    SILENT_ABOUT_REASONS,
    UNSTORED,
    Conversation,
    Json,
    Options,
)
from tests.clients.responding import conversation as begin
from tests.clients.test_every_client import HELLO
from tests.clients.test_long_history import HISTORY, TURNS, said_in
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

#: A call that only reads, and runs without a question unless the client wants one.
SELECT = 'tool execute_sql {"sql": "SELECT name FROM fruit WHERE price > $step ORDER BY price"}'
ROUND = "Demo model: round {} of tool calls is done."

by_every_client = pytest.mark.parametrize("name", CONVERSATIONS)
by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("tools")) as lane:
        yield lane


@pytest.fixture(scope="module")
def mixed_lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its model wants a tool of the gateway's, then the client's."""
    with MixedModel() as model, asking(model, tmp_path_factory.mktemp("mixed")) as lane:
        yield lane


class Client:
    """Begins conversations of one client."""

    def __init__(self, name: str, *, stream: bool, worker: Worker) -> None:
        self.name, self._stream, self._worker = name, stream, worker

    def at(
        self,
        lane: Lane,
        *,
        decision: str | None = None,
        label: str | None = "gateway",
        api_key: str = PROVIDER_KEY,
        history: Sequence[Json] = (),
    ) -> Conversation:
        """A conversation in this lane; without a decision it must not be asked."""
        options = Options(
            base_url=f"{lane.root}/v1",
            stream=self._stream,
            label=label,
            require_approval="never" if decision is None else "always",
            decision=None if decision is None else DECISIONS[decision],
            api_key=api_key,
            history=history,
        )
        return begin(self.name, options, worker=self._worker)


@pytest.fixture
def client(name: str, stream: bool, node: Worker) -> Client:
    return Client(name, stream=stream, worker=node)


@pytest.mark.cell("turn")
@by_every_client
def test_client_receives_the_models_text(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Letter for letter, from one call of the model, whose API is chat completions."""
    told = client.at(lane).say("Say hello")
    assert (told.text, told.asked, told.calls) == (HELLO, [], [])
    assert [request.target for request in seen] == ["/v1/chat/completions"]


@by_every_client
def test_client_sees_calls_of_named_gateway_tools(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """With their arguments and results, each once, in a turn of three rounds and in the next turn."""
    conversation = client.at(lane)
    told = conversation.say(f"steps 3 {SELECT}")
    assert told.text.startswith(ROUND.format(3)) and told.asked == [] and len(seen) == 4
    assert [call["name"] for call in told.calls] == ["execute_sql"] * 3
    assert [json.loads(call["arguments"])["sql"].split()[7] for call in told.calls] == ["1", "2", "3"]
    assert "apple" in told.calls[0]["output"] and "apple" not in told.calls[2]["output"]
    assert conversation.say("Say hello").text == HELLO


@by_every_client
def test_client_without_named_tools_sees_no_gateway_calls(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """By a client that names none of the gateway's."""
    told = client.at(lane, label=None).say(SELECT)
    assert told.text.startswith(ROUND.format(1)) and "apple" in told.text
    assert told.calls == [] and len(seen) == 2


@pytest.mark.cell("approval")
@pytest.mark.parametrize("name", [*CONVERSATIONS, UNSTORED])
@by_both_decisions
def test_client_approval_response_decides_the_call(client: Client, decision: str, lane: Lane, client_id: str) -> None:
    """In the client's own way: it is asked once, the call runs once or never, the reason is kept."""
    conversation = client.at(lane, decision=decision)
    told = conversation.say(insertion(client_id))
    assert [call["name"] for call in told.asked] == ["execute_sql"]
    assert client_id in json.loads(told.asked[0]["arguments"])["sql"]
    ended(lane, client_id, decision)
    [approval] = asked_about(lane, client_id)
    if decision == "approve":
        assert told.text == DONE and [call["name"] for call in told.calls] == ["execute_sql"]
    elif client.name in SILENT_ABOUT_REASONS:
        assert told.text == ANSWERED_REJECTION
    else:
        assert told.text == ANSWERED_REASON and approval["comment"] == REASON
    assert conversation.say("Say hello").text == HELLO
    ended(lane, client_id, decision)


@by_every_client
@by_both_decisions
def test_client_can_require_approval_for_every_call(client: Client, decision: str, lane: Lane) -> None:
    """`require_approval: always` asks about a call that runs without a question otherwise."""
    told = client.at(lane, decision=decision).say(SELECT)
    assert [json.loads(call["arguments"])["sql"].split()[7] for call in told.asked] == ["1"]
    assert ("apple" in told.text) == (decision == "approve")


@by_every_client
def test_approval_is_decided_by_a_text_reply(client: Client, lane: Lane, client_id: str) -> None:
    """A client that names no tools of the gateway's decides by its next message."""
    conversation = client.at(lane, label=None)
    asked = conversation.say(insertion(client_id))
    reply = line(pending(lane, client_id))
    assert f"\n{reply}\n" in asked.text and asked.asked == asked.calls == []
    assert conversation.say(reply).text == DONE
    ended(lane, client_id, "approve")


@pytest.mark.cell("own tool", "mixed")
@by_every_client
@pytest.mark.parametrize("label", ["gateway", None], ids=["shown", "hidden"])
def test_client_and_gateway_tools_run_once_in_one_turn(
    client: Client, label: str | None, mixed_lane: Lane, client_id: str
) -> None:
    """Each runs once, in the turn that calls both and in the next one."""
    conversation = client.at(mixed_lane, label=label)
    told = conversation.say(f"Note {client_id} at no risk, and the weather.")
    assert told.text == BOTH_DONE and mixed_lane.count(client_id) == 1
    assert [call["name"] for call in told.calls] == (["execute_sql"] if label else [])
    assert conversation.say("And again?").text == BOTH_DONE and mixed_lane.count(client_id) == 1
    assert asked_about(mixed_lane, client_id) == []


@by_every_client
def test_approval_beside_a_client_tool_is_requested_once(client: Client, mixed_lane: Lane, client_id: str) -> None:
    """The same where the gateway's tool needs an approval."""
    conversation = client.at(mixed_lane, decision="approve")
    told = conversation.say(f"Note {client_id}, and the weather.")
    assert told.text == BOTH_DONE and len(told.asked) == 1
    ended(mixed_lane, client_id, "approve")
    assert conversation.say("And again?").text == BOTH_DONE
    ended(mixed_lane, client_id, "approve")


@pytest.mark.cell("long history")
@by_every_client
def test_a_long_history_reaches_the_model(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Whole and in order."""
    assert client.at(lane, history=turns(TURNS)).say("Say hello").text == HELLO
    assert said_in(seen)[-len(HISTORY) - 1 :] == [*HISTORY, "Say hello"]


@pytest.mark.cell("error")
@by_every_client
def test_provider_refusal_is_raised_with_the_provider_message(client: Client, lane: Lane) -> None:
    """With the provider's words, which the client raises in its own way."""
    with pytest.raises(Exception, match=r"Incorrect API key provided\."):
        client.at(lane, api_key="wrong").say("Say hello")
