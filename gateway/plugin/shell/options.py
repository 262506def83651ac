"""Reads the words of one command against its table: options with and without values, operands."""

import re
from dataclasses import dataclass
from typing import Literal

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.words import Word

Grammar = Literal[
    "options", "text", "find", "test", "sed", "lookup", "line", "printf", "awk", "tar", "xargs", "git", "jq"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command that may run by itself: every option it may have, by letter and by name.

    `attached` letters take the rest of their word as a value, `valued` letters the rest or the next word. Long names
    are exact: GNU's abbreviations are not listed. `open`: no option whatever does harm, so a glob may begin a word.
    `odd`: it reads its words in an unusual way, so only what every way agrees on is listed: letters without values
    together, a number behind its letter, any other value as the next word and without a dash, options in front of a
    limited operand. `reads`: with fewer operands it reads its input. `text`: that many first operands are not paths.
    `line`: all of its words, with a blank between them.
    """

    core: bool = False  # on the requirement's own list
    grammar: Grammar = "options"
    short: str = ""
    valued: str = ""
    attached: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    numeric: bool = False  # `-20`
    value: re.Pattern[str] | None = None
    operand: re.Pattern[str] | None = None
    operands: int | None = None  # at most
    open: bool = False
    odd: bool = False  # not read by getopt
    extended: frozenset[str] = frozenset()  # options that only the longer list has
    endless: frozenset[str] = frozenset()
    names: bool = False  # it shows names and facts of files, never what is in them
    walks: bool = False  # it always walks a tree
    recursive: frozenset[str] = frozenset()  # options that make it do so
    reads: int = 0
    text: int = 0
    pattern_options: frozenset[str] = frozenset()  # options that set what is otherwise the first operand
    patterns: frozenset[str] = frozenset()  # the ones of them whose value is a pattern
    line: re.Pattern[str] | None = None


def split_options(text: str) -> frozenset[str]:
    return frozenset(text.split())


def build_long_names(text: str) -> frozenset[str]:
    """With the two that every GNU program has."""
    return split_options(f"{text} help version")


@dataclass(frozen=True, slots=True)
class CommandUse:
    """One command as it is used; `values` are the options' values in their order, `runs` the commands that it runs."""

    options: frozenset[str] = frozenset()
    values: tuple[tuple[str, Word], ...] = ()
    operands: tuple[Word, ...] = ()
    runs: tuple[tuple[Word, ...], ...] = ()


def read_use(name: str, words: tuple[Word, ...], listed: CommandSpec) -> CommandUse:
    """Raise Objection where a word is not in the table or may become one that is not."""
    return _OptionReader(name, words, listed).use()


class _OptionReader:
    def __init__(self, name: str, words: tuple[Word, ...], listed: CommandSpec) -> None:
        self._name, self._words, self._listed = name, words, listed
        self._options: set[str] = set()
        self._values: list[tuple[str, Word]] = []
        self._operands: list[Word] = []
        self._at = 0

    def use(self) -> CommandUse:
        ended = False
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            late = self._listed.odd and self._listed.operands == len(self._operands)
            if ended or late or word.text == "-" or not word.text.startswith("-"):
                self._read_operand(word, ended=ended)
            elif word.text == "--":
                ended = True
            elif word.text.startswith("--"):
                self._read_long(word)
            else:
                self._read_cluster(word)
        return CommandUse(frozenset(self._options), tuple(self._values), tuple(self._operands))

    def _read_operand(self, word: Word, *, ended: bool) -> None:
        listed = self._listed
        if word.may_be_option and not listed.open and (word.wild or not ended):
            raise Objection("expansion", f"{word.text!r} may expand to an option of {self._name}.")
        self._operands.append(word)
        most = listed.operands
        if most is not None and (len(self._operands) > most or word.splits):
            count = "no operand" if most == 0 else f"at most {most} operand{'s' * (most > 1)}"
            raise Objection("operand", f"{self._name} is known to be harmless with {count}.")
        if listed.operand is not None and (word.expands or not listed.operand.fullmatch(word.text)):
            raise Objection("operand", f"{self._name} is not known to be harmless with {word.text!r}.")

    def _read_long(self, word: Word) -> None:
        name, equals, value = word.text[2:].partition("=")
        option = "--" + name
        if word.fixed < len(option) + 1 and word.expands:
            raise self._build_option_objection(word.text)
        if name in self._listed.long_valued:
            self._read_value(option, word.without_prefix(len(option) + 1) if equals else self._take_next(option))
        elif name in self._listed.long:
            self._options.add(option)
            if equals and word.splits and not self._listed.open:
                raise self._build_option_objection(word.text)
            if value:
                self._values.append((option, word.without_prefix(len(option) + 1)))
        else:
            raise self._build_option_objection(option)

    def _read_cluster(self, word: Word) -> None:
        text, listed = word.text, self._listed
        if listed.numeric and text[1:].isdecimal():
            return
        if listed.odd and not (
            set(text[1:]) <= set(listed.short) or (text[1] in listed.valued and _is_number(text[2:]))
        ):
            raise self._build_option_objection(text)
        for index, letter in enumerate(text[1:], 1):
            option = "-" + letter
            if index >= word.fixed:
                raise self._build_option_objection(text)
            if letter in listed.valued:
                inside = word.without_prefix(index + 1)
                if inside.may_be_option and not listed.open:
                    # Empty, it takes the next word for its value, and a later one becomes an option.
                    raise self._build_option_objection(text)
                self._read_value(option, inside if inside.text else self._take_next(option))
                return
            if letter in listed.attached:
                self._options.add(option)
                if word.expands:
                    raise self._build_option_objection(text)
                return
            if letter not in listed.short:
                raise self._build_option_objection(option)
            self._options.add(option)

    def _take_next(self, option: str) -> Word:
        if self._at == len(self._words):
            raise Objection("option", f"{self._name} {option} has no value.")
        word = self._words[self._at]
        self._at += 1
        dashed = word.text.startswith("-") and not _is_number(word.text[1:])
        if dashed and not self._listed.open:
            # For an implementation in which the option has no value, this is one.
            raise self._build_option_objection(word.text)
        return word

    def _read_value(self, option: str, word: Word) -> None:
        if word.splits and not self._listed.open:
            raise Objection("expansion", f"{word.text!r} may expand to an option of {self._name}.")
        wanted = self._listed.value
        if wanted is not None and (word.expands or not wanted.fullmatch(word.text)):
            raise Objection("option", f"{self._name} {option} is not known to be harmless with {word.text!r}.")
        self._options.add(option)
        self._values.append((option, word))

    def _build_option_objection(self, option: str) -> Objection:
        return Objection("option", f"{self._name} is not known to be harmless with {option!r}.")


def _is_number(text: str) -> bool:
    return not text or (text.isascii() and text.isdecimal())
