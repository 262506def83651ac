"""Questions about held calls to the person in front of an MCP client, and the answers to them.

A form decides, so it goes to a client whose key may decide. All others get the address of the console's page, where the
reader signs in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from gateway.approvals.answer_options import format_hindrance
from gateway.approvals.approvals import Decision
from gateway.approvals.chat_replies import COMMENT_CHARS
from gateway.approvals.chat_texts import describe_approval
from gateway.approvals.escaping import escape_line as escaped
from gateway.approvals.texts import (
    REASON_CHARS,
    AnswerOptions,
    build_approval_link,
    format_call_block,
    format_hidden_text,
)
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json

Mode: TypeAlias = Literal["form", "url"]

_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "description": "approve: the call runs as it is shown. reject: it does not run.",
            "enum": ["approve", "reject"],
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "The reason of a rejection, for the client.",
            "maxLength": COMMENT_CHARS,
            "default": "",  # libraries fill what is left out with it, else with null, which is not a text
        },
    },
    "required": ["decision"],
}


@dataclass(frozen=True, slots=True)
class ApprovalElicitation:
    """One question: how it is put, and the approval that it is about."""

    mode: Mode
    approval: Approval
    console_url: str | None

    @property
    def message(self) -> str:
        """Return the text: exactly the call that would run, and why it is held."""
        lead = "Approve this call? It has not run yet." if self.mode == "form" else "This call waits for a decision."
        return f"{lead}\n\n{_format_call(self.approval)}"

    @property
    def url(self) -> str:
        assert self.console_url is not None
        return build_approval_link(self.console_url, self.approval.id)

    def build_question(self) -> ElicitRequest:
        """Return the question as a part of an answer."""
        if self.mode == "form":
            return ElicitRequest(params=ElicitRequestFormParams(message=self.message, requested_schema=_SCHEMA))
        return ElicitRequest(
            params=ElicitRequestURLParams(message=self.message, url=self.url, elicitation_id=self.approval.id)
        )

    async def ask_on_stream(self, ctx: Any) -> ElicitResult:
        """Ask on the stream of a request, and return the answer. `ctx` is the SDK's context of a handler."""
        if self.mode == "form":
            result: ElicitResult = await ctx.session.elicit_form(
                self.message, _SCHEMA, related_request_id=ctx.request_id
            )
        else:
            result = await ctx.session.elicit_url(
                self.message, self.url, self.approval.id, related_request_id=ctx.request_id
            )
        return result


def find_question(
    approval: Approval, capabilities: ClientCapabilities | None, answering: AnswerOptions
) -> ApprovalElicitation | None:
    """Return the question that a client can put to its user; None: the client shows none, or no page exists."""
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None:
        return None
    has_form = elicitation.form is not None or elicitation.url is None  # `{}` means forms
    if has_form and answering.may_decide:
        return ApprovalElicitation("form", approval, answering.console_url)
    if elicitation.url is not None and answering.console_url is not None:
        return ApprovalElicitation("url", approval, answering.console_url)
    return None


def parse_decision(answer: ElicitResult, sha256: str) -> Decision | None:
    """Return the decision in the answer to a form about a call of this hash; None: it decides nothing."""
    content: Mapping[str, Any] = answer.content or {}
    word = content.get("decision") if answer.action == "accept" else None
    if answer.action == "decline" or word in ("approve", "reject"):
        reason = content.get("reason")
        comment = reason[:COMMENT_CHARS] if isinstance(reason, str) and reason.strip() else None
        return Decision(approve=word == "approve", via="mcp", sha256=sha256, comment=comment)
    return None


def _format_call(approval: Approval) -> str:
    """Return the call that would run, with a note on the omitted part of a long one."""
    one = describe_approval(approval)
    return "\n\n".join(filter(None, (format_call_block(one), format_hidden_text(one))))


def format_held_text(approval: Approval, answering: AnswerOptions, *, obstacle: str | None = None) -> str:
    """Return the result of a call that waits: it has not run, how to decide, and how to get the result.

    With an `obstacle`, which no approval removes, a person can only reject it.
    """
    call = _format_call(approval)
    if obstacle is not None:
        return (
            f"This call has NOT run, and cannot run any more: {escaped(obstacle, REASON_CHARS)}\n\n{call}\n\n"
            f"No person can approve it, but one can reject it: `gateway approvals reject {approval.id}`."
        )
    how = f"{format_hindrance(answering)} " if answering.hindrance in ("own", "approved") else ""
    how += f"Ask a person to decide: `gateway approvals approve {approval.id}` or `reject`"
    if answering.console_url is not None:
        how += f", or in a browser <{build_approval_link(answering.console_url, approval.id)}>"
    if answering.deciders:
        how += f". Keys that may decide: {', '.join(answering.deciders)}"
    return (
        f"This call has NOT run: it waits for the approval of a person ({approval.id}).\n\n"
        f"{call}\n\n"
        f"{how}. Then call the same tool again with the same arguments: that joins this approval, does not ask again, "
        "and returns the result. Other arguments are another call."
    )
