"""The number of tokens of an input, which the gateway does not know."""

import pytest

from gateway.dialects.registry import build_paths

from .answering import KEYS, answering


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_input_token_count_returns_404_with_an_alternative(path: str) -> None:
    """404, as from a server that does not have the page: SDKs do not try again, and clients count themselves."""
    async with answering() as client:
        client.world.session.headers["X-Context-Mode"] = "context"
        refused = await client.create(path=f"{path}/input_tokens")
        assert (refused.status, refused.error["code"]) == (404, "unknown_route")
        assert (
            "counts no tokens" in refused.error["message"] and "/v1/responses/input_tokens" in refused.error["message"]
        )


async def test_input_token_count_requires_the_context_scope() -> None:
    """As for all pages of responses."""
    async with answering(**KEYS) as client:
        for name, status in (("", 401), ("low", 403), ("bob", 404)):
            refused = await client.of(name).create(path="/context/v1/responses/input_tokens")
            assert refused.status == status
