"""The texts of the console in the language of its reader: English in templates and code, Chinese in `chinese.yaml`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import yaml

from gateway.approvals.escaping import Language

FILE: Final = Path(__file__).with_name("chinese.yaml")
CHINESE: Final[Mapping[str, str]] = yaml.load(FILE.read_bytes(), yaml.CSafeLoader)

#: Translates a text of the console, and puts values into it: `t("{0} of {1}", 3, 5)`.
Translate = Callable[..., str]


def translator(language: Language) -> Translate:
    """Return the translation into a language. English is the language of the templates."""
    texts: Mapping[str, str] = CHINESE if language == "zh" else {}

    def translate(text: str, *values: object) -> str:
        found = texts.get(text, text)
        return found.format(*values) if values else found

    return translate
