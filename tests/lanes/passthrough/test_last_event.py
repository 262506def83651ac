"""The event that ends a stream, in whatever pieces it comes (what happens then: tests/functional)."""

import pytest

from gateway.lanes.passthrough.last_event import LastEvent


@pytest.mark.parametrize(
    ("stream", "is_last"),
    [
        (b"data: {}\n\ndata: [DONE]\n\n", True),
        (b"data:[DONE]\r\n\r\n", True),
        (b'event: message_stop\ndata: {"type":"message_stop"}\n\n', True),
        (b'data: {"type": "response.failed"}\n\n', True),
        (b"data: {}\n\n", False),
        (b'data: {"text": "[DONE]"}\n\n', False),
        (b'data: {"text": "\\"type\\": \\"message_stop\\""}\n\n', False),
    ],
)
def test_stream_is_complete_only_after_its_last_event(stream: bytes, is_last: bool) -> None:
    """In one piece and cut anywhere, and only at the end of its line."""
    for cut in range(len(stream)):
        watched = LastEvent()
        for piece in filter(None, (stream[:cut], stream[cut:])):
            watched.scan_piece(piece)
        assert watched.is_whole is is_last, cut
    if is_last:
        watched = LastEvent()
        watched.scan_piece(stream.rstrip())
        assert not watched.is_whole
