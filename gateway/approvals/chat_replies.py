"""Answers to approvals as people type them: a message that is, as a whole, `approve ap_... WORD` or `reject ap_...`.

The word behind an id is its check word (gateway/contracts/check_word.py). A message with any other text does not count:
agent clients put the output of tools into user messages. Nor is a command in a block of code or a quotation. Words that
a program is known to add (gateway/approvals/typed_text.py) do not count, if each id has its check word.
"""

import re
import unicodedata
from itertools import islice
from typing import Final

from gateway.approvals.typed_text import strip_added_text
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.check_word import ID, WORD

#: A longer message is not an answer. The text must not have been cut before: the rest might be anything.
REPLY_CHARS: Final = 8000
#: More ids than one answer of a model may have calls.
REPLY_IDS: Final = 64
#: A longer text is a document and not a reason.
COMMENT_CHARS: Final = 2000

_WITH_WORD = rf"{ID}(?:\s++{WORD})?+"
_QUOTED = f"(?:`{_WITH_WORD}`|{_WITH_WORD}|`{ID}`(?:\\s++{WORD})?+)"
_COMMAND = re.compile(
    # Backticks around the whole, as in a line of Markdown, or around each id. Three begin a block of code.
    r"(?P<quote>`{0,2}+)\s*+"
    r"(?:/?(?P<english>approve|reject)(?:\s*+:\s*+|\s++)|/?(?P<chinese>批准|同意|拒绝|拒絕)\s*+:?\s*+)"
    rf"(?P<ids>{_QUOTED}(?:[\s,、]++{_QUOTED})*+)"
    r"\s*+(?P=quote)\s*+[.。]?"
)
#: All that NFKC makes a command of, as keyboards have it; no marks, which it sorts in quadratic time.
_TYPED = re.compile("[\t-\r -~\xa0\u2000-\u200a\u3000-\u3002\uff01-\uff5e\uff61\uff64批准同意拒绝絕]+")
_EACH = re.compile(rf"(?P<id>{ID})(?:`?+\s++(?P<word>{WORD}))?+")
_NAMED = re.compile(rf"(?<![a-z0-9_]){ID}(?![a-z0-9])", re.IGNORECASE)
#: How Markdown indents a block of code.
_INDENTED = re.compile(r"(?:[^\S\n]*+\n)*+(?: {4}| {0,3}\t)")
_COLON = re.compile("[:：]")
_APPROVES = frozenset(("approve", "批准", "同意"))


def find_named_approvals(text: str) -> tuple[str, ...]:
    """Return the ids that a message names, whatever else it contains.

    Ids in a document (a text longer than REPLY_CHARS) do not count.
    """
    if len(text) > REPLY_CHARS or not ("p_" in text or "P_" in text):  # quicker than to look for whole ids
        return ()
    return tuple(dict.fromkeys(found[0].lower() for found in islice(_NAMED.finditer(text), REPLY_IDS)))


def parse_reply(text: str) -> ChatDecision | None:
    """Return the decision that `text` is as a whole, or None if it is ordinary text. Never raises.

    Examples: `approve ap_x WORD`, `reject ap_x WORD ap_y WORD`, `reject ap_x: reason`, `批准 ap_x WORD`,
    `拒绝 ap_x：原因`.
    """
    if not ("_" in text or "＿" in text):  # each id has one
        return None
    typed = strip_added_text(text)
    decision = _parse_decision(typed)
    if decision is None or typed == text or {each for each, _ in decision.words} == {*decision.ids}:
        return decision
    return None


def _parse_decision(text: str) -> ChatDecision | None:
    """Return the decision in a message, with its reason behind a colon; None: ordinary text."""
    if len(text) > REPLY_CHARS or _INDENTED.match(text):
        return None
    text = text.strip()
    whole = _parse_command(text)
    if whole is not None:
        return whole
    for colon in islice(_COLON.finditer(text), 2):  # the first may belong to `reject:`
        head = _parse_command(text[: colon.start()])
        if head is not None:
            comment = text[colon.end() :].strip()
            return None if head.approve else ChatDecision(False, head.ids, comment[:COMMENT_CHARS] or None, head.words)
    return None


def _parse_command(text: str) -> ChatDecision | None:
    """Return the decision in a text that is only verb, ids and check words; else None."""
    if _TYPED.fullmatch(text) is None:
        return None
    command = _COMMAND.fullmatch(unicodedata.normalize("NFKC", text).lower())
    if command is None or (command["quote"] and "\n" in text):
        return None
    named = [(found["id"], found["word"]) for found in _EACH.finditer(command["ids"])]
    ids = tuple(dict.fromkeys(approval_id for approval_id, _ in named))
    if len(ids) > REPLY_IDS:
        return None
    approves = (command["english"] or command["chinese"]) in _APPROVES
    return ChatDecision(approves, ids, words=tuple((approval_id, word) for approval_id, word in named if word))
