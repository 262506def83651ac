"""`${VAR}`, `${VAR:-default}`, `${VAR:?message}` and `$$` in the scalars of the configuration file."""

import re
from collections.abc import Mapping

# `$$`, a whole reference, or a `${` that is not one; a lone dollar sign stands for itself.
_TOKEN = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)([^{}]*))?\}|\$\{")
_FORMS = "write ${NAME}, ${NAME:-default} or ${NAME:?message}, and $$ for a dollar sign"


class InterpolationError(ValueError):
    """A reference that cannot be resolved, with one message per reference."""

    def __init__(self, messages: tuple[str, ...]) -> None:
        super().__init__("; ".join(messages))
        self.messages = messages


def expand(text: str, *, environ: Mapping[str, str]) -> str:
    """Replace the references in `text` once. The inserted values are not expanded again.

    As in a shell, `:-` and `:?` take an empty variable for an unset one. A bare `${VAR}` may be empty.
    """
    messages: list[str] = []

    def replace_reference(match: re.Match[str]) -> str:
        token, name, operator, word = match[0], match[1], match[2], match[3]
        if token == "$$":  # noqa: S105 - a dollar sign, not a password
            return "$"
        if name is None:
            messages.append(f"a reference that is not complete or not known: {_FORMS}")
            return ""
        value = environ.get(name)
        if value is not None and not is_utf_8(value):
            messages.append(f"variable {name} is not valid UTF-8")
            return ""
        if value or (value is not None and operator is None):
            return value
        if operator == ":-":
            return str(word)
        if operator == ":?":
            messages.append(f"variable {name} is not set: {word}" if word else f"variable {name} is not set")
        else:
            messages.append(f"variable {name} is not set: export it, or write ${{{name}:-default}}")
        return ""

    expanded = _TOKEN.sub(replace_reference, text)
    if messages:
        raise InterpolationError(tuple(messages))
    return expanded


def is_utf_8(text: str) -> bool:
    """Return whether `text` is valid UTF-8.

    Other bytes of the environment or command line arrive as lone surrogates.
    """
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
