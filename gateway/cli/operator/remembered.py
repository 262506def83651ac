"""The remembered decisions of people on a running gateway: commands that list and revoke them."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.cli.formatting import View, time_of, word
from gateway.cli.operator.remote import Remote, RemoteError

GRANTS: Final = ("context", "grants")
ASKS: Final = ("context", "asks")
#: How the id of a conversation that asks before each call begins.
_ASK: Final = "ask_"


def grants(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield the remembered approvals, a few lines each. Raises RemoteError."""
    yield from _listed(remote.entries(*GRANTS), as_json=as_json)


def asks(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield the conversations that ask before each call, a few lines each. Raises RemoteError."""
    yield from _listed(remote.entries(*ASKS), as_json=as_json)


def revoked(remote: Remote, ids: Sequence[str]) -> Iterator[str]:
    """Revoke grants and asks by their ids, and yield a line for each.

    Raises RemoteError for those that could not be taken back, behind what was done with the others.
    """
    refused = []
    for each in ids:
        try:
            remote.delete(*(ASKS if each.startswith(_ASK) else GRANTS), each)
        except RemoteError as error:
            refused.append(f"{word({'id': each}, 'id')}: {error}")
        else:
            yield f"{word({'id': each}, 'id')}  revoked"
    if refused:
        raise RemoteError("; ".join(refused))


def _listed(found: Iterator[View], *, as_json: bool) -> Iterator[str]:
    if as_json:
        yield from map(json.dumps, found)
        return
    is_empty = True
    for view in found:
        if not is_empty:
            yield ""
        is_empty = False
        yield from _summary(view)
    if is_empty:
        yield "none"


def _summary(view: View) -> Iterator[str]:
    what = "asks before each call" if view.get("tool") is None else word(view, "tool")
    yield f"{word(view, 'id')}  {what}"
    if view.get("sha256") is not None:
        yield f"  sha256        {word(view, 'sha256')}"
    kind = "run" if view.get("run_id") is not None else "conversation"
    yield f"  {kind:12}  {word(view, 'run_id' if kind == 'run' else kind)}, of {word(view, 'caller')}"
    if view.get("granted_by") is not None:
        yield f"  granted by    {word(view, 'granted_by')}, {time_of(view, 'created_at')}"
    ends = "with its run" if view.get("expires_at") is None else time_of(view, "expires_at")
    yield f"  ends          {ends}"
