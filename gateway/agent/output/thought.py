"""The tags between which a model thinks. Text between them is no call and no part of the model's answer."""

import re

NAMES = ("think", "thinking", "thought", "reason", "reasoning")
_ENDS = tuple(f"</{name}>" for name in NAMES)
BEGIN = re.compile(f"<(?:{'|'.join(NAMES)})>", re.ASCII | re.IGNORECASE)
END = re.compile("|".join(_ENDS), re.ASCII | re.IGNORECASE)


def end_of(name: str) -> re.Pattern[str]:
    """Return the pattern that ends a thought that `<name>` began."""
    return re.compile(f"</{name}>", re.ASCII | re.IGNORECASE)


def beginning_of_end(text: str) -> int:
    """Return the length of the longest end of `text` that may begin the end of a thought."""
    lengths = range(min(len("</reasoning"), len(text)), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:].lower()) for tag in _ENDS)), 0)
