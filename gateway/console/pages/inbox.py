"""The inbox: calls that wait for a person, one of them on its own page, and every way to decide on them."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from gateway.approvals.view import get_waiting_arguments
from gateway.console.client import Api, ApiError
from gateway.console.exact import exact_arguments, exact_difference
from gateway.console.live import Live, View, sse_frame
from gateway.console.rendering import Rendering, shown_line
from gateway.console.schema_form import FieldError, fields_of, object_in, values_of
from gateway.console.static import static_url
from gateway.console.visit import CONSOLE, VIEWING, Page, Visit, link, see_other
from gateway.contracts.store import Json
from gateway.errors import GatewayError

SHOWN: Final = 50
#: The control that holds all arguments as JSON, for a reader who edits them so.
WHOLE: Final = "arguments"
#: Words for the basis of a verdict, from `gateway.contracts.risk.Basis`.
BASES: Final[Mapping[str, str]] = {
    "operator": "a rule of the operator",
    "llm": "the model's own word",
    "whitelist": "the assessor of the tool",
    "default": "the default, as no rule lets it run",
    "invalid": "its arguments do not fit the tool",
    "malformed": "the call is malformed",
    "duplicate": "the call was made before",
    "unknown_tool": "the tool is not known",
}


class Inbox:
    """The pages of approvals. `live` sends news to those that are open."""

    def __init__(self, rendering: Rendering, live: Live) -> None:
        self._rendering = rendering
        self._live = live

    def pages(self) -> tuple[Page, ...]:
        deciding = ("approve",)
        return (
            Page("GET", "", self._inbox),
            Page("GET", "/live", self._news, VIEWING),
            Page("POST", "/approvals/batch", self._decide_all, deciding),
            Page("GET", "/approvals/{id}", self._approval, VIEWING),
            Page("GET", "/approvals/{id}/preview", self._preview, deciding),
            Page("POST", "/approvals/{id}", self._decide, deciding),
        )

    async def _inbox(self, visit: Visit) -> web.Response:
        if not visit.may(*VIEWING):  # a key of operators only
            return see_other("status")
        after, approvals = visit.query.get("after"), ("context", "approvals")
        listed, summary = await asyncio.gather(
            visit.api.get(*approvals, status="pending", order="urgency", limit=SHOWN, after=after),
            visit.api.get("context", "summary"),
        )
        values = {"approvals": listed["data"], "following": listed["next"], "pending": summary["pending"]}
        return visit.answer("inbox.html", title=visit.t("Inbox"), bases=BASES, summary=summary, **values)

    async def _news(self, visit: Visit) -> web.StreamResponse:
        async def count() -> bytes:
            return sse_frame("count", str((await visit.api.get("context", "summary"))["pending"]))

        return await self._live.news(visit, count)

    async def _approval(self, visit: Visit) -> web.Response:
        approval = await visit.api.get("context", "approvals", visit.match["id"])
        return await self._shown(visit, approval)

    async def _shown(
        self,
        visit: Visit,
        approval: Json,
        *,
        status: int = 200,
        problem: str | None = None,
        form: Mapping[str, str] = {},
    ) -> web.Response:
        arguments = get_waiting_arguments(approval)
        fields = fields_of(approval["parameters"], arguments)
        # In a thread: some of a million characters take seconds.
        shown_arguments = await asyncio.to_thread(exact_arguments, arguments, language=visit.language)
        return await visit.page(
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
        lines = await asyncio.to_thread(exact_difference, preview["before"] or "", preview["after"] or "")
        if "HX-Request" in visit.request.headers:
            return visit.answer("preview.html", preview=preview, lines=lines)
        title, approval_id = "What it changes", visit.match["id"]
        return await visit.page("preview_page.html", title=title, preview=preview, lines=lines, id=approval_id)

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
                body["arguments"] = await self._edited(visit, approval_id)
            decided = await visit.api.post("context", "approvals", approval_id, body=body)
        except FieldError as error:
            problem = f"{shown_line(error.name)}: {error.problem(visit.t)}"
            return await self._failed(visit, approval_id, 422, problem)
        except ApiError as error:
            return await self._failed(visit, approval_id, error.status, error.message)
        done = "counted" if decided["state"] == "pending" else _past(decision)
        if form.get("back") == "approval":
            return see_other("approvals", approval_id, done=done, run=decided["run_id"])
        if form.get("back") == "run":
            return see_other("runs", decided["run_id"], done=done)
        return see_other(done=done, run=decided["run_id"])

    async def _failed(self, visit: Visit, approval_id: str, status: int, problem: str) -> web.Response:
        approval = await visit.api.get("context", "approvals", approval_id)
        return await self._shown(visit, approval, status=status, problem=problem, form=visit.form)

    async def _edited(self, visit: Visit, approval_id: str) -> Json:
        """Return the arguments that a form brings. Raises FieldError, ApiError."""
        approval = await visit.api.get("context", "approvals", approval_id)
        if WHOLE in visit.form:
            return object_in(WHOLE, visit.form[WHOLE])
        return values_of(fields_of(approval["parameters"], get_waiting_arguments(approval)), visit.form)

    async def _decide_all(self, visit: Visit) -> web.Response:
        chosen = [entry.partition(" ") for entry in visit.lists.get("approval", ())]
        decision = visit.form.get("decision")
        if not chosen:
            return see_other(done="nothing")
        body: dict[str, Any] = {
            "decision": decision,
            "approvals": [{"id": approval_id, "sha256": sha256} for approval_id, _, sha256 in chosen],
        }
        if decision == "reject" and (reason := visit.form.get("reason", "").strip()):
            body["reason"] = reason
        results = (await visit.api.post("context", "approvals", "batch", body=body))["data"]
        failed = [result for result in results if result["status"] != 200]
        if not failed:
            runs = {result["approval"]["run_id"] for result in results}
            is_open = any(result["approval"]["state"] == "pending" for result in results)
            past = "counted" if is_open else _past(str(decision))
            return see_other(done=past, run=runs.pop() if len(runs) == 1 else None)
        done = len(results) - len(failed)
        return await visit.page("batch.html", title="Decisions", status=409, failed=failed, count=done)

    async def news_of(self, event: Json, api: Api, view: View) -> bytes:
        """Return the frames of an event for open inboxes (`gateway.console.live.Render`)."""
        if event["event"] not in ("approval.required", "approval.partly_approved", "approval.resolved"):
            return b""
        pending = (await api.get("context", "summary"))["pending"]
        count = sse_frame("count", str(pending))
        if event["event"] == "approval.resolved":
            return sse_frame("resolved", event["data"]["approval_id"]) + count
        frame = {"static": static_url, "console": CONSOLE, "link": link, "bases": BASES}
        card = {**frame, "approval": event["data"], "decides": view.decides}
        fresh = sse_frame("approval", self._rendering.render("card.html", view.language, card)) + count
        # A card that is there already makes room for the one with its first approval.
        return fresh if event["event"] == "approval.required" else sse_frame("resolved", event["data"]["id"]) + fresh


def _past(decision: str) -> str:
    return {"approve": "approved", "reject": "rejected"}[decision]
