"""Requests about what the gateway remembers: "remember ...", "what do you remember", "forget ...", 记住, 忘记.

Every expression begins where a sentence does and is bounded in length, so the whole takes linear time.
"""

import re
from dataclasses import dataclass
from typing import Literal

from gateway.wire.phrases import Spans, mentions

_BEGIN = r"(?:\A|(?<=[.!?;,:\n。、]))\s{0,8}+"
_POLITE = (
    r"(?:(?:please|pls|hey|hi|hello|ok|okay|also|and|so|now|then|can you|could you|would you|will you|i want you to"
    r"|i'd like you to|i need you to|you should|you must|make sure you|make sure to|always|just)(?![a-z0-9_])"
    r"[\s,]{0,6}+"
    r"|(?:请|請|麻烦|麻煩|帮我|幫我|替我|给我|給我|我要你|我想让你|我希望你|你|您|先|好好|一定|务必|那|就|好的|嗯|另外|还有"
    r"|以后|也|都|必须|要|能不能|可以|能)[\s,]{0,3}+){0,6}"
)
_REMEMBER = re.compile(
    _BEGIN + _POLITE + r"(?:(?:remember|memori[sz]e|keep in mind|bear in mind|take note|note down|make a note"
    r"|(?:do not|don't|dont|never) forget)(?![a-z0-9_])(?:\s{1,3}(?:this|the following)(?=\s{0,3}(?:[:,.!]|\Z)))?"
    r"(?:\s{1,3}(?:that|of)(?![a-z0-9_]))?"
    r"|(?:记住|記住|牢记|牢記|记一下|記一下|记下来?|記下來?|记得|記得|别忘了|别忘记|別忘了|別忘記|不要忘记|不要忘了|不要忘記)"
    r"(?:一下|这个|這個|这点|这一点|这件事|以下内容|了)?)\s{0,3}(?P<colon>:)?[\s,]{0,8}"
)
_RECALL = re.compile(
    _BEGIN + r"(?:(?:please|so|and|hey|ok|okay|can you|could you)[\s,]{1,4}){0,3}"
    r"(?:(?:(?:tell|show) me )?(?:what|which things|how much)(?: all| else)? (?:do|did|can|have) you (?:still )?"
    r"(?:remember|remembered|memori[sz]ed?|know about me)(?![a-z0-9_])|do you (?:still )?remember(?![a-z0-9_])"
    r"|(?:tell|show) me (?:everything |all )?(?:what |that )?you remember|what (?:is|do you have) in your memory"
    r"|what's in your memory|(?:list|show|tell)(?: me)?(?: all)?(?: of)? (?:your|my|the|all) memories"
    r"|recall (?:what|everything)|(?:remember|remember who i am|remember my [^.!?\n]{1,40}?|remember me)\?)"
    r"|" + _BEGIN + r"(?:请|請|那|那么|告诉我|告訴我|\s){0,3}(?:"
    r"(?:你|您)?(?:还|還|都|到底|现在|\s){0,3}(?:记得|記得|记住|記住|记)(?:了|过|到)?[^,.!?\n。、]{0,40}?"
    r"(?:什么|什麼|哪些|啥|多少|吗|嗎|嘛|么)"
    r"|(?:你|您)(?:都|还|還){0,2}(?:知道|了解)我(?:些|的)?(?:什么|什麼|哪些|多少)"
    r"|(?:查看|列出|显示|看看|看一下)(?:你)?的?(?:所有|全部)?的?(?:记忆|記憶)"
    r"|(?:你)?(?:的)?(?:记忆|記憶)(?:里|中)?(?:都)?有(?:什么|什麼|哪些|啥))"
)
_FORGET = re.compile(
    _BEGIN
    + _POLITE
    + r"(?:(?:forget|unlearn)(?![a-z0-9_])(?!\s{1,3}(?:about\s{1,3})?it(?![a-z0-9_])|\s{0,3}[.!]?\s?\Z)"
    r"(?:\s{1,3}(?:about|that|what i (?:said|told you) about|the fact that)(?![a-z0-9_])){0,2}[\s:,]{0,8}"
    r"|(?:delete|remove|clear|erase|wipe)\s{1,3}(?:(?:all|of|your|the|my|this|that|these)\s{1,3}){0,3}"
    r"(?P<memories>memor(?:y|ies))(?:\s{1,3}(?:of|about|that)(?![a-z0-9_])){0,2}[\s:,]{0,8}"
    r"|(?:把|将|將)(?P<object>[^,.!?\n。、]{1,100})(?:忘了|忘掉|忘记|忘記)"
    r"|(?:清除|清空|删除|刪除)(?:你)?的?(?:所有|全部)?的?(?P<all>记忆|記憶)"
    r"|(?:忘记|忘掉|忘記|(?<=[请請你])忘了|遗忘)(?:一下|掉)?[\s:,]{0,8})"
)
_EVERYTHING = re.compile(
    r"\s{0,3}(?:everything|all|all of (?:it|that|them)|anything|所有|一切|全部|所有事情?|所有的?(?:一切|记忆|内容)?)"
    r"(?:\s{1,3}(?:you|i|about|know|remember|told|said|me|that|have|ever)(?![a-z0-9_])){0,8}\s{0,3}\Z"
)
#: Whatever the expressions above match has one of these in it.
_WORDS = (
    *("remember", "memor", "recall", "forget", "unlearn", "in mind", "know about me"),
    *("take note", "note down", "make a note"),
    *("记", "記", "忘", "知道我", "了解我"),
)
#: What makes "忘记密码怎么办" a question about something else.
_ASKS = re.compile(r"怎么|怎麼|如何|怎样|怎樣|咋|为什么|為什麼|吗|嗎|\?")
#: A sentence ends at a full stop with a space behind it, but not at the one of "Dr." or "e.g."
_SENTENCE_END = re.compile(
    r"(?<!\bdr)(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bst)(?<!\bprof)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|\Z)|[。\n]"
)


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What is to happen with memories: `start:end` of the folded text is the request, `about` what it is about.

    An empty `about` of a `forget` means all memories if `everything`, else nothing that was named.
    """

    action: Literal["remember", "recall", "forget"]
    start: int
    end: int
    about: tuple[int, int]
    everything: bool = False


def memory_request(text: str, *, shown: Spans) -> MemoryRequest | None:
    """The first request about memories in folded `text` that is not in one of the `shown` ranges."""
    if not mentions(text, _WORDS):
        return None
    found = (_recall(text, shown), _remember(text, shown), _forget(text, shown))
    # At the same place a question ("do you remember") is one, whatever else it could be read as.
    return min((request for request in found if request), key=lambda request: request.start, default=None)


def _recall(text: str, shown: Spans) -> MemoryRequest | None:
    for match in _RECALL.finditer(text):
        if not shown.cover(match.end() - 1, match.end()):
            end = _sentence_end(text, match.end())
            return MemoryRequest("recall", _start(match), end, (match.end(), end))
    return None


def _remember(text: str, shown: Spans) -> MemoryRequest | None:
    for match in _REMEMBER.finditer(text):
        if not shown.cover(match.start(), match.end()):
            end = len(text) if match["colon"] else _sentence_end(text, match.end())
            return MemoryRequest("remember", _start(match), end, (match.end(), end))
    return None


def _forget(text: str, shown: Spans) -> MemoryRequest | None:
    asked = 0  # up to here the text is a question: each sentence is looked through once
    for match in _FORGET.finditer(text):
        if match.start() < asked or shown.cover(match.start(), match.end()):
            continue
        about = match.span("object") if match["object"] else (match.end(), _sentence_end(text, match.end()))
        end = max(match.end(), about[1])
        if _ASKS.search(text, about[0], min(end + 1, len(text))):
            asked = end
            continue
        named = text[slice(*about)].strip(" .!?,")
        everything = _EVERYTHING.match(named) is not None or (not named and bool(match["memories"] or match["all"]))
        return MemoryRequest("forget", _start(match), end, about, everything)
    return None


def _start(match: re.Match[str]) -> int:
    return match.end() - len(match[0].lstrip())


def _sentence_end(text: str, start: int) -> int:
    match = _SENTENCE_END.search(text, start)
    return match.start() if match else len(text)
