"""`gateway memories`: lists what a running gateway remembers of end users, and deletes it."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.cli.commands import Commands, WrongUsage, add_group
from gateway.cli.formatting import View, format_time, format_word, list_lines
from gateway.cli.operator.arguments import add_asking, add_json_option
from gateway.cli.operator.remote import Remote

PATH: Final = ("context", "memories")


def add(commands: Commands) -> None:
    """Add `gateway memories` and the commands below it."""
    group = add_group(commands, "memories", "list what the gateway remembers of end users, and delete it")
    p = add_asking(
        group, "list", list_memories, "list memories, newest first", example="gateway memories list --user anna"
    )
    _add_owner(p)
    add_json_option(p)
    p = add_asking(
        group, "delete", delete_memories, "delete memories", example="gateway memories delete --user anna --all"
    )
    p.add_argument("ids", nargs="*", metavar="ID", help="id of a memory: mem_...")
    p.add_argument("--all", dest="of_all", action="store_true", help="all memories of a user, or of a key")
    _add_owner(p)


def _add_owner(parser: argparse.ArgumentParser) -> None:
    owner = parser.add_mutually_exclusive_group()
    owner.add_argument("--user", metavar="ID", help="of this end user (X-Context-User, or `user` of requests)")
    owner.add_argument("--key", metavar="NAME", help="of a key whose requests named no user (default: yours)")


def list_memories(remote: Remote, *, user: str | None, key: str | None, as_json: bool) -> Iterator[str]:
    """Return the lines of the memories of a user, or of a key, the newest first. Raises RemoteError."""
    return list_lines(remote.iterate_entries(*PATH, user=user, key=key), _format_memory, as_json=as_json)


def delete_memories(
    remote: Remote, ids: Sequence[str], *, of_all: bool = False, user: str | None = None, key: str | None = None
) -> Iterator[str]:
    """Delete memories by their ids and yield a line for each; or `of_all` memories of one owner, and yield how many.

    Raises WrongUsage, and RemoteError for ids that could not be deleted, after all others were.
    """
    is_owned = user is not None or key is not None
    if of_all == bool(ids) or (of_all and not is_owned):
        raise WrongUsage("give IDs, or --all with --user or --key")
    if of_all:
        yield f"{remote.delete(*PATH, user=user, key=key).get('deleted')} deleted"
        return
    if is_owned:
        raise WrongUsage("--user and --key go with --all: an ID names its memory alone")
    yield from remote.delete_each(((*PATH, each) for each in ids), done="deleted")


def _format_memory(view: View) -> Iterator[str]:
    place = "" if view.get("conversation") is None else f", in {format_word(view, 'conversation')}"
    yield f"{format_word(view, 'id')}  {format_time(view, 'created_at')}{place}  {format_word(view, 'text')}"
