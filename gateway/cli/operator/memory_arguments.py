"""`gateway memories`: what the gateway remembers of end users, and its end."""

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from gateway.cli.operator.remote import Remote

Lines: TypeAlias = Callable[[argparse.Namespace], Iterator[str]]


def add_memories(
    asking: Callable[[str, Lines, str], argparse.ArgumentParser],
    *,
    remote: Callable[[argparse.Namespace], "Remote"],
    json_option: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add `list` and `delete`; `asking` makes the parser of a command that asks a running gateway, `remote`."""

    def list_memories(args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.memories import listed

        return listed(remote(args), user=args.user, key=args.key, as_json=args.json)

    def delete_memories(args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.memories import all_deleted, deleted

        if args.all == bool(args.ids) or (args.all and args.user is args.key is None):
            args.wrong_usage("give IDs, or --all with --user or --key")
        if args.all:
            return all_deleted(remote(args), user=args.user, key=args.key)
        if args.user is not None or args.key is not None:
            args.wrong_usage("--user and --key go with --all: an ID says which memory it is")
        return deleted(remote(args), args.ids)

    p = asking("list", list_memories, "list what is remembered, the newest first")
    _whose(p)
    json_option(p)
    p = asking("delete", delete_memories, "delete what is remembered")
    p.add_argument("ids", nargs="*", metavar="ID", help="a memory's: mem_...")
    p.add_argument("--all", action="store_true", help="all of a user, or of a key")
    _whose(p)
    p.set_defaults(wrong_usage=p.error)


def _whose(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--user", metavar="ID", help="of this end user (X-Context-User, or `user` of requests)")
    whose.add_argument("--key", metavar="NAME", help="kept for a key whose requests named no user (default: yours)")
