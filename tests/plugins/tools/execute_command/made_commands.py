"""Commands made by chance: by a grammar of words, options and quotes, and by changes to what people really type."""

import json
import random
from collections.abc import Iterator
from typing import Final

from gateway.plugin.shell.commands import COMMANDS
from tests.verdicts import DATA

#: Files of the folder in which they run, among them options in disguise, and programs that would leave a trace.
FILES: Final = (
    *("a", "b c", "data.csv", "src/x.py", "-delete", "-oout", "--pre=./evil", "-exec", ";", "--output=out", "x.txt"),
    *(
        ".env",
        "server.key",
        "e[v]il",
        "$HOME",
        "{}",
        "it's",
        "é你",
        "--compress-program=evil",
        "-fprint",
        "--files0-from=a",
    ),
)
PROGRAMS: Final = ("evil", "ls", "bin/ls", ".local/bin/cat", "git", "sh", "x")
#: What the variables hold that a text may name: nobody may count on a value.
VARIABLES: Final = (
    {},
    {"USER": "-delete", "SHELL": "a -exec ./evil ;", "LANG": "-oout"},
    {"USER": "--pre=./evil", "SHELL": "", "LANG": "* -o out"},
    {"USER": "-fprint out", "SHELL": "-delete", "LANG": "--output=out"},
)

_NAMES: Final = (
    "a",
    "./a",
    "data.csv",
    "src",
    "src/x.py",
    "x.txt",
    ".",
    "..",
    "~",
    "~/a",
    "out",
    "-",
    "nope",
    "é你",
    "evil",
)
_WORDS: Final = (
    *("$(ls)", '"$(ls -a)"', "$(echo -delete)", "$(git ls-files)", "%n", "'%n'", "PATH", "{} + -delete", "-e", "10q"),
    *(
        "*",
        "?",
        "[-]*",
        "[-.]delete",
        "-*",
        "./*",
        "*.py",
        "{a,-oout}",
        "{}",
        "x{,.py}",
        "--",
        "1",
        "p",
        "1,2p",
        "'1e ./evil'",
    ),
    *(
        "$HOME",
        '"$USER"',
        "$SHELL",
        "$SHELL-delete",
        '"$LANG"x',
        "${USER}",
        "x$USER",
        "$PWD",
        '"$PWD/a"',
        "$f",
        "~root",
    ),
    *(
        "-delete",
        "-exec",
        "./evil",
        ";",
        "\\;",
        "+",
        "-o",
        "out",
        "-oout",
        "--output=out",
        "--pre=./evil",
        "--pre",
        "-name",
    ),
    *(
        "'{print $1}'",
        "'{print > \"out\"}'",
        "'s/a/b/w out'",
        "s/a/b/",
        "'s/a/b/e'",
        "+%Y",
        "-e1e",
        "@a",
        "log",
        "status",
    ),
    *(
        "'a b'",
        '"a;b"',
        "a\\ b",
        "''",
        "'\\'",
        '"\\$x"',
        "é",
        "'你 好'",
        "#x",
        "a#b",
        "=",
        "x=1",
        "HEAD",
        "@{u}",
        "!",
        "\\(",
    ),
)
_BETWEEN: Final = (" | ", " && ", " || ", "; ", "\n", " |\n", ";", "\\\n; ", " & ", " &&\n ", " # x\n", "|& ")
_BEHIND: Final = (
    *(
        " >/dev/null",
        " 2>/dev/null",
        " 2>&1",
        " <a",
        " <<x\nrm a\nx",
        " <<'x' | sort\n$(./evil)\nx",
        " <<-x\n\tx",
        " >out",
        " >>out",
        " <$USER",
        " 2>out",
        " >&out",
        " &>/dev/null",
        " #x",
    ),
    *(" {a}>/dev/null", " <>out", " >|out", " <<x", " \\\n", " ;", " 3>out", ' <"$PWD/a"', " </dev/null", "\\\n", " &"),
)
_LETTERS: Final = " \t\n'\"\\$`*?[]{}~#;&|<>()!=-+%@:,./^aeiopvwx0159éＡ\u00a0\u200b"
#: Endless by design (docs/approvals.md), or as large as the machine.
_SLOW: Final = ("lsof", "tail")


