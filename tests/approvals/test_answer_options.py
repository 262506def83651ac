"""The ways to answer a question, as its reader is told them."""

import pytest

from gateway.approvals.answer_options import AnswerOptions, Hindrance, format_answer_paragraphs, format_hindrance
from gateway.approvals.escaping import Language

ID = "ap_" + "a" * 26
NAMED = [(ID, "KFMQTR")]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("hindrance", "may_reject"), [("own", True), ("approved", True), ("scope", False)])
def test_reader_unable_to_approve_sees_the_reason_and_deciders(
    language: Language, hindrance: Hindrance, may_reject: bool
) -> None:
    """No line that would be refused; to withdraw a call of one's own, one line."""
    answering = AnswerOptions(hindrance=hindrance, tenant="team", deciders=["anna"])
    text = "\n\n".join(format_answer_paragraphs(NAMED, 3600.0, 0.0, language, answering))
    assert format_hindrance(answering, language) in text and "anna" in text
    approve, reject = ("批准", "拒绝") if language == "zh" else ("approve", "reject")
    assert f"\n{approve} {ID}" not in text
    assert (f"\n{reject} {ID} KFMQTR\n" in text) is may_reject


def test_reader_able_to_approve_gets_reply_lines_and_console_link() -> None:
    text = "\n\n".join(
        format_answer_paragraphs(NAMED, 3600.0, 0.0, "en", AnswerOptions(console_url="https://gw.example/console"))
    )
    assert f"\napprove {ID} KFMQTR\n" in text and f"<https://gw.example/console/approvals/{ID}>" in text
    assert "Your key may not" not in text
