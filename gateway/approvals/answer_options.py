"""The ways in which the reader of a question about approvals can answer it, as texts in English or Chinese."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from gateway.approvals.escaping import Language, fence_text, format_code, format_shown_name

#: The last second that datetime can write.
_LAST_S: Final = 253402300799.0


#: Why a reader may not approve: the key lacks the scope, the call is its own (`approvals.self`), it has approved it.
Hindrance: TypeAlias = Literal["scope", "own", "approved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The ways in which the reader of a question can answer it.

    `held_s`: the answer stays open for so long, and its program sends nothing meanwhile. `hindrance`: why the reader's
    key may not approve these calls; None: it may. `deciders` are the names of the other keys that may, in this tenant.
    `console_url` is the URL of the console, None where no text can link to it.
    """

    held_s: float | None = None
    hindrance: Hindrance | None = None
    tenant: str = ""
    deciders: Sequence[str] = ()
    console_url: str | None = None

    @property
    def may_decide(self) -> bool:
        return self.hindrance is None


#: A reader who sends the next message.
REPLIES: Final = AnswerOptions()


def build_approval_link(console_url: str, approval_id: str) -> str:
    """Return the address of the page of the console where this approval is decided.

    The page checks its reader, and opening it decides nothing: the address is not a secret.
    """
    return f"{console_url}/approvals/{approval_id}"


def convert_to_utc(time_s: float) -> datetime:
    """Return the time, or the first or last one that can be written."""
    return datetime.fromtimestamp(min(max(time_s, 0.0), _LAST_S), UTC)


def format_answer_paragraphs(
    named: Sequence[tuple[str, str]], expires_s: float, now_s: float, language: Language, answering: AnswerOptions
) -> list[str]:
    """Return the paragraphs on how to decide on these approvals (id and check word), with the deadline."""
    ids, until = [approval_id for approval_id, _ in named], _format_deadline(expires_s, now_s, language)
    how: list[str] = []
    if answering.held_s is not None or not answering.may_decide:
        how += _list_other_ways_to_decide(ids, until, language, answering)
    if answering.may_decide:
        how += _format_replies(named, until, language, held=answering.held_s is not None)
    elif answering.hindrance != "scope":
        how += _format_withdrawal(named, language)
    if answering.console_url is not None:
        links = " ".join(f"<{build_approval_link(answering.console_url, approval_id)}>" for approval_id in ids)
        how.append(f"也可以在浏览器中决定：{links}" if language == "zh" else f"Or decide in a browser: {links}")
    return how


def _list_other_ways_to_decide(
    ids: Sequence[str], until: str, language: Language, answering: AnswerOptions
) -> list[str]:
    """Return the lines that name the other places to decide, and the keys that may.

    They are for a reader who may not decide, or who cannot send anything while the answer is open.
    """
    commands = [fence_text(f"gateway approvals {verb} {' '.join(ids)}") for verb in ("approve", "reject")]
    # No JSON stands here: libraries that want an object take the first one that an answer holds.
    request, key, value = (
        format_code(f"POST /context/approvals/{ids[0]}"),
        format_code("decision"),
        format_code("approve"),
    )
    held = None if answering.held_s is None else _format_time_left(answering.held_s, language)
    tenant = format_code(format_shown_name(answering.tenant))
    names = ", ".join(format_code(format_shown_name(name)) for name in answering.deciders)
    if language == "zh":
        if not answering.may_decide:
            who = f"可以决定的密钥：{names}" if names else "目前没有这样的密钥：请运维人员添加一个"
            lead = f"{format_hindrance(answering, language)}请租户 {tenant} 中拥有权限 {format_code('approve')} 的"
            lead += f"其他密钥的持有者在{until}之前用以下其中一个命令决定（{who}）："
        else:
            lead = f"本条回答最多等待 {held}，作出决定后会自动继续。请在另一个窗口用以下其中一个命令决定："
        then = "作出决定后，重复这个请求，或在此对话中发送任意一条消息，即可得到回答。"
        rest = f"也可以通过 {request} 决定，在 JSON 请求体中把 {key} 设为 {value}。"
    else:
        if not answering.may_decide:
            who = f"Keys that have it: {names}." if names else "No key has it yet: ask who runs this gateway for one."
            lead = f"{format_hindrance(answering, language)} Ask a person with another key of the tenant {tenant} that "
            lead += f"has the scope {format_code('approve')} to decide with one of these commands, until {until}. {who}"
        else:
            lead = f"This answer waits for {held} at most, and goes on by itself after the decision. Decide in another "
            lead += "window, with one of these commands:"
        then = "After the decision repeat your request, or send any message in this conversation: it brings the answer."
        rest = f"Or send {request} with {key} set to {value} in its JSON body."
    return [lead, *commands, rest, *([] if held is not None else [then])]


