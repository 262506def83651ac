"""`gateway runs`: lists the runs of a running gateway with what they did and wait for, continues them, ends them."""

import argparse
import json
from collections.abc import Iterator
from typing import get_args

from gateway.cli.commands import Commands, WrongUsage, add_group
from gateway.cli.formatting import format_word, list_lines, run_lines, run_summary
from gateway.cli.operator.arguments import add_asking, add_json_option
from gateway.cli.operator.remote import Remote
from gateway.contracts.storage.journal import RunState

PATH = ("context", "runs")


def add(commands: Commands) -> None:
    """Add `gateway runs` and the commands below it."""
    group = add_group(commands, "runs", "show what runs did, continue those that stopped, cancel them")
    p = add_asking(group, "list", list_runs, "list runs, newest first", example="gateway runs list --state unknown")
    p.add_argument("--state", choices=get_args(RunState), help="only runs in this state")
    p.add_argument("--conversation", metavar="ID", help="only runs of this conversation")
    text = "the newest so many (default: 200)"
    p.add_argument("--limit", dest="most", type=_parse_count, default=200, metavar="N", help=text)
    add_json_option(p)
    p = add_asking(
        group,
        "show",
        show_run,
        "show what a run did, call by call",
        example="gateway runs show run_ba53f7371e66ef81f1043a38",
    )
    p.add_argument("run_id", metavar="ID", help="id of a run: run_...")
    add_json_option(p)
    text = "continue a run that stopped at a call with an unknown outcome (--as done, retry or failed)"
    p = add_asking(
        group,
        "resume",
        resume_run,
        text,
        example='gateway runs resume run_ba53f7371e66ef81f1043a38 --step 0 --as done --result "wrote it"',
    )
    p.add_argument(
        "run_id", metavar="ID", help="run in the state unknown, or without --step and --as in awaiting_client"
    )
    p.add_argument("--step", type=int, metavar="N", help="number of the call")
    p.add_argument(
        "--as",
        dest="outcome",
        choices=("done", "retry", "failed"),
        help="done: it ran; retry: run it again; failed: continue as if it had failed",
    )
    text = "result of the call for the model, which treats it as untrusted unless --trusted is given"
    p.add_argument("--result", metavar="TEXT", help=text)
    p.add_argument("--trusted", action="store_true", help="the result contains no text of third parties")
    p = add_asking(
        group,
        "cancel",
        cancel_run,
        "end a run; approvals that it waits for can no longer be decided",
        example="gateway runs cancel run_ba53f7371e66ef81f1043a38",
    )
    p.add_argument("run_id", metavar="ID", help="id of a run: run_...")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a whole number from 1")
    return int(text)


def list_runs(
    remote: Remote, *, state: str | None, conversation: str | None, most: int, as_json: bool
) -> Iterator[str]:
    """Yield the newest `most` runs, the newest first. Raises RemoteError."""
    found = 0
    for view in remote.iterate_entries(*PATH, state=state, conversation=conversation, most=most):
        found += 1
        yield json.dumps(view) if as_json else run_summary(view)
    if as_json:
        return
    if not found:
        yield "none"
    if found == most:
        yield f"... the newest {most}; --limit shows more"


def show_run(remote: Remote, run_id: str, *, as_json: bool) -> Iterator[str]:
    """Return the lines of all of one run. Raises RemoteError."""
    return list_lines([remote.get(*PATH, run_id)], run_lines, as_json=as_json)


def resume_run(
    remote: Remote, run_id: str, *, step: int | None, outcome: str | None, result: str | None, trusted: bool = False
) -> Iterator[str]:
    """Resume a run, or settle one of its steps, and yield the run. Raises RemoteError and WrongUsage."""
    if (step is None) != (outcome is None) or (result is not None and step is None):
        raise WrongUsage("--step and --as go together: the number of a call, and its outcome")
    said = {"step": step, "result": result, "trusted": trusted or None, "as": outcome}
    view = remote.post(*PATH, run_id, "resume", **said)
    yield f"{format_word(view, 'id')}  {format_word(view, 'state')}"


def cancel_run(remote: Remote, run_id: str) -> Iterator[str]:
    """Cancel a run and yield it. Raises RemoteError."""
    view = remote.post(*PATH, run_id, "cancel")
    yield f"{format_word(view, 'id')}  {format_word(view, 'state')}"
