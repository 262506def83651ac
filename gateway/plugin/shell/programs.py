"""The programs beyond reading texts and files: versions, processes and sockets, archives, awk, printf, xargs."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandSpec, CommandUse, build_long_names, read_use
from gateway.plugin.shell.words import ANY_WORD, Word


def _build_line_spec(pattern: str) -> CommandSpec:
    return CommandSpec(grammar="line", line=re.compile(pattern), operands=0)


_VERSION = _build_line_spec("-V|--version")
_VERSION_OR_V = _build_line_spec("-v|--version")
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_PIP_READS = (
    rf"-V|--version|(?:list|freeze)(?: --(?:local|user|all|not-required|exclude-editable))*"
    rf"|list --format(?:=| )(?:columns|freeze|json)|show(?: -f| --files)?(?: {_NAME})+|check"
)
_PIP = _build_line_spec(_PIP_READS)
#: Without -I a Python before 3.11 takes the module from the work folder: PYTHON_FUNCTION adds it. `-I m` is a file. A
#: second file of json.tool is written.
_PYTHON = _build_line_spec(
    rf"-V|--version|(?:(?:-I )?-m|-Im) pip (?:{_PIP_READS})"
    r"|(?:(?:-I )?-m|-Im) json\.tool(?: --(?:sort-keys|no-ensure-ascii|json-lines|tab|compact|indent [0-9]))*"
    r"(?: [^-\s]\S*)?"
)
PYTHON_NAMES: Final = frozenset({"python", "python3"})
#: Python that takes no module from the work folder, under the names that the judge reads without -I.
PYTHON_FUNCTION: Final = """python() { command python -I "$@"; }
python3() { command python3 -I "$@"; }
"""

#: What a version needs to be read from system folders alone is in `shell_environment`.
PROGRAMS: Mapping[str, CommandSpec] = MappingProxyType(
    {
        **dict.fromkeys(PYTHON_NAMES, _PYTHON),
        **dict.fromkeys(("cargo", "rustc", "bash"), _VERSION),
        **dict.fromkeys(("node", "npm", "ruby", "perl"), _VERSION_OR_V),
        **dict.fromkeys(("gcc", "g++", "cc", "make", "cmake"), _build_line_spec("--version")),
        "openssl": _build_line_spec("version(?: -[abdefopv]+)?"),
        **dict.fromkeys(("pip", "pip3"), _PIP),
        "go": _build_line_spec("version|env(?: -json| -changed)?(?: [A-Z][A-Z0-9_]*)*"),
        "whereis": CommandSpec(short="bmsu", open=True, text=256),
        "env": CommandSpec(short="0", long=build_long_names("null"), operands=0),
        "printenv": CommandSpec(short="0", long=build_long_names("null"), text=256),
        "ss": CommandSpec(
            short="atulnpxesomirw46HOh",
            long=build_long_names("all listening tcp udp numeric processes summary unix ipv4 ipv6 no-header oneline"),
            operands=0,
        ),
        "lsof": _build_line_spec(
            r"(?:-[nPtlw]+ )*-[nPtlw]*(?:i ?(?:tcp|TCP|udp|UDP)?:[0-9]{1,5}|p ?[0-9,]+)(?: -[nPtlw]+)*"
        ),
        # Some take the word behind a bare -Z for its value.
        "unzip": _build_line_spec(r"(?:-l|-v|-lv|-vl|-lq|-ql|-Z1|-p) [^-\s]\S*(?: [^-\s]\S*)*"),
        "printf": CommandSpec(grammar="printf"),
        "awk": CommandSpec(grammar="awk", reads=2, text=1),
        **dict.fromkeys(("gawk", "mawk"), CommandSpec(grammar="awk", reads=2, text=1)),
        "tar": CommandSpec(grammar="tar"),
        "xargs": CommandSpec(grammar="xargs", reads=1),
        "git": CommandSpec(grammar="git"),
    }
)

#: A width that prints an excess of text, or that is computed.
WIDE = re.compile(r"%[-+ #0_^E]*(?:\*|[0-9]{5})|%[-+ #0-9]*\.(?:\*|[0-9]{5})|%[<>|]*\([^)]*[0-9]{5}")
#: Conversions that print. bash sets the variable that the argument of another one, `%n`, names.
_PRINTF = re.compile(r"(?:[^%]|%%|%[-+ #0]*+[0-9]*+(?:\.[0-9]*+)?[hlL]{0,2}[diouxXeEfFgGaAcsbq])*+")

# Wherever these stand (a string, a pattern, a name): nothing is lexed, so nothing is mislexed.
_AWK_UNKNOWN = re.compile(
    r"system|getline|close|fflush|func|while|\bdo\b|@|ARG[CV]|PROCINFO|ENVIRON|SYMTAB|OFMT|CONVFMT|PREC|include|load"
    r"|extension|/inet|/dev|/proc|\\\n|\bfor\b(?! *\( *[A-Za-z_]\w* +in +[A-Za-z_]\w* *\))"
)
_AWK_SENT = re.compile(r">|(?<!\|)\|(?!\|)")
#: Variables of an awk are in capitals; of these nothing but the layout depends. A value is not a format of numbers.
_AWK_ASSIGNMENT = re.compile(r"(?:[a-z_]\w*|FS|OFS|RS|ORS|IGNORECASE)=[^@%]*")
_AWK_NAMED = re.compile(r"[A-Za-z_]\w*=")
_AWK_FORMATS = re.compile(r"printf\b")
_AWK_TEXT = r'"(?:[^"\\\n]|\\.)*+"'
_AWK_FORMAT = re.compile(rf"printf *(?:{_AWK_TEXT} *(?=[,;}}\n]|\Z)|\( *{_AWK_TEXT} *(?:,|\) *(?=[;}}\n]|\Z)))")

_TAR_LIST = re.compile(r"-?(?=[tvzjJ]*t)[tvzjJ]+f")
_XARGS_ALONE = re.compile("-[0r]+")
_XARGS_NUMBER = re.compile("-([nL])([0-9]*)")


def read_line(name: str, words: tuple[Word, ...], listed: CommandSpec) -> CommandUse:
    """Return all words together, as they are listed."""
    texts = [word.text for word in words]
    hidden = any(word.expands or word.tilde or re.search(r"\s", word.text) for word in words)
    if hidden or listed.line is None or not listed.line.fullmatch(" ".join(texts)):
        raise Objection("option", f"{name} is not known to be harmless with {' '.join(texts)!r}.")
    return CommandUse(operands=words)


def read_printf(words: tuple[Word, ...]) -> CommandUse:
    """Return a format that is written out, sets nothing, and no option: bash's printf -v evaluates."""
    form = words[0].text if words else "-"
    if form.startswith("-") or words[0].expands or WIDE.search(form) or not _PRINTF.fullmatch(form):
        raise Objection("operand", "printf is known to be harmless only with a plain format in front.")
    return CommandUse()


