"""`gateway runs`: asks a running gateway what its runs did and wait for, and ends them or says how they go on."""

import json
from collections.abc import Iterator

from gateway.remote import Remote
from gateway.terminal import run_lines, run_summary, views, word

PATH = ("context", "runs")
#: As many as a gateway tells at once.
LIMIT = 200


def listed(remote: Remote, *, state: str | None, conversation: str | None, as_json: bool) -> Iterator[str]:
    """Runs, newest first. Raises RemoteError."""
    found = views(remote.get(*PATH, state=state, conversation=conversation, limit=LIMIT).get("data"))
    if as_json:
        yield from map(json.dumps, found)
        return
    yield from map(run_summary, found)
    if not found:
        yield "none"
    if len(found) == LIMIT:
        yield f"... the newest {LIMIT}; there may be more"


def one(remote: Remote, run_id: str, *, as_json: bool) -> Iterator[str]:
    """All of one run. Raises RemoteError."""
    view = remote.get(*PATH, run_id)
    if as_json:
        yield json.dumps(view)
    else:
        yield from run_lines(view)


def resumed(
    remote: Remote, run_id: str, *, step: int | None, outcome: str | None, result: str | None, trusted: bool = False
) -> Iterator[str]:
    """The run once it goes on, or it was said what became of a step. Raises RemoteError."""
    said = {"step": step, "result": result, "trusted": trusted or None, "as": outcome}
    view = remote.post(*PATH, run_id, "resume", **said)
    yield f"{word(view, 'id')}  {word(view, 'state')}"


def cancelled(remote: Remote, run_id: str) -> Iterator[str]:
    """The run, which has ended. Raises RemoteError."""
    view = remote.post(*PATH, run_id, "cancel")
    yield f"{word(view, 'id')}  {word(view, 'state')}"
