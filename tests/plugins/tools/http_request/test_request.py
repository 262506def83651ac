"""Requests as models spell them, redirects by RFC 9110, and bodies as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort
from multidict import CIMultiDict

from gateway.plugins.tools.http_request.request import (
    MAX_BODY_BYTES,
    RequestRefusedError,
    WebRequest,
    build_redirect,
    decode_body,
    read_web_request,
    read_web_url,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_web_request_normalises_url_method_headers_and_body() -> None:
    """Method in any case, headers in any case, the body as UTF-8; the fragment stays at home."""
    request = read_web_request(
        {"url": "https://例子.测试/路径?查询=值#top", "method": "post", "headers": {"X-A": "1"}, "body": "é"}
    )
    assert (request.method, request.body) == ("POST", "é".encode())
    assert str(request.url) == "https://xn--fsqu00a.xn--0zwm56d/%E8%B7%AF%E5%BE%84?%E6%9F%A5%E8%AF%A2=%E5%80%BC"
    assert request.headers["x-a"] == "1"
    assert read_web_request({"url": "http://h/", "headers": None, "body": None}) == WebRequest(
        "GET", read_web_url("http://h/")
    )


@pytest.mark.parametrize(
    "url",
    [
        *("http://good@evil/", "http://a:b@evil/", "http://good\\@evil/", "http://good\\.evil/", "https://:p@evil/"),
        *("http://h:0/", "http://h:99999/", "http://h:80:90/", "http://h:x/", "http://ex%61mple.com/", "http://[::1"),
        *("http://[fe80::1%25lo]/", "http:///path", "http:host", "//host/", "host", "", "http://", "https://?x"),
        *("file:///etc/passwd", "ftp://h/", "gopher://h/", "javascript:1", "unix:///run/x", "HTTP+UNIX://h/"),
        *(
            "http://h/a b",
            "http://h/\t",
            "http://h/\n",
            "http://h\r\nX: y/",
            " http://h/",
            "http://h/\0",
            "http://h/\ud800",
        ),
        "http://h/" + "x" * 9000,
    ],
)
def test_ambiguous_url_is_refused(url: str) -> None:
    """T10: users, backslashes, white space, ports that are none, other schemes, hosts in disguise."""
    with pytest.raises(RequestRefusedError, match="`url`"):
        read_web_request({"url": url})


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"url": None},
        {"url": ["http://h/"]},
        {"url": {"$gt": ""}},
        {"url": "http://h/", "method": "CONNECT"},
        {"url": "http://h/", "method": "TRACE"},
        {"url": "http://h/", "method": "GET / HTTP/1.1\r\nX: y"},
        {"url": "http://h/", "method": None},
        {"url": "http://h/", "headers": []},
        {"url": "http://h/", "headers": "a: b"},
        {"url": "http://h/", "headers": {"a": 1}},
        {"url": "http://h/", "headers": {"a": "1\r\nb: 2"}},
        {"url": "http://h/", "headers": {"a": "\0"}},
        {"url": "http://h/", "headers": {"a": "é"}},
        {"url": "http://h/", "headers": {"a b": "1"}},
        {"url": "http://h/", "headers": {"a:": "1"}},
        {"url": "http://h/", "headers": {"": "1"}},
        {"url": "http://h/", "headers": {"a": "1", "A": "2"}},
        {"url": "http://h/", "headers": {str(i): "" for i in range(100)}},
        {"url": "http://h/", "headers": {"a": "x" * 9000}},
        {"url": "http://h/", "body": {"a": 1}},
        {"url": "http://h/", "body": "\ud800"},
        {"url": "http://h/", "body": "x" * (MAX_BODY_BYTES + 1)},
        {"url": 10**400, "__proto__": {}},
    ],
    ids=lambda arguments: str(arguments)[:60],
)
def test_wrong_arguments_are_refused_with_a_reason(arguments: dict[str, object]) -> None:
    """T25: wrong types, missing ones, sizes, header injection."""
    with pytest.raises(RequestRefusedError) as caught:
        read_web_request(arguments)
    assert str(caught.value)


@pytest.mark.parametrize(
    "name", ["Host", "connection", "TE", "Transfer-Encoding", "content-length", "Upgrade", "Expect"]
)
def test_connection_headers_are_refused(name: str) -> None:
    """They would change where the request goes or where it ends."""
    with pytest.raises(RequestRefusedError, match=name):
        read_web_request({"url": "http://h/", "headers": {name: "x"}})


@given(st.dictionaries(st.sampled_from(("url", "method", "headers", "body", "x")), JSON))
def test_web_request_raises_only_refusals_for_any_arguments(arguments: dict[str, object]) -> None:
    """Whatever JSON comes."""
    try:
        read_web_request(arguments)
    except RequestRefusedError:
        return


@given(st.text(max_size=60))
def test_web_url_raises_only_refusals_for_any_text(text: str) -> None:
    """Whatever text comes."""
    try:
        url = read_web_url("http://" + text)
    except RequestRefusedError:
        return
    assert url.user is None and url.port and url.host


POST = WebRequest(
    "POST",
    read_web_url("https://a.example/x/y"),
    CIMultiDict({"Content-Type": "text/plain", "Authorization": "Bearer k", "X-Key": "k", "Accept": "text/html"}),
    b"body",
)
GET = WebRequest("GET", POST.url, POST.headers)


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [(301, "GET", None), (302, "GET", None), (303, "GET", None), (307, "POST", b"body"), (308, "POST", b"body")],
)
def test_redirect_rewrites_post_to_get_as_rfc_9110_requires(status: int, method: str, body: bytes | None) -> None:
    """RFC 9110, section 15.4: 301, 302 and 303 turn a POST into a GET, 307 and 308 keep it."""
    following = build_redirect(POST, status=status, location="../z?q")
    assert following is not None
    assert (following.method, following.body, str(following.url)) == (method, body, "https://a.example/z?q")
    assert ("Content-Type" in following.headers) == (body is not None)
    assert following.headers["Authorization"] == "Bearer k"


def test_redirect_keeps_put_except_on_303() -> None:
    """Only POST is rewritten by 301 and 302; 303 rewrites every change, and HEAD stays HEAD."""
    put, head = (WebRequest(method, POST.url, CIMultiDict(), None) for method in ("PUT", "HEAD"))
    methods = [
        following.method
        for request, status in ((put, 301), (put, 302), (put, 303), (head, 303))
        if (following := build_redirect(request, status=status, location="/z")) is not None
    ]
    assert methods == ["PUT", "PUT", "GET", "HEAD"]


@pytest.mark.parametrize(
    "location", ["https://b.example/", "http://a.example/", "https://a.example:8443/", "//b.example"]
)
def test_redirect_to_another_origin_drops_credentials(location: str) -> None:
    """Another host, scheme or port is another origin."""
    following = build_redirect(GET, status=302, location=location)
    assert following is not None
    assert set(following.headers) == {"Content-Type", "Accept"}


@pytest.mark.parametrize("status", [307, 308])
def test_post_redirect_to_another_server_is_not_built(status: int) -> None:
    """Somebody may have approved it for the first one: the redirect is the answer."""
    assert build_redirect(POST, status=status, location="https://b.example/") is None
    assert build_redirect(GET, status=status, location="https://b.example/") is not None


def test_status_without_redirect_or_location_is_not_followed() -> None:
    """Other statuses, and a redirect that says not where to."""
    for status in (200, 201, 300, 304, 305, 404):
        assert build_redirect(GET, status=status, location="/z") is None
    assert build_redirect(GET, status=302, location=None) is None
    assert build_redirect(GET, status=302, location="") is None


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "http://u@b/", "/\\evil.example", "http://b:0/", "http://b/ x", "\udcff", "http://["],
)
def test_redirect_to_an_invalid_url_is_refused(location: str) -> None:
    """It is read by the same rules as the first address."""
    with pytest.raises(RequestRefusedError, match="redirects"):
        build_redirect(GET, status=302, location=location)


@pytest.mark.parametrize(
    ("body", "content_type", "charset", "text"),
    [
        ("é".encode(), "text/plain", None, "é"),
        ("é".encode("latin-1"), "text/html", "ISO-8859-1", "é"),
        ("快".encode("gb18030"), "text/html", "gb2312", "快"),
        ("快".encode("utf-16"), "application/json", "utf-16", "快"),
        (b"\xef\xbb\xbf{}", "application/problem+json", None, "{}"),
        (b"\xff\xfe", "text/plain", "utf-8", "��"),
        (b"<a/>", "image/svg+xml", None, "<a/>"),
        (b"a=1", "application/x-www-form-urlencoded", None, "a=1"),
        (b"plain", None, None, "plain"),
        (b"", "image/png", None, ""),
        (b"MZ\0\0", None, None, None),
        (b"\x89PNG", "image/png", None, None),
        (b"text", "application/octet-stream", None, None),
    ],
)
def test_bodies_are_decoded_by_content_type_and_charset(
    body: bytes, content_type: str | None, charset: str | None, text: str | None
) -> None:
    """By type and charset; what does not decode is replaced, and what is no text is None."""
    assert decode_body(body, content_type=content_type, charset=charset) == text


@pytest.mark.parametrize(
    "charset", ["bogus", "idna", "punycode", "unicode_escape", "rot13", "zip", "utf-7", "\0", "x" * 999]
)
def test_unsupported_charset_is_read_as_utf_8(charset: str) -> None:
    """In linear time: Python's punycode takes minutes for a megabyte."""
    effort = Effort()
    assert decode_body(b"a" * 500_000, content_type="text/plain", charset=charset) == "a" * 500_000
    assert effort.cpu_s < 1
