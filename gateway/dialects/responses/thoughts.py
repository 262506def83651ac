"""Thoughts of a model as `encrypted_content`: clients that let nothing be stored keep them so, and send them back.

It is an encoding and no seal: the summary beside it shows the same text, and a client may send any thoughts as text.
"""

import base64
import binascii
from typing import Final

_PREFIX: Final = "thoughts."
#: The value of `include` that asks for them.
INCLUDED: Final = "reasoning.encrypted_content"


def packed(text: str) -> str:
    """Return thoughts as `encrypted_content`."""
    return _PREFIX + base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode()


def unpacked(content: str) -> str | None:
    """Return the thoughts in `encrypted_content`. None: this gateway did not make it."""
    if not content.startswith(_PREFIX):
        return None
    try:
        return base64.b64decode(content.removeprefix(_PREFIX).encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        return None
