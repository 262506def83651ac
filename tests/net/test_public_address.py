"""Addresses of the public internet, and everything that only looks like one of them."""

import pytest

from gateway.net.public_address import is_metadata, is_public


@pytest.mark.parametrize(
    "host",
    ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)
def test_public_addresses_are_public(host: str) -> None:
    """Also when an IPv6 address carries an IPv4 address that is."""
    assert is_public(host)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
        *("192.168.0.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192"),
        *("198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "224.0.1.1", "240.0.0.1"),
        *("255.255.255.255", "168.63.129.16", "192.88.99.1"),
        *(
            "::",
            "::1",
            "::1%lo",
            "fe80::1",
            "fe80::1%eth0",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "ff0e::1",
        ),
        *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::1", "2002:101:101::1"),
        *("2001:0:101:101::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1"),
    ],
)
def test_non_public_addresses_are_not_public(host: str) -> None:
    """Loopback, private, shared, link-local, metadata, multicast, reserved, and IPv6 that carries one of these."""
    assert not is_public(host)


@pytest.mark.parametrize(
    "host", ["", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "1.1.1.1:80", "\0", "1.1.1.1\n"]
)
def test_non_address_host_is_not_public(host: str) -> None:
    """Only what a socket address holds counts; a name or another spelling never gets here as one."""
    assert not is_public(host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("169.254.169.254", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("fe80::1%eth0", True),
        ("fd00:ec2::254", True),
        ("168.63.129.16", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("1.1.1.1", False),
        ("service.example", False),
    ],
)
def test_metadata_is_known_by_its_address(host: str, expected: bool) -> None:
    """Also where an address of IPv6 carries it."""
    assert is_metadata(host) is expected
