"""Requests about what the gateway remembers: "remember ...", "what do you remember", "forget ...", 记住, 忘记.

"Remember to use tabs in this file" is not such a request: `gateway.text.durable_memory_check`.

Every expression begins where a sentence does and is bounded in length, so the whole takes linear time.
"""

import re
from dataclasses import dataclass
from typing import Literal

from gateway.text.durable_memory_check import is_lasting
from gateway.text.phrases import Spans, mentions

_BEGIN = r"(?:\A|(?<=[.!?;,:\n。、]))\s{0,8}+"
_POLITE = (
    r"(?:(?:please|pls|hey|hi|hello|ok|okay|also|and|so|now|then|can you|could you|would you|will you|i want you to"
    r"|i'd like you to|i need you to|you should|you must|make sure you|make sure to|always|just)(?![a-z0-9_])"
    r"[\s,]{0,6}+"
    r"|(?:请|請|麻烦|麻煩|帮我|幫我|替我|给我|給我|我要你|我想让你|我希望你|你|您|先|好好|一定|务必|那|就|好的|嗯|另外|还有"
    r"|以后|也|都|必须|要|能不能|可以|能)[\s,]{0,3}+){0,6}"
)
_REMEMBER = re.compile(
    _BEGIN
    + _POLITE
    + r"(?:(?:(?P<plain>remember|memori[sz]e)|keep in mind|bear in mind|take note|note down|make a note"
    r"|(?:do not|don't|dont|never) forget)(?![a-z0-9_])"
    r"(?P<this>\s{1,3}(?:this|the following)(?=\s{0,3}(?:[:,.!]|\Z)))?"
    r"(?P<that>\s{1,3}(?:that|of)(?![a-z0-9_]))?"
    r"|(?:(?P<noted>记住|記住|牢记|牢記|记一下|記一下|记下来?|記下來?)"
    r"|记得|記得|别忘了|别忘记|別忘了|別忘記|不要忘记|不要忘了|不要忘記)"
    r"(?P<these>(?:这个|這個|这点|这一点|这件事|以下内容)(?=\s{0,3}(?:[:,.!。]|\Z)))?(?:一下|了)?)\s{0,3}(?P<colon>:)?[\s,]{0,8}"
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
    r"|stop remembering(?![a-z0-9_])(?:\s{1,3}that(?![a-z0-9_]))?[\s:,]{0,8}"
    r"|(?:delete|remove|clear|erase|wipe)\s{1,3}(?:(?:all|of|your|the|my|this|that|these)\s{1,3}){0,3}"
    r"(?P<memories>memor(?:y|ies))(?:\s{1,3}(?:of|about|that)(?![a-z0-9_])){0,2}[\s:,]{0,8}"
    r"|(?:delete|remove|clear|erase|wipe)\s{1,3}(?=(?:everything|all|anything|whatever|what)(?: that)? you"
    r"(?: still| have|'ve)? (?:know|remember|remembered|learned|learnt|memori[sz]ed?|stored|saved) (?:about|of) )"
    r"|(?:删除|刪除|删掉|刪掉|清除|忘掉)(?:你)?的?(?:所有|全部)?的?(?=(?:关于|關於|有关|有關)[^,.!?\n。、]{1,100}(?:记忆|記憶))"
    r"|(?:把|将|將)(?P<object>[^,.!?\n。、]{1,100}?(?:记忆|記憶))(?:都|全部?){0,2}(?:删了|删掉|删除|刪除|刪掉|清除|清掉)"
    r"|(?:把|将|將)(?P<other>[^,.!?\n。、]{1,100})(?:忘了|忘掉|忘记|忘記)"
    r"|(?:清除|清空|删除|刪除)(?:你)?的?(?:所有|全部)?的?(?P<all>记忆|記憶)"
    r"|(?:忘记|忘掉|忘記|(?<=[请請你])忘了|遗忘)(?:一下|掉)?[\s:,]{0,8})"
)
_EVERYTHING = re.compile(
    r"\s{0,3}(?:what(?:ever)? (?:that )?you (?:still )?(?:know|remember|have) (?:about|of) (?:me|us)"
    r"|(?:everything|all|all of (?:it|that|them)|anything|所有|一切|全部|所有事情?|所有的?(?:一切|记忆|内容)?)"
    r"(?:\s{1,3}(?:you|i|about|know|remember|told|said|me|that|have|ever)(?![a-z0-9_])){0,8})\s{0,3}\Z"
)
#: "what you know about my dog" means all that is known of it.
_ALL_ABOUT = re.compile(
    r"\s{0,3}(?:(?:everything|anything|all|whatever|what)(?: that)?"
    r"(?: (?:you|i|we)(?: still| have|'ve)? (?:know|knew|remember|remembered|learned|learnt|heard|said|told you"
    r"|memori[sz]ed?|stored|saved|noted))? (?:about|of|on|regarding)(?![a-z0-9_])\s{0,3}"
    r"|(?:你|您)?所?(?:知道|记得|記得|记住|記住|了解)?的?(?:所有|一切|全部)?的?(?:关于|關於|有关|有關))"
)
_OF_IT = re.compile(
    r"的?(?:所有|一切|全部)?的?(?:事情?|信息|資訊|记忆|記憶|内容|內容|东西|東西|一切|所有)(?:都|全部|吧|了){0,3}\s{0,3}\Z"
)
_ONESELF = ("me", "us", "myself", "ourselves", "我", "我们", "我們", "本人")
#: Whatever the expressions above match has one of these in it.
_WORDS = (
    *("remember", "memor", "recall", "forget", "unlearn", "in mind", "know about"),
    *("know of", "learned about", "learned of", "learnt about", "learnt of", "stored about", "saved about"),
    *("take note", "note down", "make a note"),
    *("记", "記", "忘", "知道我", "了解我"),
)
#: What is to be remembered is judged by its beginning.
_JUDGED_CHARS = 1000
#: "Could you forget my name?" requests it.
_WISH = re.compile(r"(?:can|could|would|will) you|能|可以")
#: What makes "忘记密码怎么办" a question about something else.
_ASKS = re.compile(r"怎么|怎麼|如何|怎样|怎樣|咋|为什么|為什麼|吗|嗎|\?")
#: A sentence ends at a full stop with a space behind it, but not at the one of "Dr." or "e.g."
_SENTENCE_END = re.compile(
    r"(?<!\bdr)(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bst)(?<!\bprof)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|\Z)|[。\n]"
)


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A request about memories: `start:end` of the folded text is the request, `about` what it is about.

    An empty `about` of a `forget` means all memories if `everything`, else nothing that was named. `every`: not only
    the one memory that is most like what was named.
    """

    action: Literal["remember", "recall", "forget"]
    start: int
    end: int
    about: tuple[int, int]
    everything: bool = False
    every: bool = False


def find_memory_request(text: str, *, shown: Spans) -> MemoryRequest | None:
    """Return the first request about memories in folded `text` that is not in one of the `shown` ranges."""
    if not mentions(text, _WORDS):
        return None
    found = (_find_recall(text, shown), _find_remember(text, shown), _find_forget(text, shown))
    # At the same place a question ("do you remember") is one, whatever else it could be read as.
    return min((request for request in found if request), key=lambda request: request.start, default=None)


def _find_recall(text: str, shown: Spans) -> MemoryRequest | None:
    """Return the first request to list memories outside the `shown` ranges; None: there is none."""
    for match in _RECALL.finditer(text):
        if not shown.cover(match.end() - 1, match.end()):
            end = _find_sentence_end(text, match.end())
            return MemoryRequest("recall", _get_start(match), end, (match.end(), end))
    return None


def _find_remember(text: str, shown: Spans) -> MemoryRequest | None:
    """Return the first request to remember a lasting fact outside `shown`; None: there is none."""
    for match in _REMEMBER.finditer(text):
        if shown.cover(match.start(), match.end()):
            continue
        end = len(text) if match["colon"] else _find_sentence_end(text, match.end())
        explicit = bool(match["colon"] or match["this"] or match["these"] or (match["plain"] and match["that"]))
        said = text[match.end() : min(end, match.end() + _JUDGED_CHARS)]
        if is_lasting(said, explicit=explicit or bool(match["noted"])):
            return MemoryRequest("remember", _get_start(match), end, (match.end(), end))
    return None


def _find_forget(text: str, shown: Spans) -> MemoryRequest | None:
    """Return the first request to forget memories outside the `shown` ranges; None: there is none."""
    asked = 0  # up to here the text is a question: each sentence is looked through once
    for match in _FORGET.finditer(text):
        if match.start() < asked or shown.cover(match.start(), match.end()):
            continue
        thing = "object" if match["object"] else "other" if match["other"] else None
        start, end = match.span(thing) if thing else (match.end(), _find_sentence_end(text, match.end()))
        last = max(match.end(), end)
        if not _WISH.search(match[0]) and _ASKS.search(text, start, min(last + 1, len(text))):
            asked = last
            continue
        named = text[start:end].strip(" .!?,")
        everything = _EVERYTHING.match(named) is not None or (not named and bool(match["memories"] or match["all"]))
        about = _ALL_ABOUT.match(text, start, end)
        if about is not None and not everything:
            of_it = _OF_IT.search(text, about.end(), end)
            start, end = about.end(), of_it.start() if of_it else end
            everything = text[start:end].strip(" .!?,") in _ONESELF
        return MemoryRequest("forget", _get_start(match), last, (start, end), everything, every=about is not None)
    return None


def _get_start(match: re.Match[str]) -> int:
    return match.end() - len(match[0].lstrip())


def _find_sentence_end(text: str, start: int) -> int:
    match = _SENTENCE_END.search(text, start)
    return match.start() if match else len(text)
