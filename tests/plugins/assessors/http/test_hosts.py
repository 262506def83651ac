"""The meaning of a host, in every spelling."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.assessors.http.hosts import Reach, UrlHost, classify, classify_address


@pytest.mark.parametrize(
    ("text", "name", "reach", "disguised"),
    [
        ("Example.COM.", "example.com", "public", False),
        ("8.8.8.8", "8.8.8.8", "public", False),
        ("134744072", "8.8.8.8", "public", True),
        ("2130706433", "127.0.0.1", "private", True),
        ("127.1", "127.0.0.1", "private", True),
        ("0x7f.0.0.1", "127.0.0.1", "private", True),
        ("017700000001", "127.0.0.1", "private", True),
        ("0", "0.0.0.0", "private", True),
        ("0251.0376.0251.0376", "169.254.169.254", "metadata", True),
        ("0xA9FEA9FE", "169.254.169.254", "metadata", True),
        ("①⑥⑨.254.169.254", "169.254.169.254", "metadata", True),
        ("169。254。169。254", "169.254.169.254", "metadata", True),
        ("[::1]", "::1", "private", False),
        ("[2606:2800:220:1:248:1893:25c8:1946]", "2606:2800:220:1:248:1893:25c8:1946", "public", False),
        ("[FE80::1]", "fe80::1", "metadata", False),
        ("[::ffff:8.8.8.8]", "::ffff:808:808", "public", True),
        ("localhost", "localhost", "private", False),
        ("a.b.local", "a.b.local", "private", False),
        ("例子.测试", "例子.测试", "public", False),
        ("METADATA.google.internal", "metadata.google.internal", "metadata", False),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io", "private", False),
        ("a9fea9fe.nip.io", "a9fea9fe.nip.io", "metadata", False),
    ],
)
def test_classify_reports_reach_and_disguise_of_a_host(text: str, name: str, reach: Reach, disguised: bool) -> None:
    """Names and addresses, however they are written."""
    found = classify(text)
    assert (found.reach, found.disguised) == (reach, disguised)
    assert found.name == name or found.name == str(ipaddress.ip_address(name))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".a",
        "-a.com",
        "a b",
        "a%20b",
        "1.2.3.4.5",
        "256.1.1.1",
        "0xg.1.1.1",
        "425.510.425.510",
        "[::1",
        "[]",
        "[fe80::1%eth0]",
        "[v1.a]",
        "ｅｘａｍｐｌｅ.com",
        "exam\u00adple.com",
        "a\u200bb.com",
        "a℀b.com",
        "a" * 64 + ".com",
        "a." * 127 + "com",
        "9" * 200,
    ],
)
def test_ambiguous_hosts_are_classified_as_unclear(text: str) -> None:
    """What is no host, or another one to another program, is unclear."""
    assert classify(text).reach == "unclear"


@given(st.integers(0, 2**32 - 1))
def test_every_spelling_of_an_ip_address_has_the_same_reach(value: int) -> None:
    """Decimal, hexadecimal, octal, short and wrapped spellings reach what the address reaches."""
    address = ipaddress.IPv4Address(value)
    first, rest = value >> 24, value & 0xFFFFFF
    order = ("public", "private", "metadata")
    for text in (str(value), hex(value), f"0{value:o}", f"{first}.{rest}", f"0x{first:x}.{rest}", f"{address}."):
        found = classify(text)
        # A spelling with two readings takes the worse one.
        assert order.index(found.reach) >= order.index(classify_address(address)), text
    for wrapped in (f"[::ffff:{address}]", f"[64:ff9b::{address}]"):
        if classify_address(address) == "metadata":
            assert classify(wrapped).reach == "metadata"


@given(st.text(max_size=300) | st.text(alphabet="0123456789.xabcdef[]:%-", max_size=60))
def test_classify_never_raises_for_any_text(text: str) -> None:
    """No text raises."""
    assert isinstance(classify(text), UrlHost)
