"""The processes between which a client is tested; without the client libraries nothing here is collected."""

import hashlib
import importlib.util
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gateway.testing.run import GatewayProcess
from tests.clients.javascript import Node
from tests.clients.provider import PROVIDER_KEY, Provider, Seen

# `make test` has no client libraries. The other modules need none to be collected, so test_readme.py tells when they
# are missing where they should be.
_IMPORTING = ("test_every_client.py", "test_openai.py", "test_anthropic.py")
collect_ignore = () if importlib.util.find_spec("openai") else _IMPORTING

GATEWAY_KEY = "gateway-secret"


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
def node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def demo_gateway() -> AsyncIterator[str]:
    """As `make run` starts it: no upstream, no keys, the demo model."""
    async with GatewayProcess("") as process:
        yield process.base_url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gateway(provider: Provider) -> AsyncIterator[str]:
    """In front of the provider, without keys: the client's key is the provider's."""
    config = f"upstreams: [{{name: provider, base_url: '{provider.base_url}/v1'}}]"
    async with GatewayProcess(config) as process:
        yield process.base_url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def keyed_gateway(provider: Provider) -> AsyncIterator[str]:
    """With a key: under `/` the upstream has a key of its own, under `/own-key` the client brings the provider's."""
    config = f"""
keys: [{{name: tests, sha256: {hashlib.sha256(GATEWAY_KEY.encode()).hexdigest()}, scopes: [passthrough]}}]
upstreams:
  - {{name: ours, base_url: "{provider.base_url}/v1", api_key: {PROVIDER_KEY}}}
  - {{name: theirs, base_url: "{provider.base_url}/v1", paths: [/own-key/v1/]}}
"""
    async with GatewayProcess(config) as process:
        yield process.base_url
