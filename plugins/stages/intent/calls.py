"""Explicit calls in a message and their refusal: a verb and the name of a tool or service ("use git_log", "用 git").

Every expression here runs anchored or over a bounded window, so the whole takes linear time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.plugin.text import FoldedText, Hit, Spans, is_refused, mentions

from .names import NameIndex, NameMeaning

#: Further calls are not looked at: each costs a look at what negates it.
CALLS_LIMIT = 100

_VERB = re.compile(
    r"(?<![a-z0-9_])(?P<english>make use of|making use of|use|using|call|calling|invoke|invoking|run|running"
    r"|execute|executing|ask|asking|with|via)(?![a-z0-9_])"
    r"|使用|调用|調用|运行|運行|执行|執行|通过|通過|透过|透過|让|讓"
    # Nouns and adjectives that end in 用: 费用, 作用, 常用, 适用...
    r"|(?<![费費作信常实實适適专專通公商家食引应應滥濫雇租])用"
)
#: What may stand between the verb and the name, one piece at a time, and how many pieces.
_FILLER = re.compile(
    r"\s{1,8}|[:\"'“”‘’「」『』《》【】\[\]()<>`*#]{1,3}"
    r"|(?:the|an?|my|your|our|this|that|its|mcp|tools?|services?|servers?|functions?|plugins?|called|named|please|both"
    r"|either)(?![a-z0-9_])"
    r"|一下|下|这个|這個|那个|那個|一个|一個|名为|名為|名叫|叫做|叫|你的|我的|我们的|工具|服务|服務|函数|插件"
)
_FILLERS = 14
_AFTER_NAME = r"[\"'”’」』》】\])>`*]{0,3}\s{0,3}"
_SUFFIX = (
    r"(?:(?P<tool>工具(?![箱包类類书書栏欄])|tools?(?![a-z0-9_]))"
    r"|(?P<service>服务(?![器员商业端费区生])|服務(?![器員商業端費區生])|(?:service|server)s?(?![a-z0-9_])))"
)
_SUFFIX_WORDS = ("工具", "服务", "服務", "tool", "service", "server")
_NAMED_AS = re.compile(_AFTER_NAME + _SUFFIX)
#: What stands between two names of one verb: "use git_log and get_weather", "用 git_log 和 get_weather".
_ALSO = re.compile(
    rf"{_AFTER_NAME}(?:{_SUFFIX})?\s{{0,3}}(?:[,、;]\s{{0,3}}(?:and(?![a-z0-9_])|和|以及|还有|還有)?"
    r"|(?:and|or|plus)(?![a-z0-9_])|&|\+|和|与|與|及|以及|还有|還有|并|並)"
)
#: The next step, in the same sentence: "use get_weather for Bonn, then get_forecast", "用 git_log, 然后 git_diff".
_THEN = re.compile(
    r"[^.!?。！？\n]{0,120}?(?:(?<![a-z0-9_])(?:then|afterwards|after that|followed by)(?![a-z0-9_])"
    r"|然后|然後|接着|接著|随后|隨後|之后再|之後再)\s{0,3}"
)
#: "before ...", behind the name: the call is a condition, not a request. 前 3 条 is "the first 3".
_PUT_OFF = re.compile(
    rf"{_AFTER_NAME}(?:{_SUFFIX})?\s{{0,2}}[之以]?前(?![端面台后後]|\s?[0-9一二三四五六七八九十几幾两兩])"
)
_LONGER_NAME = re.compile(r"[.-][a-z0-9_]")
_UNKNOWN = re.compile(rf"(?P<name>[a-z](?:[a-z0-9_.-]{{0,62}}[a-z0-9_])?)(?![a-z0-9_-]){_AFTER_NAME}{_SUFFIX}")
_IDENTIFIER = re.compile(r"[_.\d]|.[A-Z]")
#: Verbs with which an ordinary word before "tool" or "service" may be a name: "ask room service" names nothing.
_CALLING = frozenset(
    ("use", "using", "call", "calling", "invoke", "invoking", "run", "running", "execute", "executing")
)
#: Words before "tool" or "service" that describe one instead of naming it.
_DESCRIBING = re.compile(
    r"(?:an?|the|some|any|this|that|these|those|my|your|our|their|his|her|its|no|one|another|other|each|every|all|what"
    r"|which|whatever|right|best|good|better|great|proper|new|old|same|correct|appropriate|available|suitable|different"
    r"|relevant|necessary|useful|favou?rite|single|special|specific|certain|given|following|external|internal|existing"
    r"|own|mcp|ai|it|api|app|cli|ide|sdk|web|online|free|simple|public|customer|room|secret|self|cloud|power|hand|tools?"
    r"|services?|of|in|on|for|to|as|with|me|him|us|them|and|or|more|many|multiple|several|two|both|either|such|powerful"
    r"|popular|modern|open|office|command-line|third-party|built-?in|open-source)\Z"
)


@dataclass(frozen=True, slots=True)
class CallMention:
    """One call or its refusal (`refused`), from the verb to the end of the name, in folded text.

    `named`: the possible meanings of the word, in the configured order. If it is empty, the name is unknown and `name`
    is the word as written. `kind` is the word behind the name, if there is one.
    """

    start: int
    end: int
    name: str
    named: tuple[NameMeaning, ...]
    kind: Literal["tool", "service"] | None
    refused: bool


def find_calls(
    message: str, folded: FoldedText, index: NameIndex, hits: Sequence[Hit], *, shown: Spans
) -> Iterator[CallMention]:
    """Yield at most CALLS_LIMIT calls, in the order of their verbs. Text that is only `shown` has none.

    `hits`: the phrases of `index` in the folded `message`.
    """
    starting: dict[int, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: -hit.end):
        if hit.phrase in index.called:
            starting.setdefault(hit.start, []).append(hit)
    if not starting and not mentions(folded.text, _SUFFIX_WORDS):
        return
    found = 0
    for verb in _VERB.finditer(folded.text):
        if found < CALLS_LIMIT and not shown.cover(verb.start(), verb.start() + 1):
            call = _call(verb, verb.end(), message, folded, index, starting)
            while call is not None and found < CALLS_LIMIT:
                found += 1
                yield call
                call = _find_next_call(verb, call, message, folded, index, starting)


def _call(
    verb: re.Match[str],
    at: int,
    message: str,
    folded: FoldedText,
    index: NameIndex,
    starting: Mapping[int, Sequence[Hit]],
) -> CallMention | None:
    """Return the call of the name at `at`, behind the verb or behind another name."""
    for _ in range(_FILLERS):
        for hit in starting.get(at, ()):
            known = _find_known_call(verb, hit, folded.text, index)
            if known is not None:
                return known
        unknown = _find_unknown(verb, at, message, folded)
        if unknown is not None:
            return unknown
        filler = _FILLER.match(folded.text, at)
        if filler is None:
            return None
        at = filler.end()
    return None


def _find_next_call(
    verb: re.Match[str],
    call: CallMention,
    message: str,
    folded: FoldedText,
    index: NameIndex,
    starting: Mapping[int, Sequence[Hit]],
) -> CallMention | None:
    """Return the next name of the same verb, beside or behind the last one.

    An ordinary word is a name only with "tool" or "service" behind it.
    """
    for joined in (pattern.match(folded.text, call.end) for pattern in (_ALSO, _THEN)):
        if joined is None or _begins_call(folded.text, joined):
            continue
        found = _call(verb, joined.end(), message, folded, index, starting)
        if found is not None and (found.kind or _IDENTIFIER.search(found.name)):
            return found
    return None


def _begins_call(text: str, joined: re.Match[str]) -> bool:
    """Return whether a further verb stands between two names: it begins a call, or refuses one."""
    verbs = _VERB.finditer(text, joined.start(), joined.end())
    return _VERB.match(text, joined.end()) is not None or any(verb[0] not in ("with", "via") for verb in verbs)


def _find_known_call(verb: re.Match[str], hit: Hit, text: str, index: NameIndex) -> CallMention | None:
    if _LONGER_NAME.match(text, hit.end):
        return None
    suffix = _NAMED_AS.match(text, hit.end)
    refused = is_refused(text, verb.start()) or _PUT_OFF.match(text, hit.end) is not None
    named = tuple(named for named in index.called[hit.phrase] if suffix or refused or not named.weak)
    if not named:
        return None
    return CallMention(verb.start(), hit.end, hit.phrase, named, _choose_kind(suffix), refused)


def _find_unknown(verb: re.Match[str], at: int, message: str, folded: FoldedText) -> CallMention | None:
    text = folded.text
    match = _UNKNOWN.match(text, at)
    if match is None or _DESCRIBING.match(match["name"]):
        return None
    start, end = folded.find_original_span(*match.span("name"))
    written = message[start:end]
    quoted = text[at - 1] in "\"'“‘「『`" and text[match.end("name") : match.end("name") + 1] in "\"'”’」』`"
    if not quoted and not _IDENTIFIER.search(written) and not _is_plain_name(verb, match):
        return None
    refused = is_refused(text, verb.start()) or _PUT_OFF.match(text, match.end("name")) is not None
    return CallMention(verb.start(), match.end("name"), written, (), _choose_kind(match), refused)


def _is_plain_name(verb: re.Match[str], match: re.Match[str]) -> bool:
    """Return whether an ordinary word is meant as a name: a foreign word in Chinese, or "use the fax tool"."""
    suffix = match["tool"] or match["service"]
    if not suffix.isascii():
        return True
    return verb[0] in _CALLING and suffix == "tool" and "-" not in match["name"]


def _choose_kind(match: re.Match[str] | None) -> Literal["tool", "service"] | None:
    if match is None:
        return None
    return "tool" if match["tool"] else "service"
