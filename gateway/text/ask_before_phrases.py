"""The test whether a user withdraws the wish to approve each call: "you need not ask me first", 不用再问我了.

It loosens something, so it is strict: a short message, no question, no condition, outside of quotations and code.
"""

import re
from typing import Final

from gateway.text.negation import is_refused
from gateway.text.phrases import Spans

#: A longer message is about something else, too, or is a document.
UNASK_CHARS: Final = 300

_ANY = (
    r"before (?:you (?:do|run|execute|call) (?:it|anything|something|tools?)"
    r"|(?:doing|running|calling) (?:it|anything|something|tools?)|(?:each|every) (?:call|step|time)|anything|calls?)"
)
_AFTER = (
    rf"(?:\s+(?:first|{_ANY}|any ?more|again|(?:each|every) time|for (?:my )?(?:approval|permission|confirmation)"
    r"|from now on|now|please)){0,3}\s*(?=[.,!;:\n]|\Z)"
)
_ENGLISH = (
    r"(?<![a-z0-9_])(?:"
    r"(?:(?:do not|don't|dont)(?: have to| need to)?|need not|needn't|no (?:longer )?need to"
    rf"|no longer (?:have|need) to) ask me{_AFTER}|stop asking me{_AFTER}"
    rf"|without asking(?: me)? (?:again|any ?more|from now on)\s*(?=[.,!;:\n]|\Z))"
)
_CHINESE = (
    r"(?:不用|不必|不需要?|无需|無需|无须|没必要|沒必要|不要|别|別|甭)(?:再|每次|都|先|事先|老是|总是|總是|一直|来|來){0,4}"
    r"(?:(?:问|問|询问|詢問|请示|請示|通知)我|(?:征求|徵求|征得|经过|經過|等|得到)我的?(?:同意|批准|确认|確認|许可|許可|意见))"
    r"(?:了|一声|一下|意见|同意)?\s*(?=[,.!;:，。！；：\n]|\Z)"
)
_QUOTES = frozenset("\"'`>“‘「『")
_UNASK = re.compile(f"{_ENGLISH}|{_CHINESE}")
_CONDITION = re.compile(
    r"(?<![a-z0-9_])(?:unless|except|only|but|if|when|until|however|though)(?![a-z0-9_])"
    r"|(?<![a-z0-9_])for (?!(?:my )?(?:approval|permission|confirmation))"
    r"|[前时時候](?=[,，]?\s?(?:就|也|都)?(?:不|无|無|没|沒|别|別|甭))|除非|除了|但|如果|只要|只有|之外|以外|[?？吗嗎]"
)


def is_ask_cancellation(text: str, *, shown: Spans) -> bool:
    """Return whether folded `text` outside `shown` withdraws the wish to approve each call."""
    if len(text) > UNASK_CHARS or not ("ask" in text or "我" in text):
        return False
    if text.lstrip()[:1] in _QUOTES or _CONDITION.search(text):
        return False
    found = _UNASK.finditer(text)
    return any(not is_refused(text, match.start()) and not shown.cover(*match.span()) for match in found)
