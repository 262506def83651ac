"""The words of a person in a message to which a program added its own, such as reminders for the model."""

import re
from typing import Final

#: A longer message is left as it is.
MESSAGE_CHARS: Final = 64_000
#: Blocks before or behind the person's words: Qwen Code. A message has no more of them than that.
_REMINDER, _REMINDED = "<system-reminder>", "</system-reminder>"
_REMINDERS: Final = 8
#: A paragraph behind them, from its first words to the end of the message: aider, in each of its modes.
_RULES: Final = re.compile(
    r"\n\n(?:Reply in [^\n.]{1,40}\.\s*\Z"
    r"|To suggest changes to a file you MUST return the entire content of the updated file\.\n"
    r"|\n?# (?:\*SEARCH/REPLACE block\*|File editing|V4A Diff Format) [Rr]ules:\n)"
)


def strip_added_text(text: str) -> str:
    """Return the text without what a program is known to add to it; the same text where it adds nothing."""
    if len(text) > MESSAGE_CHARS:
        return text
    if _REMINDED in text:
        text = _strip_reminders(text)
    if rules := _RULES.search(text):
        text = text[: rules.start()]
    return text


def _strip_reminders(text: str) -> str:
    """Return the text without reminder blocks of its program at the beginning and the end."""
    for _ in range(_REMINDERS):
        begins = text.lstrip().startswith(_REMINDER)
        if begins and (end := text.find(_REMINDED)) >= 0:
            text = text[end + len(_REMINDED) :].lstrip("\r\n")
        elif text.rstrip().endswith(_REMINDED) and (start := text.rfind(_REMINDER)) >= 0:
            text = text[:start]
        else:
            break
    return text
