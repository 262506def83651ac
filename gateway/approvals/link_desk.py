"""The decisions that come by links. To open a link shows its call and decides nothing: programs open links, too.

1. What decides is the form of the page that showed the call, and only for a while.
2. A link is used up by its own decision, and by any other that settles the call. It ends with the approval, and with a
   change of the call, its tool or its policy.
3. The name of the link's webhook decides, as a separate key with the scope `approve` in the tenant of the run.
"""

import hmac
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gateway.approvals.approvals import Approvals, Decision
from gateway.approvals.links import LinkPayload, Links
from gateway.approvals.view import build_approval_view
from gateway.config.schema.approvals import LINK_PREFIX
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.endorsements import hash_waiting_call, list_endorsements
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json, Store

log = logging.getLogger("gateway")

#: How long the form of a page counts.
FORM_S: Final = 3600
#: open: it decides; used: it has; decided: another request has; changed: the call, its tool or its policy; ended: time.
LinkState: TypeAlias = Literal["open", "used", "decided", "changed", "ended"]
_FORM: Final = re.compile(r"([0-9]{1,12})\.[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LinkedCall:
    """The call of a link, as `build_approval_view` shows it, and what the link can still do.

    `form_token` goes into the form; `name` is the name under which the decision will be on record.
    """

    view: Json
    name: str
    state: LinkState
    form_token: str


class LinkDesk:
    """The links of one worker. `approvals` returns the service in use.

    `go_on` lets the run of a decided call go on. It never fails.
    """

    def __init__(
        self,
        store: Store,
        links: Links,
        *,
        approvals: Callable[[], Approvals],
        go_on: Callable[[Approval], Awaitable[None]],
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._store = store
        self._links = links
        self._approvals = approvals
        self._go_on = go_on
        self._counters = counters
        self._clock = clock

    async def get_linked_call(self, text: str) -> LinkedCall:
        """Return the call of a link. Raises GatewayError (link_not_valid), StoreError."""
        linked, approval = await self._open_link(text)
        state = self._get_link_state(linked, approval)
        self._counters.count("approval_links", outcome="shown" if state == "open" else state)
        form_token = self._links.build_form_token(text, shown_s=int(self._clock.time()))
        return LinkedCall(build_approval_view(approval), linked.name, state, form_token)

    async def decide(self, text: str, form_token: str, *, approve: bool, reason: str | None) -> Approval:
        """Apply the decision from the form of a link's page, and let the run go on.

        Raises GatewayError (link_not_valid, link_used, and the errors of a decision), StoreError.
        """
        linked, approval = await self._open_link(text)
        self._check_form(text, form_token)
        state = self._get_link_state(linked, approval)
        if state != "open":
            self._counters.count("approval_links", outcome=state)
            raise GatewayError("link_used", f"This link decides nothing any more ({state}): load its page again.")
        caller = Caller(f"{LINK_PREFIX}{linked.name}", linked.tenant, frozenset(("approve",)))
        wish = Decision(approve=approve, via="link", sha256=linked.sha256, comment=reason)
        decided = await self._approvals().decide(linked.approval_id, wish, caller=caller)
        self._counters.count("approval_links", outcome="decided")
        log.info("%s: a link of %r decided: %s", decided.id, linked.name, "approve" if approve else "reject")
        await self._go_on(decided)
        return decided

    async def _open_link(self, text: str) -> tuple[LinkPayload, Approval]:
        """Return the facts of a link and its approval. Raises GatewayError (link_not_valid), StoreError."""
        await self._links.prepare()
        linked = self._links.verify_link(text)
        approval = None
        if linked is not None:
            approval = await self._store.get_approval(linked.approval_id, tenant=linked.tenant)
            if approval is not None and approval.state == "pending" and approval.expires_s <= self._clock.time():
                await self._approvals().expire()
                approval = await self._store.get_approval(linked.approval_id, tenant=linked.tenant)
        if linked is None or approval is None:
            self._counters.count("approval_links", outcome="not_valid")
            raise GatewayError(
                "link_not_valid", "This link is not valid, or not any more: copy it whole, or use a newer notice."
            )
        return linked, approval

    def _check_form(self, text: str, form_token: str) -> None:
        """Raise GatewayError (link_not_valid) if the form is not of this link, or was open too long."""
        found, now_s = _FORM.fullmatch(form_token), self._clock.time()
        if found is not None and int(found[1]) <= now_s < int(found[1]) + FORM_S:
            expected = self._links.build_form_token(text, shown_s=int(found[1]))
            if hmac.compare_digest(expected, form_token):
                return
        raise GatewayError("link_not_valid", "The page of this link was open for too long: load it again.")

    def _get_link_state(self, linked: LinkPayload, approval: Approval) -> LinkState:
        """Return whether a link can still decide, or why not: used, ended, changed or decided."""
        own = f"{LINK_PREFIX}{linked.name}"
        given = list_endorsements(approval)
        if approval.decided_by == own or any((one.by, one.sha256) == (own, linked.sha256) for one in given):
            return "used"
        if approval.state == "expired" or linked.ends_s <= self._clock.time():
            return "ended"
        if approval.state == "cancelled":
            return "changed"
        if approval.state != "pending":
            return "decided"
        is_same = linked.sha256 == hash_waiting_call(approval) and self._approvals().holds(approval)
        return "open" if is_same else "changed"
