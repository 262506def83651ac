"""A plain text, read command by command against the tables: what each would do, or an Objection."""

import re
from dataclasses import dataclass

from gateway.plugin.shell.command_grammars import read_find, read_lookup, read_sed, read_test
from gateway.plugin.shell.commands import COMMANDS
from gateway.plugin.shell.git import read_git
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandSpec, CommandUse, read_use
from gateway.plugin.shell.parser import Script, SimpleCommand, parse
from gateway.plugin.shell.programs import (
    PYTHON_NAMES,
    WIDE,
    read_awk,
    read_jq,
    read_line,
    read_printf,
    read_tar,
    read_xargs,
)
from gateway.plugin.shell.words import Word

#: The folders of programs that only root can have planted.
_TRUSTED_FOLDERS = ("/bin/", "/usr/bin/")
#: Programs with formats of their own, in which a width is a number of blanks.
_FORMATTING = frozenset({"date", "stat", "find", "seq", "git"})
#: Programs whose numbers are widths: a large one prints as many blanks for each line or tab.
_LAYING_OUT = frozenset({"nl", "expand", "unexpand", "fmt", "fold", "column"})
_LARGE = re.compile(r"-.*[0-9]{6}|[0-9]{6,}")
#: What bash opens as a connection.
_NETWORK = re.compile(r"/dev/(?:tcp|udp)(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class ClassifiedCommand:
    """One command of a text: its name, its table, and how it is used."""

    name: str
    step: SimpleCommand
    listed: CommandSpec
    use: CommandUse


def read_command(text: str) -> tuple[Script, tuple[ClassifiedCommand, ...]]:
    """Raise Objection for what is not plain, and for the first command that is not known to be harmless."""
    script = parse(text)
    return script, tuple(_classify_command(step) for step in script.steps)


def _classify_command(step: SimpleCommand) -> ClassifiedCommand:
    name = _read_name(step.words[0])
    listed = COMMANDS.get(name)
    if listed is None:
        raise Objection("command", f"{step.words[0].text!r} is not on the list of harmless commands.")
    if listed.grammar == "git" and step.words[0].text != name:
        raise Objection("command", "git is known to be harmless only by its bare name.")
    if name in PYTHON_NAMES and step.words[0].text != name and step.words[1:2] and step.words[1].text == "-m":
        raise Objection("command", f"{name} -m is known to be harmless only by its bare name, or with -I.")
    for word in step.inputs:
        if _NETWORK.match(word.text):
            raise Objection("redirection", f"The command opens {word.text!r}.")
    wide = WIDE.search if name in _FORMATTING else _LARGE.match if name in _LAYING_OUT else None
    if wide is not None and any(wide(word.text) for word in step.words):
        raise Objection("operand", f"{name} would print more blanks than a person reads.")
    use = _read_use(name, step.words[1:], listed)
    if listed.grammar == "xargs" and not (step.has_input or "-a" in use.options):
        raise Objection("waits_for_input", "xargs would wait for input.")
    for words in use.runs:
        _read_run(name, words)
    return ClassifiedCommand(name, step, listed, use)


def _read_name(word: Word) -> str:
    """Return the command's name; "" where its spelling hides something."""
    if word.expands or word.tilde or not word.bare:
        return ""
    for folder in _TRUSTED_FOLDERS:
        if word.text.startswith(folder):
            return word.text.removeprefix(folder)
    return word.text


def _read_run(runner: str, words: tuple[Word, ...]) -> None:
    """Read a command that another one runs with unknown words: no word may make it do harm.

    find gives names of files that it found, xargs whatever it reads.
    """
    name = _read_name(words[0]) if words else ""
    listed = COMMANDS.get(name)
    if listed is None or not listed.open or listed.grammar not in ("options", "text") or name == "cd":
        raise Objection(
            "command", f"{runner} runs {words[0].text if words else ''!r}, which is not known to be harmless."
        )
    _read_use(name, words[1:], listed)


def _read_use(name: str, words: tuple[Word, ...], listed: CommandSpec) -> CommandUse:
    match listed.grammar:
        case "text":
            return CommandUse()
        case "find":
            return read_find(words)
        case "test":
            return read_test(name, words)
        case "sed":
            return read_sed(words)
        case "lookup":
            return read_lookup(words)
        case "line":
            return read_line(name, words, listed)
        case "printf":
            return read_printf(words)
        case "awk":
            return read_awk(name, words)
        case "tar":
            return read_tar(words)
        case "xargs":
            return read_xargs(words)
        case "git":
            return read_git(words)
        case "jq":
            return read_jq(words, listed)
        case "options":
            return read_use(name, words, listed)
