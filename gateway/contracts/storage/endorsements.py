"""Calls that several keys must approve: what each of them has approved so far, and the call that waits after that."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.check_word import check_word
from gateway.contracts.storage.journal import Approval, Via


@dataclass(frozen=True, slots=True, kw_only=True)
class Endorsement:
    """One of the approvals that a call needs: the key, its end user where one was named, the way, Unix time.

    `sha256` (hex) is the hash of the call that was shown and approved.
    """

    by: str
    user: str | None
    via: Via
    at_s: float
    sha256: str
    remember: Literal["once", "run", "conversation"] = "once"

    def has_endorser(self, key: str, user: str | None) -> bool:
        """Return whether it is of this key, or of this end user where one is named."""
        return self.by == key or (user is not None and self.user == user)


def list_endorsements(approval: Approval) -> tuple[Endorsement, ...]:
    """Return the approvals that a call has, in their order, the last of each key; () where one is enough.

    Some may be of other arguments than would run now.
    """
    return tuple(Endorsement(**given) for given in orjson.loads(approval.given))


def select_counted_endorsements(approval: Approval) -> tuple[Endorsement, ...]:
    """Return the approvals of exactly the call that would run."""
    sha256 = hash_waiting_call(approval)
    return tuple(one for one in list_endorsements(approval) if one.sha256 == sha256)


def write_endorsements(endorsements: Iterable[Endorsement]) -> str:
    """Return endorsements as an approval is stored with them."""
    return orjson.dumps([asdict(one) for one in endorsements]).decode()


def get_waiting_arguments(approval: Approval) -> str:
    """Return the arguments (canonical JSON) that would run: the ones that a person wrote, or the model's."""
    return approval.arguments if approval.edited is None else approval.edited


def hash_waiting_call(approval: Approval) -> str:
    """Return the hash (hex) of the call that would run."""
    return approval.sha256 if approval.edited is None else call_sha256(approval.tool, approval.edited)


def get_check_word(approval: Approval) -> str:
    """Return the check word that a decision in a chat brings: of the call that would run, then of the model's."""
    arguments = get_waiting_arguments(approval) if approval.state == "pending" else approval.arguments
    return check_word(approval.secret, approval.id, call_sha256(approval.tool, arguments))
