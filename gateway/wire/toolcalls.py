"""What a piece of a model's answer is: a tool call, an attempt at one that went wrong, or just text.

Two formats count: `{"tool": ..., "parameters": {...}, "terminate": ...}` (requirement "JSON Tool Call Format") and
`{"tool_call": {"name": ..., "arguments": {...}}}` (requirement "MCP Tool Call Response Format"). A JSON array of calls
is a group. Nothing is repaired: a repaired call is a different call.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.wire import strict_json
from gateway.wire.risk_level import RISK_LEVEL, level_beside

Json = dict[str, Any]

CUT = "Your answer was cut off by the length limit in the middle of a tool call; make it shorter."
_NAMES = "tool_call|tool|parameters|terminate"
_QUOTE = r"""["'`“”„‘’«»＂＇\\]"""
_FIRST_KEY = re.compile(rf"[\[{{\s]*+({_QUOTE}*+)(?:{_NAMES})(?!\w){_QUOTE}*+\s*+(?:[:=：]|\Z)")
_QUOTED_KEY = re.compile(rf"(?<={_QUOTE})({_NAMES}){_QUOTE}++\s*+[:=：]")
_ANY_KEY = re.compile(rf"(?<![\w-])({_NAMES}){_QUOTE}*+\s*+[:=：]")
#: The first key is within so many characters, or it was no attempt.
_HEAD_CHARS = 200
#: What a native call counts besides its name and arguments.
_CALL_CHARS = 64


@dataclass(frozen=True, slots=True)
class FoundCall:
    """One call as the model wrote it; `id` only for native calls. `beside`: a risk level outside of the arguments."""

    tool: str
    parameters: Json
    terminate: bool
    id: str | None = None
    beside: object = None


@dataclass(frozen=True, slots=True)
class Prose:
    """No call: the answer is text."""


@dataclass(frozen=True, slots=True)
class Calls:
    """One call, or a group that came together."""

    calls: tuple[FoundCall, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """An attempt that cannot be read; `reason` is for the model."""

    reason: str


Outcome = Prose | Calls | Malformed


def judge(text: str) -> Outcome:
    """What a whole object or array of a model's text is."""
    try:
        value = strict_json.loads(text)
    except strict_json.StrictJsonError as error:
        return Malformed(f"The tool call is not valid JSON: {error}.") if looks_like_call(text, whole=True) else Prose()
    items = value if isinstance(value, list) else [value]
    judged = [judge_object(item) for item in items]
    if not judged or all(isinstance(one, Prose) for one in judged):
        return Prose()
    for one in judged:
        if isinstance(one, Malformed):
            return one
    if any(isinstance(one, Prose) for one in judged):
        return Malformed("An array of tool calls holds something that is none.")
    return Calls(tuple(call for one in judged if isinstance(one, Calls) for call in one.calls))


def judge_object(value: object) -> Outcome:
    """What one decoded value is."""
    if not isinstance(value, dict):
        return Prose()
    if "tool_call" in value and "tool" not in value:
        return _mcp_call(value["tool_call"], value)
    present = [key for key in ("tool", "parameters", "terminate") if key in value]
    if len(present) < 2:
        return Prose()
    tool, parameters, terminate = (value.get(key) for key in ("tool", "parameters", "terminate"))
    if not isinstance(tool, str) or not tool.strip():
        return Malformed("'tool' must be the name of a tool, as text.")
    if "parameters" not in value or not isinstance(parameters, dict):
        return Malformed("'parameters' must be there and be a JSON object.")
    if not isinstance(terminate, bool):
        return Malformed("'terminate' must be there and be true or false.")
    return Calls((FoundCall(tool, parameters, terminate, beside=level_beside(value)),))


@dataclass(slots=True)
class _Collected:
    """A native call; `beside` is the strictest risk level that its pieces held outside of the arguments."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    beside: object = None

    def found(self) -> FoundCall | Malformed:
        """The call; "" for no arguments is {}."""
        if not self.name.strip():
            return Malformed("A tool call has no name.")
        text = "".join(self.arguments)
        try:
            arguments = strict_json.loads(text) if text.strip() else {}
        except strict_json.StrictJsonError as error:
            return Malformed(f"The arguments of {self.name[:64]!r} are not valid JSON: {error}.")
        if not isinstance(arguments, dict):
            return Malformed(f"The arguments of {self.name[:64]!r} must be a JSON object.")
        return FoundCall(self.name, arguments, terminate=False, id=self.id or None, beside=self.beside)


class NativeCalls:
    """The native calls of one answer, collected from their pieces; at most `limit` characters of them."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._calls: list[_Collected] = []
        self._by_index: dict[int, _Collected] = {}
        self._by_id: dict[str, _Collected] = {}

    def feed(self, delta: object) -> None:
        """One piece of one call, whole, or continued under its `index`, its `id`, or neither."""
        if not isinstance(delta, dict) or self._size > self._limit:
            return
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = as_text(function.get("name")), _arguments(function.get("arguments"))
        call = self._call(delta.get("index"), id=as_text(delta.get("id")), name=name)
        if name != call.name:  # some upstreams repeat it with every piece
            call.name += name
            self._size += len(name)
        if arguments:
            call.arguments.append(arguments)
            self._size += len(arguments)
        call.beside = level_beside({RISK_LEVEL: call.beside}, delta, function)

    def outcome(self, *, finish_reason: str | None) -> Outcome:
        """What they are; Prose if there are none."""
        if self._size > self._limit:
            return Malformed(f"The tool calls are longer than {self._limit} characters.")
        calls: list[FoundCall] = []
        for collected in sorted(self._calls, key=lambda call: call.index):
            found = collected.found()
            if isinstance(found, Malformed):
                return Malformed(CUT) if finish_reason == "length" else found
            calls.append(found)
        return Calls(tuple(calls)) if calls else Prose()

    def _call(self, index: object, *, id: str, name: str) -> _Collected:  # noqa: A002
        if isinstance(index, int):
            known = self._by_index.get(index)
            # Parallel calls that all have the index 0: a new one brings an id and a name of its own.
            if known and not (name and id and known.id and id != known.id):
                known.id = known.id or id
                return known
        elif known := self._by_id.get(id) if id else self._continued(name):
            return known
        number = index if isinstance(index, int) else max(self._by_index, default=-1) + 1
        call = self._by_index[number] = _Collected(number, id)
        self._calls.append(call)
        self._size += _CALL_CHARS
        if id:
            self._by_id[id] = call
        return call

    def _continued(self, name: str) -> _Collected | None:
        """The call that a piece without index and id belongs to."""
        last = self._calls[-1] if self._calls else None
        return None if last and name and last.arguments else last


def looks_like_call(text: str, *, whole: bool = False) -> bool:
    """Whether a text that cannot be read was meant as a call. `whole`: its last brace is there.

    Two keys of a call tell, as they do where it can be read; of one that is cut, the first key does.
    """
    first = _FIRST_KEY.match(text, 0, _HEAD_CHARS)
    if first and not whole:
        return True
    key = _ANY_KEY if first and not first[1] else _QUOTED_KEY
    names = {found[1] for found in key.finditer(text)}
    return "tool_call" in names or len(names) >= 2


def _mcp_call(call: object, around: Mapping[str, object]) -> Outcome:
    if call is None:
        return Prose()
    named: Mapping[str, object] = call if isinstance(call, dict) else {}
    name, arguments = named.get("name"), named.get("arguments")
    if not isinstance(name, str) or not name.strip():
        return Malformed("'tool_call' must be an object whose 'name' is the name of a tool, as text.")
    if not isinstance(arguments, dict):
        return Malformed("'tool_call' must have 'arguments', a JSON object.")
    return Calls((FoundCall(name, arguments, terminate=False, beside=level_beside(around, named)),))


def as_text(value: object) -> str:
    """`value` if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    """Arguments as text: some upstreams send the object itself. Never {} for what is something else."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return "(nested too deep)"
