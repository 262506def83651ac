"""Finds common table expressions that refer to themselves and have nothing that would end them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.plugin.sql.lexer import Token

_ENDING = frozenset({"where", "join", "limit", "fetch", "top", "on", "using", "having"})


@dataclass(slots=True)
class _Frame:
    """One level of parentheses: the expression that it defines, if any, and where its last arm begins."""

    opening: int
    name: str = ""
    arm: int = -1


def has_unbounded_recursion(tokens: Sequence[Token]) -> bool:
    """Return whether the arm behind the last UNION of some expression reads the expression itself and filters nothing.

    One pass: each word is noted where it was seen last, which is all that the end of an arm needs.
    """
    frames: list[_Frame] = []
    last_seen: dict[str, int] = {}
    last_ending, last_list = -1, -1
    for index, (kind, text) in enumerate(tokens):
        if kind in ("word", "name"):
            word = text.lower()
            last_seen[word] = index
            if word in _ENDING:
                last_ending = index
            elif frames and kind == "word" and word == "union":
                frames[-1].arm = index
        elif kind == "punct" and text == "(":
            frames.append(_Frame(index, find_defined_name(tokens, index, last_list)))
        elif kind == "punct" and text == ")" and frames:
            frame = frames.pop()
            last_list = frame.opening
            if frame.name and frame.arm > last_ending and last_seen.get(frame.name, -1) > frame.arm >= 0:
                return True
    return False


def find_defined_name(tokens: Sequence[Token], opening: int, last_list: int) -> str:
    """Return the name in front of `AS (`; its list of columns, which begins at `last_list`, may stand between."""
    index = opening - 1
    while index >= 0 and tokens[index] in (("word", "not"), ("word", "materialized")):
        index -= 1
    if index < 1 or tokens[index] != ("word", "as"):
        return ""
    index -= 1
    if tokens[index] == ("punct", ")"):
        index = last_list - 1
    return tokens[index].text.lower() if index >= 0 and tokens[index].kind in ("word", "name") else ""
