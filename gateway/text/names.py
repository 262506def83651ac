"""Names that people read in lists and decide by: each shows what it is, and looks like no other one.

The rule for keys, tenants and services (UTS 39, sections 4 and 5, made simpler). Names of upstreams, prompts, chains
and workflows have characters of ASCII only.
https://www.unicode.org/reports/tr39/
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final

from gateway.text.confusables import compute_appearance, convert_to_latin

#: The name of a caller without keys, the name of all further callers in metrics, and authors in the audit log other
#: than keys.
RESERVED_FOR_CALLERS: Final = ("local", "other", "gateway", "command line")
_RESERVED: Final = {compute_appearance(name): name for name in RESERVED_FOR_CALLERS}
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
#: Letters and blanks that look like nothing, or like a space.
_BLANK: Final = re.compile(
    "[^\\S ]|[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
#: Scripts with letters that look like Latin ones.
_SIMILAR_SCRIPTS: Final = frozenset(("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "GREEK", "LISU"))
#: Letters that look the same as Latin ones: Cyrillic, Greek, Armenian.
_SAME_AS_LATIN: Final = frozenset(
    "\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0475"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u04ae\u04c0"
    "\u03bf\u03bd\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0585\u0578\u057d\u0566\u0570\u0581"
)


def find_unfit_reason(name: str) -> str | None:
    """Return what hides what a name is, as the rest of a sentence about it; None: nothing does."""
    return find_hidden_character(name) or find_mixed_scripts(name)


def find_hidden_character(name: str) -> str | None:
    """Return that a name has a character which does not show, if it does: a mark of direction, a joiner, a blank."""
    if name.isascii():
        is_hidden = not name.isprintable()
    else:
        kinds = map(unicodedata.category, name)
        is_hidden = _BLANK.search(name) is not None or not _UNSEEN.isdisjoint(kinds)
    return "has a character that does not show" if is_hidden else None


def find_mixed_scripts(name: str) -> str | None:
    """Return in which word of a name letters of another script look like Latin ones; None: in none."""
    for is_word, letters in groupby(name, str.isalpha):
        word = "".join(letters)
        if not is_word or word.isascii():
            continue
        scripts = set(map(_get_script, word))
        similar = scripts & _SIMILAR_SCRIPTS
        if len(similar) > 1 or (similar and "LATIN" in scripts):
            return f"has letters of several scripts that look alike: {word!a}"
        if _SAME_AS_LATIN.issuperset(word):
            return f"looks like {convert_to_latin(word)!r}, written in letters of another script: {word!a}"
    return None


def find_reserved_name(name: str) -> str | None:
    """Return the name that no key may have, if this is one in any of its spellings."""
    return _RESERVED.get(compute_appearance(name))


def find_imitated_name(name: str, others: Iterable[str]) -> str | None:
    """Return the first other name that looks like this one, and is not the same; None: no other one does."""
    looks = compute_appearance(name)
    return next((other for other in others if other != name and compute_appearance(other) == looks), None)


@lru_cache(maxsize=1024)
def _get_script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
