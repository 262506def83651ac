"""Hosts of an allow-list, and the one spelling of a host."""

import pytest

from gateway.net.hosts import normalize_host, parse_allowed_host


def test_hosts_have_one_spelling() -> None:
    """Case, a dot at the end, IDNA and zeros of IPv6 do not make another host."""
    assert parse_allowed_host("API.Example.com.") == ("api.example.com", None)
    assert parse_allowed_host("h:8443") == ("h", 8443)
    assert parse_allowed_host("h:443") == ("h", 443)
    assert parse_allowed_host("[0:0::1]:80") == ("::1", 80)
    assert normalize_host("例子.测试") == "xn--fsqu00a.xn--0zwm56d" == parse_allowed_host("例子.测试")[0]


@pytest.mark.parametrize("text", ["", "http://h", "h/path", "u@h", "h:0", "h:99999", "h?x", "[::1", ":80"])
def test_malformed_host_is_refused_for_the_allow_list(text: str) -> None:
    """The text shows how one is written."""
    with pytest.raises(ValueError, match=r"such as api\.example\.com"):
        parse_allowed_host(text)
