"""The JSON views of approvals, runs and steps, and the answers that contain them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import orjson
from aiohttp import web

from gateway.approvals.view import approval_view
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import APPROVED, Approval, AuditRow, StoredRun, StoredStep
from gateway.contracts.storage.list_queries import ApprovalGroup, ApprovalGrouping, Tally
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import NoPreview, Preview
from gateway.runs.model_call_log import parse_model_calls


def json_answer(content: Mapping[str, object], *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json", charset="utf-8")


def list_answer(entries: Sequence[Json]) -> web.Response:
    return json_answer({"object": "list", "data": entries})


def page_answer(entries: Sequence[Json], *, following: str | None) -> web.Response:
    """Return one page of a list. `following` is the `after` of the next page, or None at the end."""
    return json_answer({"object": "list", "data": entries, "next": following})


def groups_answer(groups: Sequence[Json], *, more: bool) -> web.Response:
    """Return groups, the largest first. `more`: there are further ones, which the answer does not hold."""
    return json_answer({"object": "list", "data": groups, "more": more})


def group_view(group: ApprovalGroup, first: Approval, *, by: ApprovalGrouping) -> Json:
    """Return a group of pending approvals; what they need not share is null: the tool, or the caller."""
    return {
        "count": group.count,
        "calls": group.calls,
        "tool": None if by == "caller" else first.tool,
        "asked_by": first.caller if by == "caller" else None,
        "expires_at": group.next_s,
        "first": approval_view(first),
    }


def shown_state(run: StoredRun, *, pending: int) -> str:
    """Return the state to show. A run that waits for a person in memory looks like one that waits in the store."""
    return "awaiting_approval" if run.state == "running" and pending else run.state


def run_view(run: StoredRun, *, pending: int) -> Json:
    """Return a run. `pending` is the number of its pending approvals.

    Its worker renews `lease_until` while the store can be written.
    """
    return {
        "id": run.id,
        "object": "run",
        "kind": run.kind,
        "state": shown_state(run, pending=pending),
        "chain": run.chain,
        "conversation": run.conversation,
        "caller": run.caller,
        "workflow": run.workflow,
        "tool": run.tool,
        "client": None if run.client is None else orjson.loads(run.client),
        "effects": run.effects,
        "created_at": run.created_s,
        "updated_at": run.updated_s,
        "pending": pending,
        "lease_until": run.lease_s if run.state == "running" and run.owner is not None else None,
    }


def whole_run_view(run: StoredRun, *, steps: Sequence[StoredStep], approvals: Sequence[Approval]) -> Json:
    """Return a run with all that the store has of it."""
    error = None if run.error_code is None else {"code": run.error_code, "message": run.error}
    view = {
        **run_view(run, pending=sum(approval.state == "pending" for approval in approvals)),
        "steps": [step_view(step) for step in steps],
        "approvals": [approval_view(approval) for approval in approvals],
        "model_calls": parse_model_calls(run.progress),
        "answer": None if run.answer is None else orjson.loads(run.answer),
        "error": error,
    }
    return _of_workflow(run, view) if run.kind == "workflow" else view


def _of_workflow(run: StoredRun, view: Json) -> Json:
    """Return the run with its workflow's name, the names of its calls, and its result."""
    workflow = orjson.loads(run.request)["workflow"]["definition"]
    calling = [step["name"] for step in workflow["steps"] if step.get("tool") is not None]
    return {
        **view,
        "workflow": workflow["name"],
        "steps": [{"name": name, **step} for name, step in zip(calling, view["steps"], strict=False)],
        "result": None if view["answer"] is None else view["answer"].get("content"),
    }


def step_view(step: StoredStep) -> Json:
    return {
        "number": step.number,
        "round": step.round,
        "call_id": step.call_id,
        "tool": step.tool,
        "arguments": orjson.loads(step.arguments),
        "sha256": step.sha256,
        "decision": step.decision,
        "basis": step.basis,
        "rule": step.rule,
        "reason": step.reason,
        "state": step.state,
        "approval_id": step.approval_id,
        "result": step.result,
        "tainted": step.tainted,
        "late": step.late,
        "started_at": step.started_s,
        "finished_at": step.finished_s,
    }


def decided_view(approval: Approval) -> Json:
    """Return the answer to a decision, the same each time: the decision, not the later state of its call."""
    view = approval_view(approval)
    return {**view, "state": "approved"} if approval.state in APPROVED else view


def preview_view(preview: Preview | NoPreview) -> Json:
    """Return the preview of a call, or the reason why there is none."""
    view = {"object": "approval.preview", "available": isinstance(preview, Preview)}
    if isinstance(preview, NoPreview):
        return {**view, "reason": preview.reason, "label": None, "before": None, "after": None}
    return {**view, "reason": None, "label": preview.label, "before": preview.before, "after": preview.after}


def summary_view(tally: Tally) -> Json:
    return {"object": "summary", "pending": tally.pending, "next_expires_at": tally.next_s, "runs": dict(tally.runs)}


def audit_view(row: AuditRow) -> Json:
    """Return all fields that the row's hash covers, under the same names, so that a reader can follow the chain."""
    return {"seq": row.seq, **asdict(row.line), "hash": row.hash}


def error_view(error: GatewayError) -> Json:
    """Return an error as a part of an answer with several entries."""
    return {"message": error.message, "type": error.facts.type, "param": error.param, "code": error.code}
