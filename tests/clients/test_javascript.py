"""The features of openai-node beyond a chat, through the gateway."""

import pytest

from gateway.demo.embeddings import build_vector
from tests.clients.provider import Seen
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients


def test_models_are_listed(node: Worker, gateway: str) -> None:
    """The provider's, and one by its name."""
    assert [model["id"] for model in node.call("models.list", root=gateway)["data"]] == ["demo", "demo-embedding"]
    assert node.call("models.retrieve", "demo", root=gateway)["owned_by"] == "twolane-demo"


def test_embeddings_request_returns_the_providers_vectors(node: Worker, gateway: str) -> None:
    """In the client's default encoding, which it decodes."""
    answer = node.call("embeddings.create", {"model": "demo-embedding", "input": "two lanes"}, root=gateway)
    assert answer["data"][0]["embedding"] == pytest.approx(build_vector(b"two lanes", dimensions=256))


def test_javascript_client_headers_reach_the_provider(node: Worker, gateway: str, seen: list[Seen]) -> None:
    """The provider sees the headers of the library."""
    node.call("models.list", root=gateway)
    assert seen[0].headers["x-stainless-lang"] == "js"
