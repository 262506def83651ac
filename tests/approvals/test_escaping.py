"""What is shown is what runs: everything can be read back, and nothing hides."""

import hashlib
import re
import sys
import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.approvals.escaping import (
    ARGUMENTS_CHARS,
    ARGUMENTS_LINES,
    HiddenPart,
    count_hidden,
    escape_line,
    fence_text,
    format_code,
    format_shown_arguments,
    format_shown_json,
    format_shown_name,
)
from gateway.contracts.canonical_json import write_canonical

RUNS = {"spaces": " ", "newlines": "\\n", "tabs": "\\t", "carriage returns": "\\r"}
NOTATION = re.compile(
    r"\\\{(?P<n>\d+) (?P<what>spaces|newlines|tabs|carriage returns|times (?:u\{[0-9a-f]+\}|u[0-9a-f]{4}|.))\}"
    r"|\\u\{[0-9a-f]+\}|\\."
)
BACK = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
UNSEEN = frozenset(("Cc", "Cf", "Co", "Cs", "Cn", "Zs", "Zl", "Zp"))
SCRIPTS = "! contains characters of several scripts: "
RIGHT_TO_LEFT = "! contains text from right to left: it may appear in another order than it has"
ALIKE = "! contains characters that look like others: "
TEXTS = (
    st.text()
    | st.text('ab \\"{}u9n\n\t\u200b\u202e\u0301é\u0430中\u3164', max_size=60)
    | st.lists(st.tuples(st.characters(), st.integers(1, 30))).map(lambda runs: "".join(c * n for c, n in runs))
)
JSON_TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text('ab \\"{}u9n\n\x1b\u200b', max_size=60)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_back(line: str, *, json: bool = False) -> str:
    """The text that was shown; or the JSON, which keeps its own escapes."""

    def one(escape: str) -> str:
        if escape.startswith("\\u{"):
            return chr(int(escape[3:-1], 16))
        return escape if json or escape == " " else BACK[escape[1]]

    def written(found: re.Match[str]) -> str:
        if found["n"] is None:
            return one(found[0])
        return one(RUNS.get(found["what"]) or "\\" + found["what"].removeprefix("times ")) * int(found["n"])

    return NOTATION.sub(written, line)


@given(TEXTS)
def test_escaped_line_can_be_unescaped(text: str) -> None:
    """So no two texts are shown alike."""
    assert read_back(escape_line(text)) == text


@given(
    st.recursive(
        JSON_TEXTS | st.integers(-(2**63), 2**63) | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(JSON_TEXTS, inner),
        max_leaves=10,
    )
)
def test_shown_json_can_be_unescaped(value: object) -> None:
    """It is the canonical JSON, but for what does not show in that."""
    assert read_back(format_shown_json(value), json=True) == write_canonical(value)


@given(TEXTS)
def test_escaped_text_contains_only_visible_characters(text: str) -> None:
    """One line; no control, format, private, lone or unassigned character, and no white space but few spaces."""
    for line in (escape_line(text), format_shown_json(text)):
        assert all(c == " " or unicodedata.category(c) not in UNSEEN for c in line)
        assert " " * 9 not in line


#: `Default_Ignorable_Code_Point` of Unicode 16, and characters with an empty glyph.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
EMPTY = "\u1680\u2800\u2d7f\u3000\U00013441\U00013442\U00016fe4\U0001d159"


def test_invisible_unicode_characters_are_escaped() -> None:
    """Written out, whatever version of Unicode this Python has."""
    found = re.findall(f"[{IGNORABLE}{EMPTY}]", "".join(map(chr, range(sys.maxunicode + 1))))
    assert len(found) > 4000
    for character in found:
        assert escape_line(f"a{character}b") == f"a\\u{{{ord(character):x}}}b"


