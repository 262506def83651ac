"""The pause that an answer requests: `Retry-After` in seconds or as a date (RFC 9110 section 10.2.3), `retry-after-ms`.

https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
"""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from gateway.http.response_head import ResponseHead

_NUMBER: Final = re.compile(rb"[0-9]{1,60}(?:\.[0-9]{1,6})?")


def read_retry_after_s(head: ResponseHead, *, now: datetime | None = None) -> float | None:
    """Return the seconds for which the sender wants no further request, or None: it names none.

    `retry-after-ms` is OpenAI's, and read first, as its SDKs do. A date counts from the answer's own `Date`, so that no
    two clocks are compared. An answer without a `Date` leaves only the clock of this machine; `now` replaces it.
    """
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = head.find_value(name)
        if value is not None and _NUMBER.fullmatch(value):
            return float(value) * unit_s
    until, sent = head.find_value(b"retry-after"), head.find_value(b"date")
    if until is None:
        return None
    try:
        wait = parse_http_date(until) - ((now or datetime.now(UTC)) if sent is None else parse_http_date(sent))
    except (TypeError, ValueError):
        return None
    return max(wait.total_seconds(), 0.0)


def parse_http_date(value: bytes) -> datetime:
    """Return the time of a date as fields have it. Raises ValueError or TypeError."""
    return parsedate_to_datetime(value.decode("latin-1"))
