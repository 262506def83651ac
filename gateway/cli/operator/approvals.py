"""`gateway approvals`: asks a running gateway what waits for a person, and tells it what a person decided."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from gateway.cli.formatting import approval_lines, approval_summary, call_line, views, word
from gateway.cli.operator.remote import Remote, RemoteError, message_of

PATH = ("context", "approvals")


def listed(remote: Remote, *, status: str | None, as_json: bool) -> Iterator[str]:
    """Yield the approvals in a state, the oldest first. Raises RemoteError."""
    found = 0
    for view in remote.entries(*PATH, status=status):
        if as_json:
            yield json.dumps(view)
            continue
        if found:
            yield ""
        found += 1
        yield from approval_summary(view)
    if not found and not as_json:
        yield "none"


def one(remote: Remote, approval_id: str, *, as_json: bool) -> Iterator[str]:
    """Yield all of one approval. Raises RemoteError."""
    view = remote.get(*PATH, approval_id)
    if as_json:
        yield json.dumps(view)
    else:
        yield from approval_lines(view)


def decided(
    remote: Remote,
    approval_id: str,
    decision: Literal["approve", "reject"],
    *,
    sha256: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    remember: str | None = None,
    reason: str | None = None,
) -> Iterator[str]:
    """Decide one approval and yield its outcome. Raises RemoteError."""
    view = remote.post(
        *PATH,
        approval_id,
        decision=decision,
        sha256=sha256,
        arguments=arguments,
        remember=remember,
        reason=reason,
    )
    yield _done(view)


def all_decided(
    remote: Remote, ids: Sequence[str], decision: Literal["approve", "reject"], *, reason: str | None = None
) -> Iterator[str]:
    """Yield the outcome of several approvals, which are decided before any of their runs goes on.

    Raises RemoteError when one of them could not be decided, behind what was done with the others.
    """
    listed_ids = [{"id": approval_id} for approval_id in ids]
    answer = remote.post(*PATH, "batch", decision=decision, approvals=listed_ids, reason=reason)
    refused = []
    for each in views(answer.get("data")):
        view = each.get("approval")
        if isinstance(view, dict):
            yield _done(view)
        else:
            refused.append(f"{word(each, 'id')}: {message_of(each.get('error'))}")
    if refused:
        raise RemoteError("; ".join(refused))


def _done(view: Mapping[str, Any]) -> str:
    return f"{word(view, 'id')}  {word(view, 'state')}  {call_line(view)}"
