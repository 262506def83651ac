"""The answers about approvals that clients get: the text of a turn, and the facts beside it."""

import orjson

from gateway.approvals.chat_texts import (
    build_waiting_facts,
    describe_approval,
    format_still_pending_text,
    format_turn_text,
)
from gateway.approvals.view import build_approval_view
from gateway.contracts.storage.endorsements import get_check_word
from tests.plugins.stores.records import approval

FIRST = approval("ap_1", created_s=100.0, expires_s=1000.0)
SECOND = approval("ap_2", step=2, arguments='{"command":"rm x"}', created_s=130.0, expires_s=850.0)


def test_approval_description_has_arguments_reason_and_rule() -> None:
    """Arguments as JSON, why it is held, and by which rule."""
    told = describe_approval(FIRST)
    assert (told.id, told.tool, told.arguments) == ("ap_1", "execute_command", {"command": "make"})
    assert (told.reason, told.rule) == (FIRST.reason, FIRST.rule)


def test_approval_text_is_deterministic() -> None:
    """It depends on nothing but the approvals: the text is part of the conversation from then on."""
    text = format_turn_text([FIRST, SECOND], language="en")
    assert text == format_turn_text([FIRST, SECOND], language="en")
    words = f"ap_1 {get_check_word(FIRST)} ap_2 {get_check_word(SECOND)}"
    assert f"approve {words}" in text and f"reject {words}" in text
    assert "make" in text and "rm x" in text and FIRST.reason in text
    assert "12 minutes from now" in text, "the first that expires, from the last question on"
    assert "批准 ap_1" in format_turn_text([FIRST], language="zh")
    assert "http" not in text, "there is no page to link to"


def test_partial_decision_text_lists_only_the_pending_approvals() -> None:
    """And what was decided; nothing else can be answered any more."""
    text = format_still_pending_text([SECOND], ["ap_1"], language="en", now_s=250.0)
    assert "`ap_1`" in text and "approve ap_2" in text and "approve ap_1" not in text
    assert "10 minutes from now" in text


def test_waiting_facts_equal_the_api_approval_views() -> None:
    """One object for each approval, in their order; it is JSON."""
    told = build_waiting_facts("run_1", [FIRST, SECOND])
    assert (told["run_id"], told["status"]) == ("run_1", "awaiting_approval")
    assert told["approvals"] == [build_approval_view(FIRST), build_approval_view(SECOND)]
    assert orjson.loads(orjson.dumps(told)) == told


def test_approval_view_shows_edited_arguments_beside_the_original() -> None:
    """Null where nobody changed anything."""
    changed = approval(edited='{"command":"make -n"}', state="approved", decided_by="bob", via="rest")
    view = build_approval_view(changed)
    assert (view["arguments"], view["edited_arguments"]) == ({"command": "make"}, {"command": "make -n"})
    assert build_approval_view(FIRST)["edited_arguments"] is None
    assert "caller" not in view and "definition_sha256" not in view
