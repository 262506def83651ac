"""The check that a decision in a chat is for the call that its person saw there.

1. A decision with the call's check word counts: only a text of the gateway contains that word, beside the call.
2. The id alone counts if the conversation showed exactly one call, this one, and its last answer shows it.
3. A request without any answer decides the only call that waits there for its caller and its end user.
4. A decision in a separate field needs no word. If the request shows the call as well, it must be the one that waits.
5. If an approver has changed the call, only a check word counts, or a field with that call beside it.
6. The decisions of one request are on calls of one run.
"""

import re
from collections.abc import Sequence
from typing import Final

from gateway.approvals.chat_replies import REPLY_CHARS, find_named_approvals
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.chat_decisions import ChatDecision, ShownCall
from gateway.contracts.check_word import ID, WORD, is_expected_word
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.endorsements import get_check_word, get_waiting_arguments
from gateway.contracts.storage.journal import Approval, Journal
from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json

#: More than one is all that has to be known.
_PENDING: Final = 200
#: Roles of messages that a person or a program adds behind an answer.
_NOT_ANSWERS: Final = ("user", "system", "developer")
_PAIR: Final = re.compile(rf"(?P<id>{ID})`?\s+(?P<word>{WORD})", re.IGNORECASE)


async def is_for_shown_call(approval: Approval, decision: ChatDecision, exchange: Exchange, *, store: Journal) -> bool:
    """Return whether the decision counts for this approval, which is pending.

    Raises StoreError, and GatewayError (approval_stale) if the client showed its person other arguments.
    """
    if decision.in_field:
        _check_shown(approval, decision)
        return True
    expected = get_check_word(approval)
    if approval.edited is not None and not any(approval_id == approval.id for approval_id, _ in decision.words):
        return False  # the call of the conversation is the one before an approver changed it
    words = [word for approval_id, word in decision.words if approval_id == approval.id]
    if words:
        return all(is_expected_word(word, expected) for word in words)
    answers = [message for message in exchange.body["messages"] if message.get("role") == "assistant"]
    if answers:
        pair = {(approval.id, expected)}
        return _extract_id_word_pairs(answers) == pair and _extract_id_word_pairs(answers[-1:]) == pair
    caller = exchange.caller
    pending = await store.list_approvals(
        tenant=caller.tenant, state="pending", conversation=exchange.conversation, limit=_PENDING
    )
    whose = (caller.name, exchange.user)
    return [other.id for other in pending if (other.caller, other.user) == whose] == [approval.id]


def list_last_questions(messages: Sequence[Json]) -> tuple[str, ...]:
    """Return the approval ids in the last answer, if only messages of the user and of programs follow it; else ()."""
    last = next((message for message in reversed(messages) if message.get("role") not in _NOT_ANSWERS), {})
    if last is messages[-1] or last.get("role") != "assistant":
        return ()
    found = (name for text in _get_texts(last.get("content")) for name in find_named_approvals(text[-REPLY_CHARS:]))
    return tuple(dict.fromkeys(found))


def check_one_run(named: Sequence[Approval]) -> None:
    """Raise GatewayError (invalid_field) unless these approvals belong to a single run."""
    of_runs: dict[str, list[str]] = {}
    for approval in named:
        of_runs.setdefault(approval.run_id, []).append(approval.id)
    if len(of_runs) > 1:
        runs = "; ".join(f"{', '.join(ids)} of {run_id}" for run_id, ids in of_runs.items())
        raise GatewayError(
            "invalid_field",
            f"Nothing was decided: these approvals are of {len(of_runs)} runs, and a request gets the answer of one. "
            f"Decide in one request for each run: {runs}.",
        )


def _check_shown(approval: Approval, decision: ChatDecision) -> None:
    """Raise GatewayError if the client showed the user another call than the one that waits."""
    shown_calls = [call for call in decision.shown if call.approval_id == approval.id]
    if approval.edited is not None:  # the call before that, which the conversation may show, too, is another one
        shown_calls = shown_calls[-1:] or [ShownCall(approval.id, approval.tool, "")]
    for call in shown_calls:
        try:
            shown = write_canonical(strict_json.loads(call.arguments))
        except strict_json.StrictJsonError:
            shown = None
        if (call.tool, shown) != (approval.tool, get_waiting_arguments(approval)):
            raise GatewayError(
                "approval_stale",
                f"The call that your request shows for {approval.id} is another one than the one that waits: get "
                f"it from GET /context/approvals/{approval.id}, and decide on that.",
            )


def _extract_id_word_pairs(answers: Sequence[Json]) -> set[tuple[str, str]]:
    """Return each approval id in these messages with the check word behind it."""
    texts = (text for answer in answers for text in _get_texts(answer.get("content")))
    return {(found["id"].lower(), found["word"].upper()) for text in texts for found in _PAIR.finditer(text)}


def _get_texts(content: object) -> list[str]:
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]
