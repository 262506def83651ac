"""A message that decides nothing, before a client that gets questions as items."""

from pathlib import Path

import pytest

from tests.e2e.models import calls
from tests.e2e.talking import desk

from .answering import GATEWAY, answering, text_of

WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)


@pytest.mark.parametrize("line", ["approve {id} BCDFG", "approve {id} please"])
async def test_wrong_check_word_is_explained_before_the_question(tmp_path: Path, line: str) -> None:
    """In front of the question, which still waits."""
    async with answering(WRITE, tools=desk(tmp_path, write=True)) as client:
        first = await client.create(tools=[GATEWAY])
        question = first.json["output"][-1]
        answer = await client.create(
            line.format(id=question["id"]), previous_response_id=first.json["id"], tools=[GATEWAY]
        )
        assert "Your message decided nothing" in text_of(answer.json)
        assert answer.json["output"][-1]["id"] == question["id"]
        assert not (tmp_path / "work" / "new.txt").exists()
