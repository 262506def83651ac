"""An approval as clients see it, as JSON: in events, in texts, in notices."""

from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json


def build_approval_view(approval: Approval) -> Json:
    """Return an approval as clients see it.

    While it is pending, `sha256` is the hash of the call that would run: of `edited_arguments`, if there are some.
    """
    # Late: its library is loaded only where a person is to decide.
    from gateway.approvals.approval_struct import dump_approval

    return dump_approval(approval)


def get_waiting_arguments(view: Json) -> Json:
    """Return the arguments that would run, of an approval as `build_approval_view` shows it."""
    edited: Json | None = view["edited_arguments"]
    arguments: Json = view["arguments"]
    return arguments if edited is None else edited
