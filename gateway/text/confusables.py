"""The form of a name that all of its spellings share: the spellings that a person may take for it."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

#: Letters of other scripts that look like a Latin one, capitals beside small ones: Cyrillic, Greek, Armenian, Cherokee,
#: Lisu, and Latin letters whose Unicode name does not lead to theirs.
_LETTERS: Final = {
    "a": "\u0430\u0410\u03b1\u0391\u0251\u13aa\ua4ee",
    "b": "\u0432\u0412\u044c\u0392\u13f4\ua4d0",
    "c": "\u0441\u0421\u03f2\u03f9\u13df\ua4da",
    "d": "\u0501\u0500\u13a0\ua4d3",
    "e": "\u0435\u0415\u04bd\u0454\u03b5\u0395\u13ac\ua4f0",
    "f": "\u0584\u03dc\ua4dd",
    "g": "\u0581\u050c\u13c0\ua4d6",
    "h": "\u04bb\u043d\u041d\u0397\u0570\u13bb\ua4e7",
    "i": "\u0456\u0406\u03b9\u0399\ua4f2",
    "j": "\u0458\u0408\u03f3\u13ab\ua4d9",
    "k": "\u0138\u043a\u041a\u03ba\u039a\u13e6\ua4d7",
    "l": "\u04cf\u04c0\u01c0\u2223\u13de\ua4e1",
    "m": "\u043c\u041c\u039c\u13b7\ua4df",
    "n": "\u043f\u03b7\u039d\u0578\ua4e0",
    "o": "\u043e\u041e\u03bf\u039f\u03c3\u0585\u0555\u2c9f\ua4f3",
    "p": "\u0440\u0420\u03c1\u03a1\u13e2\ua4d1",
    "q": "\u051b\u051a\u0566",
    "r": "\u0433\u13a1\u13d2\ua4e3",
    "s": "\u0455\u0405\u054f\u13da\ua4e2",
    "t": "\u0442\u0422\u03c4\u03a4\u13a2\ua4d4",
    "u": "\u0438\u03c5\u057d\u054d\ua4f4",
    "v": "\u0475\u0474\u03bd\u13d9\ua4e6",
    "w": "\u051d\u051c\u0448\u03c9\u0461\u0561\u13b3\u13d4\ua4ea",
    "x": "\u0445\u0425\u03c7\u03a7\ua4eb",
    "y": "\u0443\u0423\u04af\u04ae\u03b3\u03a5\u13a9\u13bd\ua4ec",
    "z": "\u0396\u03b6\u13c3\ua4dc",
}
_ALIKE: Final = str.maketrans({other: letter for letter, others in _LETTERS.items() for other in others})
#: What looks the same in Latin letters and digits.
_SAME: Final = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o"})
_LATIN: Final = re.compile(
    r"(?:(?:CROSSED )?(?:NEGATIVE )?(?:CIRCLED|SQUARED) )?"
    r"LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL |SCRIPT |DOTLESS )?([A-Z])(?: WITH .+)?"
)
#: Marks above and below letters, variants of characters, fillers that show nothing, and a dot that joins words.
_DROPPED: Final = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\u115f\u1160\u2800\u00b7]"
)
_JOINTS: Final = re.compile(r"[\s\x00-\x1f\x7f._-]")
_INVISIBLE_KINDS: Final = frozenset(("Cc", "Cf"))
#: Invisible characters, blanks, dashes, underscores.
_DROPPED_KINDS: Final = _INVISIBLE_KINDS | {"Pc", "Pd", "Zl", "Zp", "Zs"}


@lru_cache(maxsize=4096)
def compute_skeleton(name: str) -> str:
    """Return the form of a name that its spellings share.

    They differ in case, accents, what joins words (`-`, `_`, `.`, blanks), invisible characters, or letters that look
    alike. A name of such characters only is its own.
    """
    seen = _JOINTS.sub("", _fold_plain(name, drops=_DROPPED_KINDS))
    return _merge_lookalikes(seen) or name


@lru_cache(maxsize=4096)
def compute_appearance(name: str) -> str:
    """Return the form that names share which look alike: as `compute_skeleton`, but with what joins their words."""
    return _merge_lookalikes(_fold_plain(name, drops=_INVISIBLE_KINDS)) or name


def _fold_plain(name: str, *, drops: frozenset[str]) -> str:
    """Return a name case-folded, in Latin letters, without joining and dropped characters."""
    if name.isascii():
        return name.casefold().translate(_SAME)
    plain = convert_to_latin(convert_to_latin(unicodedata.normalize("NFKD", name)).casefold()).translate(_SAME)
    return "".join(c for c in _DROPPED.sub("", plain) if unicodedata.category(c) not in drops)


def _merge_lookalikes(plain: str) -> str:
    return plain.replace("rn", "m").replace("vv", "w")


def convert_to_latin(text: str) -> str:
    """Return a text with Latin letters in place of letters that look like one."""
    return text if text.isascii() else "".join(map(_convert_letter, text.translate(_ALIKE)))


def _convert_letter(character: str) -> str:
    if character.isascii():
        return character
    found = _LATIN.fullmatch(unicodedata.name(character, ""))
    return character if found is None else found[1].lower()
