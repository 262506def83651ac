"""Headers that may go out unasked."""

import pytest

from gateway.plugins.assessors.http.headers import carries_credential, find_header_doubt


@pytest.mark.parametrize("name", ["Accept", "user-agent", "If-None-Match", "RANGE", "X-Request-Id", "accept_language"])
def test_harmless_headers_are_not_doubtful(name: str) -> None:
    """Content negotiation, conditions, ranges and tracing, in any letter case."""
    assert find_header_doubt(name, "x; y=1, \t*/*") is None
    assert not carries_credential(name)


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "X-Api-Key", "x_api_key"])
def test_credential_headers_are_classified_as_credentials(name: str) -> None:
    """Credentials are not doubtful by themselves, but told apart."""
    assert find_header_doubt(name, "Bearer x") is None
    assert carries_credential(name)


@pytest.mark.parametrize(
    "name",
    [
        "X-HTTP-Method-Override",
        "x-http-method",
        "X_HTTP_METHOD_OVERRIDE",
        "Host",
        "Transfer-Encoding",
        "Content-Length",
        "Connection",
        "Upgrade",
        "Proxy-Authorization",
        "X-Forwarded-For",
        "X-Original-URL",
        "X-Rewrite-URL",
        "Metadata-Flavor",
        "X-aws-ec2-metadata-token-ttl-seconds",
        "Metadata",
        "Destination",
        "X-Unknown",
        "",
        "A B",
        "A:",
        "Accept\r\n",
        "Accept ",
        "Äccept",
    ],
)
def test_override_routing_and_unknown_headers_are_doubtful(name: str) -> None:
    """Overrides, routing, framing, metadata services and everything unknown."""
    assert find_header_doubt(name, "x")


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\n", "a\x00", "\x7f", "\u010d\u010a", "值", "x" * 5_000])
def test_control_characters_make_a_header_value_doubtful(value: str) -> None:
    """Line ends, control characters and what may turn into them."""
    assert find_header_doubt("Accept", value)
