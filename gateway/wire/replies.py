"""Answers to approvals as people type them: a message that is, as a whole, `approve ap_...` or `reject ap_...`.

The id is the code: 128 random bits. Whatever else a message holds, it is no answer: agent clients put the output of
tools into user messages.
"""

import base64
import re
import secrets
import unicodedata
from dataclasses import dataclass
from itertools import islice
from typing import Final

#: A longer message is no answer. The text must not have been cut before: what was cut off might be anything.
REPLY_CHARS: Final = 8000
#: More ids than one answer of a model may have calls.
REPLY_IDS: Final = 64
#: A longer reason is no reason but a document.
COMMENT_CHARS: Final = 2000

_ID = "ap_[a-z2-7]{26}"
_QUOTED = f"(?:`{_ID}`|{_ID})"
_COMMAND = re.compile(
    # Backticks around the whole, or around each id.
    r"(?P<quote>`{0,8}+)\s*+"
    r"(?:/?(?P<english>approve|reject)(?:\s*+:\s*+|\s++)|/?(?P<chinese>批准|同意|拒绝|拒絕)\s*+:?\s*+)"
    rf"(?P<ids>{_QUOTED}(?:[\s,、]++{_QUOTED})*+)"
    r"\s*+(?P=quote)\s*+[.。]?"
)
#: All that NFKC makes a command of, as keyboards have it; no marks, which it sorts in quadratic time.
_TYPED = re.compile("[\t-\r -~\xa0\u2000-\u200a\u3000-\u3002\uff01-\uff5e\uff61\uff64批准同意拒绝絕]+")
_EACH_ID = re.compile(_ID)
_COLON = re.compile("[:：]")
_APPROVES = frozenset(("approve", "批准", "同意"))


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's decision on these approvals, each named once; a rejection may say why, as it was typed."""

    approve: bool
    ids: tuple[str, ...]
    comment: str | None = None


def new_approval_id() -> str:
    """`ap_` and 128 random bits as 26 characters of lower-case base32."""
    return "ap_" + base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


def parse_reply(text: str) -> Reply | None:
    """The decision that `text` is as a whole: `approve ap_x`, `reject ap_x ap_y`, `reject ap_x: reason`, `批准 ap_x`,
    `拒绝 ap_x：原因`. None: it is ordinary text. Never raises.
    """
    if len(text) > REPLY_CHARS:
        return None
    text = text.strip()
    whole = _command(text)
    if whole is not None:
        return whole
    for colon in islice(_COLON.finditer(text), 2):  # the first may belong to `reject:`
        head = _command(text[: colon.start()])
        if head is not None:
            comment = text[colon.end() :].strip()
            return None if head.approve else Reply(False, head.ids, comment[:COMMENT_CHARS] or None)
    return None


def _command(text: str) -> Reply | None:
    if _TYPED.fullmatch(text) is None:
        return None
    command = _COMMAND.fullmatch(unicodedata.normalize("NFKC", text).lower())
    if command is None:
        return None
    ids = tuple(dict.fromkeys(_EACH_ID.findall(command["ids"])))
    if len(ids) > REPLY_IDS:
        return None
    return Reply((command["english"] or command["chinese"]) in _APPROVES, ids)
