"""Blocks of a user or a result as parts of chat completions."""

import base64

import pytest

from gateway.contracts.storage.store import Json

from .requests import convert, refusal_of

MARK: Json = {"type": "ephemeral", "ttl": "1h"}
TEXT: Json = {"type": "text", "text": "Hi"}
PDF: Json = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
PLAIN: Json = {"type": "text", "media_type": "text/plain", "data": "Grüße"}
FOUND: Json = {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]}


def parts_of(*blocks: Json) -> object:
    (message,) = convert([{"role": "user", "content": list(blocks)}])
    return message["content"]


def test_single_text_is_a_text_and_marked_or_several_are_parts() -> None:
    """A mark stays beside its part."""
    assert parts_of(TEXT) == "Hi"
    assert parts_of(TEXT, TEXT) == [TEXT, TEXT]
    assert parts_of({**TEXT, "cache_control": MARK, "citations": None}) == [{**TEXT, "cache_control": MARK}]


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "iVBO"}, "data:image/png;base64,iVBO"),
        ({"type": "url", "url": "https://example.com/a.png"}, "https://example.com/a.png"),
    ],
)
def test_image_has_a_url(source: Json, url: str) -> None:
    """One in Base64 a data URL."""
    assert parts_of({"type": "image", "source": source, "cache_control": MARK}) == [
        {"type": "image_url", "image_url": {"url": url}, "cache_control": MARK}
    ]


def test_document_is_a_file() -> None:
    """With its extras beside it; one of blocks stays as it came, and so does a result of a search."""
    beside: Json = {"title": "a.pdf", "context": "c", "citations": {"enabled": True}}
    assert parts_of({"type": "document", "source": PDF, **beside}) == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}, **beside}
    ]
    written = base64.b64encode("Grüße".encode()).decode()
    assert parts_of({"type": "document", "source": PLAIN}) == [
        {"type": "file", "file": {"file_data": f"data:text/plain;base64,{written}"}}
    ]
    assert parts_of({"type": "document", "source": {"type": "url", "url": "https://x"}}) == [
        {"type": "file", "file": {"file_data": "https://x"}}
    ]
    whole: Json = {"type": "document", "source": {"type": "content", "content": [TEXT]}}
    assert parts_of(whole, FOUND) == [whole, FOUND]


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({"type": "video"}, "type"),
        ({"type": "web_search_tool_result"}, "type"),
        ({"type": ["text"]}, "type"),
        ({}, "type"),
        ({"type": "text"}, "text"),
        ({"type": "text", "text": 5}, "text"),
        ({"type": "text", "text": "x", "foo": 1}, "foo"),
        ({"type": "text", "text": "x", "cache_control": "yes"}, "cache_control"),
        ({"type": "image"}, "source"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "x"}}, "source.media_type"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "source.data"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source"),
        ({"type": "image", "source": {"type": ["url"]}}, "source.type"),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "source"),
        ({"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}, "source.content[0].type"),
        ({"type": "document", "source": {"type": "content", "content": [5]}}, "source.content[0]"),
        ({"type": "document", "source": {"type": "odd"}}, "source.type"),
        ({**FOUND, "content": [{"type": "image"}]}, "content[0].type"),
        ({**FOUND, "title": None}, "title"),
    ],
)
def test_wrong_block_is_named(block: Json, place: str) -> None:
    """With its place; the type of an unknown one is in the text."""
    code, found = refusal_of([{"role": "user", "content": [TEXT, block]}])
    assert found == f"messages[0].content[1].{place}"
    assert code in ("invalid_field", "missing_field", "unknown_parameter", "unsupported_parameter")


@pytest.mark.parametrize("content", [5, {}, None, True])
def test_content_is_a_text_or_a_list(content: object) -> None:
    """Nothing else, and its blocks are objects."""
    assert refusal_of([{"role": "user", "content": content}])[1] == "messages[0].content"
    if content != {}:
        assert refusal_of([{"role": "user", "content": [content]}])[1] == "messages[0].content[0]"
