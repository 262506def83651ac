"""Memories of end users, asked of a running gateway: lists and deletes them."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.cli.formatting import View, time_of, word
from gateway.cli.operator.remote import Remote, RemoteError

PATH: Final = ("context", "memories")


def listed(remote: Remote, *, user: str | None, key: str | None, as_json: bool) -> Iterator[str]:
    """Yield the memories of a user, or of a key, the newest first. Raises RemoteError."""
    is_empty = True
    for view in remote.entries(*PATH, user=user, key=key):
        is_empty = False
        yield json.dumps(view) if as_json else _line(view)
    if is_empty and not as_json:
        yield "none"


def deleted(remote: Remote, ids: Sequence[str]) -> Iterator[str]:
    """Delete memories by their ids, and yield a line for each.

    Raises RemoteError for those that could not be deleted, behind what was done with the others.
    """
    refused = []
    for each in ids:
        try:
            remote.delete(*PATH, each)
        except RemoteError as error:
            refused.append(f"{word({'id': each}, 'id')}: {error}")
        else:
            yield f"{word({'id': each}, 'id')}  deleted"
    if refused:
        raise RemoteError("; ".join(refused))


def all_deleted(remote: Remote, *, user: str | None, key: str | None) -> Iterator[str]:
    """Delete all memories of a user, or of a key, and yield how many. Raises RemoteError."""
    answer = remote.delete(*PATH, user=user, key=key)
    yield f"{answer.get('deleted')} deleted"


def _line(view: View) -> str:
    place = "" if view.get("conversation") is None else f", in {word(view, 'conversation')}"
    return f"{word(view, 'id')}  {time_of(view, 'created_at')}{place}  {word(view, 'text')}"
