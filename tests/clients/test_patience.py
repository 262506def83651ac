"""A tool that works for 15 seconds, longer than most of the clients would bear silence: the acceptance's own figure."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from tests.clients.ask import Ask
from tests.clients.conftest import running
from tests.clients.lane import configuration
from tests.clients.libraries import Libraries
from tests.clients.provider import Provider
from tests.clients.test_context import CLIENTS, LITELLM
from tests.clients.worker import worker_of

pytestmark = pytest.mark.clients

WORK = 'risk_level low, tool execute_command {"command": "sleep 15"}'
#: The gateway's default, and a client that bears little more.
KEEPALIVE_S, TIMEOUT_S = 10.0, 12.0
EVERY_CI_RUN = [name for name in CLIENTS if name != LITELLM]


@pytest.fixture(scope="module")
def root(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tools = {"execute_command": {"cwd": str(tmp_path_factory.mktemp("work"))}}
    with running(configuration(provider.base_url, tools=tools, keepalive_s=KEEPALIVE_S)) as process:
        yield f"{process.base_url}/context"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(EVERY_CI_RUN, id="every CI run"),
        pytest.param([LITELLM], id=LITELLM, marks=pytest.mark.clients_all),
    ],
)
def test_clients_wait_for_a_15_second_tool(names: Sequence[str], root: str) -> None:
    """By all of them at the same time: streams live on keep-alives, whole answers on the client's patience."""
    stream = Ask(root=root, prompt=WORK, stream=True, timeout_s=TIMEOUT_S)
    whole = Ask(root=root, prompt=WORK)
    asked = list(product(names, (stream, whole)))
    with ThreadPoolExecutor(len(asked)) as threads:
        texts = list(threads.map(_text, *zip(*asked, strict=True)))
    assert [client for client, text in zip(asked, texts, strict=True) if "exit code 0" not in text] == []


def _text(client: str, ask: Ask) -> str:
    """From a process or a loop of its own."""
    language, _, name = client.partition(" ")
    with Libraries() if language == "python" else worker_of(language) as own:
        return own.client(name)(ask).text
