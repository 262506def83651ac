"""Tools as text for a model: the instructions for the JSON call format, and one `<tool>` element for each tool.

Any JSON object is accepted as a schema. Unknown parts are left out or called `any`. An element is never cut: texts are
shortened before they are escaped.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.plugin import CHOICES, MEANING, RISK_LEVEL

INSTRUCTIONS = """\
# Tools

When you need to use a tool, output ONLY a JSON object in this exact format:
{
  "tool": "tool_name",
  "parameters": { "param1": "value1", "param2": "value2" },
  "terminate": false
}

All three fields are required. Set "terminate" to false if you need to continue working after the tool result: you get \
the result and go on. Set "terminate" to true if this is your final action: the result of the tool is the answer, and \
you are not asked again.
The object is strict JSON, with no text before or after it. Several calls at once are one JSON array of such objects.
Every tool takes the optional parameter "risk_level": "low" runs automatically, "medium" and "high" wait until a \
person confirms. If you are unsure, set "high" or ask the user in text first.
If you need no tool, answer with text.

Example, for a tool "get_weather" that takes a "city":
{"tool": "get_weather", "parameters": {"city": "Paris"}, "terminate": false}"""

_SHORT_DESCRIPTION_CHARS = 80
_SHORT_PARAMETER_CHARS = 40
_SHORT_VALUE_CHARS = 100
_LISTED_VALUES = 40
_LISTED_FIELDS = 20
# How far a type is looked into: arrays of arrays, unions of unions, references to references.
_DEEPEST = 2
_BRANCHES = 6
_REFERENCES = 4
# Control characters and noncharacters have no place in a prompt; a lone surrogate cannot be sent at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ENDINGS = (".", "!", "?", "。", "！", "？")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")


class ToolFacts(Protocol):
    """The facts of a tool that a prompt needs. `gateway.contracts.tools.ToolSpec` has it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def category(self) -> str: ...
    @property
    def priority(self) -> int: ...


