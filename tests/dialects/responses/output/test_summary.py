"""The output of a response that compacts. Its events in order: `compaction` of tests/dialects/responses/scripts.py."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.events import NoEvents
from gateway.dialects.responses.output.items import Status
from gateway.dialects.responses.output.summary import SummaryOutput
from tests.dialects.responses.scripts import RESPONSE_ID, thought


def output() -> SummaryOutput:
    return SummaryOutput(response_id=RESPONSE_ID, events=NoEvents(), seal=lambda text: f"sealed:{text}")


def test_summary_is_sealed_without_thoughts() -> None:
    """Only the text of the answer is the summary."""
    made = output()
    for chunk in (thought("Hm"), "They ", chunks.build_delta({"content": "said hi."})):
        made.add_chunk(chunk)
    assert [item.build_view()["encrypted_content"] for item in made.items] == [""]
    made.end("completed")
    (item,) = [item.build_view() for item in made.items]
    assert item["encrypted_content"] == "sealed:They said hi." and item["type"] == "compaction"


def test_summary_that_is_not_whole_is_refused() -> None:
    """An empty one would lose the conversation, and so would half of one."""
    cases: list[tuple[str, Status]] = [("", "completed"), (" \n", "completed"), ("half", "incomplete")]
    for text, status in cases:
        made = output()
        made.add_chunk(text)
        with pytest.raises(GatewayError, match="no whole summary"):
            made.end(status)
        made.fail()
        assert made.items == []
