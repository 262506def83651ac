"""The pause that an answer asks for: `Retry-After` in seconds or as a date (RFC 9110 section 10.2.3), `retry-after-ms`.

https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
"""

import re
from email.utils import parsedate_to_datetime
from typing import Final

from gateway.http.response_head import ResponseHead

_NUMBER: Final = re.compile(rb"[0-9]{1,60}(?:\.[0-9]{1,6})?")


def wanted_pause_s(head: ResponseHead) -> float | None:
    """Return the seconds for which the sender wants no further request, or None: it does not say.

    `retry-after-ms` is OpenAI's, and read first, as its SDKs do. A date counts from the answer's own `Date`, so that no
    two clocks are compared.
    """
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = head.value(name)
        if value is not None and _NUMBER.fullmatch(value):
            return float(value) * unit_s
    until, now = head.value(b"retry-after"), head.value(b"date")
    if until is None or now is None:
        return None
    try:
        wait = parsedate_to_datetime(until.decode("latin-1")) - parsedate_to_datetime(now.decode("latin-1"))
    except (TypeError, ValueError):
        return None
    return max(wait.total_seconds(), 0.0)