def read_awk(name: str, words: tuple[Word, ...]) -> CommandUse:
    """Return a program that only prints: no redirection, pipe, command, endless loop or file name."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        option, value = words[at].text[:2], words[at].text[2:]
        if option not in ("-F", "-v") or words[at].expands or (not value and at + 1 == len(words)):
            raise Objection("option", f"{name} is not known to be harmless with {words[at].text!r}.")
        inside = words[at].without_prefix(2) if value else words[at + 1]
        if inside.expands or (option == "-v" and not _AWK_ASSIGNMENT.fullmatch(inside.text)):
            raise Objection("option", f"{name} {option} is not known to be harmless with {inside.text!r}.")
        at += 1 if value else 2
    if at >= len(words) or words[at].expands:
        raise Objection("operand", f"{name} has no program that is written out.")
    program = words[at].text
    prints = program.find("print")
    sent = prints >= 0 and _AWK_SENT.search(program, prints)
    computed = len(_AWK_FORMATS.findall(program)) > len(_AWK_FORMAT.findall(program))
    if sent or computed or _AWK_UNKNOWN.search(program) or WIDE.search(program):
        raise Objection("operand", f"The program of {name} is not known to be harmless.")
    for word in words[at + 1 :]:
        assigns = not _AWK_ASSIGNMENT.fullmatch(word.text) and _AWK_NAMED.match(word.text)
        if word.may_be_option or word.text.startswith("-") or "/inet" in word.text or assigns:
            raise Objection("operand", f"{name} is not known to be harmless with {word.text!r}.")
    return CommandUse(operands=words[at:])


def read_tar(words: tuple[Word, ...]) -> CommandUse:
    """`tar -tf FILE` and its like: a name with a colon is another machine's."""
    texts = [word.text for word in words]
    if len(words) < 2 or any(word.expands for word in words) or not _TAR_LIST.fullmatch(texts[0]):
        raise Objection("option", "tar is known to be harmless only as `tar -tf FILE`.")
    if ":" in texts[1] or any(text.startswith("-") for text in texts[1:]):
        raise Objection("operand", f"tar is not known to be harmless with {' '.join(texts[1:])!r}.")
    return CommandUse(operands=words[1:2])


