"""The words by which a memory is found: what a sentence is about, in any language. Linear time, no I/O.

They are kept beside each memory. A change of what `words_of` returns needs a migration that sets the column `words` of
the table `memories` to NULL: the next start fills it again.
"""

import re

from gateway.text.phrases import fold

#: Of a memory, and of a message, this much is compared.
COMPARED_CHARS = 500

_CJK = "\u3041-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_WORD = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
#: Words that do not show the subject of a sentence.
_EMPTY_WORD = re.compile(
    r"(?:an?|the|is|are|am|was|were|be|been|i|me|my|mine|your?|yours|its?|this|that|these|those|to|of|in|on|at|by|for|and"
    r"|or|about|what|who|do|does|did|not|with|as|have|has|had|will|would|can|could|should|please|[我你的了是]|我的|你的)\Z"
)


def extract_keywords(text: str) -> frozenset[str]:
    """Return the words of `text` that carry meaning, without a plural's s; of CJK, each pair of characters."""
    found: set[str] = set()
    for match in _WORD.finditer(fold(text[:COMPARED_CHARS]).text):
        word = match[0]
        if "\u3041" <= word[0] <= "\ud7a3" and len(word) > 1:
            found.update(word[i : i + 2] for i in range(len(word) - 1))
        else:
            found.add(word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word)
    return frozenset(word for word in found if not _EMPTY_WORD.match(word))
