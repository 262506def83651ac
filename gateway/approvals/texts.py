"""The texts that a person reads about approvals, in English or Chinese: the exact call, its reason, how to answer.

Text of a model or a tool stands in code blocks or code spans, escaped (gateway/approvals/escaping.py). It cannot end
them, and no character in it can hide.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.approvals.answer_options import REPLIES as REPLIES
from gateway.approvals.answer_options import AnswerOptions as AnswerOptions
from gateway.approvals.answer_options import build_approval_link as build_approval_link
from gateway.approvals.answer_options import convert_to_utc as convert_to_utc
from gateway.approvals.answer_options import format_answer_paragraphs
from gateway.approvals.escaping import (
    Language,
    count_hidden,
    escape_line,
    fence_text,
    format_code,
    format_shown_arguments,
    format_shown_name,
)

REASON_CHARS: Final = 500
#: So much of a message is enough to detect its language.
LANGUAGE_CHARS: Final = 2000

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
#: A word of letters, or one character of Japanese or Korean.
_OTHER = re.compile("[\u3041-\u30ff\uac00-\ud7a3]|[^\\W\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDescription:
    """One approval as it is shown; `reason` is the reason why it is held, `rule` names the rule that held it.

    `word` is its check word, "" where the text needs no answer. `required`: so many keys must approve it; the keys in
    `approved_by` have.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    word: str = ""
    reason: str = ""
    rule: str = ""
    required: int = 1
    approved_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """The approvals that wait, the time that is left for them, and how their reader can answer."""

    approvals: Sequence[ApprovalDescription]
    expires_s: float
    now_s: float
    language: Language = "en"
    answering: AnswerOptions = REPLIES


def detect_language(text: str) -> Language:
    """Return Chinese if Han characters, two to a word, are at least as many as other words; else English."""
    text = text[:LANGUAGE_CHARS]
    han = sum(1 for _ in _HAN.finditer(text))
    return "zh" if han and han >= 2 * sum(1 for _ in _OTHER.finditer(text)) else "en"


# A turn that waits.


def format_turn_text(question: ApprovalQuestion) -> str:
    """Return the question of a run that waits for these approvals.

    It names the calls, the reason for each, the time limit, and how to answer.
    """
    approvals = question.approvals
    many = len(approvals) > 1
    if question.language == "zh":
        lead = f"以下 {len(approvals)} 个调用需要您批准，均尚未执行：" if many else "以下调用需要您批准，尚未执行："
    elif many:
        lead = f"These {len(approvals)} calls wait for your approval. None of them has run yet:"
    else:
        lead = "This call waits for your approval. It has not run yet:"
    if not question.answering.may_decide:
        lead = lead.replace("您批准", "批准").replace("your approval", "approval")
    return _format_question(lead, question)


def format_still_undecided_text(*, may_decide: bool = True, language: Language = "en") -> str:
    """Return the end of a held answer that already contains its question."""
    if language == "zh":
        then = "现在可以回复以上其中一行，或在别处决定。" if may_decide else "作出决定后请重复您的请求。"
        return f"尚未有人作出决定，因此本条回答到此结束。调用仍在等待：{then}"
    then = "send one of the lines above" if may_decide else "repeat your request once it is decided"
    return f"No person has decided so far, so this answer ends here. The call still waits: {then}."


def format_duplicate_call_text(tools: Sequence[str], *, language: Language = "en") -> str:
    """Return the text before the question of another run that waits for the same call.

    `tools` are the tools of calls for which no approval was requested.
    """
    names = ", ".join(map(_format_name, tools))
    if language == "zh":
        rest = f"本次回答中的其他调用（{names}）没有提出：作出决定后请再次提出。" if tools else ""
        return f"这个调用之前已经提出，仍在等待，因此没有再次提出。{rest}"
    rest = f" No approval was requested for its other calls ({names}): ask again after the decision." if tools else ""
    return f"The approval of this call was requested before and is still pending, so it was not requested again.{rest}"