def read_xargs(words: tuple[Word, ...]) -> CommandUse:
    """Return the command that it runs, with any words behind it, and the file of words that it reads."""
    at, replaces = 0, False
    values: list[tuple[str, Word]] = []
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        number = _XARGS_NUMBER.fullmatch(text)
        if words[at].expands or not (number or text in ("-I{}", "-I", "-d", "-a") or _XARGS_ALONE.fullmatch(text)):
            raise Objection("option", f"xargs is not known to be harmless with {text!r}.")
        replaces = replaces or text.startswith("-I")
        at += 1
        if text in ("-I", "-d", "-a") or (number and not number[2]):
            value = words[at].text if at < len(words) and not words[at].expands else ""
            fits = value.isdecimal() if number else value == "{}" if text == "-I" else value[:1] not in ("", "-")
            if not fits:
                raise Objection("option", f"xargs {text} is not known to be harmless with {value!r}.")
            if text == "-a":
                values.append((text, words[at]))
            at += 1
    command = words[at:] or (Word("echo", 4, 4),)
    if command[0].expands or "{}" in command[0].text:
        raise Objection("expansion", "xargs runs a command that is not written out.")
    placed = tuple(ANY_WORD if replaces and "{}" in word.text else word for word in command)
    return CommandUse(frozenset(option for option, _ in values), tuple(values), runs=((*placed, ANY_WORD),))


_JQ_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_JQ_NAMED = frozenset({"--arg", "--argjson", "--slurpfile", "--rawfile"})
_JQ_FILTER = re.compile(r"(?!.*(?:\benv\b|\$ENV|\b(?:import|include|modulemeta|get_search_list)\b)).*", re.DOTALL)


def read_jq(words: tuple[Word, ...], listed: CommandSpec) -> CommandUse:
    """Return a filter that reads no environment and no module, in front of its files."""
    rest: list[Word] = []
    files: list[tuple[str, Word]] = []
    at = 0
    while at < len(words):
        option = words[at].text
        if option not in _JQ_NAMED:
            rest.append(words[at])
            at += 1
            continue
        pair = words[at + 1 : at + 3]
        if (
            len(pair) < 2
            or pair[0].expands
            or not _JQ_NAME.fullmatch(pair[0].text)
            or pair[1].splits
            or pair[1].text[:1] == "-"
        ):
            raise Objection("option", f"jq {option} is known to be harmless only with a plain name and one value.")
        if option in ("--slurpfile", "--rawfile"):
            files.append((option, pair[1]))
        at += 3
    use = read_use("jq", tuple(rest), listed)
    if use.operands and (use.operands[0].expands or not _JQ_FILTER.fullmatch(use.operands[0].text)):
        raise Objection("operand", f"jq is not known to be harmless with {use.operands[0].text!r}.")
    return CommandUse(use.options, (*use.values, *files), use.operands)
