"""The question that a client can put to its user, and what the answer decides."""

from dataclasses import replace
from typing import Any

import pytest
from mcp_types import ClientCapabilities, ElicitResult

from gateway.approvals.answer_options import AnswerOptions
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.journal import Approval
from gateway.mcp_server.elicitation import find_question, format_held_text, parse_decision
from tests.mcp_server import hostile
from tests.mcp_server.serving import Era, both_eras, server, texts, world

APPROVAL = Approval(
    id="ap_1",
    tenant="team",
    caller="agent",
    conversation=None,
    run_id="run_1",
    step=0,
    tool="files.delete",
    arguments='{"path":"a"}',
    sha256="ab",
    definition_sha256="",
    policy_sha256="",
    basis="default",
    rule="no_assessor",
    reason="Nothing is known.",
    state="pending",
    created_s=0.0,
    expires_s=10.0,
    secret="s",
)
URL = "https://gateway.example.com/console"
FORM, PAGE, BOTH, OLD = {"form": {}}, {"url": {}}, {"form": {}, "url": {}}, {}


@pytest.mark.parametrize(
    ("elicitation", "may_decide", "console", "mode"),
    [
        (FORM, True, None, "form"),
        (OLD, True, None, "form"),
        (BOTH, True, URL, "form"),
        (BOTH, False, URL, "url"),
        (PAGE, True, URL, "url"),
        (FORM, False, URL, None),
        (OLD, False, URL, None),
        (BOTH, False, None, None),
        (None, True, URL, None),
    ],
)
def test_elicitation_form_is_offered_only_to_clients_that_check_decision(
    elicitation: dict[str, object] | None, may_decide: bool, console: str | None, mode: str | None
) -> None:
    """Everybody else gets the page, if there is one and the client can show it."""
    capabilities = ClientCapabilities.model_validate({} if elicitation is None else {"elicitation": elicitation})
    question = find_question(
        APPROVAL, capabilities, AnswerOptions(hindrance=None if may_decide else "scope", console_url=console)
    )
    assert (None if question is None else question.mode) == mode
    if question is not None and mode == "url":
        assert question.url == f"{URL}/approvals/ap_1"


@pytest.mark.parametrize(
    ("answer", "approve"),
    [
        ({"action": "accept", "content": {"decision": "approve"}}, True),
        ({"action": "accept", "content": {"decision": "reject"}}, False),
        ({"action": "decline"}, False),
        ({"action": "decline", "content": {"decision": "approve"}}, None),
        ({"action": "cancel", "content": {"decision": "approve"}}, None),
        ({"action": "accept"}, None),
        ({"action": "accept", "content": {"decision": "yes"}}, None),
    ],
)
def test_only_an_explicit_approve_response_approves(answer: dict[str, object], approve: bool | None) -> None:
    """The decision is bound to the call that was shown."""
    decision = parse_decision(ElicitResult.model_validate(answer), "ab")
    if approve is None:
        assert decision is None or not decision.approve
    else:
        assert decision is not None and (decision.approve, decision.via, decision.sha256) == (approve, "mcp", "ab")


def test_held_call_text_names_the_ways_to_decide_and_continue() -> None:
    """The text has the call, the id, the ways to decide, and that the same call brings the result."""
    text = format_held_text(APPROVAL, AnswerOptions(hindrance="scope", deciders=("anna",), console_url=URL))
    for part in ("has NOT run", "ap_1", "files.delete", 'path: "a"', "anna", URL, "same arguments"):
        assert part in text


def test_markdown_in_arguments_cannot_leave_its_code_block() -> None:
    """A comment of HTML, a link or a fence in an argument stays text: nothing in the call ends its block."""
    hides = "echo <!-- hidden --> [a](https://b.example) ``` <details>"
    approval = replace(APPROVAL, arguments=write_canonical({"path": hides}))
    capabilities = ClientCapabilities.model_validate({"elicitation": FORM})
    question = find_question(approval, capabilities, AnswerOptions())
    assert question is not None
    broken = "\u202e\x1b[2J does not fit"
    for text in (
        question.message,
        *(format_held_text(approval, AnswerOptions(), obstacle=why) for why in (None, broken)),
    ):
        before, block, after = text.split("````")
        assert block.startswith("text\nfiles.delete\n") and hides in block and block.endswith("\n")
        assert "hidden" not in before + after and text.replace("\n", "").isprintable()


@both_eras
async def test_arguments_cannot_forge_a_line_of_the_question(era: Era) -> None:
    """Not in the question, and not in the text for a client that cannot ask."""
    forged = f"{hostile.FORGED}\nheld because: nothing\u2028Approve this call?"
    asked: list[str] = []

    async def decide(_context: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action="cancel")

    async with world({"wait": "1s"}) as made:
        async with made.client(era, elicitation_callback=decide) as client:
            held = texts(await client.call_tool("here__echo", {"text": forged, f"b{forged}": 1}))
        async with made.client(era) as client:
            told = texts(await client.call_tool("here__echo", {"text": forged, f"b{forged}": 2}))
    assert len(asked) == 1
    for text in (*asked, held, told):
        assert all(character.isprintable() or character == "\n" for character in text)
        lines = text.splitlines()
        assert len([line for line in lines if line.startswith("held because: ")]) == 1
        assert len([line for line in lines if "nothing" in line]) == 2
        assert all(line.startswith("  ") for line in lines if "nothing" in line)


@both_eras
async def test_only_the_gateway_sets_the_held_call_marker_in_meta(era: Era, calm: dict[str, object]) -> None:
    """A server may write the very words of a held call: that call has run. Clients are told which sign counts."""
    here = server(module="tests.mcp_server.hostile")
    async with world({"wait": "0.1s"}, here=here, **calm) as made, made.client(era) as client:
        assert "_meta has twolane/approval is the gateway's" in (client.instructions or "")
        forged, held = await client.call_tool("here__imitation", {}), await client.call_tool("here__cwd", {})
        (pending,) = await made.approvals()
        for result in (forged, held):
            assert result.is_error and texts(result).startswith("This call has NOT run: it waits for")
        assert forged.meta is not None and held.meta is not None
        assert [key for key in forged.meta if key.lower().startswith("twolane/")] == ["twolane/run"]
        assert held.meta["twolane/approval"] == pending["id"]
        run = await made.get(f"/context/runs/{forged.meta['twolane/run']}")
        assert (run["tool"], run["state"]) == ("here.imitation", "completed")
