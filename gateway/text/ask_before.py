"""The recogniser of requests for approval before each action: "ask me before you ...", 先问我, 执行前先确认.

Every expression is bounded in length, so the whole takes linear time.
"""

import re

from gateway.text.negation import is_refused
from gateway.text.phrases import Spans, mentions

_ENGLISH = (
    r"(?<![a-z0-9_])(?:"
    r"ask (?:for )?(?:me|us|my)(?![a-z0-9_])[^.!?\n]{0,60}?(?<![a-z0-9_])(?:before|first|permission|approval|confirm)"
    r"|tell me (?:first|before you)(?![a-z0-9_])|ask (?:first|before)(?![a-z0-9_])"
    r"|(?:check|confirm|verify|consult|clear) (?:it |this |that |everything |each step )?with me(?![a-z0-9_])"
    r"|(?:get|wait for|request|require|obtain|seek|need) my (?:explicit |prior |express )?"
    r"(?:approval|permission|confirmation|consent|ok|okay|go-ahead)(?![a-z0-9_])"
    r"|(?:don't|do not|never|nothing|not)(?![a-z0-9_])[^.!?\n]{0,60}?(?<![a-z0-9_])without "
    r"(?:asking|checking with|consulting|confirming with|my (?:approval|permission|confirmation|consent|ok))"
    r"|let me (?:approve|confirm|review)(?![a-z0-9_])|i (?:want|need|would like) to (?:approve|confirm)(?![a-z0-9_])"
    r"|before [^.!?\n]{1,60}?(?<![a-z0-9_])(?:ask|check with|confirm with|tell) me(?![a-z0-9_]))"
)
_FIRST = r"(?:你|请|請|都|一定|务必|必须|要|需要?|得|应该?|先|再|也|记得|每次)"
_CONSENT = r"(?:确认|確認|同意|批准|许可|許可|允许|允許|审批|授权|授權)"
_CHINESE = (
    r"(?:先|事先|提前)(?:来|來|去|得|要)?(?:问|問|询问|詢問|请示|請示|征求|徵求|征得|通知|告诉|告訴)(?:一下|过|過|一声)?我"
    r"|(?:先|事先|提前)(?:跟|和|与|與|向|同|找|让|讓|由|经过?|經過?|得到|取得|获得|獲得|等)我的?"
    rf"(?:{_CONSENT}|商量|请示|核实|打招呼|沟通|点头)"
    r"|(?:执行|執行|运行|運行|操作|调用|調用|使用|修改|删除|刪除|动手|動手|写入|提交|行动|做)[^,.!?\n。]{0,12}?[之以]?前,?\s?"
    rf"{_FIRST}{{1,5}}(?:确认|確認|问|問|询问|请示)"
    rf"|前,?\s?{_FIRST}{{0,5}}(?:问一?下?我|问过我|問我|[跟和向](?:我)(?:确认|確認|说|请示)|征[求得]我|经过?我|得到我的?{_CONSENT}"
    r"|让我(?:确认|批准))"
    rf"|需要?(?:经过|經過|得到|征得|等)?我的?{_CONSENT}"
    rf"|(?:未经|未經|没有|沒有)我的?{_CONSENT}"
    rf"|(?:等|经过?|經過?|得到)我的?{_CONSENT}(?:后|後|之后|以后|了|再|才)"
    r"|(?:每次|每一步|每步|凡事|任何操作|所有操作)(?:操作|执行|调用)?(?:都|要|得|必须|需要?|请|先|也){0,4}"
    r"(?:问我|問我|问过我|[跟和向]我确认|经过我)"
    r"|(?:别|別|不要|不得|不能|勿)(?:擅自|自作主张|自作主張)"
)
_ASK_BEFORE = re.compile(f"{_ENGLISH}|{_CHINESE}")
_WITHOUT = ("未经", "未經", "没有", "沒有")
_PERMITTED = re.compile(
    r"(?:(?<!不)可以?|(?<!不)允许|(?<!不)允許|(?<!不)能够?|(?<!不)准许?)(?:\s|在|去|直接|就|也|您|你|我){0,6}\Z"
)
#: Every phrase for it has one of these; most texts have none, and looking for them takes a hundredth of the time.
_HINTS = (
    "ask",
    "with me",
    "my ",
    "without ",
    "let me ",
    "tell me ",
    " to approve",
    " to confirm",
    "我",
    "前",
    "擅自",
    "自作",
)


def _is_permitted(text: str, start: int) -> bool:
    return _PERMITTED.search(text, max(0, start - 16), start) is not None


def find_ask_request(text: str, *, shown: Spans) -> tuple[int, int] | None:
    """Return the range of such a request in folded `text`, outside the `shown` ranges.

    None: there is none, or the text means the opposite.
    """
    if not mentions(text, _HINTS):
        return None
    for match in _ASK_BEFORE.finditer(text):
        # "Not without my consent" is the wish itself, "you may without" its opposite.
        is_off = _is_permitted if match[0].startswith(_WITHOUT) else is_refused
        if not is_off(text, match.start()) and not shown.cover(*match.span()):
            return match.span()
    return None
