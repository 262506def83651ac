"""The gateway's own names, and the web pages that may send requests."""

import pytest

from gateway.auth.host_guard import HostGuard, parse_authority
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits, parse_request_head

OURS = ["192.168.7.7", "[fd00::7]", "gw.example", "port.example:8443"]


def verdict(
    door: HostGuard, *lines: bytes, target: bytes = b"/v1/x", method: bytes = b"POST", version: bytes = b"1"
) -> str:
    """The code of the refusal; "" for a request that comes in."""
    raw = b"\r\n".join([b"%b %b HTTP/1.%b" % (method, target, version), *lines, b"", b""])
    try:
        door.check(parse_request_head(raw, HeadLimits()))
    except GatewayError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[0:0::1]:80",
        "[::ffff:127.0.0.1]", "192.168.7.7:1", "[fd00:0::7]:2", "gw.example", "GW.Example.:99", "port.example:8443",
    ],
)  # fmt: skip
def test_own_hosts_are_accepted(host: str) -> None:
    """Loopback, where we listen, what is allowed; in any case, with a last dot, in any spelling of an address."""
    assert verdict(HostGuard.from_hosts(OURS), b"Host: " + host.encode()) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "xgw.example", "gw.example.evil", "gw.example..", "port.example",
        "port.example:1", "0.0.0.0", "10.0.0.1", "2130706433", "127.1", "0x7f.1", "[::2]", "[::ffff:10.0.0.1]", "a..b",
    ],
)  # fmt: skip
def test_foreign_hosts_are_refused(host: str) -> None:
    """Whatever somebody's DNS says of them; also in an absolute target, whose Host does not count."""
    assert verdict(HostGuard.from_hosts(OURS), b"Host: " + host.encode()) == "host_not_allowed"
    assert (
        verdict(HostGuard.from_hosts(OURS), b"Host: localhost", target=b"http://" + host.encode()) == "host_not_allowed"
    )


def test_any_address_guard_allows_ip_literals_but_not_names() -> None:
    """A literal cannot be rebound; a name can."""
    door = HostGuard.from_hosts([], any_address=True)
    assert [verdict(door, b"Host: " + host) for host in (b"10.1.2.3:80", b"[2001:db8::1]", b"a.example")] == [
        "",
        "",
        "host_not_allowed",
    ]


def test_request_without_a_host_is_accepted_only_without_an_origin() -> None:
    """HTTP/1.0 may leave it out; a page that comes with it is another one."""
    assert verdict(HostGuard.from_hosts([]), version=b"0") == ""
    assert verdict(HostGuard.from_hosts([]), b"Origin: http://localhost", version=b"0") == "origin_not_allowed"


@pytest.mark.parametrize(
    ("host", "origin", "comes_in"),
    [
        ("localhost:8080", "http://localhost:8080", True),
        ("LocalHost:8080", "HTTP://localhost.:8080", True),
        ("localhost", "http://localhost:80", True),
        ("[::1]:8080", "http://[0::1]:8080", True),
        ("gw.example", "https://gw.example", True),
        ("127.0.0.1:8080", "https://gw.example", True),
        ("127.0.0.1:8080", "https://port.example:8443", True),
        ("localhost:8080", "https://chat.example", True),
        ("localhost:8080", "app://notes", True),
        ("localhost:8080", "http://localhost:3000", False),
        ("localhost:8080", "http://127.0.0.1:8080", False),
        ("localhost:8080", "http://localhost", False),
        ("localhost:8080", "https://gw.example:1", False),
        ("localhost:8080", "http://192.168.7.7", False),
        ("localhost:8080", "http://chat.example", False),
        ("localhost:8080", "https://chat.example.evil", False),
        ("localhost:8080", "http://evil.example", False),
        ("localhost:8080", "null", False),
        ("localhost:8080", "", False),
        ("localhost:8080", "file://", False),
        ("localhost:8080", "app://localhost:8080", False),
        ("localhost:8080", "http://user@localhost:8080", False),
        ("localhost:8080", "http://localhost:8080 http://evil.example", False),
        ("localhost:8080", "http://localhost:8080/", False),
    ],
)
def test_origins_are_accepted_by_allowed_host_and_port(host: str, origin: str, comes_in: bool) -> None:
    """Our own by the name that was asked for, those of allowed names, those that are named; a port is another page."""
    door = HostGuard.from_hosts(OURS, origins=["https://chat.example", "app://notes"])
    found = verdict(door, b"Host: " + host.encode(), b"Origin: " + origin.encode())
    assert found == ("" if comes_in else "origin_not_allowed")


def test_request_with_a_second_foreign_origin_is_refused() -> None:
    """In either order."""
    ours, theirs = b"Origin: http://localhost", b"Origin: http://evil.example"
    for lines in ((ours, theirs), (theirs, ours)):
        assert verdict(HostGuard.from_hosts([]), b"Host: localhost", *lines) == "origin_not_allowed"


@pytest.mark.parametrize(
    ("method", "lines", "comes_in"),
    [
        (b"GET", [b"Sec-Fetch-Site: same-origin"], True),
        (b"POST", [b"Sec-Fetch-Site: none"], True),
        (b"GET", [b"Sec-Fetch-Site: cross-site"], False),
        (b"GET", [b"Sec-Fetch-Site: same-site"], False),
        (b"POST", [b"Sec-Fetch-Site: Cross-Site"], False),
        (b"GET", [b"Sec-Fetch-Site: none", b"Sec-Fetch-Site: cross-site"], False),
        (b"GET", [b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: document"], True),
        (b"GET", [b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: iframe"], False),
        (b"POST", [b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: document"], False),
    ],
)
def test_fetch_metadata_headers_decide_requests_without_an_origin(
    method: bytes, lines: list[bytes], comes_in: bool
) -> None:
    """An image or a script of another page has no Origin; a person who follows a link comes in."""
    found = verdict(HostGuard.from_hosts([]), b"Host: localhost", *lines, method=method)
    assert found == ("" if comes_in else "origin_not_allowed")


def test_authorities_are_parsed_to_host_and_port() -> None:
    """A name without its last dot, an address in its usual form, the port."""
    assert parse_authority("A.Example.:8") == ("a.example", 8)
    assert parse_authority("[0:0::1]:") == ("::1", None)
    assert [parse_authority(text) for text in ("", "[x]", "a:b", "a/b", "::1", "a:123456")] == [None] * 6
