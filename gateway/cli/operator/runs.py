"""`gateway runs`: asks a running gateway what its runs did and wait for, and ends them or says how they go on."""

import json
from collections.abc import Iterator

from gateway.cli.formatting import run_lines, run_summary, word
from gateway.cli.operator.remote import Remote

PATH = ("context", "runs")


def listed(remote: Remote, *, state: str | None, conversation: str | None, most: int, as_json: bool) -> Iterator[str]:
    """Yield the newest `most` runs, the newest first. Raises RemoteError."""
    found = 0
    for view in remote.entries(*PATH, state=state, conversation=conversation, most=most):
        found += 1
        yield json.dumps(view) if as_json else run_summary(view)
    if as_json:
        return
    if not found:
        yield "none"
    if found == most:
        yield f"... the newest {most}; --limit shows more"


def one(remote: Remote, run_id: str, *, as_json: bool) -> Iterator[str]:
    """Yield all of one run. Raises RemoteError."""
    view = remote.get(*PATH, run_id)
    if as_json:
        yield json.dumps(view)
    else:
        yield from run_lines(view)


def resumed(
    remote: Remote, run_id: str, *, step: int | None, outcome: str | None, result: str | None, trusted: bool = False
) -> Iterator[str]:
    """Resume a run, or settle one of its steps, and yield the run. Raises RemoteError."""
    said = {"step": step, "result": result, "trusted": trusted or None, "as": outcome}
    view = remote.post(*PATH, run_id, "resume", **said)
    yield f"{word(view, 'id')}  {word(view, 'state')}"


def cancelled(remote: Remote, run_id: str) -> Iterator[str]:
    """Cancel a run and yield it. Raises RemoteError."""
    view = remote.post(*PATH, run_id, "cancel")
    yield f"{word(view, 'id')}  {word(view, 'state')}"
