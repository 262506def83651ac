"""`gateway workflows`: lists the workflows of a running gateway, and runs one there."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.approvals.escaping import escape_line, format_shown_json, format_shown_name
from gateway.cli.commands import Commands, WrongUsage, add_group
from gateway.cli.formatting import View, approval_summary, list_lines, run_lines, views, word
from gateway.cli.operator.arguments import add_asking, json_file, json_option
from gateway.cli.operator.remote import Remote, RemoteError
from gateway.workflows.parameters import ParameterError, convert_parameters

PATH = ("workflows",)
#: A run may take long, and what waits for a person answers at once.
TIMEOUT_S = 3600.0
TEXT_CHARS = 1000


def add(commands: Commands) -> None:
    """Add `gateway workflows` and the commands below it."""
    group = add_group(commands, "workflows", "list the workflows, and run one")
    json_option(
        add_asking(group, "list", list_workflows, "list the workflows by category", example="gateway workflows list")
    )
    p = add_asking(
        group,
        "show",
        one,
        "show the parameters of a workflow, and its steps",
        example="gateway workflows show summarise",
    )
    p.add_argument("name", metavar="NAME", help="name of a workflow")
    json_option(p)
    p = add_asking(
        group,
        "run",
        run_workflow,
        "run a workflow and print its result",
        example='gateway workflows run summarise title=Notes text="The safe is behind the mirror."',
    )
    p.add_argument("name", metavar="NAME", help="name of a workflow")
    p.add_argument("pairs", nargs="*", type=_pair, metavar="KEY=VALUE", help="parameters, each at most once")
    text = "further parameters: a JSON object"
    p.add_argument("--json", dest="given", type=json_file, default={}, metavar="FILE", help=text)
    p.add_argument("--conversation", metavar="ID", help="the conversation that the run belongs to")
    p.add_argument("--model", metavar="NAME", help="model for its model steps (default: as configured)")
    p.add_argument("--async", dest="wait", action="store_false", help="print the run's id and do not wait")


def _pair(text: str) -> tuple[str, str]:
    """Parse `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected name=value, not {text[:64]!r}")
    return name, value


def list_workflows(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield the workflows by category. Raises RemoteError."""
    found = list(remote.entries(*PATH))
    if as_json:
        yield from map(json.dumps, found)
        return
    for category in sorted({word(view, "category") for view in found}):
        yield category
        for view in found:
            if word(view, "category") == category:
                yield f"  {word(view, 'name')}  {escape_line(str(view.get('description') or ''), TEXT_CHARS)}"
    if not found:
        yield "none"


def one(remote: Remote, name: str, *, as_json: bool) -> Iterator[str]:
    """Return the lines of the parameters and steps of one workflow. Raises RemoteError."""
    return list_lines([remote.get(*PATH, name)], _lines, as_json=as_json)


def _lines(view: View) -> Iterator[str]:
    yield f"{word(view, 'name')}  {word(view, 'category')}"
    yield f"  {escape_line(str(view.get('description') or ''), TEXT_CHARS)}"
    schema = _schema(view)
    required = schema.get("required") or ()
    for parameter, facts in _properties(schema).items():
        yield f"{parameter}=  {word(facts, 'type')}{_necessity(facts, is_required=parameter in required)}"
        if facts.get("description"):
            yield f"  {escape_line(str(facts['description']), TEXT_CHARS)}"
        if isinstance(facts.get("enum"), list):
            yield f"  one of {', '.join(format_shown_json(value, TEXT_CHARS) for value in facts['enum'])}"
    for i, step in enumerate(views(view.get("steps")), start=1):
        tool = f" {format_shown_name(str(step['tool']))}" if step.get("tool") is not None else ""
        yield f"step {i}  {word(step, 'name')}: {word(step, 'kind')}{tool}"


def run_workflow(
    remote: Remote,
    name: str,
    *,
    pairs: Sequence[tuple[str, str]],
    given: Mapping[str, Any],
    conversation: str | None = None,
    model: str | None = None,
    wait: bool,
) -> Iterator[str]:
    """Start a run and yield its result, or its open approvals. Raises RemoteError and WrongUsage.

    `pairs` are parameters as they were typed, which win over parameters `given` as JSON. Unless `wait`: the run's id.
    """
    written = dict(pairs)
    if len(written) < len(pairs):
        raise WrongUsage("a parameter is given twice: write each KEY=VALUE once")
    parameters = {**given, **_convert_parameters(remote, name, written)} if written else dict(given)
    beside = {"conversation": conversation, "model": model}
    body = {"parameters": parameters, **{name: value for name, value in beside.items() if value is not None}}
    run = remote.begin(*PATH, name, "runs", body=body, wait=wait, timeout_s=TIMEOUT_S)
    result = run.get("result")
    if not wait:
        yield f"{word(run, 'id')}  {word(run, 'state')}"
    elif isinstance(result, str):
        yield from map(escape_line, result.split("\n"))
    else:
        yield from _format_unfinished(run)


def _convert_parameters(remote: Remote, name: str, written: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the parameters with the types that the workflow declares. Raises RemoteError."""
    schema = _schema(remote.get(*PATH, name))
    known = {parameter: facts for parameter, facts in _properties(schema).items() if isinstance(facts.get("type"), str)}
    try:
        return convert_parameters(written, {"properties": known})
    except ParameterError as error:
        raise RemoteError(str(error)) from None


def _format_unfinished(run: View) -> Iterator[str]:
    """Yield a waiting run and how to decide; the whole of one that ended without a result."""
    pending = [view for view in views(run.get("approvals")) if view.get("state") == "pending"]
    if not pending:
        yield from run_lines(run)
        return
    yield f"{word(run, 'id')}  {word(run, 'state')}"
    for view in pending:
        yield from approval_summary(view)
        yield f"  to decide: gateway approvals show {word(view, 'id')}"
    yield f"afterwards: gateway runs show {word(run, 'id')}"


def _schema(view: View) -> View:
    schema = view.get("parameters")
    return schema if isinstance(schema, dict) else {}


def _properties(schema: View) -> Mapping[str, View]:
    properties = schema.get("properties")
    found = properties if isinstance(properties, dict) else {}
    return {format_shown_name(str(name)): facts for name, facts in found.items() if isinstance(facts, dict)}


def _necessity(facts: View, *, is_required: bool) -> str:
    if is_required:
        return ", required"
    return f", default {format_shown_json(facts['default'], TEXT_CHARS)}" if "default" in facts else ""
