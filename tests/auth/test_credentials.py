"""Where keys are found in a head, and which parts of a query go; the rest is in tests/functional/."""

import pytest

from gateway.auth.credentials import clean_subprotocols, clean_target, holds
from gateway.contracts.errors import GatewayError

LONG = b"gw-alice-7b1f0c22d94e"


@pytest.mark.parametrize(
    ("value", "key", "found"),
    [
        (b"a" + LONG + b"b", LONG, True),
        (b"gw-al", b"gw-al", True),
        (b"x=gw-al; y", b"gw-al", True),
        (b"xgw-al", b"gw-al", False),
        (b"gw-al-2", b"gw-al", False),
        (b"%67w-al", b"gw-al", True),
        (b"Basic Z3ctYWw6eA==", b"gw-al", True),
        (b"Basic Z", b"gw-al", False),
        (b"", b"gw-al", False),
    ],
)
def test_long_key_is_found_anywhere_and_short_key_as_a_word(value: bytes, key: bytes, found: bool) -> None:
    """A short one may be a part of a word by chance; a password that is not base64 holds none."""
    assert holds(value, [key]) is found


def test_query_without_a_key_is_forwarded_byte_for_byte() -> None:
    """Also an empty one, and empty parameters."""
    for target in (b"/v1/x", b"/v1/x?", b"/v1/x?&&a=%zz&=", b"/v1/x?a=b?key=c"):
        assert clean_target(target, [LONG], has_own=True) == target


def test_short_key_in_a_path_is_accepted() -> None:
    """Only a long one in a path is refused."""
    assert clean_target(b"/v1/models", [b"models"], has_own=False) == b"/v1/models"
    with pytest.raises(GatewayError, match="path of the URL"):
        clean_target(b"/v1/" + LONG.replace(b"-", b"%2d"), [LONG], has_own=False)


def test_no_subprotocol_is_left_where_all_of_them_were_keys() -> None:
    """In any case of the prefix."""
    assert clean_subprotocols(b"OpenAI-Insecure-API-Key.a, openai-insecure-api-key.b") == b""