def estimate_tokens(size_bytes: int) -> int:
    """Return the estimated tokens of a text of so many UTF-8 bytes: a quarter, rounded up."""
    return -(-size_bytes // 4)


def count_utf8_bytes(text: str) -> int:
    """Return the UTF-8 bytes of a text. A lone surrogate counts as the three that its replacement takes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def escape(text: str) -> str:
    """Escape `text` as content or attribute value of an element."""
    text = _UNPRINTABLE.sub("\ufffd", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def shorten(text: str, limit: int) -> str:
    """Shorten `text` to at most `limit` characters: whole sentences if one fits, else whole words and `...`."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit + 1) if match.end() <= limit]
    if ends:
        return text[: ends[-1]]
    kept = text[: limit - 3]
    return (kept.rpartition(" ")[0] or kept) + "..."


def write_tool_element(tool: ToolFacts, *, short: bool = False) -> str:
    """Write the `<tool>` element. `short`: abbreviated descriptions, all parameters."""
    description = _join_lines(tool.description)
    if short:
        description = shorten(description, _SHORT_DESCRIPTION_CHARS)
    lines = ["<tool>", f"  <name>{escape(tool.name)}</name>", f"  <description>{escape(description)}</description>"]
    lines.append("  <parameters>")
    root = tool.parameters
    properties = _ensure_mapping(root.get("properties"))
    required = _list_names(root.get("required"))
    for name, schema in properties.items():
        resolved = _resolve_references(schema, root)
        about = _describe_parameter(resolved, root, short=short)
        lines.append(_write_parameter(name, _format_type(resolved, root), required=name in required, about=about))
    if RISK_LEVEL not in properties:
        about = CHOICES if short else f"{CHOICES}. {MEANING}"
        lines.append(_write_parameter(RISK_LEVEL, "string", required=False, about=about))
    lines += ["  </parameters>", "</tool>"]
    return "\n".join(lines)


def write_category_tags(category: str) -> tuple[str, str]:
    """Return the tags before and behind the tools of a category."""
    return f'<tools category="{escape(_join_lines(category))}">', "</tools>"


def group_by_category(elements: Sequence[tuple[str, str]]) -> str:
    """Return the text of (category, element) pairs: categories in the order in which they first appear."""
    groups: dict[str, list[str]] = {}
    for category, element in elements:
        groups.setdefault(category, []).append(element)
    lines: list[str] = []
    for category, members in groups.items():
        opening, closing = write_category_tags(category)
        lines += [opening, *members, closing]
    return "\n".join(lines)


def _write_parameter(name: str, type_name: str, *, required: bool, about: str) -> str:
    need = "true" if required else "false"
    attributes = f'name="{escape(name)}" type="{escape(type_name)}" required="{need}"'
    return f"    <parameter {attributes}>{escape(about)}</parameter>"


def _describe_parameter(schema: Mapping[str, Any], root: Mapping[str, Any], *, short: bool) -> str:
    """Return the description, and the values, the fields and the default that a model needs besides."""
    said = _join_lines(schema.get("description"))
    said = shorten(said, _SHORT_PARAMETER_CHARS) if short else said
    told = [said] if said else []
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values:
        named = [_write_value(value) for value in values[:_LISTED_VALUES]]
        told.append(f"One of: {', '.join(named)}" + (" and more" if len(values) > _LISTED_VALUES else ""))
    fields = _list_fields(schema, root)
    if fields:
        told.append(f"Fields: {fields}")
    text = " ".join(part if part.endswith(_ENDINGS) else f"{part}." for part in told[:-1])
    text = f"{text} {told[-1]}".lstrip() if told else ""
    if schema.get("default") is not None and "default" not in said.casefold():
        text = f"{text} (default: {_write_value(schema['default'])})".lstrip()
    return text


def _list_fields(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return the fields of an object, or of the objects in an array."""
    if "items" in schema:
        schema = _resolve_references(schema["items"], root)
    required = _list_names(schema.get("required"))
    told = []
    for name, field in list(_ensure_mapping(schema.get("properties")).items())[:_LISTED_FIELDS]:
        need = ", required" if name in required else ""
        told.append(f"{_join_lines(name)} ({_format_type(_resolve_references(field, root), root)}{need})")
    return ", ".join(told)


def _format_type(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    known = _resolve_references(schema, root)
    declared = known.get("type")
    if depth > _DEEPEST:
        return "any"
    if declared == "array" and "items" in known:
        inner = _format_type(known["items"], root, depth + 1)
        return "array" if inner == "any" else f"array of {inner}"
    if isinstance(declared, str):
        return _join_lines(declared) or "any"
    if isinstance(declared, list):
        return "|".join(_join_lines(name) for name in declared[:_BRANCHES] if isinstance(name, str)) or "any"
    for word in ("anyOf", "oneOf"):
        branches = known.get(word)
        if isinstance(branches, list) and branches:
            names = dict.fromkeys(_format_type(branch, root, depth + 1) for branch in branches[:_BRANCHES])
            return "any" if "any" in names else "|".join(names)
    values = known.get("enum", [known.get("const")])
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return "string"
    return "object" if _ensure_mapping(known.get("properties")) else "any"


def _resolve_references(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with its references inside the document followed.

    Words beside a reference override its target.
    """
    known = _ensure_mapping(schema)
    for _ in range(_REFERENCES):
        reference = known.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        target: object = root
        for step in reference[2:].split("/")[:_REFERENCES]:
            target = _ensure_mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        known = {**_ensure_mapping(target), **{word: value for word, value in known.items() if word != "$ref"}}
    return known


def _write_value(value: object) -> str:
    """Return a value as a model would write it, cut to a bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(_join_lines(text), _SHORT_VALUE_CHARS)


def _join_lines(text: object) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _ensure_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_names(value: object) -> frozenset[str]:
    names = value if isinstance(value, list | tuple) else ()
    return frozenset(name for name in names if isinstance(name, str))
