"""Texts that announce the call behind them as an example: the model shows a call and requests none.

Only the sentence right before the call counts, in the languages that most requests use. A wrong announcement costs a
question. So the patterns are announcements ("for example", "would look like") and not each mention of a sample: "I read
the example file" announces nothing.
"""

import re

from gateway.agent.output import reasoning_tags

#: So much of the text before a call is looked at; a longer sentence announces nothing at its beginning.
SENTENCE_CHARS = 400

#: Text between a sentence and the call that it announces.
_MARKUP = " \t\r\n`~*_>#\"'“”„«»([{-"
_SENTENCE_END = re.compile(
    r"(?<!\be)(?<!\be\.g)(?<!\bz)(?<!\bz\. B)(?<!\bz\.B)(?<!\bp)(?<!\bej)(?:[.!?…][\"')\]*_”»]*\s+|[。！？]|\n\s*\n)",
    re.IGNORECASE,
)
#: Nouns behind "example" that are read and written like others: "an example file" is a file.
_THINGS = (
    r"(?!\s+(?:file|folder|director|config|project|data|table|page|site|web|domain|url|link|script|repo|image|document|"
    r"text|program|code|module|package|app|server|service|test|user|entr|record|row|note|input|output|value|section|"
    r"template))(?![\w-]*[./\\_]\w)"
)
_CHINESE_THINGS = r"(?!文件|文档|目录|项目|配置|数据|代码|图片|页面|网站|程序|表|檔案|資料|目錄)"
_ENGLISH = rf"""
    \b(?:an?|one|another|following|simple|quick|short|minimal|typical|concrete|small|hypothetical|possible)
      \ (?:[\w-]+\ ){{0,2}}?(?:example|sample|illustration)s?\b{_THINGS}
    | \bfor\ (?:example|instance|illustration)\b | \bby\ way\ of\ (?:example|illustration)\b | \bto\ illustrate\b
    | \be\.\ ?g\b
    | ^\W*examples?(?:\ \d+)?\b\W*$ | ^\W*examples?\b[^.\n]{{0,60}}[:：]\W*$
    | \b(?:example|sample|hypothetical)\ (?:(?:tool|function|api|of|an?|the|json)\ ){{0,4}}
      (?:calls?|usage|invocation|request|syntax)\b
    | \b(?:would|could|might|should|may|can|will)\ (?:\w+\ )?look\ (?:\w+\ ){{0,3}}(?:like|as\ follows)\b
    | \blooks?\ (?:\w+\ ){{0,2}}(?:like\ (?:this|so|that|the\ following)|as\ follows)\b
    | \b(?:call|calls|request|json|syntax|format)\b[^.\n]{{0,30}}\bwould\ be\b | \bhypothetical(?:ly)?\b
    | \b(?:call|invoke|use|write|format)(?:ed)?\ (?:it|them|one|that|(?:the|a|this)\ (?:[\w-]+\ ){{0,2}}\w+)
      \ like\ (?:this|so)\b
    | \bif\ (?:i|you|one|we)\ (?:were|wanted|had)\ to\b
"""
_CHINESE_JAPANESE_KOREAN = rf"""
    | (?:示例|范例|例子|样例|範例|樣例|示范){_CHINESE_THINGS}
    | 例如 | 举例 | 舉例 | 比如 | 譬如 | (?<![案比事])例[:：] | 像这样 | 像這樣
    | 看起来(?:会|就)?[像是] | 看起來(?:會|就)?[像是] | 大致如下 | 大概是这样
    | 例えば | たとえば | 例として | 例を(?:示|挙) | 例は | 次のようになり | 以下のようになり | のような(?:呼び出し|形)
    | 예를\ ?들 | 예시 | 예제(?!\ ?파일) | 다음과\ 같(?:이\ 보|은\ 형식)
"""
_EUROPEAN = r"""
    | \bzum\ beispiel\b | \bbeispielsweise\b | \b(?:ein|als|folgendes)\ beispiel\b
    | ^\W*beispiel\b[^.\n]{0,40}[:：]?\W*$ | \bbeispielaufruf
    | \bz\.\ ?b\b | \b(?:sieht|s[äa]he|w[üu]rde)\b.{0,40}\b(?:so|wie\ folgt|folgenderma(?:ß|ss)en)\ .{0,12}aus
    | \bpar\ exemple\b | \b(?:un|en|comme)\ exemple\b | ^\W*exemple\b[^.\n]{0,40}[:：]?\W*$ | \bressemblerait\b
    | \bressemble\ à\ (?:ceci|cela|ça)
    | \bpor\ ejemplo\b | \b(?:un|como)\ ejemplo\b | ^\W*ejemplo\b[^.\n]{0,40}[:：]?\W*$ | \bp\.\ ?ej\b
    | \bse\ ver[íi]a\ as[íi]
    | \bpor\ exemplo\b | \b(?:um|como)\ exemplo\b | ^\W*exemplo\b[^.\n]{0,40}[:：]?\W*$ | \b(?:ficaria|seria)\ assim
    | \b(?:per|ad)\ esempio\b | \b(?:un|come)\ esempio\b | ^\W*esempio\b[^.\n]{0,40}[:：]?\W*$ | \bsarebbe\ cos[ìi]
    | \bbijvoorbeeld\b | \been\ voorbeeld\b | \btill\ exempel\b | \bett\ exempel\b | \bfor\ eksempel\b
    | \bet\ eksempel\b
    | \bna\ przykład | \bprzykład\b\W*$ | \börne[kğ]in?\b | \bmesela\b | \bmisalnya\b | \bsebagai\ contoh
    | \bcontoh(?:nya)?\b\W*$ | \bví\ dụ
    | \bнапример\b | \bк\ примеру\b | \bпример(?:ом)?\b[^.\n]{0,40}[:：]?\W*$ | \b(?:бы|будет|может)\ выглядеть
    | \bвыглядит\ так | \bнаприклад
    | مثال | उदाहरण | לדוגמ[הא] | ตัวอย่าง | παράδειγμα
"""
_ANNOUNCEMENT = re.compile(_ENGLISH + _CHINESE_JAPANESE_KOREAN + _EUROPEAN, re.IGNORECASE | re.VERBOSE)


def announces_example(before: str) -> bool:
    """Return whether the last sentence of the text before a call announces an example.

    That text excludes thought.
    """
    text = reasoning_tags.END.split(before[-SENTENCE_CHARS:])[-1]
    return _ANNOUNCEMENT.search(_find_last_sentence(text)) is not None


def _find_last_sentence(text: str) -> str:
    """Return the last sentence of a text, without the markup behind it."""
    text = text.rstrip(_MARKUP)
    begin = 0
    for end in _SENTENCE_END.finditer(text):
        begin = end.end() if end.end() < len(text) else begin
    return " ".join(text[begin:].split())
