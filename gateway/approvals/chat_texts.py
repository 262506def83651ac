"""The messages to a client about approvals that its run waits for: as text, and as facts beside it."""

from collections.abc import Callable, Sequence

import orjson

from gateway.approvals import texts
from gateway.approvals.escaping import Language
from gateway.approvals.view import build_approval_view
from gateway.contracts.storage.endorsements import get_check_word, get_waiting_arguments, select_counted_endorsements
from gateway.contracts.storage.journal import Approval, StoredStep
from gateway.contracts.storage.store import Json


def describe_approval(approval: Approval) -> texts.ApprovalDescription:
    """Return an approval as texts show it."""
    arguments = orjson.loads(get_waiting_arguments(approval))
    return texts.ApprovalDescription(
        id=approval.id,
        word=get_check_word(approval),
        tool=approval.tool,
        arguments=arguments,
        reason=approval.reason,
        rule=approval.rule,
        required=approval.required,
        approved_by=[one.by for one in select_counted_endorsements(approval)],
    )


def format_turn_text(
    pending: Sequence[Approval], *, language: Language, answering: texts.AnswerOptions = texts.REPLIES
) -> str:
    """Return the question of a run that waits: the calls, the reason for each, and how to answer.

    It is the same each time.
    """
    now_s = max(approval.created_s for approval in pending)
    return texts.format_turn_text(_build_question(pending, language=language, now_s=now_s, answering=answering))


def format_still_pending_text(
    pending: Sequence[Approval],
    decided: Sequence[str],
    *,
    language: Language,
    now_s: float,
    answering: texts.AnswerOptions = texts.REPLIES,
) -> str:
    """Return the answer to a decision on a part of a group."""
    question = _build_question(pending, language=language, now_s=now_s, answering=answering)
    return texts.format_still_pending_text(question, decided=decided)


def format_undecided_text(
    pending: Sequence[Approval], *, language: Language, now_s: float, answering: texts.AnswerOptions = texts.REPLIES
) -> str:
    """Return the answer to a message that names these approvals and decides nothing."""
    return texts.format_undecided_text(_build_question(pending, language=language, now_s=now_s, answering=answering))


def format_nothing_decided(*, language: Language) -> str:
    """Return the first sentence of the answer to a message that names approvals without a decision."""
    if language == "zh":
        return "您的消息没有作出任何决定：它不是完整的一行批准或拒绝，或者校验码不符。请回答下面的批准请求。"
    return (
        "Your message decided nothing: it is no line that approves or rejects a call, or its check word is of another "
        "call. Answer the request for approval that follows."
    )


def _build_question(
    pending: Sequence[Approval], *, language: Language, now_s: float, answering: texts.AnswerOptions = texts.REPLIES
) -> texts.ApprovalQuestion:
    """Return these approvals in the form that the texts need."""
    return texts.ApprovalQuestion(
        approvals=[describe_approval(approval) for approval in pending],
        expires_s=min(approval.expires_s for approval in pending),
        now_s=now_s,
        language=language,
        answering=answering,
    )


def build_waiting_facts(run_id: str, pending: Sequence[Approval]) -> Json:
    """Return the facts beside the text of a turn that waits."""
    approvals = [build_approval_view(approval) for approval in pending]
    return {"run_id": run_id, "status": "awaiting_approval", "approvals": approvals}


def build_question_event(
    run_id: str, pending: Sequence[Approval], steps: Sequence[StoredStep], *, service_of: Callable[[str], str | None]
) -> Json:
    """Return the event of a waiting run for a client that shows calls; `steps` are the run's."""
    call_ids = {step.number: step.call_id for step in steps}
    approvals = [
        {**build_approval_view(one), "service": service_of(one.tool), "call_id": call_ids.get(one.step)}
        for one in pending
    ]
    return {"type": "approval.required", "run_id": run_id, "approvals": approvals}


def find_question_run(context: Json) -> str | None:
    """Return the id of the run whose question a turn ends with, from the facts beside its text, or None."""
    run_id: str | None = context["run_id"] if context.get("status") == "awaiting_approval" else None
    return run_id
