"""The upstream's key never shows in its error texts, however they are cut, and nothing else changes."""

import pytest

from gateway.http.body import ChunkedBody, LengthBody, OpenBody
from gateway.http.redact import RedactedBody, get_maskable_key, mask

KEY = b"sk-upstream-0123456789"


def test_every_occurrence_of_the_key_is_masked_in_place() -> None:
    """The text keeps its length, so Content-Length and chunk sizes stay true."""
    text = b"bad key " + KEY + b", I said " + KEY
    assert mask(text, KEY) == text.replace(KEY, b"*" * len(KEY))


@pytest.mark.parametrize("cut", range(60))
def test_a_key_that_comes_in_two_pieces_is_found(cut: int) -> None:
    """Wherever the segments are cut, the key is gone and every other byte is there."""
    text = b'{"error": "bad key: ' + KEY + b'", "hint": "sk-u"}'
    body = RedactedBody(LengthBody(len(text)), KEY, hold=True)
    passed = body.feed(text[:cut]) + body.feed(text[cut:])
    assert passed == mask(text, KEY)
    assert body.done


def test_partial_key_at_the_end_is_delivered() -> None:
    """Text that only begins like the key is held no longer than the body lasts."""
    text = b"ends in " + KEY[:7]
    body = RedactedBody(LengthBody(len(text)), KEY, hold=True)
    assert body.feed(text) == text


def test_masking_keeps_chunk_framing() -> None:
    """The key is overwritten within a chunk; sizes and the end are as they came."""
    text = b"%x\r\n%b\r\n0\r\n\r\n" % (len(KEY), KEY)
    body = RedactedBody(ChunkedBody(), KEY, hold=True)
    assert body.feed(text + b"more") == text.replace(KEY, b"*" * len(KEY))
    assert (body.done, body.rest) == (True, b"more")


def test_close_delimited_body_holds_no_bytes_back() -> None:
    """A close-delimited body never ends for us, so nothing may wait for more."""
    body = RedactedBody(OpenBody(), KEY, hold=False)
    assert body.feed(b"sk-u") == b"sk-u"


@pytest.mark.parametrize("key", [None, b"1", b"json", b"ollama", b"sk-short-123", b"invalid_request_error", b"0" * 40])
def test_short_or_common_key_is_not_masked(key: bytes | None) -> None:
    """Short ones, words, numbers: replacing those would break answers."""
    assert get_maskable_key(key) is None


def test_provider_key_is_masked() -> None:
    """As providers give them out."""
    assert get_maskable_key(KEY) == KEY