def test_every_character_is_visible_or_escaped() -> None:
    """All of Unicode: what is blank, joins its neighbour or doubles another character is written out."""
    for number in range(0x80, sys.maxunicode + 1, 7):
        written = escape_line(f"x{chr(number)}")[1:]
        if written == chr(number):
            assert unicodedata.category(written)[0] in "LNPSM"
            assert unicodedata.category(written) not in ("Mn", "Me")
            assert unicodedata.normalize("NFC", written) == written
        else:
            assert written == f"\\u{{{number:x}}}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("ls -la", "ls -la"),
        ("C:\\dir", "C:\\\\dir"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[2J", "\\u{1b}[2J"),
        ("a\u202eb", "a\\u{202e}b"),
        ("a\u00adb", "a\\u{ad}b"),
        ("a\u00a0b", "a\\u{a0}b"),
        ("a\u3000b", "a\\u{3000}b"),
        ("\U000e0041", "\\u{e0041}"),
        ("\ue000", "\\u{e000}"),
        ("\ufdd0", "\\u{fdd0}"),
        ("\ud800", "\\u{d800}"),
        ("\u3164\u2800\u115f\uffa0\u2d7f", "\\u{3164}\\u{2800}\\u{115f}\\u{ffa0}\\u{2d7f}"),
        ("\u2764\ufe0f", "\u2764\\u{fe0f}"),
        ("\u212a \u037e \u1fef", "\\u{212a} \\u{37e} \\u{1fef}"),
        ("e\u0301", "e\\u{301}"),
        ("\u0438\u0306", "\u0438\\u{306}"),
        ("\u05d1\u05bc \ufb31", "\u05d1\u05bc \\u{fb31}"),
        ("\u0e01\u0e34\u0e48", "\u0e01\u0e34\u0e48"),
        ("\u0e01" + "\u0e34\u0e48" * 2, "\u0e01\u0e34\u0e48\u0e34\\u{e48}"),
        ("x\u20dd", "x\\u{20dd}"),
        ("\\u{200b}", "\\\\u{200b}"),
        ("\\{9 spaces}", "\\\\{9 spaces}"),
        ("中文，日本語、한국어", "中文，日本語、한국어"),
        ("naïve Привет", "naïve Привет"),
        (" " * 8, " " * 8),
        (" " * 9, "\\{9 spaces}"),
        ("a" + "\n" * 40 + "b", "a\\{40 newlines}b"),
        ("\t" * 100, "\\{100 tabs}"),
        ("\u200b" * 300, "\\{300 times u{200b}}"),
    ],
)
def test_escape_line_produces_the_documented_escapes(text: str, line: str) -> None:
    """Escapes, doubled backslashes, counted runs; and ordinary text of any script as it is."""
    assert escape_line(text) == line


def test_truncated_text_reports_length_and_hash() -> None:
    """Behind the limit: how many characters, and the hash of them."""
    assert escape_line("ls -la; rm -rf /", 6) == f"ls -la\\{{10 more characters, SHA-256 {sha256('; rm -rf /')}}}"
    assert escape_line("ls -la", 6) == "ls -la"
    assert format_shown_json("ls\\", 4) == '"ls\\{3 more characters, SHA-256 ' + sha256('\\\\"') + "}"


def test_arguments_are_shown_on_one_line_each() -> None:
    """In canonical order, as JSON; a name that is none is quoted, so no line can pass for another."""
    arguments = {
        "timeout_s": 5,
        "command": 'echo "hi"\n',
        "a: 1\nb": {"z": [None, True], "a": "\u200b"},
        "!": 1.0,
        "": [],
    }
    assert format_shown_arguments(arguments).split("\n") == [
        '"": []',
        '"!": 1.0',
        '"a: 1\\nb": {"a":"\\u{200b}","z":[null,true]}',
        'command: "echo \\"hi\\"\\n"',
        "timeout_s: 5",
    ]
    assert format_shown_arguments({}) == "(no arguments)"
    assert format_shown_arguments({}, language="zh") == "（没有参数）"


@given(st.dictionaries(TEXTS, TEXTS, max_size=4), st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_different_arguments_are_shown_differently(some: dict[str, str], others: dict[str, str]) -> None:
    """A person can tell any two calls apart."""
    assert (format_shown_arguments(some) == format_shown_arguments(others)) == (some == others)


def test_long_argument_does_not_displace_a_short_one() -> None:
    """Short ones are whole; long ones share what is left, in whatever order."""
    lines = format_shown_arguments({"a": "x" * 99_998, "b": "y" * 99_998, "path": "z"}).split("\n")
    assert lines[2] == 'path: "z"'
    more = [re.search(r"\\\{(\d+) more characters, SHA-256 [0-9a-f]{64}\}[xy]{999}\"$", line) for line in lines[:2]]
    first, second = (int(found[1]) for found in more if found)
    assert (100_000 - first) + (100_000 - second) + len('"z"') == ARGUMENTS_CHARS
    assert abs(first - second) <= 1


def test_many_arguments_are_truncated_with_a_count() -> None:
    """30 lines, how many more there are, and the last 10."""
    arguments = {f"a{i:03}": i for i in range(100)}
    lines = format_shown_arguments(arguments).split("\n")
    rest = write_canonical({name: arguments[name] for name in sorted(arguments)[30:90]})
    assert len(lines) == ARGUMENTS_LINES + 1 and lines[-1] == "a099: 99"
    assert lines[30] == f"! 60 more arguments, {len(rest)} characters of JSON, SHA-256 {sha256(rest)}"
    assert count_hidden(arguments) == HiddenPart(120, 60)


@pytest.mark.parametrize("filler", ["a", "a\n", "\\", '"', "\u200b\n"])
@pytest.mark.parametrize("offset", range(3))
def test_the_end_of_a_long_argument_is_shown(filler: str, offset: int) -> None:
    """Behind a note that counts what stands between, by characters and lines; no escape is cut in half."""
    text = "-" * offset + filler * 30_000 + "; the end"
    line = format_shown_arguments({"command": text})
    _, note, end = re.split(r"(\\\{\d+ more characters(?: in \d+ lines)?, SHA-256 [0-9a-f]{64}\})", line)
    assert end.endswith('; the end"')
    hidden = count_hidden({"command": text})
    assert hidden is not None and note.startswith(f"\\{{{hidden.chars} more characters")
    assert (f" in {hidden.lines} lines," in note) is ("\n" in filler)
    value = write_canonical(text)
    shown_chars = len(value) - hidden.chars
    assert ARGUMENTS_CHARS - 2 <= shown_chars <= ARGUMENTS_CHARS
    assert re.fullmatch(r'(?:[^"\\]|\\(?:u[0-9a-f]{4}|.)|\\\{[^}]*\})*"', end) is not None


def test_completely_shown_call_has_no_hidden_part() -> None:
    assert count_hidden({"command": "x" * (ARGUMENTS_CHARS - 2)}) is None
    assert count_hidden({}) is None
    assert format_shown_arguments({"n " * 200: 1}, whole=True) == f'"{"n " * 200}": 1'


@pytest.mark.parametrize(
    ("value", "remark"),
    [
        (
            "curl https://p\u0430ypal.com/x",
            SCRIPTS + "p\\u{430}ypal.com (Cyrillic, Latin)",
        ),
        (
            "\u0440\u0430\u0443\u0440\u0430l.com",
            SCRIPTS + "\\u{440}\\u{430}\\u{443}\\u{440}\\u{430}l.com (Cyrillic, Latin)",
        ),
        (
            "\u0430\u0440\u0440\u04cf\u0435.com",
            SCRIPTS + "\\u{430}\\u{440}\\u{440}\\u{4cf}\\u{435}.com (Cyrillic, Latin)",
        ),
        ("\u03bfpen", SCRIPTS + "\\u{3bf}pen (Greek, Latin)"),
        ("\uff52\uff4d", SCRIPTS + "\\u{ff52}\\u{ff4d} (Fullwidth, Latin)"),
        ("good.com\u2215@evil", ALIKE + 'x "good.com\\u{2215}@evil"'),
        ("good.com\uff0fa", ALIKE + 'x "good.com\\u{ff0f}a"'),
        ("rm \u2013rf", ALIKE + 'x "rm \\u{2013}rf"'),
        (
            "\u05e9\u05dc\u05d5\u05dd 1",
            RIGHT_TO_LEFT,
        ),
    ],
)
def test_confusable_text_is_followed_by_an_ascii_remark(value: str, remark: str) -> None:
    """The line is followed by a remark that spells the place in ASCII."""
    assert format_shown_arguments({"x": value}).split("\n")[1:] == [remark]
    remarks = format_shown_arguments({"x": value}, language="zh").split("\n")[1:]
    assert len(remarks) == 1 and remarks[0].startswith("! 含有")


@pytest.mark.parametrize(
    "value",
    [
        "ls -la",
        "用git提交，然后push",
        "日本語とEnglish",
        "Привет, world\nмир",
        "C:\\путь",
        "naïve café – really",
        "10 – 20",
        "你好，world。",
        "Ελληνικά and English",
        "5 m² at 20 °C",
        "\N{ROCKET} done",
    ],
)
def test_ordinary_text_gets_no_mixed_script_warning(value: str) -> None:
    """Words of one script, also side by side; Chinese, Japanese and Korean mix with all."""
    assert "\n" not in format_shown_arguments({"x": value})


def test_mixed_script_warnings_are_bounded() -> None:
    """Five places of 40 characters."""
    _, remark = format_shown_arguments({"x": ("\u0430a" * 100 + " ") * 100}).split("\n")
    assert remark.count("Cyrillic") == 5
    assert len(remark) < 5 * 400


@given(st.text() | st.text("`a \n"))
def test_fence_around_shown_text_is_longer_than_any_within(text: str) -> None:
    """So nothing within ends the block."""
    first, *lines, last = fence_text(text).split("\n")
    assert "\n".join(lines) == text
    assert first == last + "text" and set(last) == {"`"} and len(last) >= 3
    assert last not in text


@given(st.text("`a ", max_size=20))
def test_inline_code_is_not_ended_by_its_text(text: str) -> None:
    """By the rules of CommonMark: the first run of as many backticks ends it, one space on each side is taken off."""
    written = format_code(text)
    ticks = re.match("`+", written)[0]  # type: ignore[index]
    inner = written[len(ticks) : -len(ticks)]
    assert ticks not in re.findall("`+", inner)
    assert not inner.startswith("`") and not inner.endswith("`")
    stripped = inner[1:-1] if inner.startswith(" ") and inner.endswith(" ") and inner.strip() else inner
    assert stripped == text or not text.strip()


@pytest.mark.parametrize("name", ["execute_sql", "git.commit", "a-b__c", "x" * 100])
def test_plain_tool_name_is_shown_unescaped(name: str) -> None:
    """Tools and services are called so."""
    assert format_shown_name(name) == name


@pytest.mark.parametrize(
    ("name", "written"), [("", '""'), ("a b", '"a b"'), ("a`\n", '"a`\\n"'), ("p\u0430", '"p\u0430"'), ("1", '"1"')]
)
def test_name_that_is_not_plain_is_quoted(name: str, written: str) -> None:
    """So it cannot pass for a plain one."""
    assert format_shown_name(name) == written


@pytest.mark.parametrize(
    "text",
    [
        "\u200b\u200c" * 50_000,
        "a\u0301" * 50_000,
        "\u0301\u0323" * 50_000,
        "\\" * 100_000,
        ("\n" * 8 + "\t") * 11_000,
        (" " * 8 + "x") * 11_000,
        "\u0430a." * 33_000,
        "`" * 100_000,
        "".join(map(chr, range(0x10000, 0x28000))),
    ],
    ids=["invisible", "marks", "only marks", "backslashes", "newlines", "spaces", "scripts", "backticks", "letters"],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    """100,000 characters whole, and as much as a call shows: a few microseconds a character."""
    effort = Effort()
    escape_line(text)
    format_shown_arguments({"x": text, "y": [text], text: 1})
    fence_text(text)
    assert effort.cpu_s < 2


def test_deep_arguments_are_shown() -> None:
    """As deep as orjson reads them."""
    value = orjson.loads("[" * 1000 + "]" * 1000)
    assert format_shown_arguments({"x": value}) == f"x: {'[' * 1000}{']' * 1000}"
