"""The features of anthropic-python beyond a chat, through the gateway."""

from collections.abc import Callable, Iterator

import anthropic
import pytest

from tests.clients.conftest import GATEWAY_KEY
from tests.clients.provider import PROVIDER_KEY, Seen
from tests.clients.talking import ANTHROPIC, talk
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

ASK: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Say hello"}]
BETA = "context-1m-2025-08-07"
BETA_ASK: list[anthropic.types.beta.BetaMessageParam] = [{"role": "user", "content": "Say hello"}]


@pytest.fixture
def client(gateway: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway, api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


def test_beta_messages_keep_their_query(client: anthropic.Anthropic, seen: list[Seen]) -> None:
    """`/v1/messages?beta=true`, as Claude Code asks, with the headers that go with it."""
    answer = client.beta.messages.create(
        model="demo", max_tokens=100, messages=BETA_ASK, betas=[BETA], extra_query={"beta": "true"}
    )
    assert answer.content[0].type == "text" and answer.content[0].text.endswith('"Say hello"')
    assert seen[0].target == "/v1/messages?beta=true"
    assert seen[0].headers["anthropic-beta"] == BETA and seen[0].headers["anthropic-version"]


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    """By the route below messages."""
    assert client.messages.count_tokens(model="demo", messages=ASK).input_tokens == 3


@pytest.mark.cell("own tool", prefix="talk ")
@pytest.mark.parametrize("name", [name for name in ANTHROPIC if not name.endswith("runner")])
def test_client_tool_result_reaches_the_model(
    name: str, stream: bool, gateway: str, seen: list[Seen], workers: Callable[[str], Worker]
) -> None:
    """The client runs it, and its result comes back with the next request."""
    with talk(name, gateway, stream=stream, worker=workers) as client:
        said = client.say('native get_weather {"city": "Malmö", "days": 1}')
    assert said == "Demo model: round 1 of tool calls is done. The result: Sunny" and len(seen) == 2


def test_thinking_comes_as_a_block(client: anthropic.Anthropic) -> None:
    """Before the text."""
    prompt: list[anthropic.types.MessageParam] = [{"role": "user", "content": "think, say hello"}]
    answer = client.messages.create(model="demo", max_tokens=100, messages=prompt)
    assert [block.type for block in answer.content] == ["thinking", "text"]


def test_gateway_key_is_accepted_as_auth_token(keyed_gateway: str, seen: list[Seen]) -> None:
    """`auth_token` (ANTHROPIC_AUTH_TOKEN) serves as well as `api_key`."""
    with anthropic.Anthropic(base_url=keyed_gateway, auth_token=GATEWAY_KEY, max_retries=0) as client:
        assert client.messages.create(model="demo", max_tokens=100, messages=ASK).stop_reason == "end_turn"
    assert seen[0].credentials == {PROVIDER_KEY}
