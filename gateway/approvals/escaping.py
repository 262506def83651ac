"""The display of a call for the person who decides on it: the text shown is exactly the call that runs.

Rule 1: all characters that do not show are written out. Control, invisible, bidirectional, private, unassigned and
blank characters, and marks that could change the character before them, become `\\u{200b}`, `\\n`, `\\t` or `\\r`.
Rule 2: nothing is padded away. More than 8 of the same in a row are counted: `\\{500 spaces}`, `\\{9 times u{200b}}`.
Rule 3: nothing is left out without a note of its length: `\\{1234 more characters in 41 lines, SHA-256 ...}`. Of an
argument that is too long, its end is shown behind the note: what runs last is never out of sight.
Rule 4: the text can be read back. A backslash of the text itself is doubled, or is that of a JSON string.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, Final, Literal

from gateway.contracts.canonical_json import write_canonical

Language = Literal["en", "zh"]

#: All arguments of one call together: more is not read in a chat, and each takes up to 3 us.
ARGUMENTS_CHARS: Final = 16_000
ARGUMENTS_LINES: Final = 40
#: Of these, so much stands at the end, behind what is left out.
END_CHARS: Final = 1_000
END_LINES: Final = 10
NAME_CHARS: Final = 100
#: More of the same in a row are counted.
RUN_CHARS: Final = 8
#: Marks that one letter may carry: Vietnamese and Hebrew have two or three, and more only hide their neighbours.
MARKS: Final = 3

#: Characters that show as what they are; only for speed, the others are looked at one by one.
_PLAIN = (
    "\x21-\\[\\]-\x7e\u00c0-\u024f\u0410-\u044f\u3001\u3002\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uff01-\uff5e"
)
_TEXT = re.compile(f" {{{RUN_CHARS + 1},}}|[^{_PLAIN} ]+")
_JSON = re.compile(
    rf"(?P<same>\\(?:u[0-9a-f]{{4}}|[bfnrt]))(?P=same){{{RUN_CHARS},}}+|(?P<escape>\\.?)"
    rf"| {{{RUN_CHARS + 1},}}|[^{_PLAIN} \\]+",
    re.DOTALL,
)
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp", "Me"))
#: Blank or without a shape of their own, though they count as letters, marks or symbols; and the parts of Hangul
#: syllables that join the one before them. All that Unicode calls `Default_Ignorable_Code_Point` is here or in a
#: category above; the others have an empty glyph. Two hieroglyphs (U+13441 and 13442) are letters from Unicode 15 on.
_BLANK = re.compile(
    "[\u034f\u115f-\u11ff\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ud7b0-\ud7ff\ufe00-\ufe0f\uffa0\ufff0-\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_SHORT = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_PLURAL = {" ": "spaces", "\\n": "newlines", "\\t": "tabs", "\\r": "carriage returns"}
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{NAME_CHARS - 1}}}")
_ODD_BACKSLASH = re.compile(r"(?<!\\)\\(?:\\\\)*\Z")
_BACKTICKS = re.compile("`+")

#: Escapes are ignored for remarks: their letters are not the text's.
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)", re.DOTALL)
_WORD = re.compile(r"[\w.@-]+")
#: Mixed with any other script in ordinary text, without spaces.
_MIXING = frozenset(("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH", "HANGUL", "BOPOMOFO"))
_NOT_ASCII = re.compile("[^\x20-\x7e]")
_NEXT_TO = "[A-Za-z0-9/.:@_-]"
#: Not letters, but taken for ASCII: dots, slashes, colons, small forms, digits of formulas; full-width forms within a
#: word of ASCII; dashes where an option begins.
_DOUBLE = re.compile(
    "[\u01c0\u01c3\u0251\u0261\u02d0\u0589\u05c3\u2024\u2044\u2160-\u217f\u2215\u2216\u2223\u2236"
    "\u2571\u29f5\u29f8\u29f9\ua789\ufe50-\ufe6b\U0001d7ce-\U0001d7ff]"
    f"|(?<={_NEXT_TO})[\uff03-\uff06\uff0d-\uff1b\uff1d-\uff20\uff3c\uff3f\uff5c\uff5e](?={_NEXT_TO})"
    '|(?<![^\\s"])[\u2010-\u2015\u2212](?=[A-Za-z])'
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
#: How many places a remark names, and how much of each.
_PLACES, _PLACE_CHARS = 5, 40

_REMARKS: Mapping[Language, tuple[str, str, str, str, str]] = {
    "en": (
        "(no arguments)",
        "! {0} more arguments, {1} characters of JSON, SHA-256 {2}",
        "! contains characters of several scripts: {0}",
        "! contains characters that look like others: {0}",
        "! contains text from right to left: it may appear in another order than it has",
    ),
    "zh": (
        "（没有参数）",
        "! 另有 {0} 个参数，JSON 共 {1} 个字符，SHA-256 {2}",
        "! 含有来自多种文字系统的字符：{0}",
        "! 含有形似其他字符的字符：{0}",
        "! 含有从右到左书写的文字：显示的顺序可能与实际顺序不同",
    ),
}


@dataclass(frozen=True, slots=True)
class HiddenPart:
    """The part of a call that a text leaves out: characters of JSON, and the lines that they are."""

    chars: int
    lines: int


def escape_line(text: str, limit: int | None = None) -> str:
    """Return `text` on one line: at most `limit` of its characters, and the number of characters cut off."""
    head = text if limit is None else text[:limit]
    return _TEXT.sub(_escape_unseen_run, head) + _format_note(text[len(head) :], text.count("\n", len(head)))


def format_shown_json(value: Any, limit: int | None = None) -> str:
    """Return a value's canonical JSON on one line: at most `limit` characters, and the number cut off."""
    text = write_canonical(value)
    head = _take_head(text, len(text) if limit is None else limit)
    return _JSON.sub(_escape_unseen_in_json, head) + _format_json_note(text[len(head) :])


