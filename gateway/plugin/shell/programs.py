"""The programs beyond reading texts and files: versions, processes and sockets, archives, awk, printf, xargs."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import Listed, Use, long_names
from gateway.plugin.shell.words import ANY_WORD, Word


def _line(pattern: str) -> Listed:
    return Listed(grammar="line", line=re.compile(pattern), operands=0)


_VERSION = _line("-V|--version")
_VERSION_OR_V = _line("-v|--version")
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_PIP = _line(rf"-V|--version|list(?: --format(?:=| )(?:columns|freeze|json))?|show(?: -f| --files)?(?: {_NAME})+")

#: What a version needs to be read from system folders alone is in `shell_environment`.
PROGRAMS: Mapping[str, Listed] = MappingProxyType(
    {
        **dict.fromkeys(("python", "python3", "cargo", "rustc", "bash"), _VERSION),
        **dict.fromkeys(("node", "npm", "ruby", "perl"), _VERSION_OR_V),
        **dict.fromkeys(("gcc", "g++", "cc", "make"), _line("--version")),
        **dict.fromkeys(("pip", "pip3"), _PIP),
        "go": _line("version"),
        "whereis": Listed(short="bmsu", open=True, text=256),
        "env": Listed(short="0", long=long_names("null"), operands=0),
        "printenv": Listed(short="0", long=long_names("null"), text=256),
        "ss": Listed(
            short="atulnpxesomirw46HOh",
            long=long_names("all listening tcp udp numeric processes summary unix ipv4 ipv6 no-header oneline"),
            operands=0,
        ),
        "lsof": _line(r"(?:-[nPtlw]+ )*-[nPtlw]*(?:i ?(?:tcp|TCP|udp|UDP)?:[0-9]{1,5}|p ?[0-9,]+)(?: -[nPtlw]+)*"),
        "unzip": _line(r"(?:-l|-v|-lv|-vl|-lq|-ql|-Z|-Z1) [^-\s]\S*(?: [^-\s]\S*)*"),
        "printf": Listed(grammar="printf"),
        "awk": Listed(grammar="awk", reads=2, text=1),
        **dict.fromkeys(("gawk", "mawk"), Listed(grammar="awk", reads=2, text=1)),
        "tar": Listed(grammar="tar"),
        "xargs": Listed(grammar="xargs", reads=1),
        "git": Listed(grammar="git"),
    }
)

_WIDE = re.compile(r"%[-+ #0]*(?:\*|[0-9]{6})|%[-+ #0-9]*\.(?:\*|[0-9]{6})")

# Wherever these stand (a string, a pattern, a name): nothing is lexed, so nothing is mislexed.
_AWK_UNKNOWN = re.compile(
    r"system|getline|close|fflush|func|while|\bdo\b|@|ARG[CV]|PROCINFO|include|load|extension|/inet|/dev|/proc|\\\n"
    r"|\bfor\b(?! *\( *[A-Za-z_]\w* +in +[A-Za-z_]\w* *\))"
)
_AWK_SENT = re.compile(r">|(?<!\|)\|(?!\|)")
_AWK_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=[^@]*")

_TAR_LIST = re.compile(r"-?(?=[tvzjJ]*t)[tvzjJ]+f")
_XARGS_ALONE = re.compile("-[0r]+")
_XARGS_NUMBER = re.compile("-([nL])([0-9]*)")


def read_line(name: str, words: tuple[Word, ...], listed: Listed) -> Use:
    """Return all words together, as they are listed."""
    texts = [word.text for word in words]
    hidden = any(word.expands or word.tilde or re.search(r"\s", word.text) for word in words)
    if hidden or listed.line is None or not listed.line.fullmatch(" ".join(texts)):
        raise Objection("option", f"{name} is not known to be harmless with {' '.join(texts)!r}.")
    return Use(operands=words)


def read_printf(words: tuple[Word, ...]) -> Use:
    """Return a format that is written out and no option: bash's printf -v evaluates."""
    if not words or words[0].expands or words[0].text.startswith("-") or _WIDE.search(words[0].text):
        raise Objection("operand", "printf is known to be harmless only with a plain format in front.")
    return Use()


def read_awk(name: str, words: tuple[Word, ...]) -> Use:
    """Return a program that prints: no redirection, pipe, command, loop that may not end, or file name of its own."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        option, value = words[at].text[:2], words[at].text[2:]
        if option not in ("-F", "-v") or words[at].expands or (not value and at + 1 == len(words)):
            raise Objection("option", f"{name} is not known to be harmless with {words[at].text!r}.")
        inside = words[at].after(2) if value else words[at + 1]
        if inside.expands or (option == "-v" and not _AWK_ASSIGNMENT.fullmatch(inside.text)):
            raise Objection("option", f"{name} {option} is not known to be harmless with {inside.text!r}.")
        at += 1 if value else 2
    if at >= len(words) or words[at].expands:
        raise Objection("operand", f"{name} has no program that is written out.")
    program = words[at].text
    prints = program.find("print")
    sent = prints >= 0 and _AWK_SENT.search(program, prints)
    if sent or _AWK_UNKNOWN.search(program) or _WIDE.search(program):
        raise Objection("operand", f"The program of {name} is not known to be harmless.")
    for word in words[at + 1 :]:
        if word.may_be_option or word.text.startswith("-") or "/inet" in word.text:
            raise Objection("operand", f"{name} is not known to be harmless with {word.text!r}.")
    return Use(operands=words[at:])


def read_tar(words: tuple[Word, ...]) -> Use:
    """`tar -tf FILE` and its like: a name with a colon is another machine's."""
    texts = [word.text for word in words]
    if len(words) < 2 or any(word.expands for word in words) or not _TAR_LIST.fullmatch(texts[0]):
        raise Objection("option", "tar is known to be harmless only as `tar -tf FILE`.")
    if ":" in texts[1] or any(text.startswith("-") for text in texts[1:]):
        raise Objection("operand", f"tar is not known to be harmless with {' '.join(texts[1:])!r}.")
    return Use(operands=words[1:2])


def read_xargs(words: tuple[Word, ...]) -> Use:
    """Return the command that it runs, with any words behind it."""
    at, replaces = 0, False
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        number = _XARGS_NUMBER.fullmatch(text)
        if words[at].expands or not (number or text in ("-I{}", "-I", "-d") or _XARGS_ALONE.fullmatch(text)):
            raise Objection("option", f"xargs is not known to be harmless with {text!r}.")
        replaces = replaces or text.startswith("-I")
        at += 1
        if text in ("-I", "-d") or (number and not number[2]):
            value = words[at].text if at < len(words) and not words[at].expands else ""
            if not (value.isdecimal() if number else value == "{}" if text == "-I" else value):
                raise Objection("option", f"xargs {text} is not known to be harmless with {value!r}.")
            at += 1
    command = words[at:] or (Word("echo", 4, 4),)
    if command[0].expands or "{}" in command[0].text:
        raise Objection("expansion", "xargs runs a command that is not written out.")
    placed = tuple(ANY_WORD if replaces and "{}" in word.text else word for word in command)
    return Use(runs=((*placed, ANY_WORD),))
