"""Decisions of people, whichever way they arrive: they are stored first, then their runs go on. Their notes, too."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import orjson
from aiohttp import ClientConnectionResetError, web
from pydantic import Field

from gateway.api.request import VIEWING, Authorise, RequestBody, Resume
from gateway.approvals.approvals import Approvals, Decision, Remember
from gateway.approvals.chat_replies import COMMENT_CHARS
from gateway.approvals.decision import build_not_found_error, describe_decision
from gateway.approvals.previews import Previews
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import Approval, Journal, NoteWrite, StoredRun, Via
from gateway.contracts.storage.store import StoreError, build_unwritten_error
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs.event_feed import EventFeed
from gateway.tools.catalog import Catalog

#: So many notes has one approval, at most: they stand in its row, and on its card.
NOTES_MOST: Final = 50

log = logging.getLogger("gateway")

T = TypeVar("T")


class DecisionBody(RequestBody):
    """A person's decision on one approval."""

    decision: Literal["approve", "reject"]
    sha256: str | None = Field(default=None, description="Hash of the call that was shown.")
    arguments: dict[str, Any] | None = Field(default=None, description="To run instead of the model's.")
    reason: str | None = Field(default=None, max_length=COMMENT_CHARS)
    remember: Remember = "once"

    def to_decision(self, via: Via, *, user: str | None) -> Decision:
        return Decision(
            approve=self.decision == "approve",
            via=via,
            sha256=self.sha256,
            arguments=self.arguments,
            comment=self.reason,
            remember=self.remember,
            user=user,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The services that the pages of runs and approvals share.

    `approvals` and `catalog` return the objects of the configuration in use.
    """

    approvals: Callable[[], Approvals]
    catalog: Callable[[], Catalog]
    previews: Previews
    store: Journal
    feed: EventFeed
    authorise: Authorise
    resume: Resume
    clock: Clock
    tracer: Tracer | None = None

    def find_caller(self, request: web.Request) -> Caller:
        """Return a reader by the keys as they are now. Raises GatewayError, ClientConnectionResetError."""
        if request.transport is None:
            raise ClientConnectionResetError("the client left")
        return self.authorise(request, *VIEWING)

    async def decide(self, approval_id: str, wish: Decision, *, caller: Caller) -> Approval:
        """Store a decision and return the approval as it is afterwards. Raises GatewayError."""
        with convert_store_errors("a decision"):
            return await self.approvals().decide(approval_id, wish, caller=caller)

    async def store_note(self, write: NoteWrite) -> Approval:
        """Store a person's word about a pending approval, which decides nothing, and return the approval.

        Raises GatewayError (approval_not_found, decision_conflict, invalid_field) and StoreError.
        """
        approval = await self.store.get_approval(write.approval_id, tenant=write.tenant)
        if approval is None:
            raise build_not_found_error()
        if write.text is not None and approval.state == "pending" and len(orjson.loads(approval.notes)) >= NOTES_MOST:
            raise GatewayError(
                "invalid_field", f"This approval has {NOTES_MOST} notes, which is the most.", param="text"
            )
        with convert_store_errors("a note"):
            noted = await self.store.note_approval(write)
        if noted is None:
            now = await self.store.get_approval(write.approval_id, tenant=write.tenant) or approval
            raise GatewayError("decision_conflict", f"This approval {describe_decision(now)}: it takes no more notes.")
        self.feed.nudge()
        return noted

    async def decide_and_resume(self, approval_id: str, wish: Decision, *, caller: Caller) -> Approval:
        """Store a decision, let its run go on, and return the approval. Raises GatewayError."""
        approval = await self.decide(approval_id, wish, caller=caller)
        await resume_runs(self.resume, approval)
        return approval


async def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Do work to its end, although the client leaves: the run of a stored decision must not wait for a next visit."""
    return await asyncio.shield(asyncio.create_task(work))


async def resume_runs(resume: Resume, *decided: Approval | StoredRun) -> None:
    """Resume the runs of decided approvals. A failure is logged and changes no decision: the run is resumed later."""
    for run_id in dict.fromkeys(one.run_id if isinstance(one, Approval) else one.id for one in decided):
        try:
            await resume(run_id)
        except Exception:
            log.exception("run %s does not go on yet", run_id)


@contextmanager
def still_answered(what: str) -> Iterator[None]:
    """Log a StoreError behind `what`, which was stored just now: an error would say that it was not."""
    try:
        yield
    except StoreError as error:
        log.error("the store failed behind %s, which stands: %s", what, error)


@contextmanager
def convert_store_errors(what: str) -> Iterator[None]:
    """Convert a StoreError while a decision is stored. Raises GatewayError (store_full, store_uncertain)."""
    try:
        yield
    except StoreError as error:
        log.error("%s cannot be written down: %s", what, error)
        text = f"The gateway cannot write down {what}, so nothing has changed; its log says why."
        raise build_unwritten_error(error, text) from None
