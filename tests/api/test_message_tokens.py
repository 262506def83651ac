"""An estimate of tokens; tests/e2e/test_messages.py requests it."""

import pytest

from gateway.api.message_tokens import estimate_tokens
from gateway.contracts.storage.store import Json

TEXT: Json = {"role": "user", "content": "x" * 400}

IMAGE: Json = {"type": "image_url", "image_url": {"url": "x" * 9999}}


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ({}, 1, 1),
        ({"messages": [TEXT]}, 100, 115),
        ({"messages": [TEXT], "tools": [{"function": {"description": "x" * 400}}]}, 200, 230),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * 9999}}]}]},
            1600,
            1620,
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "é" * 200}]}]}, 100, 120),
    ],
)
def test_four_bytes_are_a_token(body: Json, low: int, high: int) -> None:
    """But for files, whose bytes say nothing about it."""
    assert low <= estimate_tokens(body) <= high
