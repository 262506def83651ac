"""The outcome of a piece of a model's answer: a tool call, an attempt at one that went wrong, or just text.

Three formats count: `{"tool": ..., "parameters": {...}, "terminate": ...}` (requirement "JSON Tool Call Format");
`{"tool_call": {"name": ..., "arguments": {...}}}` (requirement "MCP Tool Call Response Format"); and the inside of such
a `tool_call` where the text around it names it so, as Hermes and Qwen write it: `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`. An object with the keys of two of them is malformed: it has two readings. A JSON array of calls is
a group. An object with nothing but the name of a tool that exists, or with that and `arguments`, is malformed: other
fields of the call are missing. Nothing is repaired: a repaired call is a different call.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pydantic_core

from gateway.contracts.calls import FoundCall
from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json
from gateway.tools.risk_level import find_outer_level, resembles

#: The reasons for which an answer ends early, and the message to the model about a call that was cut off.
CUTS: Final[Mapping[str | None, str]] = {
    "length": "Your answer was cut off by the length limit in the middle of a tool call; make it shorter.",
    "content_filter": "Your answer was cut off by a content filter in the middle of a tool call.",
}
_NAMES = "tool_call|tool|parameters|terminate"
_QUOTE = r"""["'`“”„‘’«»＂＇\\]"""
_FIRST_KEY = re.compile(rf"[\[{{\s]*+({_QUOTE}*+)(?:{_NAMES})(?!\w){_QUOTE}*+\s*+(?:[:=：]|\Z)")
_QUOTED_KEY = re.compile(rf"(?<={_QUOTE})({_NAMES}){_QUOTE}++\s*+[:=：]")
_ANY_KEY = re.compile(rf"(?<![\w-])({_NAMES}){_QUOTE}*+\s*+[:=：]")
#: The first key stands within so many characters, or the text is not an attempt.
_HEAD_CHARS = 200
#: The keys of the first format, and keys that no object of another format may have.
_TAUGHT = ("tool", "parameters", "terminate")
_TWO_FORMATS = (
    "The tool call has the keys of two formats: give 'tool', 'parameters' and 'terminate', or 'tool_call' with 'name' "
    "and 'arguments', and not both."
)

#: Returns whether a tool of this name exists for the run whose model answers.
HasTool: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Prose:
    """The outcome without a call: the answer is text."""


@dataclass(frozen=True, slots=True)
class CallGroup:
    """One call, or a group that came together; `beside`: fields of the answer that its model must see again."""

    calls: tuple[FoundCall, ...]
    beside: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """An attempt that cannot be read; `reason` is for the model.

    `cut` is the tool of a call that the end of the answer cut off, if its name was whole.
    """

    reason: str
    cut: str | None = None


Outcome = Prose | CallGroup | MalformedCall


def parse_calls(text: str, *, named: bool = False, meant: bool = True, has_tool: HasTool | None = None) -> Outcome:
    """Return the outcome of a whole object or array in a model's text.

    `named`: the text around it names it a tool call. `meant`: text that is not JSON may be meant as a call.
    """
    try:
        value = strict_json.loads(text)
    except strict_json.StrictJsonError as error:
        meant = meant and looks_like_call(text, whole=True)
        return MalformedCall(f"The tool call is not valid JSON: {error}.") if meant else Prose()
    items = value if isinstance(value, list) else [value]
    judged = [parse_call_object(item, named=named, has_tool=has_tool) for item in items]
    if not judged or all(isinstance(one, Prose) for one in judged):
        return Prose()
    for one in judged:
        if isinstance(one, MalformedCall):
            return one
    if any(isinstance(one, Prose) for one in judged):
        return MalformedCall("An array of tool calls holds something that is none.")
    return CallGroup(tuple(call for one in judged if isinstance(one, CallGroup) for call in one.calls))


def parse_call_object(value: object, *, named: bool = False, has_tool: HasTool | None = None) -> Outcome:
    """Return the outcome of one decoded value."""
    if not isinstance(value, dict):
        return Prose()
    present = [key for key in _TAUGHT if key in value]
    bare = named and "name" in value and "arguments" in value
    if value.get("tool_call") is not None:
        return MalformedCall(_TWO_FORMATS) if present or bare else _parse_mcp_call(value["tool_call"], value)
    if bare:
        return MalformedCall(_TWO_FORMATS) if present else _parse_mcp_call(value, {})
    if len(present) < 2 and not _names_tool_alone(value, has_tool):
        return Prose()
    if "arguments" in value:
        return MalformedCall(_TWO_FORMATS)
    tool, parameters, terminate = (value.get(key) for key in _TAUGHT)
    if not isinstance(tool, str) or not tool.strip():
        return MalformedCall("'tool' must be the name of a tool, as text.")
    if "parameters" not in value or not isinstance(parameters, dict):
        return MalformedCall("'parameters' must be there and be a JSON object.")
    if not isinstance(terminate, bool):
        return MalformedCall("'terminate' must be there and be true or false.")
    return CallGroup((FoundCall(tool, parameters, terminate, beside=find_outer_level(value)),))


def find_truncated_tool(text: str, *, named: bool) -> str | None:
    """Return the tool of the last call in an object or array whose end is missing, if its name is whole.

    `named`: the text around it names it a tool call.
    """
    try:
        value = pydantic_core.from_json(text, allow_partial=True)
    except ValueError:
        return None
    if isinstance(value, list):
        value = value[-1] if value else None
    if not isinstance(value, dict):
        return None
    inner = value.get("tool_call")
    name = inner.get("name") if isinstance(inner, dict) else value.get("tool", value.get("name") if named else None)
    return require_text(name) or None


def _names_tool_alone(value: Mapping[str, object], has_tool: HasTool | None) -> bool:
    """Return whether an object names a tool that exists, and has nothing else that would make it other data."""
    tool = value.get("tool")
    is_bare = isinstance(tool, str) and all(key in ("tool", "arguments") or resembles(key) for key in value)
    return is_bare and has_tool is not None and has_tool(require_text(tool))


def looks_like_call(text: str, *, whole: bool = False) -> bool:
    """Return whether a text that cannot be read was meant as a call. `whole`: its last brace is there.

    Two keys of a call decide, as in a readable text. If the text is cut, the first key decides.
    """
    first = _FIRST_KEY.match(text, 0, _HEAD_CHARS)
    if first and not whole:
        return True
    key = _ANY_KEY if first and not first[1] else _QUOTED_KEY
    names = {found[1] for found in key.finditer(text)}
    return "tool_call" in names or len(names) >= 2


def _parse_mcp_call(call: object, around: Mapping[str, object]) -> Outcome:
    """Return the call in an object under `tool_call`, or the reason why it cannot be read."""
    named: Mapping[str, object] = call if isinstance(call, dict) else {}
    if any(key in named for key in (*_TAUGHT, "tool_call")):
        return MalformedCall(_TWO_FORMATS)
    name, arguments = named.get("name"), named.get("arguments")
    if not isinstance(name, str) or not name.strip():
        return MalformedCall("'tool_call' must be an object whose 'name' is the name of a tool, as text.")
    if not isinstance(arguments, dict):
        return MalformedCall("'tool_call' must have 'arguments', a JSON object.")
    return CallGroup((FoundCall(name, arguments, terminate=False, beside=find_outer_level(around, named)),))


def require_text(value: object) -> str:
    """Return `value` if it is a text, else ""."""
    return value if isinstance(value, str) else ""
