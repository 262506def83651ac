"""`gateway approvals`: lists the calls that wait for a person on a running gateway, and sends a person's decisions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from gateway.cli.commands import Commands, WrongUsage, add_group
from gateway.cli.formatting import (
    call_line,
    format_approval,
    format_approval_summary,
    format_approvals,
    format_group,
    format_word,
    list_lines,
    list_views,
)
from gateway.cli.operator.arguments import add_asking, add_json_option, parse_json_object, parse_sha256
from gateway.cli.operator.grants import list_asks, list_grants, revoke_decisions
from gateway.cli.operator.remote import Remote, RemoteError, get_error_message
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.storage.journal import ApprovalState
from gateway.contracts.storage.list_queries import ApprovalGrouping

PATH = ("context", "approvals")


def add(commands: Commands) -> None:
    """Add `gateway approvals` and the commands below it."""
    group = add_group(commands, "approvals", "decide on calls that wait for a person")
    p = add_asking(
        group,
        "list",
        list_approvals,
        "list the approvals that wait for a person, oldest first",
        example="gateway approvals list --status all",
    )
    states = (*get_args(ApprovalState), "all")
    p.add_argument("--status", choices=states, default="pending", help="state (default: pending)")
    p.add_argument("--tool", metavar="NAME", help="only calls of this tool (pending ones)")
    p.add_argument("--caller", metavar="KEY", help="only calls that the key of this name requested (pending ones)")
    p.add_argument(
        "--search", metavar="TEXT", help="only calls with this text in an argument, a name or an id (pending ones)"
    )
    add_json_option(p)
    p = add_asking(
        group,
        "groups",
        list_groups,
        "count the pending approvals in groups, the largest group first",
        example="gateway approvals groups --by call",
    )
    p.add_argument("--by", choices=get_args(ApprovalGrouping), default="call", help="what they share (default: call)")
    add_json_option(p)
    p = add_asking(
        group,
        "show",
        show_approval,
        "show a call exactly as it would run",
        example="gateway approvals show ap_phbncb5zya53cy3kkvsphejot4",
    )
    p.add_argument("approval_id", metavar="ID", help="id of an approval: ap_...")
    add_json_option(p)
    _add_deciding(group)
    _add_revoking(group)


def _add_deciding(group: Commands) -> None:
    """Add the commands that decide on pending calls."""
    p = add_asking(
        group,
        "approve",
        decide_approvals,
        "approve calls: they run, and their runs continue",
        example="gateway approvals approve ap_phbncb5zya53cy3kkvsphejot4 --remember conversation",
    )
    p.set_defaults(decision="approve")
    p.add_argument("ids", nargs="+", metavar="ID", help="approvals; all are decided before any run continues")
    p.add_argument("--sha256", type=parse_sha256, metavar="HASH", help="refuse unless the call still has this hash")
    p.add_argument(
        "--remember",
        choices=("once", "run", "conversation"),
        help="approve the same call again without asking, in its run or its conversation (default: once)",
    )
    text = "run the call with these arguments instead; @FILE reads them from a file"
    p.add_argument("--arguments", type=parse_json_object, metavar="JSON", help=text)
    p = add_asking(
        group,
        "reject",
        decide_approvals,
        "reject calls: they do not run",
        example='gateway approvals reject ap_phbncb5zya53cy3kkvsphejot4 --reason "not on Fridays"',
    )
    p.set_defaults(decision="reject")
    p.add_argument("ids", nargs="+", metavar="ID", help="approvals; all are decided before any run continues")
    p.add_argument("--reason", metavar="TEXT", help="reason, which the model receives")


def _add_revoking(group: Commands) -> None:
    """Add the commands about decisions that are remembered."""
    add_json_option(
        add_asking(
            group, "grants", list_grants, "list the remembered approvals", example="gateway approvals grants --json"
        )
    )
    add_json_option(
        add_asking(
            group,
            "asks",
            list_asks,
            "list conversations whose users want to be asked before each call",
            example="gateway approvals asks",
        )
    )
    p = add_asking(
        group,
        "revoke",
        revoke_decisions,
        "revoke remembered decisions: the next such call asks a person",
        example="gateway approvals revoke grant_2f7c9d",
    )
    p.add_argument("ids", nargs="+", metavar="ID", help="id of a grant or an ask: grant_..., ask_...")


def list_approvals(
    remote: Remote,
    *,
    status: str | None,
    as_json: bool,
    tool: str | None = None,
    caller: str | None = None,
    search: str | None = None,
) -> Iterator[str]:
    """Return the lines of the approvals in a state, or in `all` of them, the oldest first. Raises RemoteError."""
    state = None if status == "all" else status
    found = remote.iterate_entries(*PATH, status=state, tool=tool, caller=caller, q=search)
    return list_lines(found, format_approval_summary, as_json=as_json, gap=True)


def list_groups(remote: Remote, *, by: str, as_json: bool) -> Iterator[str]:
    """Return the lines of the groups of pending approvals, the largest group first. Raises RemoteError."""
    found = list_views(remote.get(*PATH, "groups", by=by, limit=LIMIT_MOST).get("data"))
    return list_lines(found, format_group, as_json=as_json)


def show_approval(remote: Remote, approval_id: str, *, as_json: bool) -> Iterator[str]:
    """Return the lines of all of one approval. Raises RemoteError."""
    return list_lines([remote.get(*PATH, approval_id)], format_approval, as_json=as_json)


def decide_approvals(
    remote: Remote,
    ids: Sequence[str],
    *,
    decision: Literal["approve", "reject"],
    sha256: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    remember: str | None = None,
    reason: str | None = None,
) -> Iterator[str]:
    """Decide approvals and yield their outcomes; several are decided before any of their runs goes on.

    Raises WrongUsage, and RemoteError when one could not be decided, behind what was done with the others.
    """
    of_one = {"sha256": sha256, "arguments": arguments, "remember": remember}
    if len(ids) == 1:
        yield _format_outcome(remote.post(*PATH, ids[0], decision=decision, reason=reason, **of_one))
        return
    if any(option is not None for option in of_one.values()):
        raise WrongUsage("--sha256, --remember and --arguments go with one ID: approve such calls one by one")
    listed_ids = [{"id": approval_id} for approval_id in ids]
    answer = remote.post(*PATH, "batch", decision=decision, approvals=listed_ids, reason=reason)
    refused = []
    for each in list_views(answer.get("data")):
        view = each.get("approval")
        if isinstance(view, dict):
            yield _format_outcome(view)
        else:
            refused.append(f"{format_word(each, 'id')}: {get_error_message(each.get('error'))}")
    if refused:
        raise RemoteError("; ".join(refused))


def _format_outcome(view: Mapping[str, Any]) -> str:
    count = format_approvals(view) if view.get("state") == "pending" else ""
    return f"{format_word(view, 'id')}  {format_word(view, 'state')}{f' ({count})' if count else ''}  {call_line(view)}"
