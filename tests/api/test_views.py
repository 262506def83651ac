"""Runs and steps as clients see them."""

from dataclasses import asdict, replace

import orjson

from gateway.api.views import (
    audit_view,
    build_decided_view,
    build_error_view,
    build_json_answer,
    build_whole_run_view,
    choose_shown_state,
    list_answer,
    run_view,
    step_view,
)
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import AuditRow
from gateway.contracts.views import dump_view
from tests.plugins.stores.records import approval, audit_line, run, step


def test_run_view_contains_no_internal_fields() -> None:
    """Neither what it was begun with, nor who drives it."""
    secret = run(request=b'{"secret":1}', progress=b'{"secret":1}', owner="secret", idempotency_key="secret")
    assert "secret" not in str(build_whole_run_view(secret, steps=[step()], approvals=[approval()]))


def test_run_with_pending_approvals_is_shown_as_awaiting_approval() -> None:
    """Looks like one that waits in the store; a run that has ended looks as it ended."""
    assert choose_shown_state(run(), pending=1) == "awaiting_approval"
    assert choose_shown_state(run(), pending=0) == "running"
    assert choose_shown_state(run(state="failed"), pending=1) == "failed"
    assert run_view(run(), pending=2).pending == 2


def test_a_run_under_way_shows_its_lease() -> None:
    """One that is over says that its worker died, or cannot write to the store; nobody drives one that waits."""
    assert run_view(run(owner="w1", lease_s=105.0), pending=0).lease_until == 105.0
    assert run_view(run(), pending=0).lease_until is None
    assert run_view(run(state="awaiting_approval", owner="w1", lease_s=105.0), pending=1).lease_until is None


def test_run_view_counts_its_pending_approvals() -> None:
    """Of its approvals, those that are pending."""
    view = build_whole_run_view(run(), steps=[], approvals=[approval(), approval("ap_2", state="done")])
    assert (view.pending, view.state, len(view.approvals)) == (1, "awaiting_approval", 2)


def test_workflow_run_view_shows_name_result_and_step_names() -> None:
    """Its name, its result, and its calls under the names of their steps; nothing of what its author wrote in them."""
    steps = [
        {"name": "rows", "tool": "a", "with": {"x": "secret"}},
        {"name": "said", "model": "secret"},
        {"name": "put", "tool": "b"},
    ]
    use = {"definition": {"name": "report", "steps": steps}, "parameters": {"text": "secret"}}
    there = run(kind="workflow", request=orjson.dumps({"workflow": use}))
    view = dump_view(build_whole_run_view(there, steps=[step(), step(1)], approvals=[]))
    assert (view["workflow"], view["result"]) == ("report", None)
    assert [one["name"] for one in view["steps"]] == ["rows", "put"] and "secret" not in str(view)
    view = dump_view(build_whole_run_view(replace(there, answer=b'{"content":"Done."}'), steps=[step()], approvals=[]))
    assert (view["result"], len(view["steps"])) == ("Done.", 1)
    assert "result" not in dump_view(build_whole_run_view(run(), steps=[step()], approvals=[]))


def test_step_view_shows_arguments_as_an_object() -> None:
    """As the model wrote them, not text of text."""
    assert step_view(step()).arguments == {"command": "make"}


def test_decided_view_reports_the_decision_not_the_outcome() -> None:
    """So that it is told alike each time."""
    states = ("approved", "executing", "done", "failed", "unknown")
    assert [build_decided_view(approval(state=state)).state for state in states] == ["approved"] * 5
    assert build_decided_view(approval(state="rejected")).state == "rejected"


def test_audit_view_contains_all_hashed_fields() -> None:
    """Under their names, in their order, between the number of the line and its hash."""
    line = audit_line(by="bob")
    view = dump_view(audit_view(AuditRow(7, line, "f" * 64)))
    assert [*view.items()] == [("seq", 7), *asdict(line).items(), ("hash", "f" * 64)]


def test_error_view_has_message_type_param_and_code() -> None:
    """An error within an answer has what an error has."""
    error = GatewayError("decision_conflict", "It is rejected already.", param="id")
    assert dump_view(build_error_view(error)) == {
        "message": "It is rejected already.",
        "type": "invalid_request_error",
        "param": "id",
        "code": "decision_conflict",
    }


def test_list_answer_is_a_json_object() -> None:
    """A list is an object with its entries."""
    answer = list_answer([{"id": "好"}])
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert isinstance(answer.body, bytes) and orjson.loads(answer.body) == {"object": "list", "data": [{"id": "好"}]}
    assert build_json_answer({}, status=404).status == 404
