"""The body of a request is one JSON object, which can be written again."""

import pytest

from gateway.dialects.json_object import json_object
from gateway.errors import GatewayError


def test_an_object() -> None:
    assert json_object(b'{"a": [1, 2.5, null, "\xc3\xa4"]}') == {"a": [1, 2.5, None, "ä"]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"x": NaN}',
        b'{"x": Infinity}',
        b'{"x": 1e999}',
        b'{"x": "\xff"}',
        b'{"x": "\\ud800"}',
        b'{"x": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    """Hostile bodies are no more than that."""
    with pytest.raises(GatewayError) as caught:
        json_object(content)
    assert (caught.value.code, caught.value.param) == ("invalid_json", None)
    assert len(caught.value.message) < 300
