"""What a person reads about approvals, in English or Chinese: what will run exactly, why it waits, how to answer.

Whatever a model or a tool wrote stands in code blocks or code spans, escaped (gateway/wire/shown.py): it cannot end
them, and nothing in it can hide.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gateway.wire.shown import Language, code, fenced, shown, shown_arguments, shown_json, shown_name

REASON_CHARS: Final = 500
#: Of one call in a line of reasoning, which only announces what the approval shows.
LINE_CHARS: Final = 300
#: So much of a message tells its language.
LANGUAGE_CHARS: Final = 2000

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
#: A word of letters, or one character of Japanese or Korean.
_OTHER = re.compile("[\u3041-\u30ff\uac00-\ud7a3]|[^\\W\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+")
#: The last second that datetime knows.
_LAST_S: Final = 253402300799.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One approval as it is shown; `reason` says why it is held, `rule` names what held it.

    `word` is its check word, "" where the text asks for no answer.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    word: str = ""
    reason: str = ""
    rule: str = ""


def language_of(text: str) -> Language:
    """Chinese where Han characters, two to a word, are no fewer than other words."""
    text = text[:LANGUAGE_CHARS]
    han = sum(1 for _ in _HAN.finditer(text))
    return "zh" if han and han >= 2 * sum(1 for _ in _OTHER.finditer(text)) else "en"


def approval_link(public_url: str, ids: Sequence[str]) -> str:
    """Where these are decided in a browser. The ids stand in the fragment: no access log and no Referer has them."""
    return f"{public_url.rstrip('/')}/console#{','.join(ids)}"


def utc(time_s: float) -> datetime:
    """The time, or the first or last one that can be written."""
    return datetime.fromtimestamp(min(max(time_s, 0.0), _LAST_S), UTC)


# A turn that waits.


def turn_text(
    approvals: Sequence[Shown], *, public_url: str | None, expires_s: float, now_s: float, language: Language = "en"
) -> str:
    """The answer of a turn that waits for these: what will run, why it was held, until when, and how to answer."""
    many = len(approvals) > 1
    if language == "zh":
        lead = f"以下 {len(approvals)} 个调用需要您批准，均尚未执行：" if many else "以下调用需要您批准，尚未执行："
    elif many:
        lead = f"These {len(approvals)} calls wait for your approval. None of them has run yet:"
    else:
        lead = "This call waits for your approval. It has not run yet:"
    return _asking(lead, approvals, public_url, expires_s, now_s, language)


def still_pending_text(
    pending: Sequence[Shown],
    *,
    decided: Sequence[str],
    public_url: str | None,
    expires_s: float,
    now_s: float,
    language: Language = "en",
) -> str:
    """The answer to a decision on a part of a group: the others are still waited for."""
    ids = ", ".join(code(shown_name(approval_id)) for approval_id in decided)
    if language == "zh":
        lead = f"已记录对 {ids} 的决定。运行仍在等待以下 {len(pending)} 个调用的决定："
    else:
        lead = f"Your decision on {ids} is kept. The run still waits for {len(pending)} more:"
    return _asking(lead, pending, public_url, expires_s, now_s, language)


def undecided_text(
    pending: Sequence[Shown], *, public_url: str | None, expires_s: float, now_s: float, language: Language = "en"
) -> str:
    """The answer to a message that names what waits and is no decision on it, or has no check word that fits."""
    many = len(pending) > 1
    if language == "zh":
        lead = "您的消息没有作出任何决定：它不是完整的一行批准或拒绝，或者校验码不符。"
        lead += f"以下 {len(pending)} 个调用仍在等待，尚未执行：" if many else "以下调用仍在等待，尚未执行："
    else:
        lead = "Your message decided nothing: it is not one of the lines below, or its check word is of another call. "
        lead += (
            f"These {len(pending)} calls still wait, and none of them has run:"
            if many
            else "This call still waits. It has not run:"
        )
    return _asking(lead, pending, public_url, expires_s, now_s, language)


def _asking(
    lead: str, approvals: Sequence[Shown], public_url: str | None, expires_s: float, now_s: float, language: Language
) -> str:
    calls = [_call(approval, i if len(approvals) > 1 else 0, language) for i, approval in enumerate(approvals, 1)]
    return "\n\n".join([lead, *calls, *_how(approvals, public_url, _until(expires_s, now_s, language), language)])


def _call(approval: Shown, number: int, language: Language) -> str:
    """One call: the tool, its arguments, why it is held. Lines of arguments are indented, so none can pass for ours."""
    tool = shown_name(approval.tool)
    lines = [f"{number}. {tool} ({approval.id})" if number else tool]
    lines += ["  " + line for line in shown_arguments(approval.arguments, language=language).split("\n")]
    why = shown(approval.reason, REASON_CHARS)
    if approval.rule:
        why = f"{why} [{shown(approval.rule, REASON_CHARS)}]".lstrip()
    if why:
        lines.append(("暂缓原因：" if language == "zh" else "held because: ") + why)
    return fenced("\n".join(lines))


def _how(approvals: Sequence[Shown], public_url: str | None, until: str, language: Language) -> list[str]:
    ids = [approval.id for approval in approvals]
    approve, reject = ("批准", "拒绝") if language == "zh" else ("approve", "reject")
    with_words = [f"{approval.id} {approval.word}" for approval in approvals]
    # A block for each line: the copy buttons of chat programs copy a whole block.
    answers = [fenced(f"{verb} {' '.join(with_words)}") for verb in (approve, reject)]
    if language == "zh":
        parts = [f"请在{until}之前回复以下其中一行，整条消息只包含这一行：", *answers]
        single = "也可以逐个决定，每个编号与其校验码一起单独使用，例如 {0}。"
        reason = "拒绝时可以附上原因：{0}。"
        why, console = "原因", "也可以在这里决定：{0}"
    else:
        parts = [f"To answer, send one of these lines as your whole message, until {until}:", *answers]
        single = "Or decide on each by its own id and check word, for example {0}."
        reason = "A rejection may give a reason: {0}."
        why, console = "reason", "Or decide here: {0}"
    if len(ids) > 1:
        parts.append(single.format(code(f"{approve} {with_words[0]}")))
    parts.append(reason.format(code(f"{reject} {with_words[0]}: {why}")))
    if public_url is not None:
        parts.append(console.format(f"<{approval_link(public_url, ids)}>"))
    return parts


def _until(expires_s: float, now_s: float, language: Language) -> str:
    """The time, and how far away it is: not everybody reads UTC."""
    left = max(0.0, min(expires_s, _LAST_S) - now_s)
    amount, english, chinese = next(
        (int((left + 0.5) // unit), english, chinese)
        for limit, unit, english, chinese in (
            (120, 1, "second", "秒"),
            (120 * 60, 60, "minute", "分钟"),
            (48 * 3600, 3600, "hour", "小时"),
            (float("inf"), 86400, "day", "天"),
        )
        if left < limit or limit == float("inf")
    )
    at = f"{utc(expires_s):%Y-%m-%d %H:%M:%S} UTC"
    if language == "zh":
        return f" {at}（{amount} {chinese}后）"
    return f"{at} ({amount} {english}{'' if amount == 1 else 's'} from now)"


# One line each.


def waiting_text(approvals: Sequence[Shown], *, language: Language = "en") -> str:
    """The line of reasoning of a stream that is held."""
    calls = [
        code(f"{shown_name(each.tool)} {shown_json(dict(each.arguments), LINE_CHARS)}") + f" ({each.id})"
        for each in approvals
    ]
    return "正在等待批准：" + "；".join(calls) if language == "zh" else "Waiting for approval of " + "; ".join(calls)


def rejected_text(tool: str, comment: str | None, *, ran_before: int = 0, language: Language = "en") -> str:
    """`ran_before`: how many calls of the same run had run by then."""
    reason = code(shown(comment, REASON_CHARS)) if comment else ""
    if language == "zh":
        because = f"，原因：{reason}" if reason else ""
        return f"对 {_name(tool)} 的调用已被拒绝{because}。{_nothing(ran_before, language)}"
    because = f", because: {reason}" if reason else ""
    return f"The call of {_name(tool)} was rejected{because}. {_nothing(ran_before, language)}"


def expired_text(tool: str, *, ran_before: int = 0, language: Language = "en") -> str:
    """Nobody decided in time."""
    if language == "zh":
        return f"{_name(tool)} 的批准请求已过期，无人作出决定。{_nothing(ran_before, language)}如仍需要，请重新提出。"
    nothing = _nothing(ran_before, language)
    return f"Nobody decided on the call of {_name(tool)} in time. {nothing} If it is still wanted, ask for it again."


def cancelled_text(tool: str, *, ran_before: int = 0, language: Language = "en") -> str:
    """The run was cancelled while it waited."""
    if language == "zh":
        return f"{_name(tool)} 的批准请求已随运行一起取消。{_nothing(ran_before, language)}"
    return f"The call of {_name(tool)} was cancelled together with its run. {_nothing(ran_before, language)}"


def refused_here_text(approval: Shown, *, ran_before: int = 0, language: Language = "en") -> str:
    """The call needs a person, and this request or the operator says that nobody is asked."""
    call = _call(approval, 0, language)
    if language == "zh":
        return f"以下调用需要人工批准，而此处不会询问任何人，因此被拒绝：\n\n{call}\n\n{_nothing(ran_before, language)}"
    lead = "This call needs the approval of a person, and nobody is asked here, so it was refused:"
    return f"{lead}\n\n{call}\n\n{_nothing(ran_before, language)}"


def resumed_elsewhere_text(run_id: str, *, language: Language = "en") -> str:
    """The answer to an approval of a run that another client waits for."""
    if language == "zh":
        return f"已批准。运行 {_name(run_id)} 将在等待它的地方继续，结果也会出现在那里。"
    return f"Approved. The run {_name(run_id)} goes on where it is waited for; its answer appears there."


def unknown_text(tool: str, *, run_id: str, step: int, language: Language = "en") -> str:
    """A call was started, and nobody knows what became of it: a person must look."""
    request = code(f"POST /context/runs/{run_id}/resume")
    body = code(f'{{"step": {step}, "as": "done"}}')
    if language == "zh":
        return (
            f"{_name(tool)} 已开始执行，但无法得知其结果：它可能已执行，也可能没有。请先核实，再用 {request} 告知结果："
            f"{body} 表示已完成，{code('retry')} 表示再次执行，{code('failed')} 表示按失败处理。在此之前运行不会继续。"
        )
    return (
        f"{_name(tool)} was started, and what became of it is unknown: it may have run or not. Look first, then say so "
        f"with {request}: {body} if it was done, {code('retry')} to run it again, {code('failed')} to go on as if it "
        "had failed. Until then the run does not go on."
    )


def _name(name: str) -> str:
    return code(shown_name(name))


def _nothing(ran_before: int, language: Language) -> str:
    if ran_before == 0:
        return "没有执行任何操作。" if language == "zh" else "Nothing ran."
    if language == "zh":
        return f"它没有执行，此后也没有执行任何操作；本次运行此前已执行 {ran_before} 个调用。"
    calls = "1 earlier call" if ran_before == 1 else f"{ran_before} earlier calls"
    return f"It did not run, and nothing after it did; {calls} of this run had run."
