"""The test whether words before a verb make it its opposite ("don't use", "不要用") or a condition ("before using")."""

import re

#: How far back is looked: no chain of these words is longer.
_WINDOW = 64

#: Questions that contain a negation are requests: "why don't you use", "can't you use", 能不能用, 要不要用.
_ENGLISH = re.compile(
    r"(?<![a-z0-9_'])(?:(?<!why )(?:do not|don't|dont|not)|(?:can't|cant|won't|wouldn't)(?! you)|cannot|doesn't|didn't"
    r"|does not|did not|never|shouldn't|mustn't|needn't|no need|no longer|without|avoid|stop|refrain from|instead of"
    r"|rather than|forbidden|prohibited|nor|neither|before)"
    r"(?:\s{1,3}(?:you|me|us|it|we|i|to|ever|even|just|simply|actually|really|please|again|directly|automatically|try"
    r"|trying|attempt|attempting|want|wants?|need|have|like|let|allow|allowed|think|should|would|could|can|must|be"
    r"|bother|going|dare|make|making|do|doing|use|using|call|calling|run|running|execute|executing|invoke|invoking|or"
    r"|the|any|anything|for|now|this|time)){0,8}\s{0,3}\Z"
)
_CHINESE = re.compile(
    r"(?:(?<!要)不要|(?<!用)不用|(?<!需)不需|(?<!必)不必|不准|不许|不許|(?<!可以)(?<!可)不可以?|(?<!能)不能|(?<!应)不应该?"
    r"|(?<!该)不该|(?<!想)不想|(?<!希)不希望|(?<!打)不打算|(?<!愿)不愿意?|不允许|不建议|不再|不得|(?<!会)不会|(?<!是)不是"
    r"|(?<![特分区區识識级級类類性个個鉴鑑差判各])别|(?<![特分識級類性個])別|勿|甭|休想|禁止|严禁|嚴禁|避免|拒绝|拒絕|停止"
    r"|无需|無需|无须|無須|毋须|毋需|(?<!有)没|(?<!有)沒|未|而非|并非|(?<![要何得差能用需必可想希愿会是应该])不|禁|停|弃|棄)"
    r"(?:\s|再|又|去|来|來|你|您|我|它|给|給|直接|自动|自動|随便|擅自|私自|主动|主動|尝试|嘗試|试图|试着|继续|繼續|任何|是|让|讓|先|必|需"
    r"|要|得|可以|随意|轻易|老是|总是|一直|为|帮|有|想|能|该|使用|调用|調用|运行|執行|执行|或者?|和|以及|与|、|使|利|采|选|启|去|在"
    r"|用){0,8}\Z"
)


def is_refused(text: str, start: int) -> bool:
    """Return whether the verb at `start` of folded `text` is negated, or put off by "before"."""
    before = text[max(0, start - _WINDOW) : start]
    return _ENGLISH.search(before) is not None or _CHINESE.search(before) is not None
