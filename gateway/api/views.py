"""The JSON views of runs, steps, errors and previews, and the answers that contain views."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import orjson
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from gateway.approvals.approval_struct import ApprovalView, build_approval_view
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import (
    APPROVED,
    Approval,
    AuditRow,
    RunKind,
    RunState,
    StepState,
    StoredRun,
    StoredStep,
)
from gateway.contracts.storage.list_queries import ApprovalGroup, ApprovalGrouping, Tally
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import NoPreview, Preview
from gateway.contracts.views import UnixTime, View, dump_view, fill_view
from gateway.runs.model_call_log import parse_model_calls


class CallGroupView(View, frozen=True, kw_only=True):
    """Pending approvals with something in common. What they need not share is null: the tool, or the caller."""

    count: int
    calls: int
    tool: str | None
    asked_by: str | None
    next_s: UnixTime = field(name="expires_at")
    first: ApprovalView


class RunView(View, frozen=True, kw_only=True):
    """A run. Its worker renews `lease_until` while the store can be written."""

    id: str
    object: Literal["run"] = "run"
    kind: RunKind
    state: RunState
    chain: str
    conversation: str | None
    caller: str
    workflow: str | None
    tool: str | None
    client: Json | None
    effects: bool
    created_s: UnixTime = field(name="created_at")
    updated_s: UnixTime = field(name="updated_at")
    pending: int
    lease_until: UnixTime | None


class StepView(View, frozen=True, kw_only=True):
    """A call of a run. Those of a workflow have the names of its steps."""

    name: str | UnsetType = UNSET
    number: int
    round: int
    call_id: str
    tool: str
    arguments: Json
    sha256: str
    decision: str
    basis: str
    rule: str
    reason: str
    state: StepState
    approval_id: str | None
    result: str | None
    tainted: bool
    late: str | None
    started_s: UnixTime | None = field(name="started_at")
    finished_s: UnixTime | None = field(name="finished_at")


class ModelCallView(View, frozen=True):
    """A call of a model in a run."""

    round: int
    started_at: UnixTime
    spent_s: float
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    upstream: str | None
    endpoint: str | None


class RunErrorView(View, frozen=True):
    """The error with which a run ended."""

    code: str
    message: str | None


class WholeRunView(RunView, frozen=True, kw_only=True):
    """A run with all that the store has of it. One of a workflow has its result."""

    steps: list[StepView]
    approvals: list[ApprovalView]
    model_calls: list[ModelCallView]
    answer: Json | None
    error: RunErrorView | None
    result: str | UnsetType | None = UNSET


class PreviewView(View, frozen=True, kw_only=True):
    """The change that a call would make, or the reason why it cannot be shown."""

    object: Literal["approval.preview"] = "approval.preview"
    available: bool
    reason: str | None = None
    label: str | None = None
    before: str | None = None
    after: str | None = None


class SummaryView(View, frozen=True, kw_only=True):
    """The pending approvals, and the runs that have not ended."""

    object: Literal["summary"] = "summary"
    pending: int
    next_s: UnixTime | None = field(name="next_expires_at")
    runs: Annotated[dict[str, int], Meta(description="By state; of those not ended.")]


class AuditLineView(View, frozen=True):
    """A line of the audit log: all fields that its hash covers, under the same names, so that readers can verify it."""

    seq: int
    tenant: str
    caller: str
    run_id: str
    step: int
    event: str
    tool: str
    sha256: str
    decision: str
    basis: str
    rule: str
    by: str
    via: str
    created_s: UnixTime
    hash: str


class RefusalView(View, frozen=True):
    """An error as a part of an answer with several entries."""

    message: str
    type: str
    param: str | None
    code: str


def build_json_answer(content: View | Mapping[str, object], *, status: int = 200) -> web.Response:
    body = orjson.dumps(content, default=dump_view)
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8")


def list_answer(entries: Sequence[View | Json]) -> web.Response:
    return build_json_answer({"object": "list", "data": entries})


def build_page_answer(entries: Sequence[View], *, following: str | None) -> web.Response:
    """Return one page of a list. `following` is the `after` of the next page, or None at the end."""
    return build_json_answer({"object": "list", "data": entries, "next": following})


def build_groups_answer(groups: Sequence[CallGroupView], *, more: bool) -> web.Response:
    """Return groups, the largest first. `more`: there are further ones, which the answer does not hold."""
    return build_json_answer({"object": "list", "data": groups, "more": more})


def build_group_view(group: ApprovalGroup, first: Approval, *, by: ApprovalGrouping) -> CallGroupView:
    """Return a group of pending approvals by what they share."""
    tool, caller = (None, first.caller) if by == "caller" else (first.tool, None)
    return fill_view(CallGroupView, group, tool=tool, asked_by=caller, first=build_approval_view(first))


def choose_shown_state(run: StoredRun, *, pending: int) -> RunState:
    """Return the state to show. A run that waits for a person in memory looks like one that waits in the store."""
    return "awaiting_approval" if run.state == "running" and pending else run.state


def run_view(run: StoredRun, *, pending: int) -> RunView:
    """Return a run. `pending` is the number of its pending approvals."""
    return fill_view(RunView, run, **_read_run(run, pending=pending))


def build_whole_run_view(run: StoredRun, *, steps: Sequence[StoredStep], approvals: Sequence[Approval]) -> WholeRunView:
    """Return a run with all that the store has of it."""
    answer: Json | None = None if run.answer is None else orjson.loads(run.answer)
    found = {
        **_read_run(run, pending=sum(approval.state == "pending" for approval in approvals)),
        "steps": [step_view(step) for step in steps],
        "approvals": [build_approval_view(approval) for approval in approvals],
        "model_calls": [ModelCallView(**call) for call in parse_model_calls(run.progress)],
        "answer": answer,
        "error": None if run.error_code is None else RunErrorView(run.error_code, run.error),
    }
    if run.kind == "workflow":
        workflow = orjson.loads(run.request)["workflow"]["definition"]
        calling = [step["name"] for step in workflow["steps"] if step.get("tool") is not None]
        found["workflow"] = workflow["name"]
        found["steps"] = [step_view(step, name=name) for name, step in zip(calling, steps, strict=False)]
        found["result"] = None if answer is None else answer.get("content")
    return fill_view(WholeRunView, run, **found)


def _read_run(run: StoredRun, *, pending: int) -> Json:
    """Return the fields that are no column of a run."""
    return {
        "state": choose_shown_state(run, pending=pending),
        "client": None if run.client is None else orjson.loads(run.client),
        "pending": pending,
        "lease_until": run.lease_s if run.state == "running" and run.owner is not None else None,
    }


def step_view(step: StoredStep, *, name: str | UnsetType = UNSET) -> StepView:
    return fill_view(StepView, step, name=name, arguments=orjson.loads(step.arguments))


def build_decided_view(approval: Approval) -> ApprovalView:
    """Return the answer to a decision, the same each time: the decision, not the later state of its call."""
    view = build_approval_view(approval)
    return replace(view, state="approved") if approval.state in APPROVED else view


def preview_view(preview: Preview | NoPreview) -> PreviewView:
    """Return the preview of a call, or the reason why there is none."""
    if isinstance(preview, NoPreview):
        return PreviewView(available=False, reason=preview.reason)
    return PreviewView(available=True, label=preview.label, before=preview.before, after=preview.after)


def build_summary_view(tally: Tally) -> SummaryView:
    return fill_view(SummaryView, tally, runs=dict(tally.runs))


def audit_view(row: AuditRow) -> AuditLineView:
    return AuditLineView(seq=row.seq, **asdict(row.line), hash=row.hash)


def build_error_view(error: GatewayError) -> RefusalView:
    """Return an error as a part of an answer with several entries."""
    return RefusalView(error.message, error.facts.type, error.param, error.code)
