"""The remembered decisions of people on a running gateway: commands that list and revoke them."""

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.cli.formatting import View, format_time, format_word, list_lines
from gateway.cli.operator.remote import Remote

GRANTS: Final = ("context", "grants")
ASKS: Final = ("context", "asks")
#: The prefix of the id of an ask, a conversation's stored wish to approve each call.
_ASK: Final = "ask_"


def list_grants(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Return the remembered approvals, a few lines each. Raises RemoteError."""
    return list_lines(remote.iterate_entries(*GRANTS), _format_summary, as_json=as_json, gap=True)


def list_asks(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Return the conversations that ask before each call, a few lines each. Raises RemoteError."""
    return list_lines(remote.iterate_entries(*ASKS), _format_summary, as_json=as_json, gap=True)


def revoke_decisions(remote: Remote, ids: Sequence[str]) -> Iterator[str]:
    """Revoke grants and `ask` records by their ids, and return a line for each.

    Raises RemoteError for ids that could not be revoked, after all others were.
    """
    return remote.delete_each(((*(ASKS if each.startswith(_ASK) else GRANTS), each) for each in ids), done="revoked")


def _format_summary(view: View) -> Iterator[str]:
    what = "asks before each call" if view.get("tool") is None else format_word(view, "tool")
    yield f"{format_word(view, 'id')}  {what}"
    if view.get("sha256") is not None:
        yield f"  sha256        {format_word(view, 'sha256')}"
    kind = "run" if view.get("run_id") is not None else "conversation"
    yield f"  {kind:12}  {format_word(view, 'run_id' if kind == 'run' else kind)}, of {format_word(view, 'caller')}"
    if view.get("user") is not None:
        yield f"  user          {format_word(view, 'user')}"
    if view.get("granted_by") is not None:
        yield f"  granted by    {format_word(view, 'granted_by')}, {format_time(view, 'created_at')}"
    ends = "with its run" if view.get("expires_at") is None else format_time(view, "expires_at")
    yield f"  ends          {ends}"
