"""A part of a model's answer that may become a tool call: its possible beginnings, and its end.

It is fed piece by piece. Each character is looked at once, whatever the pieces.
"""

import re

#: So many characters decide whether a brace begins a call. A brace that is undecided by then begins none.
HEAD_CHARS = 96

_OPEN = re.compile(r"(?:\[\s*+)?\{\s*+")
_WORDS = ("tool", "tool_call", "parameters", "terminate")
#: Characters for a quotation mark where a call is not strict JSON; a backslash: the call was quoted once too often.
_QUOTES = "\"'`“”„‘’«»＂＇\\"
_WORD = re.compile(rf"({'|'.join(_WORDS)})(?!\w)[{re.escape(_QUOTES)}]*+\s*+")
#: First characters of a JSON value, and of its equivalents in Python and JavaScript.
_VALUE = "\"{[tfn-0123456789TFNIu'"
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'["\\]')


class Candidate:
    """One candidate, from its first brace or bracket on."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.size = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, text: str, start: int, end: int) -> int | None:
        """Add `text` from `start` to `end`. Return the offset behind the candidate's closing brace, or None."""
        close = self._find_closing_brace(text, start, end)
        after = end if close is None else close
        self._pieces.append(text[start:after])
        self.size += after - start
        return close

    def _find_closing_brace(self, text: str, at: int, end: int) -> int | None:
        """Return the offset behind the brace that closes the candidate, or None if it is not there yet."""
        while at < end:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_STRING if self._in_string else _STRUCTURE).search(text, at, end)
            if found is None:
                return None
            at = found.end()
            match found[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        return at
        return None


def could_be_call(head: str) -> bool | None:
    """Return whether a text that begins so can be a call, or be meant as one. None: it is too short to decide."""
    opened = _OPEN.match(head)
    if opened is None:
        return None if head.startswith("[") and not head[1:].strip() else False
    rest = head[opened.end() :]
    if not rest:
        return None
    return _is_quoted_call_key(rest) if rest[0] == '"' else _is_unquoted_call_key(rest)


def _is_quoted_call_key(rest: str) -> bool | None:
    """Return whether a quoted first key can begin a call; None if the text is too short to decide."""
    key, quote, after = rest[1:].partition('"')
    if "\n" in key:
        return False
    if not quote:
        return None
    if key in _WORDS:
        return True
    after = after.lstrip()
    if not after:
        return None
    if after[0] != ":":
        return False
    value = after[1:].lstrip()
    return value[0] in _VALUE if value else None


def _is_unquoted_call_key(rest: str) -> bool | None:
    """Return whether a broken key is meant as a call: `{tool: ...` or `{'tool': ...` is, and `{tool}` is not."""
    word = rest.lstrip(_QUOTES)
    found = _WORD.match(word)
    if found is None:
        return None if any(known.startswith(word) for known in _WORDS) else False
    if found.end() == len(word):
        return None
    return word[found.end()] in ":=："
