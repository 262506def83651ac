"""The number of tokens of an input, which the gateway does not know."""

import pytest

from gateway.dialects.registry import build_paths

from .answering import KEYS, answering


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_a_count_is_refused_with_the_way_to_one(path: str) -> None:
    """404, as from a server that does not have the page: SDKs do not try again, and clients count themselves."""
    async with answering() as client:
        client.world.session.headers["X-Context-Mode"] = "context"
        refused = await client.create(path=f"{path}/input_tokens")
        assert (refused.status, refused.error["code"]) == (404, "unknown_route")
        assert (
            "counts no tokens" in refused.error["message"] and "/v1/responses/input_tokens" in refused.error["message"]
        )


async def test_only_keys_of_the_lane_learn_that() -> None:
    """As for all pages of responses."""
    async with answering(**KEYS) as client:
        for name, status in (("", 401), ("low", 403), ("bob", 404)):
            refused = await client.of(name).create(path="/context/v1/responses/input_tokens")
            assert refused.status == status
