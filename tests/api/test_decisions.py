"""Decisions carried out: written first, then the runs go on."""

import logging

import pytest

from gateway.api.decisions import DecisionBody, convert_store_errors, resume_runs
from gateway.api.request import validate_body
from gateway.approvals.approvals import Decision
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import StoreError
from tests.plugins.stores.records import approval, run

from .approval_pages import KEYS, opened


def test_decision_body_converts_to_a_decision() -> None:
    """All of what a person may say, and by which way it came."""
    assert validate_body(DecisionBody, {"decision": "reject"}).to_decision("rest", user=None) == Decision(
        approve=False, via="rest"
    )
    body = {
        "decision": "approve",
        "sha256": "a",
        "arguments": {"x": [1]},
        "reason": "r",
        "remember": "run",
    }
    assert validate_body(DecisionBody, body).to_decision("websocket", user=None) == Decision(
        approve=True, via="websocket", sha256="a", arguments={"x": [1]}, comment="r", remember="run"
    )


async def test_decide_checks_scope_and_reports_store_errors() -> None:
    """With the desk's own refusals; a failure of the store is one, too."""
    async with opened() as desk:
        office = desk.office
        api, wish = office.api, Decision(approve=True, via="rest")
        office.store.full = True
        with pytest.raises(GatewayError) as caught:
            await api.decide("ap_1", wish, caller=KEYS["boss"])
        assert caught.value.code == "store_full"
        office.store.full = False
        with pytest.raises(GatewayError) as caught:
            await api.decide("ap_1", wish, caller=KEYS["agent"])
        assert caught.value.code == "scope_missing"
        assert (await api.decide("ap_1", wish, caller=KEYS["boss"])).state == "approved"


async def test_each_run_is_resumed_once_despite_failures() -> None:
    """However many of its approvals were decided; one that fails does not keep the others."""
    asked: list[str] = []

    async def resume(run_id: str) -> None:
        asked.append(run_id)
        if run_id == "run_1":
            raise StoreError("not now")

    await resume_runs(resume, approval(), approval("ap_2"), approval("ap_3", run_id="run_2"), run("run_3"))
    assert asked == ["run_1", "run_2", "run_3"]


def test_store_error_detail_is_logged_but_hidden_from_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """The store's own words are for the log."""
    with caplog.at_level(logging.ERROR), pytest.raises(GatewayError) as caught, convert_store_errors("a decision"):
        raise StoreError("disk I/O error at /var/lib")
    assert caught.value.facts.status == 507 and "/var/lib" not in caught.value.message
    assert "disk I/O error at /var/lib" in caplog.text
