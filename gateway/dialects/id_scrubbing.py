"""Text of models and tools that imitates the gateway's own: ids of approvals in it are made useless. Sans-I/O.

An id is what a person sends back to decide on a call, so no text but the gateway's own shows a whole one.
Disguises that a person would not see count as the id itself: other scripts' letters, invisible characters, marks of
Markdown, tags and comments of HTML, entities, links. What is shown does not depend on how the text was cut into pieces.
"""

import html
import re
import unicodedata
from functools import lru_cache
from typing import Final

#: What stands in the place of an id.
INSTEAD: Final = "[id removed: the model wrote this, not the gateway; 模型所写，并非网关]"
#: So many of an id's 26 characters are taken for one.
_ID_CHARS: Final = 20
#: More is not held back: what is hidden in an id is then taken for a part of it.
_HELD_CHARS: Final = 1024
#: The text in front of an underscore that is looked at.
_BEFORE_CHARS: Final = 64

_LOW_LINES = "_\u02cd\u2017\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f"
_LOW_LINE = re.compile(f"[{_LOW_LINES}&]")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z]{2,24};)")
_LAST_ENTITY = re.compile(rf"{_ENTITY.pattern}\Z")
_ENTITY_ENDS = frozenset(";0123456789abcdefABCDEF")
#: What a renderer takes away: comments, tags and what else HTML puts between angle brackets, images, the rest of a
#: link, marks; and how such a thing may begin. Longer ones than 256 characters end an id, which is useless then, too.
_IN_TAG = r"""<[!?/A-Za-z](?:"[^"]{0,256}+"|'[^']{0,256}+'|[^<>"']){0,256}+"""
_MARKUP = re.compile(
    rf"<!--(?:(?!-->).){{0,256}}+-->|{_IN_TAG}>|<[!?/A-Za-z][^<>]{{0,256}}+>|"
    r"!\[[^\]\n]{0,256}+\](?:\([^()\n]{0,256}+\))?|\]\([^()\n]{0,256}+\)|[*~`\\\[\]]",
    re.DOTALL,
)
_BEGINS = re.compile(
    rf"<(?:!--(?:(?!-->).){{0,256}}+)?|{_IN_TAG}(?:\"[^\"]{{0,256}}+|'[^']{{0,256}}+)?|"
    r"!(?:\[[^\]\n]{0,256}+(?:\](?:\([^()\n]{0,256}+)?)?)?|\](?:\([^()\n]{0,256}+)?|&#?[0-9A-Za-z]{0,24}",
    re.DOTALL,
)
_LONG = re.compile(r"<[!?/A-Za-z]|!\[|\]\(")
#: Letters of other scripts that look like a letter of an id, by that letter.
_LOOKS = {
    letter: plain
    for group in (
        "a аɑα,b ЬьƄв,c сϲ,d ԁ,e еє,f ϝ,g ɡց,h һհ,i іıιӏ|,j јϳ,k кκ,l ǀ,m мϻ,n ոпη,o оοօ,p рρ,q ԛգ,r гᴦ,s ѕ,t тτ",
        "u υս,v ѵν,w ԝѡω,x хχ,y уүγ,z ᴢ,2 ƨ,3 зӡʒ,4 ч,5 ƽ,6 б",
    )
    for plain, letters in (entry.split(" ") for entry in group.split(","))
    for letter in letters
}
_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz234567")