def format_meanwhile_text(answer: str, *, language: Language = "en") -> str:
    """Return the beginning of the first answer after a decision elsewhere.

    `answer` is the answer that followed the question.
    """
    lead = (
        "在此期间已有决定。对前一个问题的回答：" if language == "zh" else "It was decided meanwhile. What came of it:"
    )
    return f"{lead}\n\n{answer}\n\n"


def format_still_pending_text(question: ApprovalQuestion, *, decided: Sequence[str]) -> str:
    """Return the answer to a decision on a part of a group: the run still waits for the others."""
    ids = ", ".join(format_code(format_shown_name(approval_id)) for approval_id in decided)
    waiting = len(question.approvals)
    if question.answering.hindrance == "approved":
        lead = f"已记录对 {ids} 的批准，仍在等待：" if question.language == "zh" else f"Your approval of {ids} is kept:"
        return _format_question(lead, question)
    if question.language == "zh":
        lead = f"已记录对 {ids} 的决定。运行仍在等待以下 {waiting} 个调用的决定："
    else:
        lead = f"Your decision on {ids} is kept. The run still waits for {waiting} more:"
    return _format_question(lead, question)


def format_undecided_text(question: ApprovalQuestion) -> str:
    """Return the answer to a message that names pending approvals and decides nothing.

    The message is not a decision on them, or lacks the right check word.
    """
    pending, language = question.approvals, question.language
    many = len(pending) > 1
    if not question.answering.may_decide:
        lead = "您的消息没有作出任何决定。" if language == "zh" else "Your message decided nothing. "
    elif language == "zh":
        lead = "您的消息没有作出任何决定：它不是完整的一行批准或拒绝，或者校验码不符。"
    else:
        lead = "Your message decided nothing: it is not one of the lines below, or its check word is of another call. "
    if language == "zh":
        lead += f"以下 {len(pending)} 个调用仍在等待，尚未执行：" if many else "以下调用仍在等待，尚未执行："
    else:
        lead += (
            f"These {len(pending)} calls still wait, and none of them has run:"
            if many
            else "This call still waits. It has not run:"
        )
    return _format_question(lead, question)


def _format_question(lead: str, question: ApprovalQuestion) -> str:
    """Return the question as text: lead, calls, hidden parts and how to answer."""
    approvals, language, answering = question.approvals, question.language, question.answering
    calls = [
        format_call_block(approval, i if len(approvals) > 1 else 0, language) for i, approval in enumerate(approvals, 1)
    ]
    calls += [text for approval in approvals if (text := format_hidden_text(approval, language))]
    named = [(approval.id, approval.word) for approval in approvals]
    how = format_answer_paragraphs(named, question.expires_s, question.now_s, language, answering)
    return "\n\n".join([lead, *calls, *how])


def format_call_block(approval: ApprovalDescription, number: int = 0, language: Language = "en") -> str:
    """Return one call in a block of code: where a text is read as Markdown, no part of the call can hide."""
    return fence_text(format_call(approval, number, language))


def format_hidden_text(approval: ApprovalDescription, language: Language = "en") -> str:
    """Return how much of a call its block leaves out and where all of it is; "" if it leaves out nothing."""
    if (hidden := count_hidden(approval.arguments)) is None:
        return ""
    command = format_code(f"gateway approvals show {approval.id}")
    if language == "zh":
        return (
            f"以上没有显示 {_format_name(approval.tool)} 的全部参数：省略了 {hidden.lines} 行，共 "
            f"{hidden.chars} 个字符。"
            f"{command} 和控制台会显示全部内容。"
        )
    lines = f"{hidden.lines} lines" if hidden.lines > 1 else "1 line"
    return (
        f"Not all of {_format_name(approval.tool)} is shown above: {hidden.chars:,} characters in {lines} are "
        "left out. "
        f"{command} and the console show all of it."
    )


