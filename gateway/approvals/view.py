"""An approval as clients see it, and the check word of its call."""

import orjson

from gateway.approvals.check_word import check_word
from gateway.contracts.canonical import call_sha256
from gateway.contracts.journal import Approval
from gateway.contracts.store import Json


def word_of(approval: Approval) -> str:
    """Return the check word that a decision in a chat brings, of the call as it is stored."""
    return check_word(approval.secret, approval.id, call_sha256(approval.tool, approval.arguments))


def approval_view(approval: Approval) -> Json:
    """Return an approval as clients see it: in events, in answers, in notices."""
    return {
        "id": approval.id,
        "run_id": approval.run_id,
        "step": approval.step,
        "conversation": approval.conversation,
        "asked_by": approval.caller,
        "user": approval.user,
        "client": None if approval.client is None else orjson.loads(approval.client),
        "tool": approval.tool,
        "arguments": orjson.loads(approval.arguments),
        "sha256": approval.sha256,
        "check_word": word_of(approval),
        "basis": approval.basis,
        "rule": approval.rule,
        "reason": approval.reason,
        "state": approval.state,
        "created_at": approval.created_s,
        "expires_at": approval.expires_s,
        "decided_at": approval.decided_s,
        "decided_by": approval.decided_by,
        "via": approval.via,
        "comment": approval.comment,
        "edited_arguments": None if approval.edited is None else orjson.loads(approval.edited),
        "remember": approval.remember,
    }
