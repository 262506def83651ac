"""The pause that an answer asks for, in each of its spellings."""

from datetime import UTC, datetime

import pytest

from gateway.http.response_head import parse_response_head
from gateway.http.retry_after import read_retry_after_s

NOW = datetime(2026, 10, 21, 7, 28, 20, tzinfo=UTC)
DATE = b"Date: Wed, 21 Oct 2026 07:28:00 GMT\r\n"


@pytest.mark.parametrize(
    ("fields", "pause_s"),
    [
        (b"", None),
        (b"Retry-After: 20\r\n", 20.0),
        (b"Retry-After: 0\r\n", 0.0),
        (b"retry-after: 1.5\r\n", 1.5),
        (b"retry-after-ms: 250\r\nRetry-After: 1\r\n", 0.25),
        (b"retry-after-ms: soon\r\nRetry-After: 1\r\n", 1.0),
        (DATE + b"Retry-After: Wed, 21 Oct 2026 07:28:30 GMT\r\n", 30.0),
        (DATE + b"Retry-After: Wed, 21 Oct 2026 07:00:00 GMT\r\n", 0.0),
        (b"Retry-After: Wed, 21 Oct 2026 07:28:30 GMT\r\n", 10.0),
        (DATE + b"Retry-After: Wednesday, 21-Oct-26 07:28:30 GMT\r\n", 30.0),
        (DATE + b"Retry-After: Wed Oct 21 07:28:30 2026\r\n", None),
        (b"Date: today\r\nRetry-After: Wed, 21 Oct 2026 07:28:30 GMT\r\n", None),
        (DATE + b"Retry-After: Wed, 21 Oct 2026 07:28:30\r\n", None),
        (DATE + b"Retry-After: -5\r\n", None),
        (DATE + b"Retry-After: 1e9\r\n", None),
        (b"Retry-After: 99999999999999999999\r\n", 1e20),
    ],
)
def test_retry_after_pause_is_parsed(fields: bytes, pause_s: float | None) -> None:
    """Seconds, milliseconds, or a date beside the answer's own, else beside our clock; the rest says nothing."""
    head = b"HTTP/1.1 503 Busy\r\n" + fields + b"Content-Length: 0\r\n\r\n"
    assert read_retry_after_s(parse_response_head(head, method=b"POST"), now=NOW) == pause_s