def format_endorsements(approval: ApprovalDescription, language: Language = "en") -> str:
    """Return how many of the keys that must approve a call have, and which."""
    count, names = len(approval.approved_by), ", ".join(map(format_shown_name, approval.approved_by))
    if language == "zh":
        return f"{count}/{approval.required}" + (f"，已由 {names} 批准" if names else "，需要不同密钥的批准")
    return f"{count} of {approval.required}" + (f", approved by {names}" if names else ", by different keys")


def format_call(approval: ApprovalDescription, number: int = 0, language: Language = "en") -> str:
    """Return one call: the tool, its arguments, and the reason why it is held.

    Lines of arguments are indented, so none can pass for the gateway's own.
    """
    tool = format_shown_name(approval.tool)
    lines = [f"{number}. {tool} ({approval.id})" if number else tool]
    lines += ["  " + line for line in format_shown_arguments(approval.arguments, language=language).split("\n")]
    why = escape_line(approval.reason, REASON_CHARS)
    if approval.rule:
        why = f"{why} [{escape_line(approval.rule, REASON_CHARS)}]".lstrip()
    if why:
        lines.append(("暂缓原因：" if language == "zh" else "held because: ") + why)
    if approval.required > 1:
        lines.append(("批准：" if language == "zh" else "approvals: ") + format_endorsements(approval, language))
    return "\n".join(lines)


# One line each.


def format_ask_before_ended(*, language: Language = "en") -> str:
    """Return the beginning of the answer to a user who no longer wants to approve each call."""
    if language == "zh":
        return "从现在起，本对话中的调用只在安全门要求时才会询问您。\n\n"
    return "From now on calls of this conversation ask you only where the gate does.\n\n"


def format_ask_before_kept(ask_id: str, *, language: Language = "en") -> str:
    """Return the answer to a user whose key may not revoke the wish to approve each call."""
    command, scope = format_code(f"gateway approvals revoke {ask_id}"), format_code("approve")
    if language == "zh":
        return f"本对话中的每个调用仍会询问：您的密钥没有权限 {scope}，不能撤回。有权限的人可以用 {command}。\n\n"
    return (
        f"Each call of this conversation still asks: to take that back needs the scope {scope}, which your key lacks. "
        f"A person whose key has it sends {command}.\n\n"
    )


def format_rejected_text(tool: str, comment: str | None, *, ran_before: int = 0, language: Language = "en") -> str:
    """Return the answer after a rejection. `ran_before`: how many calls of the same run had run by then."""
    reason = format_code(escape_line(comment, REASON_CHARS)) if comment else ""
    if language == "zh":
        because = f"，原因：{reason}" if reason else ""
        return f"对 {_format_name(tool)} 的调用已被拒绝{because}。{_format_nothing_ran(ran_before, language)}"
    because = f", because: {reason}" if reason else ""
    return f"The call of {_format_name(tool)} was rejected{because}. {_format_nothing_ran(ran_before, language)}"


def format_expired_text(tool: str, *, ran_before: int = 0, language: Language = "en") -> str:
    """Return the answer after an approval that expired undecided."""
    nothing = _format_nothing_ran(ran_before, language)
    if language == "zh":
        return f"{_format_name(tool)} 的批准请求已过期，无人作出决定。{nothing}如仍需要，请重新提出。"
    return (
        f"No person decided on the call of {_format_name(tool)} in time. {nothing} If it is still wanted, ask for "
        "it again."
    )


def format_cancelled_text(tool: str, *, ran_before: int = 0, language: Language = "en") -> str:
    """Return the answer of a run that was cancelled while it waited."""
    if language == "zh":
        return f"{_format_name(tool)} 的批准请求已随运行一起取消。{_format_nothing_ran(ran_before, language)}"
    return (
        f"The call of {_format_name(tool)} was cancelled together with its run. "
        f"{_format_nothing_ran(ran_before, language)}"
    )


