"""Remembered wishes of people: approvals that hold for more than one call, conversations that always ask, and notes."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered approval: the same call, with the same definition and policy, in this run or conversation.

    One for a conversation is of the end user whom its requests name; None: of requests that name no user. `approvals`
    is the number of keys that gave it.
    """

    id: str
    tenant: str
    caller: str
    run_id: str | None
    conversation: str | None
    tool: str
    sha256: str
    definition_sha256: str
    policy_sha256: str
    created_s: float
    granted_by: str
    expires_s: float | None = None  # None: it ends with its run
    approvals: int = 1
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBefore:
    """A conversation in which an end user wants to approve each call; None: the requests of it that name no user."""

    id: str
    tenant: str
    caller: str
    conversation: str
    created_s: float
    expires_s: float
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWrite:
    """A person's word about a pending approval: whom it is `assigned` to ("": to no one any more), or a note's `text`.

    `by` is the name of the key, `via` the way that it came.
    """

    approval_id: str
    tenant: str
    by: str
    via: str
    now_s: float
    assigned: str | None = None
    text: str | None = None


def ask_id(tenant: str, caller: str, conversation: str, user: str | None = None) -> str:
    """Return the id of a conversation's ask (to approve each call), which is safe in a URL path and always the same."""
    parts = "\0".join((tenant, caller, conversation, *(() if user is None else (user,))))
    return "ask_" + hashlib.sha256(parts.encode()).hexdigest()[:24]
