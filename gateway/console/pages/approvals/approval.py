"""One call that waits for a person, on its own page: all of it, what it changes, and the decision."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from gateway.approvals.view import get_waiting_arguments
from gateway.console.api_client import ApiError
from gateway.console.rendering import format_line
from gateway.console.request import VIEWING, Page, Visit, see_other
from gateway.console.schema_form import FormError, build_fields, parse_object, parse_values
from gateway.console.visible_text import render_exact_arguments, render_exact_difference
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

#: The control that holds all arguments as JSON, for a reader who edits them so.
WHOLE: Final = "arguments"
#: Words for the basis of a verdict, from `gateway.contracts.risk.Basis`.
BASES: Final[Mapping[str, str]] = {
    "operator": "a rule of the operator",
    "llm": "the model's own word",
    "whitelist": "the assessor of the tool",
    "default": "no rule allows this call",
    "invalid": "its arguments do not fit the tool",
    "malformed": "the call is malformed",
    "duplicate": "the call was made before",
    "unknown_tool": "the tool is not known",
}
#: What was done, for the notice behind a decision.
PAST: Final[Mapping[str, str]] = {"approve": "approved", "reject": "rejected"}


class ApprovalPage:
    """The page of one approval."""

    def list_pages(self) -> tuple[Page, ...]:
        deciding = ("approve",)
        return (
            Page("GET", "/approvals/{id}", self._show_approval, VIEWING),
            Page("GET", "/approvals/{id}/preview", self._preview, deciding),
            Page("POST", "/approvals/{id}", self._decide, deciding),
            Page("POST", "/approvals/{id}/assign", self._assign, deciding),
            Page("POST", "/approvals/{id}/notes", self._store_note, deciding),
        )

    async def _show_approval(self, visit: Visit) -> web.Response:
        approval = await visit.api.get("context", "approvals", visit.match["id"])
        return await self._render_page(visit, approval)

    async def _render_page(
        self,
        visit: Visit,
        approval: Json,
        *,
        status: int = 200,
        problem: str | None = None,
        form: Mapping[str, str] = {},
    ) -> web.Response:
        arguments = get_waiting_arguments(approval)
        fields = build_fields(approval["parameters"], arguments)
        # In a thread: some of a million characters take seconds.
        shown_arguments = await asyncio.to_thread(render_exact_arguments, arguments, language=visit.language)
        return await visit.render_page(
            "approval.html",
            title="Approval",
            status=status,
            approval=approval,
            bases=BASES,
            shown_arguments=shown_arguments,
            fields=fields,
            as_json=visit.query.get("as") == "json" or WHOLE in form,
            editing="edit" in visit.query or visit.query.get("as") == "json" or problem is not None,
            form=form,
            problem=problem,
        )

    async def _preview(self, visit: Visit) -> web.Response:
        preview = await visit.api.get("context", "approvals", visit.match["id"], "preview")
        lines = await asyncio.to_thread(render_exact_difference, preview["before"], preview["after"] or "")
        if "HX-Request" in visit.request.headers:
            return visit.render_answer("preview.html", preview=preview, lines=lines)
        title, approval_id = "What it changes", visit.match["id"]
        return await visit.render_page("preview_page.html", title=title, preview=preview, lines=lines, id=approval_id)

    async def _decide(self, visit: Visit) -> web.Response:
        approval_id, form = visit.match["id"], visit.form
        decision = form.get("decision")
        if decision not in ("approve", "reject"):
            raise GatewayError("invalid_field", "The form has no decision: load the page again.", param="decision")
        sha256 = form.get("sha256") or visit.query.get("sha256")
        if not sha256:  # the API would decide on whatever the call is now
            raise GatewayError("invalid_field", "The form does not name the call: load the page again.", param="sha256")
        body: dict[str, Any] = {"decision": decision, "sha256": sha256}
        if decision == "approve":
            body["remember"] = form.get("remember") or "once"
        elif reason := form.get("reason", "").strip():
            body["reason"] = reason
        try:
            if decision == "approve" and "edited" in form:
                body["arguments"] = await self._parse_arguments(visit, approval_id)
            decided = await visit.api.post("context", "approvals", approval_id, body=body)
        except FormError as error:
            problem = f"{format_line(error.name)}: {error.format_problem(visit.t)}"
            return await self._render_failure(visit, approval_id, 422, problem)
        except ApiError as error:
            return await self._render_failure(visit, approval_id, error.status, error.message)
        done = "counted" if decided["state"] == "pending" else PAST[decision]
        if form.get("back") == "approval":
            return see_other("approvals", approval_id, done=done, run=decided["run_id"])
        if form.get("back") == "run":
            return see_other("runs", decided["run_id"], done=done)
        return see_other(done=done, run=decided["run_id"])

    async def _assign(self, visit: Visit) -> web.Response:
        to = visit.form.get("me") or visit.form.get("to", "").strip() or None
        return await self._post_change(visit, "assign", done="assigned" if to else "unassigned", body={"to": to})

    async def _store_note(self, visit: Visit) -> web.Response:
        return await self._post_change(visit, "notes", done="noted", body={"text": visit.form.get("text", "").strip()})

    async def _post_change(self, visit: Visit, what: str, *, done: str, body: Mapping[str, str | None]) -> web.Response:
        approval_id = visit.match["id"]
        try:
            await visit.api.post("context", "approvals", approval_id, what, body=body)
        except ApiError as error:
            return await self._render_failure(visit, approval_id, error.status, error.message)
        return see_other("approvals", approval_id, done=done)

    async def _render_failure(self, visit: Visit, approval_id: str, status: int, problem: str) -> web.Response:
        approval = await visit.api.get("context", "approvals", approval_id)
        return await self._render_page(visit, approval, status=status, problem=problem, form=visit.form)

    async def _parse_arguments(self, visit: Visit, approval_id: str) -> Json:
        """Return the arguments that a form brings. Raises FieldError, ApiError."""
        approval = await visit.api.get("context", "approvals", approval_id)
        if WHOLE in visit.form:
            return parse_object(WHOLE, visit.form[WHOLE])
        return parse_values(build_fields(approval["parameters"], get_waiting_arguments(approval)), visit.form)
