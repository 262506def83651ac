"""The reserved words `for` and `if`: which steps stand in them, and the variables that loops set.

A text that a shell refuses may pass here: each of its commands is judged, so the part that runs before the shell finds
the error is harmless. No command is taken for a reserved word.
"""

from string import ascii_lowercase

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.words import Word
from gateway.plugin.word_lists import split_words

#: Deeper than any typed command.
_MOST_OPEN = 4
#: The names that a loop may set. A shell keeps a variable exported that was exported, and programs read names of any
#: spelling (PATH, npm_config_userconfig, http_proxy), so these are names that no program reads.
LOOP_NAMES = split_words("""
    arg archive author base branch change class column commit csv date day dep dir doc domain entry extension field file
    filename folder func image index item job json key label letter lib line link log md method migration model module
    month name node num number package page part pattern pid pkg port proj project py record ref repo result row script
    section service size source src step string sub table tag target task test text title url value var version week
    word year
""") | frozenset(ascii_lowercase)
#: Word by word: the constructs in which it may stand, and the one that it begins.
_INNER = {
    "then": (("if",), "then"),
    "elif": (("then",), "if"),
    "else": (("then",), "else"),
    "do": (("for",), "do"),
}
_ENDS = {"fi": ("then", "else"), "done": ("do",)}
RESERVED = frozenset({"for", "if", *_INNER, *_ENDS})


class Constructs:
    """Takes the reserved words in front of each step away."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.any = False
        self._open: list[str] = []

    def read_command(self, words: list[Word]) -> list[Word]:
        """Return the words of the step's command; none where it has reserved words only. Raises Objection."""
        at = 0
        while at < len(words) and words[at].bare and not words[at].expands and words[at].text in RESERVED:
            self.any = True
            reserved = words[at].text
            at += 1
            if reserved == "for":
                self._read_loop(words[at:])
                return []
            if reserved in _ENDS:
                self._close(reserved)
                if at < len(words):
                    raise _build_misplaced_objection(words[at].text)
                return []
            if reserved == "if":
                self._begin("if")
            else:
                where, becomes = _INNER[reserved]
                if not self._open or self._open[-1] not in where:
                    raise _build_misplaced_objection(reserved)
                self._open[-1] = becomes
        return words[at:]

    def end(self) -> None:
        if self._open:
            raise Objection("not_plain", f"The command is not plain sh: {self._open[-1]!r} has no end.")

    def _read_loop(self, words: list[Word]) -> None:
        plain = len(words) >= 2 and words[0].bare and words[1].text == "in" and words[1].bare
        if not plain or self._open.count("do"):
            raise Objection("not_plain", "The command is not plain sh: a loop that is not `for NAME in WORDS`.")
        name = words[0].text
        if name not in LOOP_NAMES:
            raise Objection(
                "variable", f"The loop sets {name!r}, which a program may read: call it `file`, `name` or `i`."
            )
        self.variables.add(name)
        self._begin("for")

    def _begin(self, construct: str) -> None:
        self._open.append(construct)
        if len(self._open) > _MOST_OPEN:
            raise Objection("not_plain", f"The command is not plain sh: more than {_MOST_OPEN} nested constructs.")

    def _close(self, reserved: str) -> None:
        if not self._open or self._open.pop() not in _ENDS[reserved]:
            raise _build_misplaced_objection(reserved)


def _build_misplaced_objection(word: str) -> Objection:
    return Objection("not_plain", f"The command is not plain sh: {word!r} stands where it may not.")
