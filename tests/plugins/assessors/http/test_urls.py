"""URLs that all clients split alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.assessors.http.urls import MAX_CHARS, Url, find_embedded_urls, split_pairs, split_url


def test_split_returns_scheme_host_port_path_and_query() -> None:
    """Scheme, host, port, path and decoded query."""
    url = split_url("HTTPS://Example.com:8443/a%20b?x=%2F&y=1+2&z#f@g")
    assert isinstance(url, Url)
    assert (url.scheme, url.host.name, url.port, url.path) == ("https", "example.com", 8443, "/a%20b")
    assert url.query == (("x", "/"), ("y", "1 2"), ("z", ""))


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com",
        "https://example.com?a=b\\c",
        "https://example.com/@user",
        "https://example.com/?id=1' OR '1'='1",
        "https://example.com/#/a@b",
        "https://[2606:2800:220:1:248:1893:25c8:1946]:8443/",
    ],
)
def test_plain_urls_can_be_split(text: str) -> None:
    """Spaces and signs after the host do no harm."""
    assert isinstance(split_url(text), Url)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/x",
        "//example.com",
        "example.com",
        "https:/example.com",
        "ftp://example.com/",
        "http+unix://%2Fx/",
        "https:///x",
        "https://u@example.com/",
        "https://example.com\\@evil/",
        "https://example.com/a\\b",
        "https://example.com#@evil",
        "https://example.com:/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:25/",
        "https://example.com:８０/",
        "https://example.com:1:2/",
        "https://[::1]x/",
        " https://example.com/",
        "https://example.com/\n",
        "https://exam\tple.com/",
        "https://example.com/\x00",
        "https://example.com/" + "a" * MAX_CHARS,
    ],
)
def test_ambiguous_urls_are_not_split(text: str) -> None:
    """Other schemes, user information, odd ports, control characters, and what parsers disagree about."""
    assert isinstance(split_url(text), str)


def test_embedded_urls_are_found_in_values() -> None:
    """A value may hold a URL, also percent-encoded once more."""
    assert find_embedded_urls("see http://a/b") == ["http://a/b"]
    assert find_embedded_urls("http%3A%2F%2Fa") == ["http://a"]
    assert find_embedded_urls("//a/b") == ["//a/b"]
    assert find_embedded_urls("a/b") == []


@given(st.text(max_size=300))
def test_split_never_raises_for_any_text(text: str) -> None:
    """No text raises."""
    for each in (text, f"https://{text}", f"https://example.com/{text}"):
        split_url(each)
    split_pairs(text)
    find_embedded_urls(text)
