"""The findings of pydantic in the words of a configuration file, never with a value, which could be a secret."""

from collections.abc import Iterable, Mapping
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.document import Document
from gateway.config.problems import KeyPath, quote_word
from gateway.config.schema.section import Section, find_type, is_section, strip
from gateway.config.values.value import describe_kind

# How pydantic's loc marks that a key, not its value, is wrong.
_KEY_MARK = "[key]"
# More problems help no reader, and the search for suggestions takes time.
_MOST_FINDINGS = 500
# Values of earlier versions, and what to write instead.
_RETIRED: Mapping[tuple[KeyPath, str], str] = {
    (("approvals", "mode"), "auto"): "'auto' is gone: write turn, the default, and a stream ends with the question, "
    "as other answers do; or hold, and it stays open until the decision comes from elsewhere, as it did with auto"
}
# Sections of a LiteLLM proxy's config.yaml, and what stands for them here.
_LITELLM: Mapping[str, str] = {
    "model_list": "write each server once under 'upstreams' (name, base_url, api_key, models), or let "
    "`gateway import litellm` do so",
    "litellm_settings": "there is nothing to write: 'logging', 'metrics' and 'limits' are ours",
    "general_settings": "write 'keys' for master_key and virtual keys, 'store' for database_url",
    "router_settings": "write 'endpoints', 'retry' and 'breaker' under 'upstreams', and aliases under 'models'",
    "environment_variables": "write ${NAME} where a value is to come from the environment",
}
# Sections that other programs have at the top, and where their contents belong here.
_ELSEWHERE: Mapping[str, str] = {"mcpServers": "write its servers under 'mcp', as 'servers'; see docs/mcp.md"}
# What a section of this key looks like, where people often write something shorter.
_EXAMPLES: Mapping[str, str] = {"models": "{use: [NAME]}"}
# A list of more keys than this would bury the message.
_MOST_KEYS_SHOWN = 12


def explain(document: Document, error: ValidationError, *, root: type[Section]) -> None:
    """Report each finding of `error` in the draft, with its place."""
    findings = error.errors(include_url=False)
    for details in findings[:_MOST_FINDINGS]:
        is_key = details["loc"][-1:] == (_KEY_MARK,) or details["type"] == "extra_forbidden"
        path = tuple(part for part in details["loc"] if part != _KEY_MARK)
        document.complain(path, describe_error(details, path, root=root), key=is_key)
    if len(findings) > _MOST_FINDINGS:
        document.complain_about("...", f"{len(findings) - _MOST_FINDINGS} more problems of this kind")


def advise(message: str, path: KeyPath, *, root: type[Section]) -> str:
    """Return a fault of reading (`cause: advice`) with the choices at its place for advice, if there are some."""
    choices = [choice for choice in get_args(strip(find_type(root, path))) if isinstance(choice, str)] if path else []
    return f"{message.partition(': ')[0]}: write one of {', '.join(choices)}" if choices else message


def suggest_nearest(word: str, candidates: list[str]) -> str:
    """Return `; did you mean 'x'?`, or an empty text if no candidate is near."""
    # Imported here because it takes 0.15 MB, and few words are wrong.
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), candidates, n=1)
    return f"; did you mean {quote_word(found[0])}?" if found else ""


def describe_error(details: ErrorDetails, path: KeyPath, *, root: type[Section]) -> str:
    """Return a finding about the value at `path` in the words of a configuration file."""
    found = describe_kind(details.get("input"))
    match details["type"]:
        case "extra_forbidden":
            return _describe_unknown_key(path, root=root)
        case "missing":
            return "this key is required"
        case "literal_error":
            given = details.get("input")
            retired = _RETIRED.get((path, given)) if isinstance(given, str) else None
            return retired or _describe_wrong_choice(given, find_type(root, path))
        case "model_type" | "model_attributes_type" | "mapping_type" | "dict_type":
            example = _EXAMPLES.get(str(path[0])) if len(path) == 2 else None
            return f"expected a section (lines of key: value), found {found}{f': write {example}' if example else ''}"
        case "tuple_type":
            return f"expected a list, found {found}"
        case "value_error":
            return str(details["ctx"]["error"])
        case _:
            return details["msg"]


def _describe_unknown_key(path: KeyPath, *, root: type[Section]) -> str:
    """Return the message about an unknown key, with a hint if another program or place has it."""
    if len(path) == 1 and (instead := _LITELLM.get(str(path[0]))) is not None:
        return f"this is a key of LiteLLM: {instead}; see docs/from-litellm.md"
    if len(path) == 1 and (instead := _ELSEWHERE.get(str(path[0]))) is not None:
        return f"unknown key {quote_word(str(path[0]))}: {instead}"
    section = strip(find_type(root, path[:-1]))
    fields = section.model_fields.items() if is_section(section) else ()
    return format_unknown_key(str(path[-1]), [field.alias or name for name, field in fields])


def format_unknown_key(word: str, known: Iterable[str]) -> str:
    """Return the message about a key that is not `known` in its section."""
    keys = sorted(known)
    hint = suggest_nearest(word, keys)
    if not hint and 0 < len(keys) <= _MOST_KEYS_SHOWN:
        hint = f"; known here: {', '.join(keys)}"
    return f"unknown key {quote_word(word)}{hint}"


def _describe_wrong_choice(value: object, annotation: object) -> str:
    """Return the message about a value outside of the choices, with the nearest choice."""
    choices = [str(choice) for choice in get_args(strip(annotation))]
    hint = suggest_nearest(value, choices) if isinstance(value, str) else ""
    return f"expected one of {', '.join(choices)}{hint}"