def format_hindrance(answering: AnswerOptions, language: Language = "en") -> str:
    """Return the sentence with the reason why the reader may not approve."""
    setting = format_code("approvals.self: refuse")
    match answering.hindrance, language:
        case "own", "zh":
            return f"这里的密钥不能批准自己的调用（{setting}）。"
        case "own", _:
            return f"Your key may not approve its own calls here ({setting})."
        case "approved", "zh":
            return "您的密钥已经批准，还需要其他密钥的批准。"
        case "approved", _:
            return "Your key has approved, and another key must approve, too."
        case _, "zh":
            return f"您的密钥不能作出决定：它没有权限 {format_code('approve')}。"
        case _:
            return f"Your key may not decide: it lacks the scope {format_code('approve')}."


def _format_withdrawal(named: Sequence[tuple[str, str]], language: Language) -> list[str]:
    """Return the line with which a reader withdraws its own calls."""
    with_words = " ".join(f"{approval_id} {word}" for approval_id, word in named)
    if language == "zh":
        return ["要撤回调用，请回复这一行：", fence_text(f"拒绝 {with_words}")]
    return ["To withdraw the call, send this line as your whole message:", fence_text(f"reject {with_words}")]


def _format_replies(named: Sequence[tuple[str, str]], until: str, language: Language, *, held: bool) -> list[str]:
    """Return the paragraphs with the messages that approve or reject; `held`: the answer is still open."""
    approve, reject = ("批准", "拒绝") if language == "zh" else ("approve", "reject")
    with_words = [f"{approval_id} {word}" for approval_id, word in named]
    # A block for each line: the copy buttons of chat programs copy a whole block.
    answers = [fence_text(f"{verb} {' '.join(with_words)}") for verb in (approve, reject)]
    if language == "zh":
        when = "或者，在您的程序可以发送消息时，" if held else "请"
        parts = [f"{when}在{until}之前回复以下其中一行，整条消息只包含这一行：", *answers]
        single = "也可以逐个决定，每个编号与其校验码一起单独使用，例如 {0}。"
        reason = "拒绝时可以附上原因：{0}。"
        why = "原因"
    else:
        when = "Or, as soon as your program lets you," if held else "To answer,"
        parts = [f"{when} send one of these lines as your whole message, until {until}:", *answers]
        single = "Or decide on each by its own id and check word, for example {0}."
        reason = "A rejection may give a reason: {0}."
        why = "reason"
    if len(named) > 1:
        parts.append(single.format(format_code(f"{approve} {with_words[0]}")))
    parts.append(reason.format(format_code(f"{reject} {with_words[0]}: {why}")))
    return parts


def _format_deadline(expires_s: float, now_s: float, language: Language) -> str:
    """Return the time in UTC, and the time left until then for people in other time zones."""
    amount = _format_time_left(max(0.0, min(expires_s, _LAST_S) - now_s), language)
    at = f"{convert_to_utc(expires_s):%Y-%m-%d %H:%M:%S} UTC"
    return f" {at}（{amount}后）" if language == "zh" else f"{at} ({amount} from now)"


def _format_time_left(left: float, language: Language) -> str:
    """Return the time in its largest unit that gives at least two."""
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
    return f"{amount} {chinese}" if language == "zh" else f"{amount} {english}{'' if amount == 1 else 's'}"
