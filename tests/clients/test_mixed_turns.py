"""Clients with a tool of their own, beside one of the gateway's: in each turn the gateway's runs once, asked once."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.clients.conftest import running
from tests.clients.lane import KEEPALIVE_S, Lane, configuration, shop
from tests.clients.mixed import DONE, MixedModel
from tests.clients.person import REJECTED, asked_about, line, pending
from tests.clients.talking import AGENTS, LITELLM, TALKS, talk
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

#: LiteLLM among them, where the larger tier is asked for.
by_every_client = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.clients_all] if name in LITELLM else []) for name in TALKS]
)
Workers = Callable[[str], Worker]


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "work").mkdir()
    database = shop(folder)
    tools = {"execute_sql": {"url": f"sqlite:///{database}", "read_only": False}}
    with MixedModel() as model:
        config = json.loads(configuration(model.base_url, tools=tools, keepalive_s=KEEPALIVE_S))
        # An agent cannot answer while it reads a stream.
        with running(json.dumps({**config, "approvals": {"mode": "turn"}})) as gateway:
            yield Lane(f"{gateway.base_url}/context", database)


@pytest.mark.cell("turn", "own tool", "mixed", prefix="talk ")
@by_every_client
def test_the_gateways_tool_runs_once(name: str, stream: bool, lane: Lane, client_id: str, workers: Workers) -> None:
    """In the turn that calls both, and in the next one: the model sees what was done."""
    with talk(name, lane.root, stream=stream, worker=workers) as client:
        assert client.say(f"Note {client_id} at no risk, and the weather.") == DONE and lane.count(client_id) == 1
        assert client.say("And again?") == DONE and lane.count(client_id) == 1
        assert asked_about(lane, client_id) == []


@pytest.mark.cell("approve", prefix="talk ")
@by_every_client
def test_approval_is_requested_once_in_a_mixed_turn(
    name: str, stream: bool, lane: Lane, client_id: str, workers: Workers
) -> None:
    """The same where the gateway's tool needs an approval first, which the next message gives."""
    with talk(name, lane.root, stream=stream, worker=workers) as client:
        question = client.say(f"Note {client_id}, and the weather.")
        approval = pending(lane, client_id)
        assert f"\n{line(approval)}\n" in question
        assert client.say(line(approval)) == DONE and lane.count(client_id) == 1
        assert client.say("And again?") == DONE and lane.count(client_id) == 1
        assert len(asked_about(lane, client_id)) == 1


@pytest.mark.cell("reject", prefix="talk ")
@by_every_client
def test_a_rejected_call_never_runs(name: str, stream: bool, lane: Lane, client_id: str, workers: Workers) -> None:
    """The answer says so, with the reason."""
    with talk(name, lane.root, stream=stream, worker=workers) as client:
        assert client.say(f"Note {client_id}, and the weather.")
        assert client.say(f"{line(pending(lane, client_id), 'reject')}: Not today") == REJECTED
        assert lane.count(client_id) == 0


@pytest.mark.cell("error", prefix="talk ")
@pytest.mark.parametrize("name", AGENTS)
def test_agent_raises_the_gateway_error_for_a_wrong_key(
    name: str, stream: bool, keyed_gateway: str, workers: Workers
) -> None:
    """By the exception that ends the run of an agent, with the gateway's words."""
    with (
        talk(name, keyed_gateway, stream=stream, worker=workers) as client,
        pytest.raises(Exception, match="gateway key is not valid"),
    ):
        client.say("Say hello")
