"""Requests that decide on calls: what they may decide at once, and what their responses contain."""

from pathlib import Path
from typing import Any

from gateway.contracts.store import Json
from tests.e2e.models import Answer, calls, says
from tests.e2e.talking import desk

from .answering import GATEWAY, Client, answering, kinds, text_of


def write(name: str = "new.txt") -> Answer:
    """A call that a person must approve."""
    return calls("file_operations", operation="write", path=name, content="x", risk_level=None)


def decision(question: Json, *, approve: bool = True) -> Json:
    return {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}


async def asked(client: Client, said: str = "Write.", **fields: Any) -> tuple[Json, Json]:
    """A response that ends with a question, and the question."""
    response = (await client.create(said, **{"tools": [GATEWAY], **fields})).json
    question = response["output"][-1]
    assert question["type"] == "mcp_approval_request"
    return response, question


async def test_decisions_on_two_runs_are_not_made_in_one_request(tmp_path: Path) -> None:
    """Nothing is decided: each run has an answer of its own, and the error names both."""
    answers = (write("1.txt"), write("2.txt"), says("One."), says("Two."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        questions = [(await asked(client, said))[1] for said in ("1", "2")]
        refused = await client.create(list(map(decision, questions)), tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        assert all(question["id"] in refused.error["message"] for question in questions)
        assert not list((tmp_path / "work").glob("?.txt"))
        for i, question in enumerate(questions, 1):
            answer = (await client.create([decision(question)], tools=[GATEWAY])).json
            assert kinds(answer["output"]) == ["mcp_call", "message"] and (tmp_path / "work" / f"{i}.txt").exists()
            assert text_of(answer) == ("One." if i == 1 else "Two.")


async def test_a_response_has_questions_of_one_run(tmp_path: Path) -> None:
    """So that a client which answers all of them decides in a request for one run."""
    answers = (write("1.txt"), write("2.txt"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        one, two = [(await asked(client, said))[1]["id"] for said in ("1", "2")]
        told = (await client.create(f"What are {one} and {two}?", tools=[GATEWAY])).json
        assert [item["id"] for item in told["output"]] == [one]
