"""The processes between which a client is tested; without the client libraries nothing here is collected."""

import asyncio
import contextlib
import hashlib
import importlib.util
from collections.abc import Callable, Iterator

import pytest

from tests.clients.ask import Client
from tests.clients.lane import KEEPALIVE_S, NOTE, Lane, configuration, shop
from tests.clients.provider import PROVIDER_KEY, Provider, Seen
from tests.clients.worker import Worker, worker_of
from tests.support.gateway_process import GatewayProcess

# `make test` has no client libraries. The other modules need none to be collected, so test_readme.py tells when they
# are missing where they should be.
_IMPORTING = (
    "test_approval_ways.py",
    "test_approvals.py",
    "test_every_client.py",
    "test_guardrails.py",
    "test_errors_page.py",
    "test_leaving.py",
    "test_limits.py",
    "test_long_history.py",
    "test_structured_output.py",
    "test_openai.py",
    "test_anthropic.py",
    "test_anthropic_context.py",
    "test_claude_code.py",
    "test_claude_code_kills.py",
    "test_context.py",
    "test_mixed_turns.py",
    "test_messages_requests.py",
    "test_objects.py",
    "test_patience.py",
    "test_responses_requests.py",
    "test_programs.py",
    "test_responses_agents.py",
    "test_responses_codex.py",
    "test_responses_libraries.py",
    "test_responses_openai.py",
    "test_responses_pydantic_ai.py",
    "test_workflows.py",
)
collect_ignore = () if importlib.util.find_spec("openai") else _IMPORTING

GATEWAY_KEY = "gateway-secret"


@contextlib.contextmanager
def running(config: str) -> Iterator[GatewayProcess]:
    """A gateway on a loop of its own, which the loops of the tests do not meet."""
    process = GatewayProcess(config)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(process.__aenter__())
        try:
            yield process
        finally:
            runner.run(process.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def seen(provider: Provider) -> list[Seen]:
    """What reaches the provider during this test."""
    provider.seen.clear()
    return provider.seen


@pytest.fixture(scope="session")
def node() -> Iterator[Worker]:
    with worker_of("node") as worker:
        yield worker


@pytest.fixture(scope="session")
def instructor() -> Iterator[Worker]:
    with worker_of("instructor") as worker:
        yield worker


@pytest.fixture(scope="session")
def litellm() -> Iterator[Worker]:
    with worker_of("litellm") as worker:
        yield worker


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> Callable[[str], Worker]:
    """Finds the process of a client that has one, by its language or name."""
    return request.getfixturevalue


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    """By its name, such as `node openai`; a module that has Python clients has a fixture `libraries`."""
    language, _, name = request.param.partition(" ")
    fixture = {"python": "libraries"}.get(language, language)
    found: Client = request.getfixturevalue(fixture).client(name)
    return found


@pytest.fixture
def client_id(request: pytest.FixtureRequest) -> str:
    """Another one for each test."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    streams: bool = request.param
    return streams


@pytest.fixture(scope="session")
def gateway(provider: Provider) -> Iterator[str]:
    """In front of the provider, without keys: the client's key is the provider's."""
    with running(f"upstreams: [{{name: provider, base_url: '{provider.base_url}/v1'}}]") as process:
        yield process.base_url


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    folder = tmp_path_factory.mktemp("tools")
    folder.joinpath("note.txt").write_text(NOTE, encoding="utf-8")
    database = shop(folder)
    tools = {
        "file_operations": {"roots": [str(folder)]},
        "execute_sql": {"url": f"sqlite:///{database}", "read_only": False},
    }
    with running(configuration(provider.base_url, tools=tools, keepalive_s=KEEPALIVE_S)) as process:
        yield Lane(f"{process.base_url}/context", database)


@pytest.fixture(scope="session")
def keyed_gateway(provider: Provider) -> Iterator[str]:
    """With a key: under `/` the upstream has a key of its own, under `/own-key` the client brings the provider's."""
    config = f"""
keys: [{{name: tests, sha256: {hashlib.sha256(GATEWAY_KEY.encode()).hexdigest()}, scopes: [passthrough, context]}}]
upstreams:
  - {{name: ours, base_url: "{provider.base_url}/v1", api_key: {PROVIDER_KEY}}}
  - {{name: theirs, base_url: "{provider.base_url}/v1", paths: [/own-key/v1/]}}
"""
    with running(config) as process:
        yield process.base_url
