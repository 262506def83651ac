"""Blocks of content: built anew, or noted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result

from gateway.aio.cooperative import run_at_once
from gateway.mcp.blocks import BLOCKS, RESULT_BYTES, fit_blocks, read_blocks
from gateway.mcp.server_text import count_sent_bytes

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
BLOB = {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}
TEXT = {"type": "text", "text": "a"}


def blocks_of(content: Any) -> list[Any]:
    return [block.block for block in run_at_once(read_blocks(content))]


@pytest.mark.parametrize(
    "block", [IMAGE, AUDIO, LINK, BLOB, TEXT, {**TEXT, "annotations": {"priority": 1}, "_meta": {"a/b": 1}}]
)
def test_valid_block_is_kept_without_unknown_fields(block: dict[str, Any]) -> None:
    """Without fields that the protocol does not know."""
    assert blocks_of([{**block, "further": 1}]) == [block] and blocks_of(block) == [block]


@pytest.mark.parametrize(
    ("block", "note"),
    [
        ({**IMAGE, "data": "<svg onload=x>"}, "[image image/png, 10 bytes, left out: its data is not base64]"),
        ({**IMAGE, "data": None}, "[image image/png, 0 bytes, left out: its data is not base64]"),
        ({**IMAGE, "mimeType": "text/html"}, "[image text/html, 3 bytes, left out: its type is not that of a picture]"),
        ({**AUDIO, "mimeType": "a\nb"}, "[audio a b, 3 bytes, left out: its type is not that of a sound]"),
        (
            {**BLOB, "resource": {"uri": "file:///a", "blob": "!"}},
            "[resource file:///a, unknown, 0 bytes, left out: its data is not base64]",
        ),
        (
            {**BLOB, "resource": {"uri": "javascript:x", "text": "a"}},
            "[resource javascript:x, unknown, 0 bytes, left out: its address is none]",
        ),
        ({**LINK, "uri": "javascript:x"}, "[resource a: javascript:x, left out: its address is none]"),
        ({**LINK, "name": ""}, "[resource unknown: file:///a, left out: it has no name]"),
        ({"type": "x\ny\u202e"}, "[content of the type 'x y', which cannot be shown]"),
        ({"type": "text", "text": 5}, "[content of the type 'text', which cannot be shown]"),
        ({"type": ["text"]}, "[content of the type 'unknown', which cannot be shown]"),
        (None, "[content of the type 'unknown', which cannot be shown]"),
    ],
)
def test_invalid_block_is_replaced_with_a_one_line_note(block: Any, note: str) -> None:
    """With the reason, in its place."""
    assert blocks_of([TEXT, block, IMAGE]) == [TEXT, {"type": "text", "text": note}, IMAGE]


def test_non_text_content_is_bounded() -> None:
    """Together; a smaller block behind one that is too large goes on. So are the number of blocks and `_meta`."""
    half = {**IMAGE, "data": "AAAA" * (RESULT_BYTES // 7)}
    first, second, third = blocks_of([half, half, IMAGE])
    assert (first, third) == (half, IMAGE)
    assert second["text"].endswith(
        f"left out: a result is at most {RESULT_BYTES:,} bytes, with its texts and pictures as base64]"
    )
    many = blocks_of([TEXT] * (BLOCKS + 5000))
    assert len(many) == BLOCKS + 1 and many[-1]["text"].startswith("[5,000 more blocks of content, left out")
    heavy = blocks_of([{**TEXT, "text": "a" * 9000, "_meta": {"a": "x" * 16000}}] * BLOCKS)
    assert count_sent_bytes([{**block, "text": ""} for block in heavy]) < RESULT_BYTES + 300 * BLOCKS


def test_text_blocks_take_precedence_over_data_blocks() -> None:
    """Data behind them is noted, and a text that is too long is cut."""
    picture = {**IMAGE, "data": "AAAA" * 1000}
    assert fit_blocks([picture, TEXT], room_bytes=5000) == [picture, TEXT]
    noted, kept, small = fit_blocks([picture, {**TEXT, "text": "\U0001f600" * 300}, IMAGE], room_bytes=5000)
    assert noted["text"].startswith("[image image/png, 3,000 bytes, left out: a result is at most")
    assert kept["text"] == "\U0001f600" * 300 and small == IMAGE
    many = fit_blocks([picture] * 500, room_bytes=10_000)
    assert (
        count_sent_bytes(many) <= 10_000 + len(many) and many[0] == many[1] == picture and "[image" in many[2]["text"]
    )
    assert many[-1]["text"].startswith(f"[{500 - len(many) + 1} more blocks of content, left out: a result is")
    inside = {"type": "resource", "resource": {"uri": "file:///a", "text": "\u00fc" * 9000}}
    for long in (inside, {**TEXT, "text": "\u00fc" * 9000}):
        (cut,) = fit_blocks([long], room_bytes=5000)
        assert cut["text"].startswith("\u00fc" * 366 + "\n[... 8,634 more characters, left out: ")


WORDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "AAAA", "image/png", "file:///a"])
NAMES = (
    "text",
    "data",
    "mimeType",
    "resource",
    "uri",
    "name",
    "annotations",
    "_meta",
    "blob",
    "title",
    "size",
    "icons",
)
FIELDS = st.sampled_from(["type", *NAMES])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
)


LIKELY = st.fixed_dictionaries({"type": WORDS}, optional=dict.fromkeys(NAMES, JSON))


@given(st.lists(LIKELY | JSON, max_size=4))
def test_any_server_content_is_normalised_to_valid_blocks(content: list[Any]) -> None:
    """In both eras."""
    blocks = blocks_of(content)
    for version in ("2025-11-25", "2026-07-28"):
        result = {"content": blocks, "resultType": "complete"}
        assert len(serialize_server_result("tools/call", version, result)["content"]) == len(content)
