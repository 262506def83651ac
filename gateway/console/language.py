"""The language of a page: the reader's choice, else the first one of the browser's that the console has."""

import re
from collections.abc import Mapping
from typing import Final

from gateway.approvals.escaping import Language

#: The cookie of a reader who chose. It holds one of the languages.
COOKIE: Final = "twolane_language"
NAMES: Final[Mapping[Language, str]] = {"en": "English", "zh": "中文"}

_RANGE = re.compile(r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?\s*", re.ASCII)


def find_language(text: str | None) -> Language | None:
    """Return the language that a cookie or a form names, or None."""
    return next((language for language in NAMES if language == text), None)


def parse_accept_language(accept_language: str) -> Language:
    """Return the language that an Accept-Language header prefers (RFC 9110 section 12.5.4); English by default."""
    weights: dict[Language, float] = {}
    for part in accept_language.split(","):
        found = _RANGE.fullmatch(part)
        language = None if found is None else find_language(found[1].partition("-")[0].lower())
        if found is not None and language is not None:
            weights[language] = max(weights.get(language, 0.0), float(found[2] or 1))
    best = max(weights, key=lambda language: weights[language], default=None)
    return best if best is not None and weights[best] > 0 else "en"
