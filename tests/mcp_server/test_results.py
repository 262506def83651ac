"""Results in the version of the protocol that a client speaks."""

import pytest

from gateway.context.call_runs import Done
from gateway.contracts.store import Json
from gateway.contracts.tools import ToolResult
from gateway.mcp_server.results import call_result

AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_a_part_that_a_client_could_not_read_is_its_text(version: str) -> None:
    """Broken ones in every version."""
    for parts in ([{"type": "nothing"}], [{}], []):
        result = call_result(Done(ToolResult("text", parts=parts), "run_1"), version)
        assert result["content"] == [{"type": "text", "text": "text"}]


def test_blocks_and_structured_content_are_as_the_server_wrote_them() -> None:
    """With the run, in `_meta`."""
    structured: Json = {"a": 1}
    result = call_result(Done(ToolResult("text", parts=[AUDIO], structured=structured), "run_1"), "2026-07-28")
    assert (result["content"], result["structuredContent"]) == ([AUDIO], structured)
    assert (result["isError"], result["_meta"]) == (False, {"twolane/run": "run_1"})
    assert call_result(Done(ToolResult("no", ok=False), "run_1"), "2025-11-25")["isError"]