def format_refused_here_text(approval: ApprovalDescription, *, ran_before: int = 0, language: Language = "en") -> str:
    """Return the answer if the call needs a person, but this request or the operator forbids to ask one."""
    call = format_call_block(approval, 0, language)
    if language == "zh":
        lead = "以下调用需要人工批准，而此处不会询问任何人，因此被拒绝："
    else:
        lead = "This call needs the approval of a person, and no person can approve it here, so it was refused:"
    return f"{lead}\n\n{call}\n\n{_format_nothing_ran(ran_before, language)}"


def format_resumed_elsewhere(run_id: str, *, language: Language = "en") -> str:
    """Return the answer to an approval of a run that another client waits for."""
    if language == "zh":
        return f"已批准。运行 {_format_name(run_id)} 将在等待它的地方继续，结果也会出现在那里。"
    return f"Approved. The run {_format_name(run_id)} goes on where it is waited for; its answer appears there."


def format_answered_elsewhere(run_id: str, *, approves: bool, language: Language = "en") -> str:
    """Return the answer to a decision on a run of another person, who alone gets its result."""
    if language == "zh":
        decided = "已批准。" if approves else "已拒绝。"
        return f"{decided}运行 {_format_name(run_id)} 的结果只会告知提出请求的人。"
    decided = "Approved" if approves else "Rejected"
    return (
        f"{decided}. The result of the run {_format_name(run_id)} goes to the person who requested it, and only there."
    )


def format_unknown_text(tool: str, *, run_id: str, step: int, language: Language = "en") -> str:
    """Return the answer about a call with an unknown outcome: what happened, what did not, and what a person types."""
    command = f"gateway runs resume {run_id} --step {step} --as"
    done, retry, failed = (format_code(f"{command} {outcome}") for outcome in ("done", "retry", "failed"))
    request, body = format_code(f"POST /context/runs/{run_id}/resume"), format_code(f'{{"step": {step}, "as": "done"}}')
    if language == "zh":
        return (
            f"{_format_name(tool)} 已开始执行，但在结束之前中断，无法得知其结果：它可能已执行，也可能没有。"
            "运行已在此停止。\n\n"
            "请先核实它是否已执行，再在终端中输入以下一行：\n\n"
            f"- 已执行：{done}\n- 未执行，请再次执行：{retry}\n- 按失败处理并继续：{failed}\n\n"
            f"程序可发送 {request}：{body}。在此之前该运行不会继续；在这里发送新消息会开始另一个运行。"
        )
    return (
        f"{_format_name(tool)} was started and cut off, and what became of it is unknown: it may have run or not. "
        "Its run has stopped there.\n\n"
        "Look whether it ran. Then type one of these lines in a terminal:\n\n"
        f"- it ran: {done}\n- it did not, so run it again: {retry}\n- go on as if it had failed: {failed}\n\n"
        f"Programs send {request} with {body}. Until then this run waits. A new message here begins another run."
    )


def format_stopped_text(tool: str, *, run_id: str) -> str:
    """Return the result of a call whose run was cancelled after it had started."""
    request = format_code(f"GET /context/runs/{run_id}")
    return (
        f"{_format_name(tool)} was started, and its run was cancelled before it ended. What became of it is "
        "unknown: it may "
        f"have run or not. Look first, before you call it again; {request} shows a result that came late."
    )


def _format_name(name: str) -> str:
    return format_code(format_shown_name(name))


def _format_nothing_ran(ran_before: int, language: Language) -> str:
    """Return the sentence on how many calls of the run had run before this one did not."""
    if ran_before == 0:
        return "没有执行任何操作。" if language == "zh" else "Nothing ran."
    if language == "zh":
        return f"它没有执行，此后也没有执行任何操作；本次运行此前已执行 {ran_before} 个调用。"
    calls = "1 earlier call" if ran_before == 1 else f"{ran_before} earlier calls"
    return f"It did not run, and nothing after it did; {calls} of this run had run."
