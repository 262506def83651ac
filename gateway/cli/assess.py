"""`gateway assess`: the gate's verdict on tool calls, one JSON line for each, without running anything."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from gateway.contracts.calls import DOUBTS
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec, encode_model_name
from gateway.jsontext.strict_json import RepeatedKeyError, StrictJsonError, loads
from gateway.plugins import list_built_in_plugins, load_built_in_plugin
from gateway.tools.gate import Gate, Policy, RiskClaim, take_risk_level
from gateway.tools.risk_level import find_outer_level
from gateway.tools.schema import with_defaults

_ARGUMENTS = ("raw_arguments", "arguments", "parameters")
#: Where definitions in the wild keep the schema of their arguments: OpenAI, Anthropic, MCP.
_SCHEMA_NAMES = ("parameters", "input_schema", "inputSchema")

_NO_CALL = Verdict("confirm", "malformed", "shape", "The line holds no call: give 'tool' and one object 'arguments'.")
_NO_TOOL = Verdict("confirm", "default", "shape", "The line names no tool, and its arguments are of none: give 'tool'.")
_NO_OBJECT = Verdict("error", "malformed", "arguments", "The arguments are no JSON object: repeat the call with one.")
_TWICE = Verdict("confirm", "duplicate", "duplicate_key", "A key is there twice: what runs may not be what was judged.")


@dataclass(frozen=True, slots=True)
class _GateContext:
    """The gate, the tools that it knows without a definition, and the MCP servers whose calls need an approval."""

    gate: Gate
    specs: Mapping[str, ToolSpec]
    asking: Collection[str]


@dataclass(frozen=True, slots=True)
class _Call:
    """The call of one input line; `arguments` is a text if the line has them as text."""

    tool: object
    arguments: object
    beside: object = None


def assess_lines(
    lines: Iterable[str],
    write: Callable[[str], object],
    *,
    gate: Gate,
    specs: Mapping[str, ToolSpec],
    asking: Collection[str] = (),
) -> int:
    """Write `{"verdict", "basis", "rule", "reason"}` for each line that is not blank; 1: a line was not a JSON object.

    A line holds `tool` and `arguments` (or `parameters`, parsed) or `raw_arguments` (text), or `tool_call` (the whole
    call), and may hold `tool_definition`, `tainted`, and `doubt` ("quoted" or "example": what the lane itself finds of
    a call). One with `arguments` alone is a call of the built-in tool that has such.

    Lines of `gateway scan` are read as well: a group is answered with `calls`, a verdict for each; what cannot be
    read as a call is an error; a line without any call is passed on.

    `asking` are the MCP servers whose every call needs an approval.
    """
    known = _GateContext(gate, specs, asking)
    status = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            answer = _format_answer(_parse_object(line), known)
        except RepeatedKeyError:
            answer = _build_view(_TWICE)
        except StrictJsonError:
            answer, status = _build_view(_NO_CALL), 1
        status = 1 if answer.get("kind") == "error" else status
        write(json.dumps(answer) + "\n")
    return status


def _format_answer(line: Json, known: _GateContext) -> Json:
    match line:
        case {"kind": "text" | "error"}:
            return line
        case {"kind": "malformed"}:
            return _build_view(Verdict("error", "malformed", "shape", str(line.get("reason", ""))))
        case {"kind": "tool_call", "calls": [*calls]}:
            return {"calls": [_build_view(_judge_line(_convert_scanned(call), known)) for call in calls]}
        case {"kind": "tool_call"}:
            return _build_view(_judge_line(_convert_scanned(line), known))
        case _:
            return _build_view(_judge_line(line, known))


def _convert_scanned(call: object) -> Json:
    """Return a call as `gateway scan` writes it; its `rule` is the reason to doubt it."""
    return {**call, "doubt": call.get("rule")} if isinstance(call, dict) else {"tool": call}


def _build_view(verdict: Verdict) -> Json:
    return {"verdict": verdict.decision, "basis": verdict.basis, "rule": verdict.rule, "reason": verdict.reason}


def _judge_line(line: Json, known: _GateContext) -> Verdict:
    definition = _read_definition(line)
    call = _call(line, definition)
    if call.tool is None:
        return _NO_TOOL
    if not isinstance(call.tool, str):
        return _NO_CALL
    spec = _build_spec(call.tool, definition, known)
    if spec is None:
        return known.gate.judge(None, RiskClaim({}), tainted=False)
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = _parse_object(arguments if arguments.strip() or _has_required_parameters(spec) else "{}")
        except RepeatedKeyError:
            return _TWICE
        except StrictJsonError:
            return _NO_OBJECT
    if not isinstance(arguments, dict):
        return _NO_CALL
    claim = take_risk_level(arguments, spec, beside=call.beside)
    claim = RiskClaim(with_defaults(spec.parameters, claim.arguments), claim.risk_level)
    doubt = next((doubt for doubt in DOUBTS if line.get("doubt") == doubt), None)
    return _adjust_gate(definition, known.gate).judge(spec, claim, tainted=line.get("tainted") is True, doubt=doubt)


def _call(line: Json, definition: Json) -> _Call:
    """Return the call of a line in any of the shapes that models and protocols give it."""
    whole = line.get("tool_call")
    if isinstance(whole, dict):
        function = whole.get("function")
        inner = function if isinstance(function, dict) else whole
        tool = inner.get("tool", inner.get("name"))
        return _Call(tool, inner.get("parameters", inner.get("arguments")), find_outer_level(whole, inner))
    given = [line[name] for name in _ARGUMENTS if name in line]
    arguments = given[0] if len(given) == 1 else None  # two of them: it is unknown which one would run
    tool = line.get("tool", definition.get("name"))
    if tool is None and isinstance(arguments, dict):
        tool = next((tool for name, tool in _map_tools_by_argument().items() if name in arguments), None)
    return _Call(tool, arguments, find_outer_level(line))


@cache
def _map_tools_by_argument() -> Mapping[str, str]:
    """Return the built-in tools by the arguments that only they have, as their assessors declare them."""
    found: dict[str, str] = {}
    for tool in list_built_in_plugins("tools"):
        assessor = load_built_in_plugin("tools", tool).assessor
        if assessor is not None:
            plugin = load_built_in_plugin("assessors", assessor) if isinstance(assessor, str) else assessor
            found |= dict.fromkeys(plugin.judges, tool)
    return found


def _read_definition(line: Json) -> Json:
    definition = line.get("tool_definition")
    if isinstance(definition, dict) and isinstance(definition.get("function"), dict):
        definition = definition["function"]
    return definition if isinstance(definition, dict) else {}


def _build_spec(tool: str, definition: Json, known: _GateContext) -> ToolSpec | None:
    """Return the known tool with the additions of its definition; a tool's own definition never lowers its risk."""
    found = known.specs.get(tool)
    if definition.get("name") != tool:
        return found
    asks = any(tool.startswith((f"{service}.", encode_model_name(f"{service}."))) for service in known.asking)
    spec = found or ToolSpec(name=tool, description="", parameters={"type": "object"}, requires_approval=asks)
    schema = next((definition[name] for name in _SCHEMA_NAMES if isinstance(definition.get(name), dict)), None)
    floor = _read_risk(definition).get("min_level")
    asks = spec.requires_approval or bool(definition.get("requires_approval")) or floor in ("medium", "high")
    return replace(spec, parameters=schema or spec.parameters, requires_approval=asks)


def _adjust_gate(definition: Json, gate: Gate) -> Gate:
    if _read_risk(definition).get("trust_llm_low") is not False:
        return gate
    return Gate(Policy(trust_llm="never", default=gate.policy.default), gate.assessors, rules=gate.rules)


def _read_risk(definition: Json) -> Json:
    risk = definition.get("risk")
    return risk if isinstance(risk, dict) else {}


def _has_required_parameters(spec: ToolSpec) -> bool:
    return bool(spec.parameters.get("required"))


def _parse_object(text: str) -> Json:
    """Parse one strict JSON object. Raises StrictJsonError."""
    value = loads(text)
    if not isinstance(value, dict):
        raise StrictJsonError("it is no JSON object")
    return value
