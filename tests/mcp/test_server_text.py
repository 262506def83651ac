"""The small parts of what a server writes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mcp.server_text import (
    ADDRESS_CHARS,
    ICONS,
    LINE_CHARS,
    META_BYTES,
    clean_description,
    drop_empty,
    format_one_line,
    parse_annotations,
    parse_base64,
    parse_hints,
    parse_icons,
    parse_media_type,
    parse_meta,
    parse_name,
    parse_uri,
    remove_invisible,
)


@given(st.text(st.characters(), max_size=50), st.integers(1, 30))
def test_one_line_returns_one_visible_line(text: str, most: int) -> None:
    """Whatever the text."""
    line = format_one_line(text, most)
    assert len(line) <= most and len(line.splitlines()) <= 1 and remove_invisible(line) == line and line.strip() == line


def test_one_line_replaces_line_breaks_and_truncates() -> None:
    """Of every kind of break."""
    assert format_one_line("a\r\nb\u2028c\x85d\u2029e\tf \u202e g\u200bh") == "a b c d e f gh"
    assert (
        format_one_line("x" * 1000) == "x" * (LINE_CHARS - 1) + "…"
        and format_one_line(5) == format_one_line(None) == ""
    )
    assert clean_description("a\nb\u202e") == "a\nb" and clean_description([]) == ""


@pytest.mark.parametrize("name", ["", "a\nb", "a\u200bb", " a", "x" * (LINE_CHARS + 1), None, 5])
def test_name_with_invisible_or_surplus_characters_is_refused(name: object) -> None:
    """What would have to be is none."""
    assert parse_name(name) is None and parse_name("a b") == "a b"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("file:///a b", True),
        ("ui://x", True),
        ("https://example.com/\u00fc", True),
        ("JavaScript:alert(1)", False),
        ("data:text/html,x", False),
        ("vbscript:x", False),
        ("blob:x", False),
        ("/etc/passwd", False),
        ("file:", False),
        ("file:///a\nb", False),
        ("file:///a\tb", False),
        ("java\u200bscript:x", False),
        ("file:///\u202egpj.exe", False),
        ("x:" + "a" * ADDRESS_CHARS, False),
        (5, False),
    ],
)
def test_parse_uri_refuses_executable_schemes(value: Any, is_one: bool) -> None:
    """Of any scheme, but for those that run."""
    assert parse_uri(value) == (value if is_one else None)


@pytest.mark.parametrize(
    ("value", "kind", "is_one"),
    [
        ("image/png", "image", True),
        ("IMAGE/svg+xml", "image", True),
        ("text/plain; charset=utf-8", None, True),
        ('text/html;profile="mcp app"', None, True),
        ("text/html", "image", False),
        ("image", "image", False),
        ("image/", "image", False),
        ("image/png\nX: y", "image", False),
        ("image/png, image/gif", "image", False),
        ("image/" + "x" * 200, "image", False),
        (None, None, False),
    ],
)
def test_parse_media_type_checks_the_kind(value: Any, kind: str | None, is_one: bool) -> None:
    """Of a kind, where that counts."""
    assert parse_media_type(value, kind) == (value if is_one else None)


def test_parse_base64_accepts_rfc_4648_only() -> None:
    """By RFC 4648; ends of lines, which old encoders write, are taken out."""
    assert [parse_base64(data) for data in ("", "AAAA", "AA==", "AAA=", "AA\r\nAA\n")] == [
        "",
        "AAAA",
        "AA==",
        "AAA=",
        "AAAA",
    ]
    for data in (
        "A",
        "AA",
        "AAA",
        "A===",
        "AA=A",
        "AAAA=",
        "AA-_",
        "AA AA",
        "<svg>",
        "\u00fc" * 4,
        "\ud800" * 4,
        5,
        None,
    ):
        assert parse_base64(data) is None


def test_parse_meta_removes_reserved_keys() -> None:
    """Also not with characters that are taken out, or another case."""
    forged = {
        "twolane/run": "run_1",
        "TwoLane/run": 1,
        "two\u200blane/run": 1,
        "io.modelcontextprotocol/x": 1,
        " twolane/a": 1,
    }
    assert parse_meta({**forged, "example.com/a": {"b\u202e": "c\x00\n"}}) == {"example.com/a": {"b": "c\n"}}
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    for unfit in ({"a": "x" * META_BYTES}, {"a": deep}, {"a": 1 << 80}, {"a": "\ud800"}, [], "x", None):
        assert parse_meta(unfit) is None


def test_annotations_of_wrong_types_are_dropped() -> None:
    """What has another one is left out."""
    good = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}
    assert parse_annotations({**good, "x": 1}) == good and parse_annotations([]) == parse_annotations(None) == {}
    odd = [
        {"audience": "user"},
        {"audience": [["user"]]},
        {"audience": ["system"]},
        {"priority": "1"},
        {"priority": True},
    ]
    odd += [{"priority": 2}, {"priority": float("nan")}, {"lastModified": 5}, {"lastModified": "now\n"}]
    assert [parse_annotations(one) for one in odd] == [{}] * len(odd)
    hints = {"title": "a\nb", "readOnlyHint": "yes", "destructiveHint": False, "openWorldHint": 1}
    assert parse_hints(hints) == {"title": "a b", "destructiveHint": False} and parse_hints(5) == {}


def test_icons_are_limited_to_https_and_data_images() -> None:
    """No program, no file, no drawing that can hold one."""
    good = {"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48", "any"], "theme": "dark"}
    assert parse_icons([good, {"src": "https://e/x.png"}]) == [good, {"src": "https://e/x.png"}]
    assert parse_icons([{**good, "mimeType": "text/html", "sizes": ["x"], "theme": 5, "onload": "x"}]) == [
        {"src": good["src"]}
    ]
    sources = [
        "javascript:x",
        "file:///x",
        "http://e/x",
        "data:image/svg+xml;base64,AAAA",
        "data:text/html;base64,AAAA",
    ]
    sources += [
        "data:image/png;base64,<x>",
        "data:image/png,x",
        "https://e/\nx",
        "https://e/x y",
        'https://e/"x',
        "https://",
    ]
    assert parse_icons([{"src": src} for src in sources]) == []
    assert parse_icons(["x", {}, {"src": 5}]) == parse_icons({}) == []
    assert len(parse_icons([good] * 99)) == ICONS


def test_drop_empty_keeps_zero_and_false() -> None:
    """No number is empty."""
    assert drop_empty(a=None, b="", c=[], d={}, e=0, f=False, meta={"x": 1}) == {"e": 0, "f": False, "_meta": {"x": 1}}
