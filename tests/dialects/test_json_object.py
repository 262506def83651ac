"""The body of a request is one JSON object, which can be written again."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.dialects.json_object import parse_json_object


def test_json_object_is_parsed() -> None:
    assert parse_json_object(b'{"a": [1, 2.5, null, "\xc3\xa4"]}') == {"a": [1, 2.5, None, "ä"]}


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_object_depth_is_limited_to_serializable_nesting(opens: bytes, closes: bytes) -> None:
    """Deeper ones are refused; many values beside each other are not deep."""
    body = parse_json_object(b'{"x":' + opens * 253 + b"1" + closes * 253 + b"}")
    assert orjson.loads(orjson.dumps(body)) == body
    with pytest.raises(GatewayError, match="nested too deeply"):
        parse_json_object(b'{"x":' + opens * 254 + b"1" + closes * 254 + b"}")
    assert len(parse_json_object(b'{"x":[' + b"[],{}," * 500 + b"1]}")["x"]) == 1001


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
def test_invalid_json_body_is_refused(content: bytes) -> None:
    """Hostile bodies are no more than that."""
    with pytest.raises(GatewayError) as caught:
        parse_json_object(content)
    assert (caught.value.code, caught.value.param) == ("invalid_json", None)
    assert len(caught.value.message) < 300
