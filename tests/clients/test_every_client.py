"""What every client library finds through the gateway: its answers, its keys, its errors, in whatever language."""

from collections.abc import Iterator

import pytest

from gateway.demo.script import GREETING
from tests.clients.ask import Ask, Client
from tests.clients.conftest import GATEWAY_KEY
from tests.clients.libraries import PYTHON, Libraries
from tests.clients.provider import FAILURES, LIMITS, PROVIDER_KEY, Seen
from tests.clients.worker import JAVASCRIPT

pytestmark = pytest.mark.clients

HELLO = f'{GREETING} You said: "Say hello"'
APART = ("instructor text", "litellm")
CLIENTS = (*(f"python {name}" for name in PYTHON), *(f"node {name}" for name in JAVASCRIPT), *APART)
PROGRAMS = ("python llm",)
#: They do not tell in a request how often they have tried before.
SILENT_ABOUT_RETRIES = ("python llm", "node ai-sdk", "node langchain")


def every_client_but(*names: str) -> pytest.MarkDecorator:
    """LiteLLM among them, where the larger tier is asked for."""
    params = [
        pytest.param(name, marks=[pytest.mark.clients_all] if name == "litellm" else [])
        for name in CLIENTS
        if name not in names
    ]
    return pytest.mark.parametrize("client", params, indirect=True)


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@pytest.mark.cell("turn")
@every_client_but()
def test_client_receives_the_models_answer(client: Client, stream: bool, gateway: str) -> None:
    """Letter for letter."""
    assert client(Ask(root=gateway, prompt="Say hello", stream=stream)).text == HELLO


@every_client_but()
def test_stream_pieces_arrive_without_buffering(client: Client, gateway: str) -> None:
    """The pieces arrive as the model sends them: half a second of them does not come at once."""
    outcome = client(Ask(root=gateway, prompt="drip 50 long 11", stream=True))
    assert outcome.text.split() == [f"word{number}" for number in range(1, 12)]
    assert len(outcome.pieces) > 1 and outcome.times_s[-1] - outcome.times_s[0] > 0.25


@every_client_but()
def test_ten_thousand_events_arrive(client: Client, gateway: str) -> None:
    """In their order, none twice."""
    outcome = client(Ask(root=gateway, prompt="long 10000", stream=True))
    assert outcome.text.split() == [f"word{number}" for number in range(1, 10_001)]


@every_client_but()
def test_gateway_key_is_replaced_by_the_providers_key(
    client: Client, stream: bool, keyed_gateway: str, seen: list[Seen]
) -> None:
    """Where the upstream has a key of its own, that one replaces the client's."""
    assert client(Ask(root=keyed_gateway, prompt="Say hello", stream=stream, api_key=GATEWAY_KEY)).text == HELLO
    assert [request.credentials for request in seen] == [{PROVIDER_KEY}]


@every_client_but()
def test_provider_key_is_forwarded_and_gateway_key_removed(
    client: Client, stream: bool, keyed_gateway: str, seen: list[Seen]
) -> None:
    """Where the upstream has none, the gateway's key comes in a header of its own and goes no further."""
    headers = {"X-Gateway-Key": GATEWAY_KEY}
    ask = Ask(root=f"{keyed_gateway}/own-key", prompt="Say hello", stream=stream, headers=headers)
    assert client(ask).text == HELLO
    assert [request.credentials for request in seen] == [{PROVIDER_KEY}]


@pytest.mark.cell("error")
@every_client_but()
def test_client_raises_the_gateway_error_for_a_wrong_key(
    client: Client, stream: bool, keyed_gateway: str, seen: list[Seen]
) -> None:
    """As its own exception for 401, with the gateway's words; the provider hears nothing."""
    failed = client(Ask(root=keyed_gateway, prompt="Say hello", stream=stream, api_key="wrong")).failed
    assert "gateway key is not valid" in failed.message and "wrong" not in failed.message
    assert failed.status in (401, None) and seen == []


@every_client_but()
def test_truncated_answer_raises_a_client_error(client: Client, stream: bool, gateway: str) -> None:
    """An answer that ends before its end never looks whole."""
    outcome = client(Ask(root=gateway, prompt="cut, drip 2, long 100", stream=stream))
    assert outcome.failed.message
    assert "word100" not in "".join(outcome.pieces) and bool(outcome.pieces) == stream


@every_client_but(*PROGRAMS)
@pytest.mark.parametrize("status", [400, 404, 409, 429, 500, 529])
def test_provider_error_reaches_the_client_unchanged(client: Client, stream: bool, status: int, gateway: str) -> None:
    """Status, message and headers, those about limits and retries among them."""
    failed = client(Ask(root=gateway, prompt=f"error {status}", stream=stream)).failed
    assert failed.status == status and f"error {status}" in failed.message
    expected = {**LIMITS, **({"retry-after": "1"} if status == 429 else {})}
    assert {name: failed.headers.get(name) for name in expected} == expected


@every_client_but(*SILENT_ABOUT_RETRIES)
def test_client_retries_after_the_interval_in_milliseconds(
    client: Client, stream: bool, gateway: str, seen: list[Seen]
) -> None:
    """In the milliseconds that the provider asked for, not its seconds: those would be twice 20."""
    ask = Ask(root=gateway, prompt="Say hello", stream=stream, headers={FAILURES: "2"}, retries=2)
    assert client(ask).text == HELLO
    assert [request.headers["x-stainless-retry-count"] for request in seen] == ["0", "1", "2"]