def format_shown_name(name: str, *, whole: bool = False) -> str:
    """Return the name of a tool or an argument: as it is if it is a plain one, else as a JSON string.

    Unless `whole`, of a long one it is the beginning, and the number of characters that follow.
    """
    return name if _NAME.fullmatch(name) else format_shown_json(name, None if whole else NAME_CHARS)


def format_shown_arguments(arguments: Mapping[str, Any], *, language: Language = "en", whole: bool = False) -> str:
    """Return one line `name: value` for each argument in canonical order, the value as JSON; `whole`: all of it.

    Lines that begin with `!` are remarks: an argument's line never does.
    """
    nothing = _REMARKS[language][0]
    here, rest = (sorted(arguments), []) if whole else _split_names(arguments)
    values = [write_canonical(arguments[name]) for name in here]
    lengths = [len(value) for value in values]
    lines: list[str] = []
    for name, value, share in zip(here, values, lengths if whole else _distribute_chars(lengths), strict=True):
        if rest and name > rest[-1]:
            lines.append(describe_omission({name: arguments[name] for name in rest}, language=language))
            rest = []
        head, hidden, end = _split_json(value, share)
        shown_parts = (_JSON.sub(_escape_unseen_in_json, part) for part in (head, end))
        lines.append(f"{format_shown_name(name, whole=whole)}: {_format_json_note(hidden).join(shown_parts)}")
        lines += iterate_remarks(f"{name if whole else name[:NAME_CHARS]} {head} {end}", language=language)
    return "\n".join(lines) or nothing


def count_hidden(arguments: Mapping[str, Any]) -> HiddenPart | None:
    """Return what `format_shown_arguments` leaves out of these arguments, or None: it shows all of them."""
    here, rest = _split_names(arguments)
    values = [write_canonical(arguments[name]) for name in here]
    hidden = [
        _split_json(value, share)[1]
        for value, share in zip(values, _distribute_chars([*map(len, values)]), strict=True)
    ]
    hidden += [write_canonical(arguments[name]) for name in rest]
    chars = sum(map(len, hidden))
    return HiddenPart(chars, sum(_count_newlines(part) + 1 for part in hidden if part)) if chars else None


def describe_omission(arguments: Mapping[str, Any], *, language: Language = "en") -> str:
    """Return the remark that stands in place of these arguments."""
    text = write_canonical(arguments)
    return _REMARKS[language][1].format(len(arguments), len(text), _hash_text(text))


