"""Finds common table expressions that refer to themselves and have nothing that would end them."""

from collections.abc import Sequence

from gateway.wire.sql_lexer import Token

_ENDING = frozenset({"where", "join", "limit", "fetch", "top", "on", "using", "having"})


def unbounded(tokens: Sequence[Token]) -> bool:
    """Whether the arm behind the last UNION of some expression reads the expression itself and filters nothing."""
    closing = _closing(tokens)
    for index, token in enumerate(tokens):
        if token != ("word", "as"):
            continue
        opening = index + 1
        while opening < len(tokens) and tokens[opening].text in ("not", "materialized"):
            opening += 1
        end = closing.get(opening)
        name = _name_before(tokens, index)
        if end is not None and name and _runs_away(tokens[opening + 1 : end], name):
            return True
    return False


def _closing(tokens: Sequence[Token]) -> dict[int, int]:
    """The index of the closing parenthesis for each opening one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token == ("punct", "("):
            opened.append(index)
        elif token == ("punct", ")") and opened:
            found[opened.pop()] = index
    return found


def _name_before(tokens: Sequence[Token], index: int) -> str:
    """The name that AS at `index` defines; its list of columns may stand between."""
    index -= 1
    if tokens[index] == ("punct", ")"):
        while index > 0 and tokens[index] != ("punct", "("):
            index -= 1
        index -= 1
    return tokens[index].text.lower() if index >= 0 and tokens[index].kind in ("word", "name") else ""


def _runs_away(body: Sequence[Token], name: str) -> bool:
    depth, arm = 0, -1
    for index, token in enumerate(body):
        if token.kind == "punct":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif depth == 0 and token == ("word", "union"):
            arm = index
    rest = body[arm:] if arm >= 0 else ()
    words = [token.text.lower() for token in rest if token.kind in ("word", "name")]
    return name in words and not _ENDING.intersection(words)