def made(chance: random.Random) -> Iterator[str]:
    """Texts without end."""
    seeds = list(_seeds())
    names = [name for name in COMMANDS if name not in _SLOW]
    while True:
        yield _changed(chance, chance.choice(seeds)) if chance.random() < 0.5 else _built(chance, names)


def _seeds() -> Iterator[str]:
    """What is typed, where it stays within the folder: another one may be as large as the machine."""
    for name in ("command", "command_further", "everyday"):
        for line in (DATA / f"{name}.jsonl").read_text().splitlines():
            command = json.loads(line)["arguments"].get("command")
            if isinstance(command, str) and len(command) < 200 and not _far(command):
                yield command


def _far(command: str) -> bool:
    return any(part in command for part in (" /", "tail", "lsof", "seq", "~root", "free -s", "'/"))


def _built(chance: random.Random, names: list[str]) -> str:
    text = ""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text += chance.choice(_BETWEEN) if text else ""
        text += _command(chance, names)
    if chance.random() < 0.1:
        text = chance.choice(
            (
                f"for f in * x; do {text}; done",
                f"for PATH in . bin; do {text}; done",
                f"echo $({text})",
                f"if [ -f a ]; then {text}; fi",
                f"cd src && {text}",
            )
        )
    return text


def _command(chance: random.Random, names: list[str]) -> str:
    name = chance.choice(names)
    words = [name]
    if name == "git":
        words.append(
            chance.choice(("status", "log", "diff", "show", "branch", "ls-files", "blame", "grep", "config", "tag"))
        )
    words += [_word(chance, name) for _ in range(chance.randrange(5))]
    return " ".join(words) + (chance.choice(_BEHIND) if chance.random() < 0.2 else "")


def _word(chance: random.Random, name: str) -> str:
    listed, kind = COMMANDS[name], chance.random()
    if kind < 0.35:
        letters = listed.short + listed.valued + listed.attached
        if letters and chance.random() < 0.9:
            word = "-" + "".join(chance.choices(letters, k=chance.randint(1, 2)))
            return word + (chance.choice(_NAMES + _WORDS) if chance.random() < 0.2 else "")
        return "-" + chance.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123")
    if kind < 0.5 and listed.long | listed.long_valued:
        long = chance.choice(sorted(listed.long | listed.long_valued))
        cut = chance.randint(2, len(long)) if chance.random() < 0.1 else len(long)
        return f"--{long[:cut]}" + (f"={chance.choice(_NAMES + _WORDS)}" if chance.random() < 0.5 else "")
    return _spelled(chance, chance.choice(_NAMES)) if kind < 0.75 else chance.choice(_WORDS)


def _spelled(chance: random.Random, word: str) -> str:
    """The same word, or nearly, in quotes and escapes."""
    at = chance.randrange(len(word))
    return chance.choice(
        (
            word,
            word,
            f"'{word}'",
            f'"{word}"',
            f"{word[:at]}\\{word[at:]}",
            f"{word[:at]}''{word[at:]}",
            f"{word[:at]}*",
        )
    )


def _changed(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        at = chance.randint(0, len(text))
        kind = chance.random()
        if kind < 0.4:
            text = text[:at] + chance.choice(_LETTERS) + text[at:]
        elif kind < 0.55:
            text = text[:at] + text[at + 1 :]
        elif kind < 0.8:
            text = text[:at] + " " + chance.choice(_WORDS + _NAMES) + " " + text[at:]
        else:
            text = text[:at] + chance.choice(_BEHIND + _BETWEEN) + text[at:]
    return text if not _far(text) else "pwd"
