"""Networks in the configuration."""

import pytest

from gateway.config.values.networks import parse_network


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("192.168.1.7", "192.168.1.7/32"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_a_network_is_a_prefix_or_one_address(text: str, network: str) -> None:
    assert str(parse_network(text)) == network


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("2001:DB8::1/32", "write 2001:db8::/32"),
        ("::ffff:10.0.0.1", "write the network without ::ffff:"),
        ("10.0.0.0/33", "expected a network"),
        ("office", "expected a network"),
        ("", "expected a network"),
        (10, "expected text"),
    ],
)
def test_ambiguous_network_is_refused(value: object, message: str) -> None:
    """The message says what to write."""
    with pytest.raises(ValueError, match=message):
        parse_network(value)
