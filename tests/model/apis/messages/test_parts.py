"""Parts of chat messages as blocks."""

import base64

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.parts import build_blocks, list_lost_parts

DATA = base64.b64encode(b"bytes").decode()


def image(source: Json) -> Json:
    return {"type": "image", "source": source}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ("Hi", {"type": "text", "text": "Hi"}),
        ({"type": "text", "text": "Hi"}, {"type": "text", "text": "Hi"}),
        ({"type": "refusal", "refusal": "No."}, {"type": "text", "text": "No."}),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/PNG;base64,{DATA}", "detail": "high"}},
            image({"type": "base64", "media_type": "image/png", "data": DATA}),
        ),
        ({"type": "image_url", "image_url": "https://x/a.png"}, image({"type": "url", "url": "https://x/a.png"})),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "file", "file": {"file_data": f"data:text/markdown;base64,{DATA}"}, "title": "t", "context": "c"},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "bytes"},
                "title": "t",
                "context": "c",
            },
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/plain,a%20b"}, "citations": {"enabled": True}},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a b"},
                "citations": {"enabled": True},
            },
        ),
        (
            {"type": "file", "file": {"file_data": f"data:image/png;base64,{DATA}"}},
            image({"type": "base64", "media_type": "image/png", "data": DATA}),
        ),
        (
            {"type": "file", "file": {"file_data": "https://x/a.pdf"}},
            {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
        ),
        (
            {"type": "file", "file": {"file_data": DATA}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}},
        ),
        (
            {"type": "file", "file": {"file_id": "file_1"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ),
        ({"type": "search_result", "title": "t"}, {"type": "search_result", "title": "t"}),
    ],
)
def test_part_becomes_its_block_with_its_mark(part: object, block: Json) -> None:
    assert build_blocks([part]) == [block]
    if isinstance(part, dict):
        mark = {"type": "ephemeral", "ttl": "1h"}
        assert build_blocks([{**part, "cache_control": mark}]) == [{**block, "cache_control": mark}]
        assert list(list_lost_parts([part])) == []


@pytest.mark.parametrize("content", [None, "", " \n", [], [""], [{"type": "text", "text": " "}], [7], {"a": 1}])
def test_nothing_to_read_is_no_block(content: object) -> None:
    """The API refuses empty texts."""
    assert build_blocks(content) == []


@pytest.mark.parametrize(
    "part", [{"type": "input_audio", "input_audio": {}}, {"type": "file", "file": {}}, {"type": "x"}]
)
def test_part_without_a_block_is_named_to_the_model_and_listed(part: Json) -> None:
    (block,) = build_blocks([part])
    assert part["type"] in block["text"] and "left out" in block["text"]
    assert list(list_lost_parts([part])) == [part["type"]]


def test_thoughts_among_parts_are_not_sent() -> None:
    """They have no signature."""
    assert build_blocks([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]) == []
