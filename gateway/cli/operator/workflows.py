"""`gateway workflows`: lists the workflows of a running gateway, and runs one there."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.approvals.escaping import escape_line, format_shown_json, format_shown_name
from gateway.cli.commands import Commands, WrongUsage, add_group
from gateway.cli.formatting import View, format_approval_summary, format_word, list_lines, list_views, run_lines
from gateway.cli.operator.arguments import add_asking, add_json_option, read_json_file
from gateway.cli.operator.remote import Remote, RemoteError
from gateway.workflows.parameters import ParameterError, convert_parameters

PATH = ("workflows",)
#: A run may take long, and what waits for a person answers at once.
TIMEOUT_S = 3600.0
TEXT_CHARS = 1000


def add(commands: Commands) -> None:
    """Add `gateway workflows` and the commands below it."""
    group = add_group(commands, "workflows", "list the workflows, and run one")
    add_json_option(
        add_asking(group, "list", list_workflows, "list the workflows by category", example="gateway workflows list")
    )
    p = add_asking(
        group,
        "show",
        show_workflow,
        "show the parameters of a workflow, and its steps",
        example="gateway workflows show summarise",
    )
    p.add_argument("name", metavar="NAME", help="name of a workflow")
    add_json_option(p)
    p = add_asking(
        group,
        "run",
        run_workflow,
        "run a workflow and print its result",
        example='gateway workflows run summarise title=Notes text="The safe is behind the mirror."',
    )
    p.add_argument("name", metavar="NAME", help="name of a workflow")
    p.add_argument("pairs", nargs="*", type=_parse_pair, metavar="KEY=VALUE", help="parameters, each at most once")
    text = "further parameters: a JSON object"
    p.add_argument("--json", dest="given", type=read_json_file, default={}, metavar="FILE", help=text)
    p.add_argument("--conversation", metavar="ID", help="the conversation that the run belongs to")
    p.add_argument("--model", metavar="NAME", help="model for its model steps (default: as configured)")
    p.add_argument("--async", dest="wait", action="store_false", help="print the run's id and do not wait")


def _parse_pair(text: str) -> tuple[str, str]:
    """Parse `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected name=value, not {text[:64]!r}")
    return name, value


def list_workflows(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield the workflows by category. Raises RemoteError."""
    found = list(remote.iterate_entries(*PATH))
    if as_json:
        yield from map(json.dumps, found)
        return
    for category in sorted({format_word(view, "category") for view in found}):
        yield category
        for view in found:
            if format_word(view, "category") == category:
                yield f"  {format_word(view, 'name')}  {escape_line(str(view.get('description') or ''), TEXT_CHARS)}"
    if not found:
        yield "none"


def show_workflow(remote: Remote, name: str, *, as_json: bool) -> Iterator[str]:
    """Return the lines of the parameters and steps of one workflow. Raises RemoteError."""
    return list_lines([remote.get(*PATH, name)], _format_workflow, as_json=as_json)


def _format_workflow(view: View) -> Iterator[str]:
    yield f"{format_word(view, 'name')}  {format_word(view, 'category')}"
    yield f"  {escape_line(str(view.get('description') or ''), TEXT_CHARS)}"
    schema = _get_schema(view)
    required = schema.get("required") or ()
    for parameter, facts in _get_properties(schema).items():
        yield (
            f"{parameter}=  {format_word(facts, 'type')}{_describe_necessity(facts, is_required=parameter in required)}"
        )
        if facts.get("description"):
            yield f"  {escape_line(str(facts['description']), TEXT_CHARS)}"
        if isinstance(facts.get("enum"), list):
            yield f"  one of {', '.join(format_shown_json(value, TEXT_CHARS) for value in facts['enum'])}"
    for i, step in enumerate(list_views(view.get("steps")), start=1):
        tool = f" {format_shown_name(str(step['tool']))}" if step.get("tool") is not None else ""
        yield f"step {i}  {format_word(step, 'name')}: {format_word(step, 'kind')}{tool}"


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
        yield f"{format_word(run, 'id')}  {format_word(run, 'state')}"
    elif isinstance(result, str):
        yield from map(escape_line, result.split("\n"))
    else:
        yield from _format_unfinished(run)


def _convert_parameters(remote: Remote, name: str, written: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the parameters with the types that the workflow declares. Raises RemoteError."""
    schema = _get_schema(remote.get(*PATH, name))
    known = {
        parameter: facts for parameter, facts in _get_properties(schema).items() if isinstance(facts.get("type"), str)
    }
    try:
        return convert_parameters(written, {"properties": known})
    except ParameterError as error:
        raise RemoteError(str(error)) from None


def _format_unfinished(run: View) -> Iterator[str]:
    """Yield a waiting run and how to decide; the whole of one that ended without a result."""
    pending = [view for view in list_views(run.get("approvals")) if view.get("state") == "pending"]
    if not pending:
        yield from run_lines(run)
        return
    yield f"{format_word(run, 'id')}  {format_word(run, 'state')}"
    for view in pending:
        yield from format_approval_summary(view)
        yield f"  to decide: gateway approvals show {format_word(view, 'id')}"
    yield f"afterwards: gateway runs show {format_word(run, 'id')}"


def _get_schema(view: View) -> View:
    schema = view.get("parameters")
    return schema if isinstance(schema, dict) else {}


def _get_properties(schema: View) -> Mapping[str, View]:
    properties = schema.get("properties")
    found = properties if isinstance(properties, dict) else {}
    return {format_shown_name(str(name)): facts for name, facts in found.items() if isinstance(facts, dict)}


def _describe_necessity(facts: View, *, is_required: bool) -> str:
    if is_required:
        return ", required"
    return f", default {format_shown_json(facts['default'], TEXT_CHARS)}" if "default" in facts else ""
