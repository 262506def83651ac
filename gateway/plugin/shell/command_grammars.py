"""The commands whose words are a language of their own: find, test, sed, command -v."""

import re

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandUse
from gateway.plugin.shell.words import ANY_WORD, Word

_FIND_ALONE = frozenset(
    [
        "!",
        "(",
        ")",
        ",",
        "-a",
        "-and",
        "-o",
        "-or",
        "-not",
        "-true",
        "-false",
        "-empty",
        "-print",
        "-print0",
        "-ls",
        "-prune",
        "-quit",
        "-depth",
        "-d",
        "-xdev",
        "-mount",
        "-daystart",
        "-follow",
        "-nouser",
        "-nogroup",
        "-readable",
        "-writable",
        "-executable",
        "-noleaf",
        "-ignore_readdir_race",
        "-noignore_readdir_race",
        "-warn",
        "-nowarn",
        "-help",
        "--help",
        "-version",
        "--version",
    ]
)
_FIND_VALUED = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-iwholename",
        "-regex",
        "-iregex",
        "-lname",
        "-ilname",
        "-type",
        "-xtype",
        "-size",
        "-perm",
        "-user",
        "-group",
        "-uid",
        "-gid",
        "-mtime",
        "-atime",
        "-ctime",
        "-mmin",
        "-amin",
        "-cmin",
        "-newer",
        "-anewer",
        "-cnewer",
        "-maxdepth",
        "-mindepth",
        "-inum",
        "-links",
        "-samefile",
        "-fstype",
        "-used",
        "-regextype",
        "-printf",
    ]
)
#: Actions that write or run. Implementations disagree on which words are values, so these stand in no other place.
_FIND_ACTION = re.compile("-(?:delete|exec|execdir|ok|okdir|fls|fprint|fprint0|fprintf|files0-from|f|rm|unlink)")
_FIND_NEWER = re.compile("-newer[aBcm][aBcmt]")
_FIND_LEADING = re.compile("-[HLP]|-O[0-3]")
_FIND_PATHS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
#: Tests whose pattern narrows what a walk of the whole machine prints.
_FIND_NARROWS = frozenset(
    ["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname", "-ilname"]
)

_TEST_UNARY = frozenset(
    [
        "-e",
        "-f",
        "-d",
        "-r",
        "-w",
        "-x",
        "-s",
        "-L",
        "-h",
        "-b",
        "-c",
        "-p",
        "-S",
        "-u",
        "-g",
        "-k",
        "-O",
        "-G",
        "-N",
        "-z",
        "-n",
    ]
)
_TEST_BINARY = frozenset({"=", "==", "!=", "-nt", "-ot", "-ef"})
_TEST_NUMBERS = frozenset({"-eq", "-ne", "-gt", "-ge", "-lt", "-le"})
_WHOLE_NUMBER = re.compile("-?[0-9]+")
# What some shell's test would evaluate as a subscript.
_TEST_EVALUATED = re.compile(r"[\[$`(]")

# Of one substitution everything between three marks is text, and no flag runs or writes.
_SED_ALONE = "|".join(
    rf"s[{mark}](?:[^{mark}\\\n]|\\[^\n])++[{mark}](?:[^{mark}\\\n]|\\[^\n])*+[{mark}][gpiI0-9]*" for mark in "/|,#"
)
# In a longer script it matters where each command ends. GNU's sed ends a pattern at a mark in brackets, the seds of BSD
# and busybox do not: no bracket holds one, and no escape. So all of them agree, and no command runs or writes.
_SED_PATTERN = r"(?:[^{0}\\\n\[]|\\[^{0}\n]|\[\^?\]?(?:\[:[a-z]+:\]|[^]\[{0}\\\n]|\\[A-Za-z.])*+\])++"
_SED_TEXT = r"(?:[^{0}\\\n]|\\[^\n])*+"
_SED_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_SED_PATTERN.format('/')}/)"
_SED_WHERE = rf"(?:{_SED_ADDRESS}(?:,(?:\+?[0-9]+|\$|/{_SED_PATTERN.format('/')}/))?!?)?"
_SED_SUBSTITUTE = "|".join(
    rf"s[{mark}]{_SED_PATTERN.format(mark)}[{mark}]{_SED_TEXT.format(mark)}[{mark}][gpiI0-9]*" for mark in "/|,#"
)
_SED_COMMAND = rf"{_SED_WHERE} ?(?:[pdq=]|{_SED_SUBSTITUTE})"
_SED_SCRIPT = re.compile(rf"{_SED_ALONE}|{_SED_COMMAND}(?: ?; ?{_SED_COMMAND})*+;?")
_SED_FLAGS = frozenset({"-n", "--quiet", "--silent", "-E", "-r", "--regexp-extended"})


