"""The decisions that apply to more than one call: approvals for the future, and conversations that ask before each.

Both end by themselves and can be listed. Every caller that may decide in their tenant can revoke them.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.grants import ask_id
from gateway.contracts.storage.journal import Approval, AskBefore, AuditLine, Grant, Journal, StoredStep, Via
from gateway.contracts.storage.store import Json, StoreError
from gateway.tools.decision_rules import DecisionRules

log = logging.getLogger("gateway")

#: How long a conversation is remembered by default.
REMEMBERED_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ApprovalBinding:
    """The conditions of an approval besides the call itself: these SHA-256 (hex) must be the same when it is used."""

    definition: str
    policy: str


class Judges(Protocol):
    """The questions of the approvals to the tools and the gate of the configuration in use."""

    @property
    def rules(self) -> DecisionRules:
        """Return the rules about who decides."""
        ...

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        """Return the binding of an approval of a call of this tool as of now; None: the tool does not exist."""
        ...

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        """Return the verdict on a call whose arguments a person has put in the place of the model's."""
        ...

    def find_client_refusal(self, exchange: Exchange) -> str | None:
        """Return why the key of an MCP client may not make its call any more; None: it may."""
        ...


class RememberedDecisions:
    """The remembered decisions of one configuration; one for a conversation lasts `kept_s` seconds."""

    def __init__(self, store: Journal, judges: Judges, *, clock: Clock, kept_s: float) -> None:
        self._store = store
        self._judges = judges
        self._clock = clock
        self._kept_s = kept_s

    async def grant(self, step: StoredStep, exchange: Exchange) -> Grant | None:
        """Return a remembered approval that applies to this call now; None: there is none. Raises StoreError.

        As many keys must have given it as this call needs, whose risk level may be another one.
        """
        grant = await self._store.grant(
            tenant=step.tenant,
            caller=exchange.caller.name,
            user=exchange.user,
            run_id=step.run_id,
            conversation=exchange.conversation,
            sha256=step.sha256,
            now_s=self._clock.time(),
        )
        if grant is None or self._judges.find_binding(step.tool) != ApprovalBinding(
            grant.definition_sha256, grant.policy_sha256
        ):
            return None
        needed = self._judges.rules.count_required(step.tool, step.risk_level)
        return grant if grant.approvals >= needed else None

    def build_grant(self, approval: Approval, *, of_run: bool, sha256: str, by: Caller) -> Grant:
        """Return the grant that a decision leaves; nothing is written. Raises GatewayError (invalid_field)."""
        if not of_run and approval.conversation is None:
            raise GatewayError(
                "invalid_field",
                "The run has no conversation (X-Context-Conversation) to remember this in; use 'run'.",
                param="remember",
            )
        now_s = self._clock.time()
        return Grant(
            id="grant_" + secrets.token_hex(12),
            tenant=approval.tenant,
            caller=approval.caller,
            run_id=approval.run_id if of_run else None,
            conversation=None if of_run else approval.conversation,
            tool=approval.tool,
            sha256=sha256,
            definition_sha256=approval.definition_sha256,
            policy_sha256=approval.policy_sha256,
            created_s=now_s,
            granted_by=by.name,
            expires_s=None if of_run else now_s + self._kept_s,
            approvals=approval.required,
            user=approval.user,
        )

    async def store_ask(self, exchange: Exchange) -> None:
        """Store that the user of this conversation, if there is one, wants to approve each call of it.

        Raises StoreError.
        """
        if exchange.conversation is not None:
            caller, now_s = exchange.caller, self._clock.time()
            ask = AskBefore(
                id=ask_id(caller.tenant, caller.name, exchange.conversation, exchange.user),
                tenant=caller.tenant,
                caller=caller.name,
                conversation=exchange.conversation,
                created_s=now_s,
                expires_s=now_s + self._kept_s,
                user=exchange.user,
            )
            await self._store.put_ask(ask)

    async def has_ask(self, exchange: Exchange) -> bool:
        """Return whether the user wants to approve each call of this conversation; True if the store fails."""
        try:
            return await self.find_ask_id(exchange) is not None
        except StoreError as error:
            log.error("the store failed, so every call of run %s needs approval: %s", exchange.id, error)
            return True

    async def find_ask_id(self, exchange: Exchange) -> str | None:
        """Return the id of the stored ask of this end user and conversation; None: there is none.

        Raises StoreError.
        """
        if exchange.conversation is None:
            return None
        caller = exchange.caller
        own = ask_id(caller.tenant, caller.name, exchange.conversation, exchange.user)
        ask = await self._store.ask_by_id(own, tenant=caller.tenant)
        return None if ask is None or self._has_expired(ask) else ask.id

    async def list_grants(self, *, tenant: str, after: str | None = None, limit: int) -> Sequence[Grant] | None:
        """Return the unexpired grants, oldest first, behind the one of the id `after`; None: that one does not exist.

        Raises StoreError.
        """
        found = await self._store.list_grants(tenant=tenant, now_s=self._clock.time(), after=after, limit=limit)
        if not found and after is not None and await self._store.grant_by_id(after, tenant=tenant) is None:
            return None
        return found

    async def list_asks(self, *, tenant: str, after: str | None = None, limit: int) -> Sequence[AskBefore] | None:
        """Return the unexpired wishes to approve each call, oldest first, behind the id `after`; None: it is unknown.

        Raises StoreError.
        """
        found = await self._store.list_asks(tenant=tenant, now_s=self._clock.time(), after=after, limit=limit)
        if not found and after is not None and await self._store.ask_by_id(after, tenant=tenant) is None:
            return None
        return found

    async def revoke_grant(self, grant_id: str, *, by: Caller, via: Via) -> bool:
        """Revoke a grant; return whether there was one. Raises StoreError.

        No call that has not started uses it any more.
        """
        found = await self._store.grant_by_id(grant_id, tenant=by.tenant)
        if found is None or self._has_expired(found):
            return False
        line = replace(
            self._build_revocation(found, by, via), run_id=found.run_id or "", tool=found.tool, sha256=found.sha256
        )
        return await self._store.delete_grant(grant_id, tenant=by.tenant, audit=[line])

    async def revoke_ask(self, ask_id: str, *, by: Caller, via: Via) -> bool:
        """Revoke an ask; return whether there was one. Raises StoreError.

        The next run of the conversation needs approval only where the gate requires it.
        """
        found = await self._store.ask_by_id(ask_id, tenant=by.tenant)
        if found is None or self._has_expired(found):
            return False
        line = replace(self._build_revocation(found, by, via), rule="asked_for")
        return await self._store.delete_ask(found, audit=[line])

    def _has_expired(self, what: Grant | AskBefore) -> bool:
        return what.expires_s is not None and what.expires_s <= self._clock.time()

    def _build_revocation(self, what: Grant | AskBefore, by: Caller, via: Via) -> AuditLine:
        """Return the audit line of a revoked grant or wish."""
        return AuditLine(
            tenant=what.tenant,
            caller=what.caller,
            event="revoked",
            decision="revoked",
            by=by.name,
            via=via,
            created_s=self._clock.time(),
        )
