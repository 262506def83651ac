"""A run of backticks or tildes in a model's answer: the first or last line of a fenced block, or neither.

The rules are more lenient than CommonMark where models are sloppy. A fence with a language may begin behind text, and a
block of JSON may be on one line with its fences. A bounded number of characters decides everything.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gateway.agent.output.candidate import HEAD_CHARS, could_be_call

#: A longer run is two.
RUN_CHARS = 64
#: A longer first line is not waited for.
INFO_CHARS = 200

#: Before a fence: indentation, quote marks, and one mark of a list.
_LINE_START = re.compile(r"[\s>]*+(?:(?:[-*+]|\d{1,9}[.)])\s++)?[\s>]*+")
_CODE_LINE_START = re.compile(r"[\s>]*+")
_INFO = re.compile(r"([ \t]*)([A-Za-z0-9_+.#-]*)[ \t\r]*")
#: Languages of blocks that hold data, as "" does: JSON with any ending, and what models call blocks of tool calls.
_DATA = re.compile(r"(?:json\w*|tools?(?:_\w+)?|function_?calls?)?")
_BLANK = re.compile(r"[ \t\r]{0,64}+(?:\n|(\Z))")

Kind = Literal["json", "code", "close", "none", "wait"]


@dataclass(frozen=True, slots=True)
class Fence:
    """An open block, with the character and the length of the run that opened it."""

    character: str
    length: int

    def find_candidate_end(self, data: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Return the latest end of a candidate within this block, and whether that end is certain.

        No line of JSON begins with a fence.
        """
        found = _compile_end_pattern(self.character, self.length, final).search(data, at)
        if found is None:
            return len(data), False
        return (found.start() + 1, True) if found[1] else (found.start(), False)


@lru_cache
def _compile_end_pattern(character: str, length: int, final: bool) -> re.Pattern[str]:
    """Return a pattern for the line that closes a block.

    It also matches the line's beginning at the end of the text.
    """
    beginning = "" if final else rf"|{character}*+\Z"
    return re.compile(rf"\n[ \t]{{0,64}}+(?:({character}{{{length}}}){beginning})")


def find_run_end(data: str, at: int) -> int:
    """Return the offset behind the run of the character at `at`, of RUN_CHARS at most."""
    end, most = at + 1, min(len(data), at + RUN_CHARS)
    while end < most and data[end] == data[at]:
        end += 1
    return end


def may_open(line: str) -> bool:
    """Return whether a fence behind this beginning of a line is at the line's start."""
    return _LINE_START.fullmatch(line) is not None


def read_line(data: str, at: int, *, starts: bool, inside: Fence | None, called: bool, final: bool) -> tuple[Kind, int]:
    """Return the kind of the run at `at`, and the offset behind everything that belongs to it.

    `starts`: it is at the start of its line. `inside`: the block of JSON that is open. `called`: that block contained a
    call.
    """
    end = find_run_end(data, at)
    if end - at < 3 or end - at == RUN_CHARS:
        return "none", end
    line, newline, _ = data[end : end + INFO_CHARS].partition("\n")
    info = _INFO.match(line)
    assert info is not None
    behind, language, after = line[info.end() :], info[2].lower(), end + info.end()
    json = _DATA.fullmatch(language) is not None
    closes = inside is not None and inside.character == data[at] and end - at >= inside.length
    if json and starts and not closes and behind[:1] in ("{", "["):
        head = data[after : after + HEAD_CHARS]
        verdict = could_be_call(head)
        if verdict or (verdict is None and len(head) < HEAD_CHARS and not final):
            return ("json", after) if verdict else ("wait", at)
    if not newline and len(line) < INFO_CHARS and not final:
        return "wait", at
    if closes:
        blank = not language and not behind
        spaced = (starts or called) and bool(info[1] or not language)
        if blank or spaced:
            return "close", end
    if not starts and (behind or not newline or (language and info[1])):
        return "none", end
    if data[at] == "`" and "`" in line:
        return "none", end
    if json and (language or not behind):
        return "json", after
    return "code", end + len(line) if newline else end


def read_code_line(data: str, at: int, line: str, *, inside: Fence, final: bool) -> tuple[Kind, int]:
    """Return kind and end offset of a run within a block of code; `line` is the text before it."""
    end = find_run_end(data, at)
    if end == len(data) and end - at < RUN_CHARS and not final:
        return "wait", at
    if end - at < inside.length or _CODE_LINE_START.fullmatch(line) is None:
        return "none", end
    blank = _BLANK.match(data, end)
    if blank is None:
        return "none", end
    return ("close", end) if blank[1] is None or final else ("wait", at)