class Defuser:
    """One text as it streams."""

    def __init__(self) -> None:
        self._held = ""  # from an underscore on that an id may follow
        self._before = ""

    def feed(self, text: str) -> str:
        """Return the part of the text that may be shown by now."""
        ordinary = "_" not in text and "&" not in text and (text.isascii() or _LOW_LINE.search(text) is None)
        if ordinary and not self._held:
            self._before += text
            if len(self._before) > _HELD_CHARS:
                self._before = self._before[-_BEFORE_CHARS:]
            return text
        return self._read(self._held + text, final=False)

    def finish(self) -> str:
        """Return the rest."""
        return self._read(self._held, final=True) if self._held else ""

    def _read(self, data: str, *, final: bool) -> str:
        """Return the text that may be shown, with approval ids made useless; hold back a possible beginning."""
        shown: list[str] = []
        at = look = 0
        self._held = ""
        while (found := _LOW_LINE.search(data, look)) is not None:
            start, look = found.start(), found.end()
            line = _ENTITY.match(data, start) if found[0] == "&" else found
            if line is None or (found[0] == "&" and not final and _BEGINS.fullmatch(data, start)):
                end, is_open = start, _BEGINS.fullmatch(data, start) is not None
            elif _is_low_line(line[0]) and _ends_like_ap(self._get_preceding_text(data, start)):
                end, is_open = _find_id_end(data, line.end(), final=final)
            else:
                continue
            if is_open and not final:
                if len(data) - start <= _HELD_CHARS:
                    self._held = data[start:]
                    break
                end = look
            if end > start:
                shown += (data[at:start], "_", INSTEAD)
                at = look = end
        done = len(data) - len(self._held)
        shown.append(data[at:done])
        self._before = self._get_preceding_text(data, done)
        return "".join(shown)

    def _get_preceding_text(self, data: str, at: int) -> str:
        near = data[max(0, at - _BEFORE_CHARS) : at]
        return near if at >= _BEFORE_CHARS else (self._before + near)[-_BEFORE_CHARS:]


def defuse(text: str) -> str:
    """Return a whole text without ids of approvals. A short word, such as a fingerprint, has no room for one."""
    if len(text) <= _ID_CHARS and text.isidentifier():
        return text
    defuser = Defuser()
    return defuser.feed(text) + defuser.finish()


def _find_id_end(data: str, at: int, *, final: bool) -> tuple[int, bool]:
    """Return the end of an approval id from `at` on (0: none), and whether more text may belong to it."""
    letters = end = 0
    while at < len(data):
        if not final and _BEGINS.fullmatch(data, at):
            return end, True
        if (markup := _MARKUP.match(data, at)) is not None:
            if markup[0] == "]" and _LONG.match(data, at):
                return at, False
            at = markup.end()
            continue
        if _LONG.match(data, at):
            return at, False
        entity = _ENTITY.match(data, at)
        piece = data[at] if entity is None else entity[0]
        plain = _fold_character(piece if entity is None else html.unescape(piece))
        if plain is None:
            break
        at += len(piece)
        if plain:
            letters += 1
            end = at if letters >= _ID_CHARS else 0
    return end, at == len(data)


def _ends_like_ap(before: str) -> bool:
    """Return whether a text ends with `ap`, also if a tag or too much that does not show is before or within it."""
    if before[-2:].lower() == "ap":
        return True
    wanted, at = "pa", len(before)
    while wanted and at:
        if before[at - 1] in ">)":
            return True
        entity = _LAST_ENTITY.search(before, 0, at) if before[at - 1] in _ENTITY_ENDS else None
        start = at - 1 if entity is None else entity.start()
        plain = _fold_character(before[start:at] if entity is None else html.unescape(entity[0]))
        if (plain and plain != wanted[0]) or (plain is None and _MARKUP.fullmatch(before, start, at) is None):
            return False
        wanted, at = wanted[1:] if plain else wanted, start
    return not wanted or len(before) >= _BEFORE_CHARS


def _is_low_line(text: str) -> bool:
    return _LOW_LINE.fullmatch(html.unescape(text)) is not None


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str | None:
    """Return the ASCII letter that a character resembles, "" for an invisible one, else None."""
    if character in _ID_LETTERS:
        return character
    if character in _LOOKS:
        return _LOOKS[character]
    if len(character) != 1:
        return None
    if unicodedata.category(character) in ("Cf", "Mn", "Me") or character in "\u115f\u1160\u3164\uffa0":
        return ""
    for form in (unicodedata.normalize("NFKD", character), unicodedata.normalize("NFKD", character).casefold()):
        letter, marks = _LOOKS.get(form[:1], form[:1]), form[1:]
        if letter in _ID_LETTERS and all(map(unicodedata.combining, marks)):
            return letter
    return None
