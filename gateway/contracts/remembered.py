"""Remembered wishes of people: approvals that hold for more than one call, and conversations that always ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered approval: the same call, with the same definition and policy, in this run or conversation."""

    id: str
    tenant: str
    caller: str
    run_id: str | None
    conversation: str | None
    tool: str
    sha256: str
    definition_sha256: str
    policy_sha256: str
    created_s: float
    granted_by: str
    expires_s: float | None = None  # None: it ends with its run


@dataclass(frozen=True, slots=True, kw_only=True)
class AskBefore:
    """A conversation whose user wants to approve each call."""

    id: str
    tenant: str
    caller: str
    conversation: str
    created_s: float
    expires_s: float