def read_find(words: tuple[Word, ...]) -> CommandUse:
    """Read a find: starting points are operands, tests and actions are values. Anything not listed is objected to."""
    at = 0
    while at < len(words) and _FIND_LEADING.fullmatch(words[at].text):
        at += 1
    starts: list[Word] = []
    while at < len(words) and not words[at].text.startswith(("-", "(", ")", ",", "!")):
        _refuse_predicate(words[at])
        starts.append(words[at])
        at += 1
    options: set[str] = set()
    values: list[tuple[str, Word]] = []
    runs: list[tuple[Word, ...]] = []
    while at < len(words):
        predicate = words[at].text
        at += 1
        if words[at - 1].expands:
            raise Objection("expansion", f"{predicate!r} may expand to an action of find.")
        options.add(predicate)
        if predicate in _FIND_ALONE:
            continue
        if predicate == "-exec":
            command, at = _parse_exec_command(words, at)
            runs.append(command)
            continue
        if predicate not in _FIND_VALUED and not _FIND_NEWER.fullmatch(predicate):
            raise Objection("option", f"find is not known to be harmless with {predicate!r}.")
        if at == len(words):
            raise Objection("option", f"find {predicate} has no value.")
        if _FIND_ACTION.fullmatch(words[at].text):
            raise Objection("option", f"Not every find reads {words[at].text!r} as the value of {predicate}.")
        if words[at].splits:
            _refuse_predicate(words[at])
        values.append((predicate, words[at]))
        at += 1
    return CommandUse(frozenset(options), tuple(values), tuple(starts), tuple(runs))


def _parse_exec_command(words: tuple[Word, ...], start: int) -> tuple[tuple[Word, ...], int]:
    """Return the command of an `-exec` with any word for each that holds a name, and where the next test begins.

    GNU's find ends a command at `;` and at the `+` behind a `{}`, the finds of busybox and toybox at any `+`.
    """
    for at in range(start, len(words)):
        text = words[at].text
        if words[at].expands:
            raise Objection("expansion", f"{text!r} may end the command of find -exec.")
        if text == ";" or (text == "+" and words[at - 1].text == "{}"):
            return tuple(ANY_WORD if "{}" in word.text else word for word in words[start:at]), at + 1
        if text == "+" or _FIND_ACTION.fullmatch(text):
            raise Objection("option", f"Not every find reads {text!r} as an argument of the command that it runs.")
    raise Objection("option", "find -exec has no end.")


def is_narrow(use: CommandUse) -> bool:
    """Return whether a find prints few of the files it visits: by a pattern with something fixed in it, or by depth."""
    return any(
        (option in _FIND_NARROWS and re.search(r"[^*?.\[\]\\^$/]", word.text))
        or (option == "-maxdepth" and word.text in ("0", "1", "2"))
        for option, word in use.values
    )


def find_paths(use: CommandUse) -> tuple[Word, ...]:
    return use.operands + tuple(word for option, word in use.values if option in _FIND_PATHS or "newer" in option)


def read_test(name: str, words: tuple[Word, ...]) -> CommandUse:
    """`test` and `[` with one plain condition."""
    if name == "[":
        if not words or words[-1].text != "]":
            raise Objection("operand", "[ has no closing ].")
        words = words[:-1]
    if any(word.splits for word in words):
        raise Objection("expansion", f"{name} is harmless only with plain operands.")
    if words and words[0].text == "!":
        words = words[1:]
    texts = [word.text for word in words]
    if any(not word.expands and _TEST_EVALUATED.search(word.text) for word in words):
        raise Objection("operand", f"An operand of {name} may be evaluated by the shell.")
    unary = len(words) == 2 and texts[0] in _TEST_UNARY
    binary = len(words) == 3 and texts[1] in _TEST_BINARY
    numbers = len(words) == 3 and texts[1] in _TEST_NUMBERS and all(map(_WHOLE_NUMBER.fullmatch, (texts[0], texts[2])))
    if len(words) <= 1 or unary or binary or numbers:
        return CommandUse()
    raise Objection("operand", f"{name} is known to be harmless with one plain condition.")


def read_sed(words: tuple[Word, ...]) -> CommandUse:
    """`sed` with scripts that print, delete, substitute or quit, in front of its files."""
    at = 0
    scripts: list[Word] = []
    while at < len(words) and (words[at].text in _SED_FLAGS or words[at].text == "-e"):
        if words[at].text == "-e":
            at += 1
            scripts.append(words[at] if at < len(words) else ANY_WORD)
        at += 1
    if not scripts:
        scripts += words[at : at + 1]
        at += 1
    if not scripts or any(script.expands or not _SED_SCRIPT.fullmatch(script.text) for script in scripts):
        raise Objection("operand", "sed is known to be harmless only with the commands p, d, q, = and s, written out.")
    for word in words[at:]:
        if word.text.startswith("-") and word.text != "-":
            raise Objection("option", f"sed is not known to be harmless with {word.text!r}.")
        if word.may_be_option:
            raise Objection("expansion", f"{word.text!r} may expand to an option of sed.")
    return CommandUse(operands=words[at:])


def read_lookup(words: tuple[Word, ...]) -> CommandUse:
    """`command -v NAME` looks up; without it the command runs."""
    if len(words) < 2 or words[0].text not in ("-v", "-V") or any(word.expands for word in words):
        raise Objection("option", "command is harmless only as `command -v NAME`.")
    return CommandUse()


def _refuse_predicate(word: Word) -> None:
    """Raise Objection if a word may expand to a predicate of find, which is a dash and letters, without a dot."""
    if not word.expands:
        return
    tail = word.text[len(word.text) - word.tail :]
    begins = word.fixed > 0 and not word.text.startswith("-")
    if word.wild or "{" in word.text or not (begins or (word.splits and "." in tail)):
        raise Objection("expansion", f"{word.text!r} may expand to an action of find.")
