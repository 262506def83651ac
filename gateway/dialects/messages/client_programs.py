"""The additions of programs to the requests of their users: of Claude Code, and of what is built on its agent SDK.

1. It states its version as a system text. A model's server reads it; it is no text for a stage or a person.
2. It puts reminders for the model among the user's texts. They are no words of the user's.
3. It writes device, account and session into the id of a user. A session ends, and the user stays.
"""

import re
from typing import Final

import orjson

_BILLING: Final = "x-anthropic-billing-header"
_IN_ONE_TEXT: Final = re.compile(
    r"(?P<user>user_[0-9a-f]{8,128}(?:_account_[0-9a-f-]{0,64})?)_session_[0-9A-Za-z-]{1,64}"
)
#: An id is at most so long at Anthropic; nothing longer is read as JSON.
_ID_CHARS: Final = 512


def is_billing_line(text: str) -> bool:
    """Return whether a system text states the version of a program, and is for the model's server alone."""
    return text.startswith(_BILLING)


def find_end_user(user_id: str) -> str:
    """Return the end user whom an id names: without the session, where a program has written one into it."""
    if (found := _IN_ONE_TEXT.fullmatch(user_id)) is not None:
        return found["user"]
    if not user_id.startswith("{") or len(user_id) > _ID_CHARS:
        return user_id
    try:
        fields = orjson.loads(user_id)
    except orjson.JSONDecodeError:
        return user_id
    named = [fields.get(name) for name in ("account_uuid", "device_id")] if "session_id" in fields else []
    return next((one for one in named if isinstance(one, str) and one), user_id)
