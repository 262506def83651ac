"""`gateway scan`: what the gateway takes answers of a model for, one JSON line for each, without running anything."""

import json
from collections.abc import Callable, Iterable

from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Outcome
from gateway.agent.output.whole_message import read_message
from gateway.contracts.calls import FoundCall
from gateway.contracts.storage.store import Json


class _LineError(ValueError):
    """The line holds no answer; the message states what it should hold."""


def scan_lines(lines: Iterable[str], write: Callable[[str], None]) -> int:
    """Write the kind of each line that is not blank; 1: a line could not be read, and its answer is an `error`.

    A line holds `message` (an assistant message as the API has it) or else `text`, and may hold `finish_reason`. Its
    answer is `{"kind": "text"}`, `{"kind": "malformed", "reason"}` or `{"kind": "tool_call", "tool", "parameters",
    "terminate"}`, the last with `"rule": "example"` where the text announces it as one, and with `"risk_level"` where
    the model wrote one beside the parameters; several calls that came together are `{"kind": "tool_call", "calls":
    [...]}`. `gateway assess` reads these lines.
    """
    status = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = _build_view(_read_outcome(line))
        except _LineError as error:
            answer, status = {"kind": "error", "line": number, "reason": str(error)}, 1
        write(json.dumps(answer) + "\n")
    return status


def _read_outcome(line: str) -> Outcome:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _LineError(f"The line is not JSON ({error}): give an object with 'text' or 'message'.") from None
    if not isinstance(case, dict):
        raise _LineError("The line is not a JSON object: give one with 'text' or 'message'.")
    message = case.get("message", {"content": case.get("text")})
    if not isinstance(message, dict):
        raise _LineError("'message' is not an object: give the assistant message of an answer.")
    if "message" not in case and not isinstance(case.get("text"), str):
        raise _LineError("The line holds neither 'message' nor a 'text' that is a string: give one of them.")
    reason = case.get("finish_reason")
    if reason is not None and not isinstance(reason, str):
        raise _LineError("'finish_reason' is not a string: leave it out, or give 'stop' or 'length'.")
    return read_message(message, finish_reason=reason)[1]


def _build_view(outcome: Outcome) -> Json:
    match outcome:
        case CallGroup((call,)):
            return {"kind": "tool_call", **_build_call_view(call)}
        case CallGroup(calls):
            return {"kind": "tool_call", "calls": [_build_call_view(call) for call in calls]}
        case MalformedCall(reason):
            return {"kind": "malformed", "reason": reason}
        case _:
            return {"kind": "text"}


def _build_call_view(call: FoundCall) -> Json:
    told = {"tool": call.tool, "parameters": call.parameters, "terminate": call.terminate}
    if call.beside is not None:
        told["risk_level"] = call.beside
    return told if call.doubt is None else {**told, "rule": call.doubt}
