"""The one reading of an unquoted YAML scalar. Text that YAML 1.1 and 1.2 read differently is refused, not guessed."""

import re

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_AMBIGUOUS_WORDS = frozenset(case(word) for word in ("yes", "no", "on", "off") for case in (str, str.title, str.upper))
# Longer rows of digits are names (hashes, account numbers), not quantities.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z")
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}\Z")
_AMBIGUOUS_NUMBER = re.compile(
    r"""[-+]?(?:
      0[0-9_]{1,20}                                        # octal or decimal
    | 0b[01_]+ | 0o[0-7]+ | 0x[0-9A-Fa-f_]+
    | [0-9]{1,18}(?:_[0-9]+)+(?:\.[0-9_]*)?
    | [0-9]{1,18}(?:\.[0-9]*)?[eE][-+]?[0-9]{1,18}
    | \.[0-9]{1,18}(?:[eE][-+]?[0-9]+)? | [0-9]{1,18}\.
    | [1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?          # base 60
    | \.(?:inf|Inf|INF)
    )\Z|\.(?:nan|NaN|NAN)\Z""",
    re.VERBOSE,
)


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar. Raises ValueError where the YAML versions disagree about it."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _AMBIGUOUS_WORDS:
        raise ValueError(f"unquoted {text} is a truth value to some YAML readers and text to others: "
                         f"write true or false, or put '{text}' in quotes")  # fmt: skip
    if _INTEGER.match(text):
        return int(text)
    if _DECIMAL.match(text):
        return float(text)
    if _AMBIGUOUS_NUMBER.match(text):
        raise ValueError("YAML readers disagree about this unquoted number: "
                         "write it in plain decimal digits, or put it in quotes to mean text")  # fmt: skip
    return text
