"""The reserved words `for` and `if`: which steps stand in them, and the variables that loops set.

A text that a shell refuses may pass here: each of its commands is judged, so the part that runs before the shell finds
the error is harmless. No command is taken for a reserved word.
"""

import re

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.words import Word

#: Deeper than anybody types.
_MOST_OPEN = 4
#: Names in capitals may be the shell's own (PATH, IFS, HOME).
_VARIABLE = re.compile("[a-z][a-z0-9_]*")
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

    def command(self, words: list[Word]) -> list[Word]:
        """Return the words of the step's command; none where it has reserved words only. Raises Objection."""
        at = 0
        while at < len(words) and words[at].bare and not words[at].expands and words[at].text in RESERVED:
            self.any = True
            reserved = words[at].text
            at += 1
            if reserved == "for":
                self._loop(words[at:])
                return []
            if reserved in _ENDS:
                self._close(reserved)
                if at < len(words):
                    raise _misplaced(words[at].text)
                return []
            if reserved == "if":
                self._begin("if")
            else:
                where, becomes = _INNER[reserved]
                if not self._open or self._open[-1] not in where:
                    raise _misplaced(reserved)
                self._open[-1] = becomes
        return words[at:]

    def end(self) -> None:
        if self._open:
            raise Objection("not_plain", f"The command is not plain sh: {self._open[-1]!r} has no end.")

    def _loop(self, words: list[Word]) -> None:
        plain = len(words) >= 2 and words[0].bare and _VARIABLE.fullmatch(words[0].text)
        if not plain or words[1].text != "in" or not words[1].bare or self._open.count("do"):
            raise Objection("not_plain", "The command is not plain sh: a loop that is not `for NAME in WORDS`.")
        self.variables.add(words[0].text)
        self._begin("for")

    def _begin(self, construct: str) -> None:
        self._open.append(construct)
        if len(self._open) > _MOST_OPEN:
            raise Objection("not_plain", f"The command is not plain sh: more than {_MOST_OPEN} nested constructs.")

    def _close(self, reserved: str) -> None:
        if not self._open or self._open.pop() not in _ENDS[reserved]:
            raise _misplaced(reserved)


def _misplaced(word: str) -> Objection:
    return Objection("not_plain", f"The command is not plain sh: {word!r} stands where it may not.")
