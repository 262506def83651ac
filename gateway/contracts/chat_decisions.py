"""The decisions that a request brings with it: as words in a chat, or in a field that its API has for them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call as a client showed it to the person who decides: the approval, the tool and its arguments (JSON)."""

    approval_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatDecision:
    """A person's decision on these approvals, each named once. A rejection may contain a reason, as it was typed.

    `words` are the check words that stood behind ids, in lower case. `shown` are the calls that the client showed
    for ids, where its API carries them. `in_field`: it stood in a field made for it, which needs no words.
    """

    approve: bool
    ids: tuple[str, ...]
    comment: str | None = None
    words: tuple[tuple[str, str], ...] = ()
    shown: tuple[ShownCall, ...] = ()
    in_field: bool = False
