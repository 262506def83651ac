"""The texts of the console in the language of its reader: English in templates and code, Chinese in `chinese.yaml`.

A feature has a `chinese.yaml` of its own.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import yaml

from gateway.approvals.escaping import Language
from gateway.contracts.risk import LEVELS
from gateway.features.registry import FOLDER as FEATURES
from gateway.features.registry import list_features

FILE: Final = Path(__file__).with_name("chinese.yaml")
#: The file of the core, and those of features.
FILES: Final = (FILE, *(FEATURES / name / FILE.name for name in list_features("console")))
CHINESE: Final[Mapping[str, str]] = {
    text: chinese for file in FILES for text, chinese in yaml.load(file.read_bytes(), yaml.CSafeLoader).items()
}

#: The gate's own reasons why a call waits (`gateway.tools.gate`), with a place for the tool or the risk level.
GATE_REASONS: Final = (
    "The tool is not as it was accepted.",
    "The user wants to be asked before every call.",
    "The request wants calls of this tool to be approved.",
    "A tool's result or a user's message holds this very call: the model may only repeat it.",
    "The model announces the call as an example.",
    "The operator wants {0} to be approved.",
    "The model says that the risk is {0}.",
    "risk_level is none of {0}: ask, or omit it.",
    "Nothing is known about the risk of {0}.",
    "The assessor of {0} failed.",
    "{0} could not examine the call.",
)
#: The gateway's assessors, and engines that doubt a harmless call after them: each of their rules begins with the name.
_ASSESSORS: Final = ("command.", "file.", "http.", "sql.")
_LEVELS: Final = (*LEVELS, ", ".join(LEVELS))

#: Translates a text of the console, and puts values into it: `t("{0} of {1}", 3, 5)`.
Translate = Callable[..., str]


def get_translator(language: Language) -> Translate:
    """Return the translation into a language. English is the language of the templates."""
    texts: Mapping[str, str] = CHINESE if language == "zh" else {}

    def translate(text: str, *values: object) -> str:
        found = texts.get(text, text)
        return found.format(*values) if values else found

    return translate


def find_rule_sentence(rule: str | None, language: Language) -> str | None:
    """Return the sentence for a rule of one of our assessors. None: English has none, and other rules have none."""
    return CHINESE.get(rule) if language == "zh" and rule is not None and rule.startswith(_ASSESSORS) else None


def translate_reason(reason: str, tool: str, language: Language) -> str:
    """Return why a call of a tool waits. A reason that is not the gate's own, such as a plugin's, stays as it is."""
    for text in GATE_REASONS:
        for value in (repr(tool), *_LEVELS):
            if reason == text.format(value):
                return get_translator(language)(text, value)
    return reason
