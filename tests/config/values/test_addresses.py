"""Listen addresses, URLs, prefixes, header and host names, and the secrets that must fit into them."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.values.addresses import (
    parse_address,
    parse_base_url,
    parse_credential,
    parse_credential_header,
    parse_header_name,
    parse_header_value,
    parse_host,
    parse_prefix,
    parse_secret,
    parse_secret_url,
    parse_store,
    parse_variable,
)

CANARY = "canary-0123456789"


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.8.9.1:1", "127.8.9.1", 1, True),
        ("localhost:8080", "localhost", 8080, True),
        ("[::1]:8080", "::1", 8080, True),
        ("[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1", 80, True),
        ("0.0.0.0:0", "0.0.0.0", 0, False),
        ("[::]:8080", "::", 8080, False),
        ("192.168.1.5:65535", "192.168.1.5", 65535, False),
        ("gateway.example.com:80", "gateway.example.com", 80, False),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, False),
        ("localhost.example.com:80", "localhost.example.com", 80, False),
    ],
)
def test_a_listen_address_is_host_and_port(text: str, host: str, port: int, is_loopback: bool) -> None:
    """IPv4, IPv6 in brackets and names; port 0 is allowed; it is written back as it was."""
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)
    assert str(address) == text
    assert parse_address(address) == address


@pytest.mark.parametrize(
    "value",
    [
        "8080",
        ":8080",
        "127.0.0.1",
        "::1:8080",
        "[::1]",
        "[::g]:1",
        "1.2.3:80",
        "256.1.1.1:80",
        "a:65536",
        "a:-1",
        "a b:1",
        "-a:1",
        "http://a:1",
        "a:1/",
        "",
        8080,
        None,
        [],
        "a:",
        "a:٣",
        "*:80",
        "[127.0.0.1]:80",
    ],
)
def test_invalid_listen_address_is_refused(value: object) -> None:
    """Nothing is guessed: no missing host, no missing port, no IPv6 without brackets."""
    with pytest.raises(ValueError, match=r"expected|port|not an IP|not a host"):
        parse_address(value)


@pytest.mark.parametrize(
    "text",
    [
        "https://api.openai.com/v1",
        "http://127.0.0.1:11434",
        "http://[::1]:8000/v1/",
        "https://h/openai/deployments/x",
        "HTTP://h",
        "http://h/a%20b",
        "http://my_host:80/",
    ],
)
def test_base_url_of_scheme_host_port_and_path_is_accepted(text: str) -> None:
    """Scheme, host, port and path; it stays as it was written."""
    assert parse_base_url(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://h", "begins with http"),
        ("h:80", "begins with http"),
        ("//h", "begins with http"),
        ("", "begins with http"),
        ("http://", "host"),
        ("http:///v1", "host"),
        ("http://h:", "port"),
        ("http://h:0", "port"),
        ("http://h:99999", "port"),
        ("http://h:x", "port"),
        ("http://[::1", "host"),
        ("http://a..b", "host name"),
        ("http://1.2.3", "IP address"),
        ("http://h?a=b", "no query"),
        ("http://h/v1?", "no query"),
        ("http://h/#x", "fragment"),
        ("http://h/v1#", "fragment"),
        (f"http://u:{CANARY}@h/", "no user or password"),
        ("http://h/a b", "spaces"),
        ("http://h\n/", "control"),
        ("http://h/ü", "non-ASCII"),
        ("http://h\\@evil", "backslashes"),
        ("http://h/{x}", "percent-encoded"),
    ],
)
def test_base_url_with_other_parts_is_refused_without_echo(text: str, reason: str) -> None:
    """The reason is named, and what stood in the URL is never repeated."""
    with pytest.raises(ValueError, match=reason) as caught:
        parse_base_url(text)
    assert CANARY not in str(caught.value)


@given(st.text(max_size=60))
def test_address_parsers_raise_only_value_error(text: str) -> None:
    """Addresses, URLs, prefixes, hosts and secrets: a value or a ValueError, for any text."""
    parsers: tuple[Callable[[object], object], ...] = (
        parse_address,
        parse_base_url,
        parse_prefix,
        parse_host,
        parse_header_name,
        parse_credential,
        parse_header_value,
        parse_secret_url,
        parse_store,
        parse_variable,
    )
    for parse in parsers:
        for candidate in (text, f"http://{text}", f"{text}:80", f"/{text}"):
            with contextlib.suppress(ValueError):
                parse(candidate)


def test_a_prefix_is_the_beginning_of_a_raw_path() -> None:
    """It begins with a slash and holds only what a request target may hold."""
    for text in ("/", "/v1/", "/v1", "/a%20b/~x"):
        assert parse_prefix(text) == text
    for text in ("", "v1", "/a b", "/v1?x", "/v1#x", "/ü", "http://h/", "/a\n"):
        with pytest.raises(ValueError, match="begins with '/'"):
            parse_prefix(text)


def test_an_allowed_host_is_a_host_and_perhaps_a_port() -> None:
    """It is compared without case, so it is kept in lower case."""
    assert [parse_host(text) for text in ("Gateway.Example.com", "h:8080", "[::1]:80", "10.0.0.1")] == [
        "gateway.example.com",
        "h:8080",
        "[::1]:80",
        "10.0.0.1",
    ]
    for text in ("", "http://h", "h/", "*.example.com", "a b"):
        with pytest.raises(ValueError, match="expected a host"):
            parse_host(text)


def test_a_credential_header_cannot_break_the_request() -> None:
    """Any token but those that frame or route."""
    assert parse_credential_header("X-Api-Key") == "X-Api-Key"
    for name in ("Host", "content-length", "Transfer-Encoding", "connection"):
        assert parse_header_name(name) == name
        with pytest.raises(ValueError, match="cannot carry a credential"):
            parse_credential_header(name)
    for name in ("", "a b", "a:", "a\r\nb"):
        with pytest.raises(ValueError, match="the name of a header"):
            parse_credential_header(name)


@pytest.mark.parametrize("text", ["Bearer " + CANARY, CANARY + "\n", CANARY + "\r\nX: y", "ü" + CANARY, CANARY + "\0"])
def test_unsendable_key_is_refused_without_echo(text: str) -> None:
    """Spaces, line ends and other characters would change the request."""
    with pytest.raises(ValueError, match="visible ASCII") as caught:
        parse_credential(text)
    assert CANARY not in str(caught.value)


def test_secret_values_are_validated_by_kind() -> None:
    """Header values may hold spaces inside, variables may be empty, URLs must be URLs, databases must be known."""
    assert parse_header_value("Bearer " + CANARY).reveal() == "Bearer " + CANARY
    assert parse_variable("").reveal() == ""
    assert parse_secret_url("https://h/x?key=" + CANARY).reveal().endswith(CANARY)
    assert parse_store("sqlite:///:memory:").reveal() == "sqlite:///:memory:"
    refused: list[tuple[Callable[[object], object], object]] = [
        (parse_header_value, CANARY + "\r\nX: y"),
        (parse_header_value, " " + CANARY),
        (parse_secret_url, "ftp://" + CANARY),
        (parse_store, "mysql:" + CANARY),
        (parse_secret, "  "),
        (parse_secret, 12345),
        (parse_variable, 1),
    ]
    for parse, value in refused:
        with pytest.raises(ValueError, match=r".") as caught:
            parse(value)
        assert CANARY not in str(caught.value)
