"""The question about calls that wait for a person, as the client of their run gets it: once in each answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.approvals import chat_texts as spoken
from gateway.approvals import texts
from gateway.approvals.approvals import Approvals, approval_view
from gateway.approvals.escaping import Language
from gateway.contracts.exchange import Chunk, Exchange
from gateway.contracts.journal import Approval, StoredStep
from gateway.contracts.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat_request import last_user_text

#: Sends the client a chunk of its answer.
Say: TypeAlias = Callable[[Chunk], Awaitable[None]]


@dataclass(slots=True)
class Questions:
    """The questions of one answer."""

    approvals: Approvals
    exchange: Exchange
    _stands: list[str] = field(default_factory=list)  # the approvals that the question in this answer is about

    @property
    def language(self) -> Language:
        """Return the language of the client's last message."""
        return texts.language_of(last_user_text(self.exchange.body["messages"]))

    async def hold(self, pending: Sequence[Approval], say: Say, *, held_s: float) -> None:
        """Send the question to a client whose answer stays open, as a part of the answer.

        Programs get an event.
        """
        asked = [approval.id for approval in pending]
        if self._stands != asked:
            self._stands = asked
            await say(self._question(pending, held_s=held_s))
        told = {"type": "approval.required", "approvals": [approval_view(approval) for approval in pending]}
        await say(chunks.event({**told, "run_id": self.exchange.id}))

    def last(self, pending: Sequence[Approval]) -> str:
        """Return the text that ends the answer of a turn that waits for these approvals."""
        if self._stands != [approval.id for approval in pending]:
            return self._question(pending)
        may_decide = self.approvals.answering(self.exchange.caller).may_decide
        return texts.still_undecided_text(may_decide=may_decide, language=self.language)

    @property
    def are_shared(self) -> bool:
        """Return whether the same call in two runs shares one approval.

        A stored run requests its own approval, because it brings an answer of its own.
        """
        return self.exchange.workflow is None and self.exchange.resume is None

    async def already(self, steps: Sequence[StoredStep]) -> tuple[str, Json] | None:
        """Return the question of another run that waits for one of these calls, and its facts. None: no run does."""
        if not self.are_shared:
            return None
        for step in steps:
            asked = await self.approvals.pending_for(step, self.exchange)
            of_run = {} if asked is None else await self.approvals.of_run(asked.run_id, tenant=asked.tenant)
            pending = [approval for approval in of_run.values() if approval.state == "pending"]
            if asked is not None and pending:  # else somebody has decided this moment
                before = texts.waiting_already_text(
                    [other.tool for other in steps if other.sha256 != asked.sha256], language=self.language
                )
                return f"{before}\n\n{self._question(pending)}", spoken.waiting(asked.run_id, pending)
        return None

    def _question(self, pending: Sequence[Approval], *, held_s: float | None = None) -> str:
        answering = self.approvals.answering(self.exchange.caller, held_s=held_s)
        return spoken.turn_text(pending, language=self.language, answering=answering)
