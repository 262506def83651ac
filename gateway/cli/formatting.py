"""Approvals, runs and lines of the audit log as a person reads them on a terminal.

Text of a model, a tool or a client is escaped (gateway/approvals/escaping.py) and indented. So no terminal obeys it,
and it cannot pass for a line of the gateway. Facts that an older gateway does not send are left out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from gateway.approvals.escaping import escape_line, format_shown_arguments, format_shown_json, format_shown_name
from gateway.approvals.texts import REASON_CHARS, convert_to_utc

#: A part of a gateway's answer.
View: TypeAlias = Mapping[str, Any]

#: Of the arguments of a call in one line.
LINE_CHARS = 300
#: Of a result of a tool, which `--json` has whole.
RESULT_CHARS = 1000
#: Ids, states, rules, names of keys and of conversations.
WORD_CHARS = 200


def format_word(view: View, name: str) -> str:
    """Return a short text of a view; empty where there is none."""
    value = view.get(name)
    return "" if value is None else escape_line(str(value), WORD_CHARS)


def format_time(view: View, name: str) -> str:
    value = view.get(name)
    return f"{convert_to_utc(value):%Y-%m-%d %H:%M:%S} UTC" if isinstance(value, int | float) else "unknown time"


def list_views(value: object) -> list[View]:
    """Return a list of an answer."""
    return [view for view in value if isinstance(view, dict)] if isinstance(value, list) else []


def list_lines(
    found: Iterable[View], lines: Callable[[View], Iterable[str]], *, as_json: bool, gap: bool = False
) -> Iterator[str]:
    """Yield the lines of each view, with `gap` a blank one between two; for `as_json` one line of JSON each."""
    is_empty = True
    for view in found:
        if gap and not is_empty and not as_json:
            yield ""
        is_empty = False
        yield from (json.dumps(view),) if as_json else lines(view)
    if is_empty and not as_json:
        yield "none"


# Approvals.


def format_approval_summary(view: View) -> Iterator[str]:
    """Format an approval in a list; of long arguments the beginning."""
    until = f", until {format_time(view, 'expires_at')}" if view.get("state") == "pending" else ""
    yield f"{format_word(view, 'id')}  {format_word(view, 'state')}{until}"
    yield f"  {call_line(view)}"
    if why := _format_reason(view):
        yield f"  held because: {why}"
    if count := format_approvals(view):
        yield f"  approvals: {count}"


def format_group(view: View) -> Iterator[str]:
    """Format a group of pending approvals: how many, what they share, and the id of the one that expires first."""
    first = first if isinstance(first := view.get("first"), dict) else {}
    shared = call_line(first) if view.get("calls") == 1 else format_word(view, "tool") or format_word(view, "asked_by")
    yield f"{format_word(view, 'count')} approvals, {format_word(view, 'calls')} different: {shared}"
    yield f"  the first until {format_time(view, 'expires_at')}: {format_word(first, 'id')}"


def format_approval(view: View) -> Iterator[str]:
    """Format all of an approval: the call that runs if it is approved, and the commands that decide on exactly that."""
    approval_id = format_word(view, "id")
    pending = view.get("state") == "pending"
    yield f"{approval_id}  {format_word(view, 'state')}"
    is_edited = pending and view.get("edited_arguments") is not None
    yield from _call(view, view.get("edited_arguments" if is_edited else "arguments"), whole=True)
    if is_edited:
        yield "edited by a person who approved; the model had requested"
        yield from _call(view, view.get("arguments"), whole=True)
    if why := _format_reason(view):
        yield f"held because  {why}"
    if count := format_approvals(view):
        yield f"approvals     {count}"
    yield f"basis         {format_word(view, 'basis')}"
    yield f"run           {format_word(view, 'run_id')}, step {format_word(view, 'step')}"
    if view.get("conversation") is not None:
        yield f"conversation  {format_word(view, 'conversation')}"
    yield from _format_client(view)
    yield f"sha256        {format_word(view, 'sha256')}"
    yield f"asked         {format_time(view, 'created_at')}"
    if view.get("assigned_to") is not None:
        yield f"assigned to   {format_word(view, 'assigned_to')}"
    for note in list_views(view.get("notes")):
        text = escape_line(str(note.get("text")), REASON_CHARS)
        yield f"note          {text} ({format_word(note, 'by')}, {format_time(note, 'at')})"
    if pending:
        yield f"expires       {format_time(view, 'expires_at')}"
        yield f"to approve    gateway approvals approve {approval_id} --sha256 {format_word(view, 'sha256')}"
        yield f"to reject     gateway approvals reject {approval_id}"
        return
    yield from _format_decision(view)


def call_line(view: View) -> str:
    """Format a call on one line; of long arguments the beginning, and how much there is more."""
    edited = view.get("edited_arguments")
    arguments = view.get("arguments") if edited is None else edited
    return f"{format_shown_name(str(view.get('tool')))} {format_shown_json(arguments, LINE_CHARS)}"


def format_approvals(view: View) -> str:
    """Format how many of the keys that must approve a call have, and which; "" where one is enough."""
    required = view.get("required_approvals")
    if not isinstance(required, int) or required == 1:
        return ""
    given = list_views(view.get("approved_by"))
    names = ", ".join(format_word(one, "by") for one in given)
    return f"{len(given)} of {required}" + (f", approved by {names}" if names else ", by different keys")


def _format_decision(view: View) -> Iterator[str]:
    if view.get("decided_by") is not None:
        yield (
            f"decided       {format_time(view, 'decided_at')} by {format_word(view, 'decided_by')} "
            f"({format_word(view, 'via')})"
        )
    if view.get("comment"):
        yield f"reason        {escape_line(str(view['comment']), REASON_CHARS)}"
    if view.get("edited_arguments") is not None:
        yield "edited: what was approved is"
        yield from _call(view, view["edited_arguments"], whole=True)


def _call(view: View, arguments: object, *, whole: bool = False) -> Iterator[str]:
    """Format a call; `whole`: in full, however long, for the person who decides."""
    yield f"  {format_shown_name(str(view.get('tool')))}"
    yield from _indent_lines(
        format_shown_arguments(arguments if isinstance(arguments, dict) else {}, whole=whole), by=4
    )


def _format_reason(view: View) -> str:
    reason, rule = escape_line(str(view.get("reason") or ""), REASON_CHARS), format_word(view, "rule")
    return f"{reason} [{rule}]".lstrip() if rule else reason


# Runs.


def _format_client(view: View) -> Iterator[str]:
    """Format the MCP client that requested a call, if one did."""
    if isinstance(client := view.get("client"), dict):
        yield f"client        {format_word(client, 'name')} {format_word(client, 'version')}"


def run_summary(view: View) -> str:
    """Format a run in a list."""
    kind = f"call of {format_word(view, 'tool')}" if view.get("kind") == "tool" else format_word(view, "kind")
    return (
        f"{format_word(view, 'id')}  {format_word(view, 'state')}  {kind} of {format_word(view, 'caller')}, "
        f"began {format_time(view, 'created_at')}, waits for {_format_pending(view)}"
    )


def run_lines(view: View) -> Iterator[str]:
    """Format all of a run: its steps, its open approvals, its end."""
    yield f"{format_word(view, 'id')}  {format_word(view, 'state')}"
    yield f"kind          {format_word(view, 'kind')}, chain {format_word(view, 'chain')}"
    yield f"caller        {format_word(view, 'caller')}"
    if view.get("conversation") is not None:
        yield f"conversation  {format_word(view, 'conversation')}"
    yield from _format_client(view)
    yield f"began         {format_time(view, 'created_at')}"
    yield f"last change   {format_time(view, 'updated_at')}"
    yield f"effects       {'a tool was started' if view.get('effects') else 'none: no tool was started'}"
    yield f"waits for     {_format_pending(view)}"
    if view.get("lease_until") is not None:
        yield f"driven until  {format_time(view, 'lease_until')}, unless its worker can go on"
    for step in list_views(view.get("steps")):
        yield from _format_step(step)
        if view.get("state") == "unknown" and step.get("state") in ("started", "unknown"):
            yield "  to continue, state its outcome:"
            yield (
                f"  gateway runs resume {format_word(view, 'id')} --step {format_word(step, 'number')} --as "
                "done|retry|failed"
            )
    for approval in list_views(view.get("approvals")):
        if approval.get("state") == "pending":
            yield ""
            yield from format_approval_summary(approval)
    yield from _format_end(view)


def _format_pending(view: View) -> str:
    match view.get("pending"):
        case 1:
            return "1 approval"
        case int(pending) if pending:
            return f"{pending} approvals"
        case _:
            return "no decision"


def _format_step(step: View) -> Iterator[str]:
    verdict = f"{format_word(step, 'decision')} ({format_word(step, 'basis')})"
    if step.get("approval_id") is not None:
        verdict += f", approval {format_word(step, 'approval_id')}"
    yield ""
    yield f"step {format_word(step, 'number')}  {format_word(step, 'state')}  {verdict}"
    yield from _call(step, step.get("arguments"))
    if why := _format_reason(step):
        yield f"  because: {why}"
    if isinstance(step.get("late"), str):
        yield f"  seen late: {escape_line(step['late'], RESULT_CHARS)}"
    if isinstance(step.get("result"), str):
        yield f"  result: {escape_line(step['result'], RESULT_CHARS)}"


def _format_end(view: View) -> Iterator[str]:
    answer, error = view.get("answer"), view.get("error")
    if isinstance(answer, dict):
        yield ""
        yield "answer"
        yield from _indent_lines("\n".join(escape_line(line) for line in _format_text(answer).split("\n")), by=2)
    if isinstance(error, dict):
        yield ""
        yield f"error         {format_word(error, 'code')}: {escape_line(str(error.get('message')), REASON_CHARS)}"


def _format_text(answer: View) -> str:
    """Return the text; the JSON of an answer that is not text."""
    content = answer.get("content")
    return content if isinstance(content, str) else format_shown_json(answer)


def _indent_lines(text: str, *, by: int) -> Iterator[str]:
    for line in text.split("\n"):
        yield " " * by + line


# The audit log.


def audit_line(view: View) -> str:
    """Format an entry of the audit log on one line; of a run as a whole it names no call."""
    by = f" by {format_word(view, 'by')} ({format_word(view, 'via')})" if view.get("by") else ""
    call = (
        f"  {format_shown_name(str(view['tool']))} {format_word(view, 'sha256')}, step {format_word(view, 'step')}"
        if view.get("tool")
        else ""
    )
    why = ", ".join(filter(None, (format_word(view, "basis"), format_word(view, "rule"))))
    return (
        f"{format_word(view, 'seq')}  {format_time(view, 'created_s')}  {format_word(view, 'event')}: "
        f"{format_word(view, 'decision')}{by}"
        f"{f' ({why})' if why else ''}{call}  {format_word(view, 'run_id')} of "
        f"{format_word(view, 'tenant')}/{format_word(view, 'caller')}"
    )