def fence_text(text: str) -> str:
    """Return `text` as a block of code in Markdown that no character in it can end."""
    fence = "`" * max(3, _measure_longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def format_code(text: str) -> str:
    """Return `text`, which is one line, as code within a line of Markdown."""
    ticks = "`" * (_measure_longest_run(text) + 1)
    pad = " " if not text or text[0] in " `" or text[-1] in " `" else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _measure_longest_run(text: str) -> int:
    return max((len(run[0]) for run in _BACKTICKS.finditer(text)), default=0)


def _split_names(arguments: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the arguments that are shown, and of the ones left out between them."""
    names = sorted(arguments)
    if len(names) <= ARGUMENTS_LINES:
        return names, []
    first = ARGUMENTS_LINES - END_LINES
    return names[:first] + names[-END_LINES:], names[first:-END_LINES]


def _split_json(text: str, limit: int) -> tuple[str, str, str]:
    """Return the shown beginning of JSON, its hidden middle, and its shown end."""
    if len(text) <= limit:
        return text, "", ""
    end_chars = min(END_CHARS, limit // 4)
    head, end = _take_head(text, limit - end_chars), len(text) - end_chars
    if _ODD_BACKSLASH.search(text, 0, end):
        end += 1  # half an escape would be read as something else
    return head, text[len(head) : end], text[end:]


def _take_head(text: str, limit: int) -> str:
    head = text[:limit]
    if head != text and _ODD_BACKSLASH.search(head):
        return head[:-1]  # half an escape would run into what follows
    return head


def _count_newlines(text: str) -> int:
    """Return how many escapes of a new line JSON has."""
    return sum(found[0] == "\\n" for found in _JSON_ESCAPE.finditer(text))


def _format_json_note(hidden: str) -> str:
    return _format_note(hidden, _count_newlines(hidden))


def _format_note(hidden: str, newlines: int) -> str:
    if not hidden:
        return ""
    lines = f" in {newlines + 1} lines" if newlines else ""
    return f"\\{{{len(hidden)} more characters{lines}, SHA-256 {_hash_text(hidden)}}}"


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _escape_unseen_in_json(match: re.Match[str]) -> str:
    if match["escape"] is not None:
        return match[0]
    if match["same"] is not None:
        return _repeat_escape(match["same"], len(match[0]) // len(match["same"]))
    return _escape_unseen_run(match)


def _escape_unseen_run(match: re.Match[str]) -> str:
    """Escape a run of characters that may not show, or of too many spaces. Visible characters stay."""
    if match[0][0] == " ":
        return _repeat_escape(" ", len(match[0]))
    before = match.string[match.start() - 1] if match.start() else ""
    marks = 0
    written: list[str] = []
    for character, group in groupby(match[0]):
        n = sum(1 for _ in group)
        spelling = _escape_unseen(character)
        if spelling == character and unicodedata.category(character) == "Mn":
            marks += n
            # Behind ASCII, or where it is the double of one letter, a mark could be overlooked; so could many of them.
            if before.isascii() or marks > MARKS or not unicodedata.is_normalized("NFC", before + character):
                spelling = _escape(character)
                before = ""
        else:
            marks = 0
            before = character if spelling == character else ""
        written.append(character * n if spelling == character else _repeat_escape(spelling, n))
    return "".join(written)


@lru_cache(maxsize=4096)
def _escape_unseen(character: str) -> str:
    """Return the character, or the escape of one that does not show."""
    if character in _SHORT:
        return _SHORT[character]
    if (
        unicodedata.category(character) in _UNSEEN_CATEGORIES
        or _BLANK.match(character)
        or not unicodedata.is_normalized("NFC", character)  # another character's double: a Kelvin sign, a Greek `;`
    ):
        return _escape(character)
    return character


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _repeat_escape(escape: str, n: int) -> str:
    if n <= RUN_CHARS:
        return escape * n
    return f"\\{{{n} {_PLURAL.get(escape) or 'times ' + escape[1:]}}}"


def iterate_remarks(text: str, *, language: Language) -> Iterator[str]:
    """Yield remarks, which begin with `!`, on things that a reader of this piece of JSON would not see by looking."""
    if text.isascii():
        return
    _, _, scripts, doubles, right_to_left = _REMARKS[language]
    text = _JSON_ESCAPE.sub(" ", text)
    words = list(islice(_iterate_mixed_script_words(text), _PLACES))
    if words:
        yield scripts.format("; ".join(words))
    places = [
        _escape_to_ascii(text[max(0, at.start() - _PLACE_CHARS // 2) : at.end() + _PLACE_CHARS // 2].strip())
        for at in islice(_DOUBLE.finditer(text), _PLACES)
    ]
    if places:
        yield doubles.format("; ".join(places))
    if _RIGHT_TO_LEFT.search(text):
        yield right_to_left


def _iterate_mixed_script_words(text: str) -> Iterator[str]:
    """Yield each word or host of several scripts, with its scripts."""
    for word in _WORD.finditer(text):
        if not word[0].isascii():
            found = sorted({name for character in set(word[0]) for name in _get_scripts(character)})
            if len(found) > 1:
                yield f"{_escape_to_ascii(word[0][:_PLACE_CHARS])} ({', '.join(found)})"


@lru_cache(maxsize=4096)
def _get_scripts(character: str) -> tuple[str, ...]:
    """Return the script of a letter, by the first word of its name.

    Another form of an ASCII letter has two scripts.
    """
    if not character.isalpha():
        return ()
    if character.isascii():
        return ("Latin",)
    script = unicodedata.name(character, "").partition(" ")[0].partition("-")[0]
    if script in _MIXING:
        return ()
    plain = unicodedata.normalize("NFKC", character)
    return (script.capitalize(), "Latin") if plain.isascii() else (script.capitalize(),)


def _escape_to_ascii(text: str) -> str:
    return _NOT_ASCII.sub(lambda match: _escape(match[0]), text)


def _distribute_chars(lengths: Sequence[int]) -> list[int]:
    """Return the number of characters shown of each value. Short values are whole; long ones share the rest."""
    shares = [0] * len(lengths)
    room = ARGUMENTS_CHARS
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    for done, i in enumerate(by_length):
        shares[i] = min(lengths[i], room // (len(lengths) - done))
        room -= shares[i]
    return shares
